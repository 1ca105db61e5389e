"""Rows that left durable segments for another reason than time: stored, so that none comes back."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernels import value_lists as kernel
from watersmeet.state.durable.parts import Change, DurablePart
from watersmeet.state.keys import Int64s
from watersmeet.state.segments import Segments
from watersmeet.state.value_lists import ValueLists

#: Ids of segments, and rows there.
RowNames = tuple[Int64s, npt.NDArray[np.int32]]


class GoneRows(DurablePart):
    """The stored rows of one stream that are gone, by segment and row."""

    kind = "gone"

    def __init__(self, stream: int, lists: ValueLists, segments: Segments) -> None:
        self.stream = stream
        self.lists, self.segments = lists, segments
        self._gone: list[RowNames] = []
        self._read: list[pa.RecordBatch] = []

    def add(self, slots: Int64s) -> None:
        """The tuples of these slots leave, or have just left; only those in durable segments count."""
        ids, rows = names_of(self.lists, self.segments, slots)
        durable = ids >= 0
        if durable.any():
            self._gone.append((ids[durable], rows[durable]))

    def changes(self, rewrite: bool) -> Change | None:
        """Rows gone since the last time, or all rows of stored segments that are not alive."""
        gone, self._gone = self._gone, []
        if rewrite:
            return Change([as_rows(self._dead())], whole=True)
        return Change([as_rows(gone)]) if gone else None

    def _dead(self) -> list[RowNames]:
        lists, out = self.lists, []
        living = np.flatnonzero(lists.lists.node[: lists.slots] != kernel.NIL)
        living = living[np.argsort(lists.segment[living], kind="stable")]
        numbers = lists.segment[living]
        for number, part in self.segments.parts.items():
            dead = np.ones(part.count, np.bool_)
            first, last = np.searchsorted(numbers, [number, number + 1])
            dead[lists.row[living[first:last]]] = False
            rows = np.flatnonzero(dead).astype(np.int32)
            out.append((np.full(rows.size, part.id, np.int64), rows))
        return out

    def replay(self, rows: pa.RecordBatch) -> None:
        self._read.append(rows)

    def restored(self) -> None:
        """Evict the rows that were gone."""
        read, self._read = self._read, []
        self.lists.discard(named(self.lists, self.segments, read), self.segments.left)


def names_of(lists: ValueLists, segments: Segments, slots: Int64s) -> RowNames:
    """Segment ids and rows of these slots; the id is -1 in the batch itself, which is not durable yet."""
    parts = segments.parts
    ids = np.full(max(parts, default=-1) + 1, -1, np.int64)
    for number, part in parts.items():
        ids[number] = part.id
    return ids[lists.segment[slots]], lists.row[slots].copy()


def named(lists: ValueLists, segments: Segments, rows: Sequence[pa.RecordBatch]) -> Int64s:
    """Slots of the stored tuples that these rows name."""
    if not rows:
        return np.empty(0, np.int64)
    living = np.flatnonzero(lists.lists.node[: lists.slots] != kernel.NIL)
    ids, at = names_of(lists, segments, living)
    wanted = [r.column(0).to_numpy() << 32 | r.column(1).to_numpy() for r in rows]  # refuses what has no value
    found: Int64s = living[np.isin(ids << 32 | at, np.concatenate(wanted))]
    return found


def as_rows(parts: Sequence[RowNames]) -> pa.RecordBatch:
    ids = np.concatenate([np.empty(0, np.int64), *(p[0] for p in parts)])
    rows = np.concatenate([np.empty(0, np.int32), *(p[1] for p in parts)])
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(rows, pa.int32())], names=["segment", "row"])
