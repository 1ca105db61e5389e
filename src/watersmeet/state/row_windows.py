"""Windows of rows: which tuples of a stream are among its last, or among the last of their key.

Tuples take part in the order of their stream (see `RunningMultiway.horizon`), so the arrival of the n-th tuple
behind a tuple determines the last instant at which that tuple is in its window: its *limit*.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from watersmeet.kernels import multiway
from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import RowsWindow
from watersmeet.state.arrays import AnyArray
from watersmeet.state.arrow_groups import Groups
from watersmeet.state.durable.parts import Change, DurablePart
from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.row_order import row_ranks, value_ranks
from watersmeet.state.segments import Segment
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: The limit of a tuple that is not pushed out yet; the end of all streams is beyond it.
ENDLESS = AFTER_ALL - 1
#: The column with the position of stored rows in the stream.
POSITION = "watersmeet position"

_NONE = np.empty(0, np.int64)


class RowWindowState(StreamState[ValueLists], DurablePart):
    """The state of a stream whose rows are counted: each stored tuple has a limit and a position in the stream."""

    kind = "limits"

    def __init__(self, stream: int, spec: StreamSpec, lists: ValueLists) -> None:
        assert isinstance(spec.window, RowsWindow), "other windows need no counting"
        super().__init__(replace(spec, schema=spec.schema.append(pa.field(POSITION, pa.int64()))), lists)
        self.stream = stream
        self.uncounted = spec  # without the column of positions
        self.window = spec.window
        self.count = 0  # tuples that have taken part
        self.limit = self._array("limit", 1, np.int64)
        self.position = self._array("position", 1, np.int64)
        self.last = self._array("last", 0 if self.window.per_key else self.window.rows, np.int32, kernel.NIL)
        self._leaving: tuple[Int64s, Int64s] | None = None  # slots with a known limit and that, ascending
        self._limits: Int64s = _NONE  # of the rows of the batch
        self._known: list[tuple[Int64s, Int64s]] = []  # slots and positions of tuples with limits to be made durable
        self._read: list[int] = []  # numbers of segments
        self._read_limits: list[pa.RecordBatch] = []  # limits read back, applied when all segments are there

    def _array(self, name: str, n: int, kind: type, value: int = 0) -> AnyArray:
        arrays, name = self.lists.arrays, f"{self.lists.name}.{name}"
        found = arrays.attach(name, kind)
        if found is None:
            found = arrays.allocate(name, max(n, 1), kind)
            found[:] = value
        return found

    def _fit(self) -> None:
        """Grow the arrays to one entry per slot."""
        need = self.lists.lists.time.size
        if self.limit.size < need:
            self.limit = self.lists.arrays.grow(f"{self.lists.name}.limit", self.limit, need)
            self.position = self.lists.arrays.grow(f"{self.lists.name}.position", self.position, need)

    # ------------------------------------------------------------ tuples in

    def in_order(self, rows: pa.RecordBatch) -> Arrivals:
        """Tuples that take part from now on, in the order of the stream and with their positions in it."""
        times, _ = self.read(rows)
        rows = rows.take(pa.array(stream_order(self.uncounted, rows, times)))
        positions = pa.array(np.arange(self.count, self.count + rows.num_rows))
        times, keys = self.read(rows)
        self._count(rows, times, keys)
        rows = pa.record_batch([*rows.columns, positions], schema=self.spec.schema)
        # a tuple that tuples of its own instant push out is never in its window
        return Arrivals(rows, times, keys, np.flatnonzero(keys.valid & (self._limits >= times)))

    def _count(self, rows: pa.RecordBatch, times: Int64s, keys: Keys) -> None:
        """Limits of these tuples, and of those that they push out."""
        self._fit()
        self._limits = np.full(times.size, ENDLESS, np.int64)
        pushed = self._push_keys(rows, times, keys) if self.window.per_key else self._push(times)
        self.count += times.size
        self._leave(pushed)

    def _push(self, times: Int64s) -> Int64s:
        n = self.window.rows
        self._limits[: max(0, times.size - n)] = times[n:] - 1
        positions = np.arange(max(0, self.count - n), min(self.count, self.count + times.size - n))
        slots: Int64s = self.last[positions % n].astype(np.int64)
        there = (slots != kernel.NIL) & (self.position[slots] == positions) & self.lists.alive(slots)
        slots, positions = slots[there], positions[there]
        self.limit[slots] = times[positions + n - self.count] - 1
        self._known.append((slots, positions))
        self.last[np.arange(self.count + max(0, times.size - n), self.count + times.size) % n] = kernel.NIL
        return slots

    def _push_keys(self, rows: pa.RecordBatch, times: Int64s, keys: Keys) -> Int64s:
        n, keyed = self.window.rows, np.flatnonzero(keys.valid)
        if not keyed.size:
            return _NONE
        group = Groups.of([rows.column(k).take(pa.array(keyed)) for k in self.spec.key])
        by_key = np.argsort(group.number, kind="stable")
        number, when, at_positions = group.number[by_key], times[keyed[by_key]], keyed[by_key]
        same = number[n:] == number[:-n] if number.size > n else np.zeros(0, np.bool_)
        self._limits[at_positions[: same.size][same]] = when[n:][same] - 1
        starts = np.searchsorted(number, np.arange(group.count + 1))
        nodes = self.lists.nodes_of(keyed[group.first], keys)
        out = np.empty(min(len(self.lists), keyed.size), np.int64)
        return out[: multiway.push_out(self.lists.lists, self.limit, nodes, starts, when, n, out)]

    def limits(self, which: Int64s) -> Int64s:
        """Limits of these rows of the batch."""
        return self._limits[which]

    def insert(self, arrivals: Arrivals, which: Int64s) -> None:
        before = arrivals.slots.size
        super().insert(arrivals, which)
        self._fit()
        slots, which = arrivals.slots[before:], arrivals.stored[before:]
        self.limit[slots] = self._limits[which]
        self.position[slots] = self.count - arrivals.times.size + which
        if not self.window.per_key:
            self._fill(slots)
            some = slots[self.limit[slots] < ENDLESS]
            self._known.append((some, self.position[some]))
        self._leave(slots)

    def _fill(self, slots: Int64s) -> None:
        """Store the slots of the last tuples of the stream."""
        slots = slots[self.position[slots] >= self.count - self.window.rows]
        self.last[self.position[slots] % self.window.rows] = slots

    # ------------------------------------------------------------ tuples out

    def _leave(self, slots: Int64s) -> None:
        """Schedule the expiry of those of these tuples that are pushed out."""
        slots = slots[self.limit[slots] < ENDLESS]
        if self._leaving is not None and slots.size:
            both, limits = (np.concatenate(p) for p in zip(self._leaving, (slots, self.limit[slots]), strict=True))
            order = np.argsort(limits, kind="stable")
            self._leaving = both[order], limits[order]

    def _pushed(self) -> Int64s:
        """Slots of all tuples with a known limit."""
        top = self.lists.slots
        return np.flatnonzero((self.lists.lists.node[:top] != kernel.NIL) & (self.limit[:top] < ENDLESS))

    def expire_limits(self, before: int) -> tuple[int, Int64s]:
        """Expire tuples with a limit before `before`; how many, and closed nodes that lost their last tuple."""
        self._fit()
        if self._leaving is None:  # the state was mapped from another process
            self._leaving = _NONE, _NONE
            self._leave(self._pushed())
        slots, limits = self._leaving
        at = int(np.searchsorted(limits, before))
        self._leaving = slots[at:], limits[at:]
        gone = np.unique(slots[:at])  # slots may have been taken again, by tuples that stay
        gone = gone[self.lists.alive(gone) & (self.limit[gone] < before)]
        if before > ENDLESS:
            gone = self.lists.living()
        nodes = np.unique(self.lists.lists.node[gone]).astype(np.int64)
        nodes = nodes[self.lists.lists.mark[nodes] == kernel.CLOSED]
        self.lists.discard(gone, self.segments.left)
        return int(gone.size), nodes[self.lists.lists.oldest[nodes] == kernel.NIL]

    # ------------------------------------------------------------ the durable form

    def metadata(self) -> int:
        return self.count

    def load_metadata(self, metadata: int) -> None:
        self.count = metadata

    def changes(self, rewrite: bool) -> Change | None:
        """New limits of tuples that are still stored; limits per key follow from the tuples and are not stored."""
        if self.window.per_key:
            return None
        known, self._known = self._known, []
        if rewrite:
            slots = self._pushed()
            return Change([_limits(self.position[slots], self.limit[slots])], whole=True)
        slots, at_positions = (np.concatenate([_NONE, *(k[i] for k in known)]) for i in (0, 1))
        # others may have taken their slots
        slots = slots[self.lists.alive(slots) & (self.position[slots] == at_positions)]
        return Change([_limits(self.position[slots], self.limit[slots])]) if slots.size else None

    def restore(self, segment: Segment, alive_from: int) -> None:
        """Keep a segment read back; its rows are stored, in the order of the stream, when all are there."""
        self._read.append(self.segments.add(segment, segment.count))

    def replay(self, rows: pa.RecordBatch) -> None:
        self._read_limits.append(rows)

    def restored(self) -> None:
        """Store the rows that were read, and compute or apply their limits."""
        if self._read:
            needed = list(dict.fromkeys([self.spec.time, *self.spec.key, POSITION]))
            counts = [self.segments.parts[number].count for number in self._read]
            numbers = np.repeat(self._read, counts).astype(np.int32)
            within = np.concatenate([np.arange(count, dtype=np.int32) for count in counts])
            rows = self.segments.take(numbers, within, needed).combine_chunks().to_batches()[0]
            times, keys = self.read(rows)
            at_positions = rows.column(POSITION).to_numpy()
            which = np.argsort(at_positions, kind="stable")
            which, slots = self.lists.insert(which, times, keys, 0)
            self.lists.segment[slots], self.lists.row[slots] = numbers[which], within[which]
            self._fit()
            self.position[slots], self.limit[slots] = at_positions[which], ENDLESS
        self._fit()
        living = self.lists.living()
        if self.window.per_key:
            nodes = np.unique(self.lists.lists.node[living]).astype(np.int64)
            multiway.limits_by_key(self.lists.lists, self.limit, nodes, self.window.rows, ENDLESS)
        else:
            self._take_limits(living)
            self.last[:] = kernel.NIL
            self._fill(living)
        self._read, self._read_limits, self._leaving = [], [], None

    def _take_limits(self, living: Int64s) -> None:
        """A tuple beyond the row limit without a stored expiry was already evicted: expire it."""
        pushed = self.position[living] < self.count - self.window.rows
        self.limit[living[pushed & (self.limit[living] == ENDLESS)]] = BEFORE_ALL - 1
        by_position = living[np.argsort(self.position[living])]
        for part in self._read_limits:
            positions, limits = (column.to_numpy() for column in part.columns)
            at = np.searchsorted(self.position[by_position], positions)
            there = at < by_position.size
            there[there] = self.position[by_position[at[there]]] == positions[there]
            self.limit[by_position[at[there]]] = limits[there]


def stream_order(spec: StreamSpec, rows: pa.RecordBatch, times: Int64s) -> Int64s:
    """Rows by time, then by the `order_by` column (NULLs first), then by their bytes."""
    _, inverse, counts = np.unique(times, return_inverse=True, return_counts=True)
    ties = np.flatnonzero(counts[inverse] > 1)
    tied = rows.take(pa.array(ties))
    ranks = np.zeros((2, times.size), np.int64)
    ranks[0, ties] = row_ranks(tied)
    if spec.order_by is not None:
        ranks[1, ties] = value_ranks(tied.column(spec.order_by))
    return np.lexsort((ranks[0], ranks[1], times))


def _limits(positions: Int64s, limits: Int64s) -> pa.RecordBatch:
    return pa.record_batch([pa.array(positions), pa.array(limits)], names=["position", "limit"])
