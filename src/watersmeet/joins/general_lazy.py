"""The general lazy multi-way join over hash indexes: a batch is evaluated as one, in any order of the streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from watersmeet.joins import multiway
from watersmeet.joins.counting import CountedState
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.one_by_one import Loops, RunningOneByOne
from watersmeet.joins.orders import PeriodicJoin
from watersmeet.kernels import lists
from watersmeet.kernels import multiway as kernel
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Int64s
from watersmeet.state.segments import widths

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class GeneralLazyJoin(PeriodicJoin):
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

    def start(self, arrays: Arrays | None = None) -> RunningMultiway:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        options = (self.order, self.every, self.expiration, self.max_matches_per_row, arrays)
        if self.index == "hash":
            return RunningGeneralLazy(self.query, *options)
        return RunningOneByOne(self.query, Loops((False,) * len(self.query.streams), together=True), *options)


@dataclass(slots=True)
class Partial:
    """Combinations of a new row with tuples of some other streams."""

    rows: Int64s  # places among the candidates
    slots: dict[int, Int64s]  # by stream
    newest: Int64s  # the largest time; of whole combinations nobody asks for it, nor ...
    least: Int64s  # ... for the least limit


class RunningGeneralLazy(RunningMultiway):
    """The join at work."""

    def _evaluate(self) -> Iterator[pa.Table]:
        # Every combination is found once: from that of its new tuples whose stream comes last here.
        sizes = [arrivals.which.size for arrivals in self.arrivals[: len(self.own)]]
        *first, last = np.argsort(sizes, kind="stable").tolist()
        for i in first:
            yield from self._probe(i)
            self._insert(i, self.arrivals[i].which)
        yield from self._probe(last)
        rest = self.arrivals[last]
        self._insert(last, rest.which[self._limits(last, rest.which) >= self.bound(last)])

    def _probe(self, i: int) -> Iterator[pa.Table]:
        """Results of stream i's new rows with what is stored of the others."""
        arrivals, which = self.arrivals[i], self.arrivals[i].which
        others = [j for j in self._order[i] if j != i]
        nodes: dict[int, Int64s] = {}
        for j in others:  # first, who has a partner in every stream at all?
            stored = self.own[j].lists
            self.counters.lookups += which.size
            there = stored.nodes_of(which, arrivals.keys) if len(stored) else np.full(which.size, lists.NIL)
            some = np.flatnonzero(there != lists.NIL)
            which, nodes = which[some], {k: n[some] for k, n in nodes.items()} | {j: there[some]}
        if not which.size:
            return
        times = arrivals.times[which]
        start = Partial(np.arange(which.size), {}, times, self._limits(i, which))
        given = np.zeros(which.size, np.int64)
        for found in self._combinations(start, others, nodes):
            about = (i, which, found)
            yield from self._fitting_rows(
                found.rows, given, partial(self._beside, *about), partial(self._widths_beside, *about)
            )

    def _beside(self, i: int, which: Int64s, found: Partial, kept: Int64s) -> pa.Table:
        """Of the combinations found those in the places `kept`: a new row of stream i, not stored yet, and tuples of
        the others."""
        columns: list[pa.ChunkedArray | pa.Array] = []
        for j in range(len(self.own)):
            if j == i:
                rows = pa.array(which[found.rows[kept]])
                columns += self.arrivals[i].rows.select(self._wanted(i)).take(rows).columns
            else:
                columns += self.own[j].take(found.slots[j][kept], self._wanted(j)).columns
        return pa.table(columns, names=self.query.schema.names)

    def _widths_beside(self, i: int, which: Int64s, found: Partial, kept: Int64s) -> Int64s:
        """Bytes of such combinations in columns of any length."""
        out = widths(self.arrivals[i].rows.select(self._wanted(i)), which[found.rows[kept]])
        for j in found.slots:
            out += self.own[j].widths(found.slots[j][kept], self._wanted(j))
        return out

    def _combinations(self, begun: Partial, others: list[int], nodes: dict[int, Int64s]) -> Iterator[Partial]:
        """Level by level, depth first: never more than a chunk at each level."""
        j, *rest = others
        for found in self._extend(begun, j, nodes[j], last=not rest):
            if rest:
                yield from self._combinations(found, rest, nodes)
            else:
                yield found

    def _extend(self, begun: Partial, j: int, nodes: Int64s, *, last: bool) -> Iterator[Partial]:
        state, reach = self.own[j], self.reach(j)
        limits = state.limit if isinstance(state, CountedState) else _NONE
        cursor, keys = np.array([0, lists.NIL, 0]), nodes[begun.rows]
        parts, slots = np.empty((2, multiway.CHUNK), np.int64)
        newest, least = (_NONE, _NONE) if last else np.empty((2, multiway.CHUNK), np.int64)
        given = (keys, begun.newest, begun.least)
        while cursor[0] < keys.size:
            n = kernel.extend(state.lists.lists, limits, reach, *given, cursor, parts, slots, newest, least)
            self.counters.probed += int(cursor[2])
            cursor[2] = 0
            if n:
                which = parts[:n]
                mine = {k: s[which] for k, s in begun.slots.items()} | {j: slots[:n].copy()}
                yield Partial(begun.rows[which], mine, newest[:n].copy(), least[:n].copy())
