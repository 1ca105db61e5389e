"""The band join: two streams compared by inequalities, over sorted indexes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from watersmeet.errors import QueryError
from watersmeet.joins.algorithm import Algorithm, Traits
from watersmeet.joins.theta import RunningTheta, Search
from watersmeet.kernels.value_lists import NIL
from watersmeet.model.linear_bounds import ULPS, Attribute, Bound, Intervals, bounds_of
from watersmeet.model.queries import THETA_HOW, JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.index import Int32s
from watersmeet.state.keys import Int64s
from watersmeet.state.sorted_index import SortedIndex


@dataclass(frozen=True, slots=True)
class BandJoin(Algorithm[RunningTheta]):
    """Two streams whose condition bounds an attribute of each: a band, an interval, an inequality.

    ::

        a ──► B sorted by y: from a.x - 5 to a.x + 5 ──► where? ──► insert A, sorted by x
                        ░░░░▓▓▓▓▓▓░░░░░░░

    Emits   what `theta` emits: the index finds tuples, the whole of `where` decides.
    Evicts  what `theta` evicts.
    Costs   per new row  log2 C  steps and the tuples of its interval, instead of all C of the window.

    Of ``lo <= a.x - b.y AND a.x - b.y <= hi`` a row looks at its matches alone; of ``a.x < b.y`` at all tuples beyond
    it. Of ``a.low <= b.v AND b.v < a.high`` a row of b looks at the tuples of A with low between v less the longest
    interval stored, and v.

    References: DeWitt, Naughton, Schneider, An evaluation of non-equijoin algorithms (1991), for the band join; Kang,
    Naughton, Viglas, Evaluating window joins over unbounded streams, for an index on each window.

    >>> BandJoin().describe()
    {'name': 'band', 'options': {}}
    """

    traits: ClassVar[Traits] = Traits(
        "band", family="hash", preference=0, how=THETA_HOW, punctuations=True, theta=True, index="sorted"
    )

    def check(self, query: JoinQuery) -> None:
        Algorithm.check(self, query)  # `super()` fails in dataclasses with slots
        if query.where is not None and not indexable(query):
            raise QueryError(
                f'"{self.name}" needs a condition that bounds a column of each stream by the other, and `where` '
                f"({query.where.text}) has none.",
                hint='use algorithm="theta", which compares all rows of the windows.',
            )

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningTheta:
        return RunningTheta(query, Band(query, arrays), arrays)


def indexable(query: JoinQuery) -> tuple[Bound, ...]:
    """The bounds between the streams that sorted indexes can use; none: there is nothing to index."""
    return bounds_of(query.where, [s.schema.names for s in query.streams])


def indexed(query: JoinQuery, j: int) -> tuple[Attribute, ...]:
    """The attributes of stream j that are bounded by others, the one that its index is sorted by first.

    That is the first one with bounds on both sides, else the first.
    """
    ends: dict[Attribute, set[bool]] = {}
    for bound in indexable(query):
        if bound.attribute.stream == j:
            ends.setdefault(bound.attribute, set()).add(bound.upper)
    return tuple(sorted(ends, key=lambda attribute: -len(ends[attribute])))


class Band(Search):
    """Looks at the tuples whose attribute is in the interval of the new row."""

    def __init__(self, query: JoinQuery, arrays: Arrays | None) -> None:
        self.bounds = indexable(query)
        self.indexes: list[SortedIndex | None] = []
        for j in range(len(query.streams)):
            first, *others = indexed(query, j) or (None,)
            self.indexes.append(None if first is None else SortedIndex(first, others, f"{j}.sorted", arrays))

    def pairs(self, join: RunningTheta, i: int) -> Iterator[Int32s]:
        index, state, arrivals = self._index(join, 1 - i), join.streams[1 - i], join.arrivals[i]
        if not arrivals.which.size or not len(state):
            return
        own, other = join.query.streams[i], join.query.streams[1 - i]
        which = arrivals.which
        before = state.lists.looked_at
        at = self._intervals(join, i, index, which)
        yield from index.probe(state, arrivals, which, at, other.window.reach, own.window.reach)
        join.counters.probed += state.lists.looked_at - before

    def insert(self, join: RunningTheta, i: int, which: Int64s) -> None:
        index, lists = self._index(join, i), join.streams[i].lists
        alive = lists.lists.node[: lists.slots] != NIL
        join.streams[i].insert(join.arrivals[i], which)
        index.add(alive, join.arrivals[i], which)

    def restored(self) -> None:
        for index in self.indexes:
            if index is not None:
                index.stale = True

    def _index(self, join: RunningTheta, j: int) -> SortedIndex:
        index = self.indexes[j]
        assert index is not None, "a query without bounds is refused"
        if index.stale:
            index.rebuild(join.streams[j])
        return index

    def _intervals(self, join: RunningTheta, i: int, index: SortedIndex, which: Int64s) -> Intervals:
        """The values of the index's attribute that each of these rows may match."""
        rows = join.arrivals[i].rows.take(which)
        direct = [b for b in self.bounds if b.by == i and b.attribute == index.attribute]
        at = Intervals.of(direct, rows, index.largest)
        low, high, valid = at.low, at.high, at.valid
        for n, other in enumerate(index.others):
            further = [b for b in self.bounds if b.by == i and b.attribute == other]
            largest = np.inf if len(other.terms) > 1 else 0.0
            theirs = Intervals.of(further, rows, largest)
            least, most = index.span(n)
            with np.errstate(invalid="ignore"):
                room = ULPS * 2.0**-52 * (abs(least) + abs(most))
                lower, upper = theirs.low - most - room, theirs.high - least + room
            low = np.where(lower > low, lower, low)
            high = np.where(upper < high, upper, high)
            valid = valid & theirs.valid
        return Intervals(low, high, at.low_open, at.high_open, valid)
