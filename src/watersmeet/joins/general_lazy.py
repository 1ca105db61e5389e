"""The general lazy multi-way join over hash indexes: a batch is evaluated as one, in any order of the streams."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.joins import multiway
from watersmeet.joins.algorithm import MOST_STREAMS, Traits
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_loops import Loops
from watersmeet.joins.multiway_options import MultiwayJoin, check_index, interval
from watersmeet.kernels import multiway as kernel
from watersmeet.kernels import value_lists as lists
from watersmeet.model.durations import Duration
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.row_windows import RowWindowState
from watersmeet.state.segments import widths

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class GeneralLazyJoin(MultiwayJoin[RunningMultiway]):
    """Two to eight streams, a window each, punctuations on any of them; no intermediate result is ever stored.

    ::

        new a ──► keys that b, c and d all hold ──► probe c ──► probe b ──► probe d ──► insert A
        new b ──► keys that a, c and d all hold ──► probe d ──► probe c ──► probe a ──► insert B      … and so on

    Emits   (a, b, c, …) with one key and, with now the largest of their times, each at most its window's length before
            now; once, in the batch of the latest arrival.
    Evicts  a once the watermark of *every* other stream is past a.ts + Ta, or all others have closed a.key, or one of
            them has closed it and holds no tuple of it.
            (Ta = 10, a.ts = 24: at watermark(b) = 40 and watermark(c) = 30 a stays for a c of 30; at
            watermark(c) = 35 it expires.)
    Propagates a key, once, as soon as all streams have closed it, or one has closed it and holds no tuple of it.

    `order` is the order in which the other streams are probed: one order of all streams, or one for each stream that
    new tuples may come from. It changes the work, never the result, and may be changed between two batches.
    `max_matches_per_row` bounds the results of one new row: those found first are emitted, newest partners first in the
    order of the streams; the others are counted as `suppressed`.

    `index` is "hash" (a window is looked up by key) or "scan" (all of its tuples are looked at).
    The join runs whenever all streams have passed a multiple of `every` ("10 seconds"; without it: with every batch).

    >>> GeneralLazyJoin(every="1 minute", max_matches_per_row=100).every
    60000000

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    index: str = "hash"
    every: Duration | int | None = None

    traits: ClassVar[Traits] = Traits(
        "general_lazy",
        family="general_lazy",
        preference=3,
        streams=MOST_STREAMS,
        windows=("time", "rows", "none"),
        punctuations=True,
    )

    def __post_init__(self) -> None:
        MultiwayJoin.__post_init__(self)
        check_index(self.index)
        object.__setattr__(self, "every", interval("every", self.every))

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningMultiway:
        options = (*self._options(self.every), arrays)
        if self.index == "hash":
            return RunningMultiway(query, IndexProbes(), *options)
        return RunningMultiway(query, Loops((False,) * len(query.streams), together=True), *options)


@dataclass(slots=True)
class Partial:
    """Combinations of a new row with tuples of some other streams."""

    rows: Int64s  # positions among the candidates
    slots: dict[int, Int64s]  # by stream
    newest: Int64s  # the largest time; empty for whole combinations
    least: Int64s  # the least limit; empty for whole combinations

    def at(self, kept: Bools) -> Partial:
        """Some of them."""
        slots = {j: some[kept] for j, some in self.slots.items()}
        newest, least = (of[kept] if of.size else of for of in (self.newest, self.least))
        return Partial(self.rows[kept], slots, newest, least)


class IndexProbes:
    """Evaluates a batch as one: new tuples of one stream after the other probe the indexes of all others."""

    in_place = False

    def run(self, join: RunningMultiway) -> Iterator[pa.Table]:
        # Every combination is found once: by its new tuple whose stream comes last in this loop.
        sizes = [arrivals.which.size for arrivals in join.arrivals[: len(join.own)]]
        *first, last = np.argsort(sizes, kind="stable").tolist()
        for i in first:
            yield from self._probe(join, i)
            join.insert(i, join.arrivals[i].which)
        yield from self._probe(join, last)
        rest = join.arrivals[last]
        join.insert(last, rest.which[join.limits(last, rest.which) >= join.bound(last)])

    def _probe(self, join: RunningMultiway, i: int) -> Iterator[pa.Table]:
        """Results of stream i's new rows with the stored tuples of the others."""
        arrivals, which = join.arrivals[i], join.arrivals[i].which
        others = [j for j in join.order[i] if j != i]
        nodes: dict[int, Int64s] = {}
        for j in others:  # first drop the rows without a partner in some stream
            stored = join.own[j].lists
            join.counters.lookups += which.size
            there = stored.nodes_of(which, arrivals.keys) if len(stored) else np.full(which.size, lists.NIL)
            some = np.flatnonzero(there != lists.NIL)
            which, nodes = which[some], {k: n[some] for k, n in nodes.items()} | {j: there[some]}
        if not which.size:
            return
        times = arrivals.times[which]
        start = Partial(np.arange(which.size), {}, times, join.limits(i, which))
        given = np.zeros(which.size, np.int64)
        for found in self._combinations(join, (i, which), start, others, nodes):
            about = (i, which, found)
            yield from join.fitting_rows(
                found.rows, given, partial(self._beside, join, *about), partial(self._widths_beside, join, *about)
            )

    def _beside(self, join: RunningMultiway, i: int, which: Int64s, found: Partial, kept: Int64s) -> pa.Table:
        """The combinations at the positions `kept` as a table: a new row of stream i, not stored yet, and stored tuples
        of the others."""
        columns: list[pa.ChunkedArray | pa.Array] = []
        for j in range(len(join.own)):
            if j == i:
                rows = pa.array(which[found.rows[kept]])
                columns += join.arrivals[i].rows.select(join.wanted(i)).take(rows).columns
            else:
                columns += join.own[j].take(found.slots[j][kept], join.wanted(j)).columns
        return pa.table(columns, names=join.query.schema.names)

    def _widths_beside(self, join: RunningMultiway, i: int, which: Int64s, found: Partial, kept: Int64s) -> Int64s:
        """Bytes of such combinations in columns of any length."""
        out = widths(join.arrivals[i].rows.select(join.wanted(i)), which[found.rows[kept]])
        for j in found.slots:
            out += join.own[j].widths(found.slots[j][kept], join.wanted(j))
        return out

    def _combinations(
        self,
        join: RunningMultiway,
        origin: tuple[int, Int64s],
        begun: Partial,
        others: list[int],
        nodes: dict[int, Int64s],
    ) -> Iterator[Partial]:
        """Level by level, depth first: never more than a chunk at each level. `origin` has the new rows."""
        j, *rest = others
        for found in self._extend(join, begun, j, nodes[j], last=not rest):
            kept = self._pruned(join, origin, found)
            if rest:
                yield from self._combinations(join, origin, kept, rest, nodes)
            else:
                yield kept

    def _pruned(self, join: RunningMultiway, origin: tuple[int, Int64s], found: Partial) -> Partial:
        """The combinations that may become results (here: all)."""
        return found

    def _extend(self, join: RunningMultiway, begun: Partial, j: int, nodes: Int64s, *, last: bool) -> Iterator[Partial]:
        state, reach = join.own[j], join.reach(j)
        limits = state.limit if isinstance(state, RowWindowState) else _NONE
        cursor, keys = np.array([0, lists.NIL, 0]), nodes[begun.rows]
        parts, slots = np.empty((2, multiway.CHUNK), np.int64)
        newest, least = (_NONE, _NONE) if last else np.empty((2, multiway.CHUNK), np.int64)
        given = (keys, begun.newest, begun.least)
        while cursor[0] < keys.size:
            n = kernel.extend(state.lists.lists, limits, reach, *given, cursor, parts, slots, newest, least)
            join.counters.probed += int(cursor[2])
            cursor[2] = 0
            if n:
                which = parts[:n]
                mine = {k: s[which] for k, s in begun.slots.items()} | {j: slots[:n].copy()}
                yield Partial(begun.rows[which], mine, newest[:n].copy(), least[:n].copy())
