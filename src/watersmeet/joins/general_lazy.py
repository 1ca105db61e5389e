"""The general lazy multi-way join over hash indexes: a batch is evaluated as one, in any order of the streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins import multiway
from watersmeet.joins.multiway import Order, RunningMultiway, check_streams, per_origin
from watersmeet.kernels import lists
from watersmeet.kernels import multiway as kernel
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Int64s

_NO_LIMITS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class GeneralLazyJoin:
    """Two to eight streams, a window each, promises on any of them; no intermediate result is ever stored.

    ::

        new a ──► keys that b, c and d all hold ──► probe c ──► probe b ──► probe d ──► insert A
        new b ──► keys that a, c and d all hold ──► probe d ──► probe c ──► probe a ──► insert B      … and so on

    Emits   (a, b, c, …) with one key and, with now the largest of their times, each at most its window's length before
            now; once, in the batch of the latest arrival.
    Forgets a once the progress of *every* other stream is past a.ts + Ta, or all others have closed a.key, or one of
            them has closed it and holds no tuple of it.
            (Ta = 10, a.ts = 24: at progress(b) = 40 and progress(c) = 30 a stays for a c of 30; at progress(c) = 35 it
            goes.)
    Announces a key, once, as soon as all streams have closed it, or one has closed it and holds no tuple of it.

    `order` says in which order the other streams are looked at: one order of all streams, or one for each stream that
    new tuples may come from. It changes the work, never the result, and may be changed between two batches.
    `max_matches_per_row` bounds the results of one newly arrived row: those come out that are found first, newest
    partners first in the order of the streams; the others are counted as `suppressed`.

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    query: JoinQuery
    order: Order | None = None
    max_matches_per_row: int | None = None

    def __post_init__(self) -> None:
        check_streams(self.query)
        per_origin(self.order, len(self.query.streams))
        most = self.max_matches_per_row
        if most is not None and (type(most) is not int or most < 1):
            raise QueryError(
                f"`max_matches_per_row` is {most!r}; it is a whole number from 1 on, or None for no bound.",
                hint="filter the streams before the join if a row shall give no result.",
            )

    def start(self, arrays: Arrays | None = None) -> RunningGeneralLazy:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        return RunningGeneralLazy(self.query, self.order, self.max_matches_per_row, arrays)


@dataclass(slots=True)
class Partial:
    """Combinations of a new row with tuples of some other streams."""

    rows: Int64s  # places among the candidates
    slots: dict[int, Int64s]  # by stream
    newest: Int64s  # the largest time
    least: Int64s  # the least limit

    def take(self, which: Int64s) -> Partial:
        return Partial(
            self.rows[which], {j: s[which] for j, s in self.slots.items()}, self.newest[which], self.least[which]
        )


class RunningGeneralLazy(RunningMultiway):
    """The join at work."""

    def __init__(
        self, query: JoinQuery, order: Order | None, max_matches_per_row: int | None, arrays: Arrays | None
    ) -> None:
        super().__init__(query, order, arrays)
        self.max_matches = max_matches_per_row

    def _evaluate(self) -> Iterator[pa.Table]:
        # Every combination is found once: from that of its new tuples whose stream comes last here.
        sizes = [arrivals.which.size for arrivals in self.arrivals[: len(self.query.streams)]]
        *first, last = np.argsort(sizes, kind="stable").tolist()
        for i in first:
            yield from self._probe(i)
            self._insert(i, self.arrivals[i].which)
        yield from self._probe(last)
        rest = self.arrivals[last]
        self._insert(last, rest.which[rest.times[rest.which] >= self.alive_from(last)])

    def _probe(self, i: int) -> Iterator[pa.Table]:
        """Results of stream i's new rows with what is stored of the others."""
        arrivals, which = self.arrivals[i], self.arrivals[i].which
        others = self._order[i]
        nodes: dict[int, Int64s] = {}
        for j in others:  # first, who has a partner in every stream at all?
            stored = self.streams[j].lists
            there = stored.nodes_of(which, arrivals.keys) if len(stored) else np.full(which.size, lists.NIL)
            some = np.flatnonzero(there != lists.NIL)
            which, nodes = which[some], {k: n[some] for k, n in nodes.items()} | {j: there[some]}
        if not which.size:
            return
        times = arrivals.times[which]
        start = Partial(np.arange(which.size), {}, times, times + self.query.streams[i].window.reach)
        given = np.zeros(which.size, np.int64)
        for found in self._combinations(start, list(others), nodes):
            if self.max_matches is not None:
                found = self._within_bound(found, given)
            if found.rows.size:
                yield self._table(i, which[found.rows], found.slots)

    def _combinations(self, partial: Partial, others: list[int], nodes: dict[int, Int64s]) -> Iterator[Partial]:
        """Level by level, depth first: never more than a chunk at each level."""
        j, *rest = others
        for found in self._extend(partial, j, nodes[j]):
            if rest:
                yield from self._combinations(found, rest, nodes)
            else:
                yield found

    def _extend(self, partial: Partial, j: int, nodes: Int64s) -> Iterator[Partial]:
        stored, reach = self.streams[j].lists.lists, self.query.streams[j].window.reach
        cursor = np.array([0, lists.NIL, 0])
        parts, slots = np.empty((2, multiway.CHUNK), np.int64)
        keys = nodes[partial.rows]
        while cursor[0] < keys.size:
            n = kernel.extend(stored, _NO_LIMITS, reach, keys, partial.newest, partial.least, cursor, parts, slots)
            self.counters.probed += int(cursor[2])
            cursor[2] = 0
            if n:
                found, mine = partial.take(parts[:n]), slots[:n].copy()
                found.slots[j] = mine
                times = stored.time[mine]
                found.newest, found.least = np.maximum(found.newest, times), np.minimum(found.least, times + reach)
                yield found

    def _within_bound(self, found: Partial, given: Int64s) -> Partial:
        """Of these the first of each row, as long as it has not had its share; `given` is how many it had."""
        assert self.max_matches is not None
        rows, first, counts = np.unique(found.rows, return_index=True, return_counts=True)
        rank = np.arange(found.rows.size) - np.repeat(first, counts)  # combinations of a row stand together
        kept = np.flatnonzero(rank + given[found.rows] < self.max_matches)
        given[rows] += counts
        self.counters.suppressed += int(found.rows.size - kept.size)
        return found.take(kept)
