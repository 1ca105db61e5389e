"""What joins of several streams are told beside the query: orders of streams, intervals, bounds. Checked here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from watersmeet.errors import QueryError
from watersmeet.model.queries import JoinQuery

#: Streams that one join takes.
MOST_STREAMS = 8
#: How the tuples of a window are found: by key, or by looking at all of them.
INDEXES = ("hash", "scan")

#: An order of all streams, or one for each stream that a new tuple may come from.
Order = Sequence[int] | Sequence[Sequence[int]]


def per_origin(order: Order | None, n: int, *, in_place: bool = False) -> tuple[tuple[int, ...], ...]:
    """For each stream the order of all in which the combinations of its new tuples are found.

    One order of all streams has the new tuple outermost, unless it stays `in_place`. An order of one stream's own may
    leave that stream out (it is outermost then) or say where it stands.
    """
    given: list[Any] = list(range(n) if order is None else order)
    everyone = list(range(n))
    if all(isinstance(o, Integral) for o in given) and sorted(given) == everyone:
        given = list(map(int, given))
        return tuple(tuple(given) if in_place else (i, *(j for j in given if j != i)) for i in range(n))
    if len(given) == n and all(isinstance(o, tuple | list) for o in given):
        whole = [tuple(map(int, o)) if i in o else (i, *map(int, o)) for i, o in enumerate(given)]
        if all(sorted(o) == everyone for o in whole):
            return tuple(whole)
    raise QueryError(
        f"`order` is {order!r}; it names each of the {n} streams once, by its number from 0 on, or for each of them "
        "all others.",
        hint=f"for example {tuple(range(n))!r}.",
    )


def check_streams(query: JoinQuery) -> None:
    """Refuse what a join of several streams does not compute."""
    if query.how != "inner":
        raise QueryError(
            f'a multi-way join is an inner join; asked for "{query.how}".',
            hint='use algorithm="pwjoin" for two streams.',
        )
    if len(query.streams) > MOST_STREAMS:
        raise QueryError(
            f"{len(query.streams)} streams given; one join takes at most {MOST_STREAMS}.",
            hint="join some of them first, and the result with the others (`as_stream`).",
        )


def check_interval(name: str, interval: int | None) -> None:
    if interval is not None and (type(interval) is not int or interval < 1):
        raise QueryError(
            f"`{name}` is {interval!r}; it is a number of microseconds from 1 on, or None.",
            hint="leave it out to do it with every batch.",
        )


def check_most(most: int | None) -> None:
    if most is not None and (type(most) is not int or most < 1):
        raise QueryError(
            f"`max_matches_per_row` is {most!r}; it is a whole number from 1 on, or None for no bound.",
            hint="filter the streams before the join if a row shall give no result.",
        )


def check_index(index: str) -> None:
    if index not in INDEXES:
        raise QueryError(
            f"`index` is {index!r}; a window is looked through by one of {', '.join(INDEXES)}.",
            hint='"hash" looks at tuples of the key only; algorithm="hybrid" takes the names of the streams to index.',
        )


@dataclass(frozen=True, slots=True)
class OrderedJoin:
    """What a join of several streams is told that looks at one window inside the other."""

    query: JoinQuery
    order: Order | None = None
    index: str = "hash"
    expiration: int | None = None
    max_matches_per_row: int | None = None

    def __post_init__(self) -> None:
        check_streams(self.query)
        per_origin(self.order, len(self.query.streams))
        check_index(self.index)
        check_interval("expiration", self.expiration)
        check_most(self.max_matches_per_row)


@dataclass(frozen=True, slots=True)
class PeriodicJoin(OrderedJoin):
    """The same, evaluated whenever all streams have passed a multiple of `every`."""

    every: int | None = None

    def __post_init__(self) -> None:
        OrderedJoin.__post_init__(self)  # a class with slots is made anew, which `super()` does not see
        check_interval("every", self.every)
