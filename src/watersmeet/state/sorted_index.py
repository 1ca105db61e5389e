"""The tuples of a stream sorted by an attribute, so that an interval of its values is found without a scan.

One sorted run in the arrays of the working state. A batch is sorted by itself and merged in; in the same pass the
tuples that have left go. Without the run, after a restart say, it is sorted anew from the stored rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.kernels import sorted_index as kernel
from watersmeet.kernels.sorting import by_segment
from watersmeet.kernels.value_lists import NIL
from watersmeet.model.linear_bounds import Attribute, Floats, Intervals
from watersmeet.state import value_lists
from watersmeet.state.arrays import Arrays, HeapArrays
from watersmeet.state.index import Int32s
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

# Places in the facts of an index.
COUNT, LARGEST, FURTHER = range(3)


class SortedIndex:
    """Stored tuples of one stream by `attribute`; NULLs are left out, NaN comes last.

    `others` are further attributes of the stream; `span` is by how much each exceeds the first, at least and at most.
    """

    def __init__(self, attribute: Attribute, others: Sequence[Attribute], name: str, arrays: Arrays | None) -> None:
        self.attribute, self.others = attribute, tuple(others)
        self.name, self.arrays = name, arrays or HeapArrays()
        facts = self.arrays.attach(f"{name}.facts", np.float64)
        values, slots = (self.arrays.attach(f"{name}.{part}", kind) for part, kind in _PARTS.items())
        self.stale = facts is None or values is None or slots is None  # to be sorted anew
        if facts is None or values is None or slots is None:
            self._clear()
        else:
            self.facts, count = facts, int(facts[COUNT])
            self.values, self.slots = values[:count], slots[:count]

    def _clear(self) -> None:
        self.facts = self.arrays.allocate(f"{self.name}.facts", FURTHER + 2 * len(self.others), np.float64)
        self.facts[FURTHER::2], self.facts[FURTHER + 1 :: 2] = np.inf, -np.inf
        self.values, self.slots = np.empty(0, np.float64), np.empty(0, np.int32)

    @property
    def largest(self) -> float:
        """The largest sum of the attribute's terms without their signs; 0 for a single column, which is not rounded."""
        return float(self.facts[LARGEST])

    def span(self, other: int) -> tuple[float, float]:
        """By how much the attribute number `other` of `others` exceeds the first, at least and at most."""
        at = FURTHER + 2 * other
        return float(self.facts[at]), float(self.facts[at + 1])

    def rebuild(self, state: StreamState[ValueLists]) -> None:
        """Sort all stored tuples."""
        self._clear()
        self.stale = False
        slots = np.flatnonzero(state.lists.lists.node[: state.lists.slots] != NIL)
        if slots.size:
            columns = list(dict.fromkeys(c for a in (self.attribute, *self.others) for c in a.columns))
            slots = slots[np.argsort(state.lists.segment[slots], kind="stable")]
            rows = state.segments.take(state.lists.segment[slots], state.lists.row[slots], columns)
            self._merge(np.empty(0, np.bool_), rows, slots)

    def add(self, alive: Bools, arrivals: Arrivals, which: Int64s) -> None:
        """Rows of the batch were stored, the last of its slots; `alive` are the slots that were in use before."""
        if which.size:
            self._merge(alive, arrivals.rows.take(pa.array(which)), arrivals.slots[-which.size :])

    def _merge(self, alive: Bools, rows: pa.RecordBatch | pa.Table, slots: Int64s) -> None:
        values, sums, valid = self.attribute.values(rows)
        if len(self.attribute.terms) > 1:
            self.facts[LARGEST] = max(self.largest, _most(sums[valid]))
        for n, other in enumerate(self.others):
            self._widen(FURTHER + 2 * n, values, other, rows)
        values, slots = values[valid], slots[valid]
        order = np.argsort(values, kind="stable")  # NaN last
        nans = int(np.count_nonzero(np.isnan(values)))
        ends = values.size - nans
        kept = self._nan()
        room = self.values.size + values.size
        out = [self.arrays.allocate(f"{self.name}.{part}", room, kind) for part, kind in _PARTS.items()]
        new, new_slots = values[order], slots[order].astype(np.int32)
        n = kernel.merge(self.values[:kept], self.slots[:kept], alive, new[:ends], new_slots[:ends], *out)
        old = self.slots[kept:]
        for last in (old[alive[old]] if old.size else old, new_slots[ends:]):
            out[0][n : n + last.size], out[1][n : n + last.size] = np.nan, last
            n += last.size
        self.values, self.slots = out[0][:n], out[1][:n]
        self.facts[COUNT] = n

    def _widen(self, at: int, values: Floats, other: Attribute, rows: pa.RecordBatch | pa.Table) -> None:
        theirs, _, there = other.values(rows)
        with np.errstate(over="ignore", invalid="ignore"):
            span = (theirs - values)[there]
        if np.isnan(span).any():
            self.facts[at : at + 2] = -np.inf, np.inf
        elif span.size:
            self.facts[at] = min(self.facts[at], span.min())
            self.facts[at + 1] = max(self.facts[at + 1], span.max())

    def _nan(self) -> int:
        """The position of the first NaN."""
        return int(np.searchsorted(self.values, np.nan))

    def probe(
        self, state: StreamState[ValueLists], arrivals: Arrivals, which: Int64s, at: Intervals, back: int, ahead: int
    ) -> Iterator[Int32s]:
        """Pairs of these rows with stored tuples in their intervals and windows: row, slot, segment, row there.

        They come in chunks, grouped by segment.
        """
        lists = state.lists
        cursor = np.zeros(kernel.CURSOR, np.int64)
        cursor[kernel.NEXT] = -1
        out = np.empty((4, value_lists.CHUNK), np.int32)
        stored = (lists.lists.time, lists.lists.node, lists.segment, lists.row)
        while cursor[kernel.AT] < which.size:
            n = kernel.pairs(
                self.values, self.slots, self._nan(), at.low, at.high, at.valid, which, arrivals.times, *stored,
                back, ahead, cursor, out,
            )  # fmt: skip
            lists.looked_at += int(cursor[kernel.LOOKED_AT])
            cursor[kernel.LOOKED_AT] = 0
            if n:
                grouped = np.empty((4, n), np.int32)
                by_segment(*out[:, :n], np.zeros(state.segments.left.size + 1, np.int64), grouped)
                yield grouped


_PARTS = {"values": np.float64, "slots": np.int32}


def _most(values: Floats) -> float:
    return float(values.max()) if values.size else 0.0
