"""Options of joins of several streams: orders of streams, intervals, bounds. Checked here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

from watersmeet.errors import QueryError
from watersmeet.joins.algorithm import Algorithm, RunningT_co
from watersmeet.model import durations
from watersmeet.model.durations import Duration, Micros
from watersmeet.model.queries import JoinQuery

#: How the tuples of a window are found: by key, or by a scan.
INDEXES = ("hash", "scan")

#: An order of all streams, or one for each stream that a new tuple may come from.
Order = Sequence[int] | Sequence[Sequence[int]]


def per_origin(order: Order | None, n: int, *, in_place: bool = False) -> tuple[tuple[int, ...], ...]:
    """For each stream, the order of all streams in which its new tuples meet them.

    In one order of all streams the new tuple is outermost, unless it stays `in_place`. An order for a single stream may
    leave that stream out (it is outermost then) or contain it.
    """
    given: list[Any] = list(range(n) if order is None else order)
    streams = list(range(n))
    if all(isinstance(o, Integral) for o in given) and sorted(given) == streams:
        given = list(map(int, given))
        return tuple(tuple(given) if in_place else (i, *(j for j in given if j != i)) for i in range(n))
    if len(given) == n and all(isinstance(o, tuple | list) for o in given):
        whole = [tuple(map(int, o)) if i in o else (i, *map(int, o)) for i, o in enumerate(given)]
        if all(sorted(o) == streams for o in whole):
            return tuple(whole)
    raise QueryError(
        f"`order` is {order!r}; it names each of the {n} streams once, by its number from 0 on, or for each of them "
        "all others.",
        hint=f"for example {tuple(range(n))!r}.",
    )


def interval(name: str, given: Duration | int | None) -> int | None:
    """Microseconds of an interval that is given as a duration ("10 seconds") or in microseconds."""
    micros = durations.parse(given, name) if isinstance(given, Duration) else given
    if micros is not None and (type(micros) not in (int, Micros) or micros < 1):
        shown = repr(micros) if isinstance(micros, bool | float) else durations.formatted(micros)
        raise QueryError(
            f"`{name}` is {shown}; it is a duration of a microsecond or more, or None.",
            hint="leave it out to do it with every batch.",
        )
    return micros


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


#: Options as a running join takes them: order, `every`, `expiration`, `max_matches_per_row`.
RunningOptions = tuple[Order | None, int | None, int | None, int | None]


@dataclass(frozen=True, slots=True)
class MultiwayJoin(Algorithm[RunningT_co]):
    """Options of every join of several streams.

    `order` is that in which a new tuple meets the streams, or one for each stream that new tuples come from; by their
    numbers, in `wm.join` also by their names. `expiration` is the interval in which tuples that have left their window
    are evicted ("10 seconds"; without it: with every batch). `max_matches_per_row` bounds the results of one new tuple.
    """

    order: Order | None = None
    expiration: Duration | int | None = None
    max_matches_per_row: int | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "expiration", interval("expiration", self.expiration))
        check_most(self.max_matches_per_row)

    def check(self, query: JoinQuery) -> None:
        Algorithm.check(self, query)  # `super()` fails in dataclasses with slots
        per_origin(self.order, len(query.streams))

    def _options(self, every: Duration | int | None = None) -> RunningOptions:
        expiration = interval("expiration", self.expiration)
        return self.order, interval("every", every), expiration, self.max_matches_per_row
