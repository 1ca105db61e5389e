"""Multi-way joins as nested loops over the windows, at work: they differ in the order of the loops and in the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.joins import multiway
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.kernels import multiway_loops as kernel
from watersmeet.kernels import value_lists as lists
from watersmeet.model.windows import RowsWindow
from watersmeet.state.keys import Int64s
from watersmeet.state.row_windows import RowWindowState

T = TypeVar("T")
_NO_LIMITS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Loops:
    """New tuples of all streams, merged by (time, stream, arrival), go through nested loops over the windows.

    All of them are inserted first. A tuple meets only tuples that arrived before it, up to the edge of their window, so
    the work counted is that of inserting each tuple after its loops. With an `expiration` interval it meets stale
    tuples, too.
    """

    indexed: tuple[bool, ...]  # which streams have an index
    in_place: bool = False  # the new tuple takes the position of its stream in the order, else the outermost
    together: bool = False  # all new tuples of a stream go through the loops at once, not one by one

    def run(self, join: RunningMultiway) -> Iterator[pa.Table]:
        for i in range(len(join.own)):
            join.insert(i, join.arrivals[i].which)
        origins, slots, ranks = self._together(join) if self.together else self._merged(join)
        if not origins.size:
            return
        plans = np.array([self._plan(join, i) for i in range(len(join.own))])[origins]
        windows = [s.window for s in join.query.streams]
        reaches = np.array([w.reach for w in windows])
        steady = np.array([not (isinstance(w, RowsWindow) and w.per_key) for w in windows])
        indexed, tidy = np.array(self.indexed), not join.expiration
        arrays = [state.lists.lists for state in join.own]
        streams = kernel.Streams(*(tuple(getattr(a, field) for a in arrays) for field in kernel.Streams._fields))
        limits = tuple(state.limit if isinstance(state, RowWindowState) else _NO_LIMITS for state in join.own)
        cursor, levels = np.zeros(kernel.CURSOR, np.int64), np.empty((3, len(join.own)), np.int64)
        cursor[kernel.LEVEL] = lists.NIL
        out = np.empty((len(join.own) + 1, multiway.CHUNK), np.int64)
        given = np.zeros(sum(r.size for r in ranks), np.int64)
        firsts = np.cumsum([0, *(r.size for r in ranks)])
        while cursor[kernel.AT] < origins.size:
            n = kernel.combine(
                streams, limits, ranks, reaches, steady, tidy, indexed, origins, slots, plans, cursor, levels, out
            )
            found = out[:, :n]
            origin = origins[found[-1]]
            rows = firsts[origin] + found[origin, np.arange(n)]  # a number for each new tuple
            made = partial(self._some, join.table, found), partial(self._some, join.widths, found)
            yield from join.fitting_rows(rows, given, *made)
        join.counters.probed += int(cursor[kernel.PROBED])
        join.counters.lookups += int(cursor[kernel.LOOKED_UP])

    @staticmethod
    def _some(compute: Callable[[Sequence[Int64s]], T], found: Int64s, kept: Int64s) -> T:
        """Apply `compute` to the combinations at the positions `kept`; it takes their slots, stream by stream."""
        return compute([slots[kept] for slots in found[:-1]])

    def _plan(self, join: RunningMultiway, i: int) -> Sequence[int]:
        """The order of the loops: streams with an index innermost, as a loop without one scans its whole window."""
        order = join.order[i]
        if all(self.indexed) or not any(self.indexed):
            return order
        return [j for j in order if j == i or not self.indexed[j]] + [j for j in order if j != i and self.indexed[j]]

    def _merged(self, join: RunningMultiway) -> tuple[Int64s, Int64s, tuple[Int64s, ...]]:
        """An entry for every new tuple; a stable sort keeps ties in the order (stream, arrival)."""
        arrivals_of = [join.arrivals[i] for i in range(len(join.own))]
        origins = np.repeat(np.arange(len(arrivals_of)), [a.stored.size for a in arrivals_of])
        slots = np.concatenate([a.slots for a in arrivals_of])
        order = np.argsort(np.concatenate([a.times[a.stored] for a in arrivals_of]), kind="stable")
        ranks = self._ranks(join)
        of_entry = np.empty(order.size, np.int64)
        of_entry[order] = np.arange(1, order.size + 1)
        for i, a in enumerate(arrivals_of):
            ranks[i][a.slots] = of_entry[origins == i]
        return origins[order], slots[order], ranks

    def _together(self, join: RunningMultiway) -> tuple[Int64s, Int64s, tuple[Int64s, ...]]:
        """An entry for every stream with new tuples."""
        origins = np.array([i for i in range(len(join.own)) if join.arrivals[i].slots.size], np.int64)
        ranks = self._ranks(join)
        for e, i in enumerate(origins.tolist()):
            ranks[i][join.arrivals[i].slots] = e + 1
        return origins, np.full(origins.size, lists.NIL), ranks

    def _ranks(self, join: RunningMultiway) -> tuple[Int64s, ...]:
        return tuple(np.zeros(state.lists.lists.time.size, np.int64) for state in join.own)
