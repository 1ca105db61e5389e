"""The operators by name. One operator, one file; all of them compute the same results (`reference` says which)."""

from __future__ import annotations

from dataclasses import fields
from difflib import get_close_matches
from typing import Any, Protocol

from watersmeet.errors import QueryError
from watersmeet.joins.eager import EagerJoin
from watersmeet.joins.general_lazy import GeneralLazyJoin
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.hybrid import HybridJoin
from watersmeet.joins.lazy import LazyJoin
from watersmeet.joins.naive_multiway import NaiveMultiwayJoin
from watersmeet.joins.nested_loop import NestedLoopJoin
from watersmeet.joins.pjoin import PJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.running import RunningJoin
from watersmeet.joins.windowed_hash import WindowedHashJoin
from watersmeet.joins.wo_join import WOJoin
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


class Join(Protocol):
    """A join as data; `start` sets it to work."""

    @property
    def query(self) -> JoinQuery: ...

    def start(self, arrays: Arrays | None = None) -> RunningJoin[Any]: ...


JOINS: dict[str, type[Any]] = {
    "hash": HashJoin,
    "nested_loop": NestedLoopJoin,
    "windowed_hash": WindowedHashJoin,
    "pjoin": PJoin,
    "pwjoin": PWJoin,
    "naive_multiway": NaiveMultiwayJoin,
    "eager": EagerJoin,
    "lazy": LazyJoin,
    "general_lazy": GeneralLazyJoin,
    "hybrid": HybridJoin,
    "wo_join": WOJoin,
}

#: Those of two to eight streams. They hear punctuations, as PWJoin and PJoin do.
MULTIWAY = (NaiveMultiwayJoin, EagerJoin, LazyJoin, GeneralLazyJoin, HybridJoin)
_LISTENING = (PWJoin, *MULTIWAY)


def listens(join: Join) -> bool:
    """Whether a join hears punctuations about keys; one that holds tuples back does not."""
    return isinstance(join, _LISTENING) or (isinstance(join, WOJoin) and join.strategy == "none")


def plan(query: JoinQuery, algorithm: str, **options: Any) -> Join:
    """The join that a name and its options ask for. `hash` with `buckets` is the windowed hash join."""
    if algorithm not in JOINS:
        raise QueryError(f'`algorithm` is "{algorithm}"; known are {", ".join(JOINS)}.', hint=_near(algorithm, JOINS))
    kind = JOINS["windowed_hash" if algorithm == "hash" and options else algorithm]
    known = [f.name for f in fields(kind) if f.name != "query"]
    for option in options:
        if option not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no options"
            raise QueryError(f'`{option}` is no option of "{algorithm}"; it {takes}.', hint=_near(option, known))
    if kind is WindowedHashJoin and "buckets" not in options:
        raise QueryError(
            f'"{algorithm}" needs `buckets` here; what {", ".join(options) or "it"} is about are buckets.',
            hint='give buckets=, or take "hash" without options: one bucket per key, nothing stale.',
        )
    join: Join = kind(query, **options)
    return join


def name_of(join: Join) -> str:
    """The name by which a join is asked for."""
    return next(name for name, kind in JOINS.items() if type(join) is kind)


def _near(word: str, known: Any) -> str | None:
    close = get_close_matches(word, known, 1)
    return f"did you mean `{close[0]}`?" if close else None
