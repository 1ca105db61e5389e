"""The registry of algorithms. One operator, one file; all of them compute the results that `reference` defines.

A new operator needs a file, a line here, a cost model (cost/models.py), a page in docs/operators, its name in
watersmeet/__init__.py, and for the tests a configuration (lab/joins/configurations.py) and a subject of the state
protocol (lab/tws/subjects.py). Tests name what is missing.
"""

from __future__ import annotations

from typing import Any

from watersmeet.errors import QueryError, did_you_mean
from watersmeet.joins.algorithm import Algorithm, Join, Operator, from_json
from watersmeet.joins.asof_join import AsofJoin
from watersmeet.joins.band import BandJoin
from watersmeet.joins.baselines.eager import EagerJoin
from watersmeet.joins.baselines.hybrid import HybridJoin
from watersmeet.joins.baselines.lazy import LazyJoin
from watersmeet.joins.baselines.naive_multiway import NaiveMultiwayJoin
from watersmeet.joins.baselines.nested_loop import NestedLoopJoin
from watersmeet.joins.baselines.windowed_hash import WindowedHashJoin
from watersmeet.joins.general_lazy import GeneralLazyJoin
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.pjoin import PJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.theta import ThetaJoin
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.model.queries import JoinQuery

__all__ = [
    "REGISTRY",
    "Algorithm",
    "AsofJoin",
    "BandJoin",
    "EagerJoin",
    "GeneralLazyJoin",
    "HashJoin",
    "HybridJoin",
    "Join",
    "LazyJoin",
    "NaiveMultiwayJoin",
    "NestedLoopJoin",
    "Operator",
    "PJoin",
    "PWJoin",
    "ThetaJoin",
    "WOJoin",
    "WindowedHashJoin",
    "named",
    "plan",
    "stored",
]

#: Every algorithm, by its name.
REGISTRY: dict[str, type[Algorithm[Any]]] = {
    kind.traits.name: kind
    for kind in (
        HashJoin,
        NestedLoopJoin,
        WindowedHashJoin,
        PJoin,
        PWJoin,
        NaiveMultiwayJoin,
        EagerJoin,
        LazyJoin,
        GeneralLazyJoin,
        HybridJoin,
        WOJoin,
        ThetaJoin,
        BandJoin,
        AsofJoin,
    )
}


def named(name: str, **options: Any) -> Algorithm[Any]:
    """The algorithm of a name, with its options. `hash` with `buckets` is the windowed hash join."""
    if name not in REGISTRY:
        raise QueryError(
            f'`algorithm` is "{name}"; known are {", ".join(REGISTRY)}.', hint=did_you_mean(name, REGISTRY)
        )
    kind = REGISTRY["windowed_hash" if name == "hash" and options else name]
    known = [f.name for f in kind.option_fields()]
    for option in options:
        if option not in known:
            takes = f"takes {', '.join(known)}" if known else "takes no options"
            raise QueryError(f'`{option}` is no option of "{name}"; it {takes}.', hint=did_you_mean(option, known))
    if kind is WindowedHashJoin and "buckets" not in options:
        raise QueryError(
            f'"{name}" needs `buckets` here; what {", ".join(options) or "it"} is about are buckets.',
            hint='give buckets=, or take "hash" without options: one bucket per key, nothing stale.',
        )
    return kind(**options)


def plan(query: JoinQuery, algorithm: str, **options: Any) -> Join[Any]:
    """The query, run by the algorithm of a name, with its options."""
    return Join(query, named(algorithm, **options))


def stored(description: dict[str, Any]) -> Algorithm[Any]:
    """The algorithm that `Algorithm.describe` described."""
    return REGISTRY[description["name"]](**{name: from_json(v) for name, v in description["options"].items()})
