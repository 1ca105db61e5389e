"""The state of one stream: lists that find a tuple, segments that hold its row.

::

    time list    oldest ⇄ ───────────── all tuples by (time, arrival) ───────────── ⇄ newest
    value lists  table ─► node(key) ─► oldest ⇄ … ⇄ newest    tuples of one key, in the same order
    segments     slot ─► (segment, row): the tuple's columns, in Arrow

Both lists have one order, so the head of the time list is also the head of its value list: expiry unlinks it from both
in O(1). Insertion looks only at newer tuples (the disorder), a probe only at tuples of its key from the newest down to
the window's edge. No operation scans the state.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from watersmeet.kernels.sorting import by_segment
from watersmeet.model.batches import micros
from watersmeet.model.queries import StreamSpec
from watersmeet.state import segments
from watersmeet.state.index import Index, Int32s
from watersmeet.state.keys import Bools, Int64s, Keys, encode_key, one_key
from watersmeet.state.segments import Segment, Segments
from watersmeet.state.value_lists import UNASKED, ValueLists

#: Small segments are merged when there are more than this many.
MAX_SMALL_SEGMENTS = 64
SMALL_BYTES = 4 << 20

IndexT = TypeVar("IndexT", bound=Index)


@dataclass(slots=True)
class Arrivals:
    """Rows of a batch that take part in the join: neither late nor without a key."""

    rows: pa.RecordBatch
    times: Int64s
    keys: Keys
    which: Int64s  # positions of those that take part, by time
    number: int = -1  # the segment number they are stored under for now
    slots: Int64s = field(default_factory=lambda: np.empty(0, np.int64))
    stored: Int64s = field(default_factory=lambda: np.empty(0, np.int64))


class StreamState(Generic[IndexT]):
    """Stored tuples of one stream. Rows enter with `insert`, become a segment with `settle`, leave with `expire`."""

    def __init__(self, spec: StreamSpec, lists: IndexT) -> None:
        self.spec = spec
        self.lists = lists
        self.segments = Segments()
        self.rewrite_due = False  # rewrite segments with dead rows: the closed keys that make them dead are dropped

    def __len__(self) -> int:
        return len(self.lists)

    @property
    def bytes(self) -> int:
        return self.lists.bytes + self.segments.bytes

    def read(self, rows: pa.RecordBatch) -> tuple[Int64s, Keys]:
        """Event times and keys of rows of this stream."""
        times = micros(rows.column(self.spec.time))
        columns = [rows.column(k) for k in self.spec.key]
        return times, encode_key(columns, self.spec.null_safe) if columns else one_key(rows.num_rows)

    def insert(self, arrivals: Arrivals, which: Int64s) -> None:
        """Store rows of the batch, for now in a segment of their own that is the batch itself."""
        if not which.size:
            return
        number = self.number(arrivals)
        which, slots = self.lists.insert(which, arrivals.times, arrivals.keys, number)
        self.segments.left[number] += which.size
        arrivals.stored = np.concatenate([arrivals.stored, which])
        arrivals.slots = np.concatenate([arrivals.slots, slots])

    def number(self, arrivals: Arrivals) -> int:
        """The number under which the batch itself is a segment, until it is settled."""
        if arrivals.number < 0:
            arrivals.number = self.segments.add(Segment(-1, arrivals.rows, 0, 0), 0)
        return arrivals.number

    def probe(
        self: StreamState[ValueLists],
        arrivals: Arrivals,
        which: Int64s,
        back: int,
        ahead: int,
        track: bool = False,
        closed: Bools = UNASKED,
    ) -> Iterator[Int32s]:
        """Matches of the batch's rows: row, slot, segment number, row there; grouped by segment number.

        With `track` the stored tuples found are marked as matched. `closed` receives which rows have a closed key.
        """
        if not len(self) and not closed.size:
            return
        for found in self.lists.probe(which, arrivals.times, arrivals.keys, back, ahead, track, closed):
            grouped = np.empty_like(found)
            by_segment(*found, np.zeros(self.segments.left.size + 1, np.int64), grouped)
            yield grouped

    def take(self: StreamState[ValueLists], slots: Int64s, columns: list[str]) -> pa.Table:
        """Rows of stored tuples, in the order given."""
        numbers = self.lists.segment[slots]
        if (numbers == numbers[0]).all():
            return self.segments.take(numbers, self.lists.row[slots], columns)
        grouped = np.argsort(numbers.astype(np.uint16), kind="stable")
        back = np.empty_like(grouped)
        back[grouped] = np.arange(grouped.size)
        return self.segments.take(numbers[grouped], self.lists.row[slots[grouped]], columns).take(pa.array(back))

    def widths(self: StreamState[ValueLists], slots: Int64s, columns: list[str]) -> Int64s:
        """Bytes of stored tuples in columns of any length."""
        return self.segments.widths(self.lists.segment[slots], self.lists.row[slots], columns)

    def expire_before(self, time: int) -> int:
        """Expire tuples with ``ts < time``."""
        return self.lists.expire_before(time, self.segments.left)

    def settle(self, arrivals: Arrivals) -> pa.RecordBatch | None:
        """Rows of the batch that stay after expiry, by time; the batch itself is dropped. `adopt` them at once."""
        if arrivals.number < 0:
            return None
        lists, slots = self.lists, arrivals.slots
        # a slot may have been taken again, by a row of this very batch
        own = (lists.segment[slots] == arrivals.number) & (lists.row[slots] == arrivals.stored)
        stays = lists.alive(slots) & own
        arrivals.stored, arrivals.slots = arrivals.stored[stays], arrivals.slots[stays]
        self.segments.drop(arrivals.number)
        return arrivals.rows.take(pa.array(arrivals.stored)) if arrivals.stored.size else None

    def adopt(self, segment: Segment, slots: Int64s) -> None:
        """The rows of `slots` now stand in `segment`, in that order."""
        number = self.segments.add(segment, slots.size)
        self.lists.segment[slots] = number
        self.lists.row[slots] = np.arange(slots.size)

    def restore(self, segment: Segment, alive_from: int) -> None:
        """Store the rows of a segment read back, but for those older than `alive_from`."""
        times, keys = self.read(segment.rows)
        which = np.flatnonzero(times >= alive_from)
        number = self.segments.add(segment, which.size)
        self.lists.insert(which, times, keys, number)

    def worn(self) -> list[int]:
        """Segments to be rewritten as one: when more is dead than alive, the mostly dead ones; when there are very
        many small ones, those of the most frequent size (within a factor of four): a row's segment grows several
        times larger with every rewriting, so a row is rewritten O(log(SMALL_BYTES / batch)) times."""
        parts, left = self.segments.parts, self.segments.left
        if self.rewrite_due:
            self.rewrite_due = False
            return [n for n, s in parts.items() if left[n] < s.count]
        dead = sum(s.size for s in parts.values()) - self.segments.bytes
        if dead > self.segments.bytes + SMALL_BYTES:
            return [n for n, s in parts.items() if left[n] * 2 < s.count]
        small = [n for n, s in parts.items() if s.size < SMALL_BYTES]
        if len(small) > MAX_SMALL_SEGMENTS:
            sizes = [parts[n].size.bit_length() // 2 for n in small]
            most = max(sorted(set(sizes)), key=sizes.count)
            return [n for n, size in zip(small, sizes, strict=True) if size == most]
        return []

    def rewrite(self, numbers: list[int]) -> Iterator[tuple[list[int], pa.Table, Int64s]]:
        """Living rows of these segments and their slots, of as many segments at a time as make up about a new one.

        Before the next ones, `drop` the segments and `adopt` their rows anew.
        """
        lists, left, parts = self.lists, self.segments.left, self.segments.parts
        slots = np.flatnonzero(np.isin(lists.segment[: lists.slots], numbers))
        slots = slots[lists.alive(slots)]
        slots = slots[np.argsort(lists.segment[slots], kind="stable")]
        numbers = sorted(numbers)
        sizes = [parts[n].size * int(left[n]) // max(1, parts[n].count) for n in numbers]
        rows = np.concatenate([[0], np.cumsum(left[numbers])])
        first = 0
        while first < len(numbers):
            last, size = first + 1, sizes[first]
            while last < len(numbers) and (last < first + 2 or size + sizes[last] <= segments.SEGMENT_BYTES):
                size += sizes[last]
                last += 1
            some = slots[rows[first] : rows[last]]
            taken = self.segments.take(lists.segment[some], lists.row[some], self.spec.schema.names)
            yield numbers[first:last], taken, some
            first = last
