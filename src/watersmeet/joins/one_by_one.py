"""Multi-way joins as nested loops over the windows, at work: they differ in the order of the loops and in the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.joins import multiway
from watersmeet.joins.counting import CountedState
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.orders import Order
from watersmeet.kernels import lists
from watersmeet.kernels import one_by_one as kernel
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Int64s

T = TypeVar("T")
_NO_LIMITS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Loops:
    """How the loops run: which streams have an index, and whether new tuples take part one by one, or all of a stream
    together."""

    indexed: tuple[bool, ...]
    in_place: bool = False  # the new tuple stands where the order has its stream, else outermost
    together: bool = False


class RunningOneByOne(RunningMultiway):
    """New tuples of all streams, merged by (time, stream, arrival), go through the loops one after the other.

    They are all inserted before; a tuple sees those that came before it, up to the edge of their window, so that the
    work counted is that of inserting each after its loops. With an `expiration` interval it sees what is stale, too.
    """

    def __init__(
        self,
        query: JoinQuery,
        loops: Loops,
        order: Order | None = None,
        every: int | None = None,
        expiration: int | None = None,
        max_matches_per_row: int | None = None,
        arrays: Arrays | None = None,
    ) -> None:
        self.loops = loops
        self.in_place = loops.in_place
        super().__init__(query, order, every, expiration, max_matches_per_row, arrays)

    def _evaluate(self) -> Iterator[pa.Table]:
        for i in range(len(self.own)):
            self._insert(i, self.arrivals[i].which)
        origins, slots, ranks = self._together() if self.loops.together else self._merged()
        if not origins.size:
            return
        plans = np.array([self._plan(i) for i in range(len(self.own))])[origins]
        windows = [s.window for s in self.query.streams]
        reaches = np.array([w.reach for w in windows])
        steady = np.array([not (isinstance(w, RowsWindow) and w.per_key) for w in windows])
        indexed, tidy = np.array(self.loops.indexed), not self.expiration
        arrays = [state.lists.lists for state in self.own]
        streams = kernel.Streams(*(tuple(getattr(a, field) for a in arrays) for field in kernel.Streams._fields))
        limits = tuple(state.limit if isinstance(state, CountedState) else _NO_LIMITS for state in self.own)
        cursor, levels = np.zeros(kernel.CURSOR, np.int64), np.empty((3, len(self.own)), np.int64)
        cursor[kernel.LEVEL] = lists.NIL
        out = np.empty((len(self.own) + 1, multiway.CHUNK), np.int64)
        given = np.zeros(sum(r.size for r in ranks), np.int64)
        firsts = np.cumsum([0, *(r.size for r in ranks)])
        while cursor[kernel.AT] < origins.size:
            n = kernel.combine(
                streams, limits, ranks, reaches, steady, tidy, indexed, origins, slots, plans, cursor, levels, out
            )
            found = out[:, :n]
            origin = origins[found[-1]]
            rows = firsts[origin] + found[origin, np.arange(n)]  # a number for each new tuple
            made = partial(self._some, self._table, found), partial(self._some, self._widths, found)
            yield from self._fitting_rows(rows, given, *made)
        self.counters.probed += int(cursor[kernel.PROBED])
        self.counters.lookups += int(cursor[kernel.LOOKED_UP])

    @staticmethod
    def _some(told: Callable[[Sequence[Int64s]], T], found: Int64s, kept: Int64s) -> T:
        """What is told of combinations, a slot of every stream each: of those in the places `kept`."""
        return told([slots[kept] for slots in found[:-1]])

    def _plan(self, i: int) -> Sequence[int]:
        """Streams with an index go innermost: without one a loop looks at all of its window."""
        order = self._order[i]
        if all(self.loops.indexed) or not any(self.loops.indexed):
            return order
        return [j for j in order if j == i or not self.loops.indexed[j]] + [
            j for j in order if j != i and self.loops.indexed[j]
        ]

    def _merged(self) -> tuple[Int64s, Int64s, tuple[Int64s, ...]]:
        """An entry for every new tuple; a stable sort keeps ties in the order (stream, arrival)."""
        news = [self.arrivals[i] for i in range(len(self.own))]
        origins = np.repeat(np.arange(len(news)), [a.stored.size for a in news])
        slots = np.concatenate([a.slots for a in news])
        order = np.argsort(np.concatenate([a.times[a.stored] for a in news]), kind="stable")
        ranks = self._ranks()
        of_entry = np.empty(order.size, np.int64)
        of_entry[order] = np.arange(1, order.size + 1)
        for i, a in enumerate(news):
            ranks[i][a.slots] = of_entry[origins == i]
        return origins[order], slots[order], ranks

    def _together(self) -> tuple[Int64s, Int64s, tuple[Int64s, ...]]:
        """An entry for every stream that brings something."""
        origins = np.array([i for i in range(len(self.own)) if self.arrivals[i].slots.size], np.int64)
        ranks = self._ranks()
        for e, i in enumerate(origins.tolist()):
            ranks[i][self.arrivals[i].slots] = e + 1
        return origins, np.full(origins.size, lists.NIL), ranks

    def _ranks(self) -> tuple[Int64s, ...]:
        return tuple(np.zeros(state.lists.lists.time.size, np.int64) for state in self.own)
