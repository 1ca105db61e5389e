"""Open groups: one row each, found by key and by the time that ends them.

They are kept like the tuples of a stream, in segments that go when their last row dies. A group that changes leaves its
row and gets a new one; which rows of durable segments are gone is written down as well, so that none comes back.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import micros, no_rows
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import Unbounded
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Int64s, Keys, encode
from watersmeet.state.log import Delta, Entry
from watersmeet.state.order import Ranges
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Rows that are gone are written anew when they have come to stand in so many segments.
MOST_PIECES = 32
GONE = "gone"
_ALL_TIME = 1 << 62
#: The key of NULL: a word that the hash of its one byte is not.
_NULL_WORD = ~int(encode([pa.array([b"\0"], pa.binary())]).words[0])


def keys_of(columns: Sequence[pa.Array]) -> Keys:
    """Keys among which NULL is one, equal to itself: groups have it, where a join does not."""
    keys = encode(columns)
    if len(columns) > 1 or keys.valid.all():
        return keys  # several columns say which of them are NULL
    lengths = np.diff(keys.offsets)
    wider = np.where(keys.valid, lengths, 1)
    offsets = np.concatenate([[0], np.cumsum(wider)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[np.repeat(keys.valid, wider)] = keys.data[np.repeat(keys.valid, lengths)]
    return Keys(np.where(keys.valid, keys.words, _NULL_WORD), data, offsets, np.ones_like(keys.valid))


class GroupState(StreamState[ValueLists]):
    """Rows of `schema`, found by the columns `key` (several groups may share one), ended by the time in `until`."""

    def __init__(self, schema: pa.Schema, key: tuple[str, ...], arrays: Arrays | None = None) -> None:
        super().__init__(StreamSpec("groups", schema, "until", key, Unbounded()), ValueLists("groups", arrays))
        self.add(schema.empty_table())
        self._gone: list[tuple[Int64s, npt.NDArray[np.int32]]] = []
        self._replayed: list[pa.RecordBatch] = []

    def read(self, rows: pa.RecordBatch) -> tuple[Int64s, Keys]:
        return micros(rows.column("until")), keys_of([rows.column(k) for k in self.spec.key])

    def add(self, rows: pa.Table) -> None:
        """Store the groups that a batch has changed; once a batch."""
        batch = pa.concat_batches(rows.to_batches()) if rows.num_rows else no_rows(self.spec.schema)
        times, keys = self.read(batch)
        which = np.arange(batch.num_rows)
        self.arrivals = Arrivals(batch, times, keys, which)
        self.insert(self.arrivals, which)

    def with_keys(self, rows: pa.Table) -> tuple[pa.Table, Int64s]:
        """Stored groups that have the key of one of these rows, and their slots."""
        keys = keys_of([rows.column(k).combine_chunks() for k in self.spec.key])
        nodes = self.lists.nodes_of(np.arange(len(keys)), keys)
        found, which = np.unique(nodes, return_index=True)
        which = which[found != kernel.NIL]
        times = np.zeros(len(keys), np.int64)
        slots = [found[1].astype(np.int64) for found in self.lists.probe(which, times, keys, _ALL_TIME, _ALL_TIME)]
        return self.rows(np.concatenate(slots) if slots else np.empty(0, np.int64))

    def rows(self, slots: Int64s) -> tuple[pa.Table, Int64s]:
        """The rows of these slots, and the slots in the order of the rows."""
        if not slots.size:
            return self.spec.schema.empty_table(), slots
        slots = slots[np.argsort(self.lists.segment[slots], kind="stable")]
        names = self.spec.schema.names
        return self.segments.take(self.lists.segment[slots], self.lists.row[slots], names), slots

    # ------------------------------------------------------------ forgetting

    def remove(self, slots: Int64s) -> None:
        """Forget single groups."""
        self._note(slots)
        self.lists.discard(slots, self.segments.left)

    def remove_keys(self, columns: Sequence[pa.Array]) -> pa.Table:
        """Forget all groups with these keys; their rows."""
        keys = keys_of(columns)
        nodes = np.unique(self.lists.nodes_of(np.arange(len(keys)), keys))
        return self._purge(nodes[nodes != kernel.NIL])

    def remove_ranges(self, ranges: Ranges) -> pa.Table:
        """Forget all groups whose key lies in one of these intervals; their rows. Looks at every key."""
        lists = self.lists.lists
        top = int(lists.meta[kernel.NODE_TOP])
        nodes = np.flatnonzero(lists.length[:top] != kernel.NIL)
        nodes = nodes[(lists.word[nodes] != _NULL_WORD) | (lists.length[nodes] != 1)]
        places = ranges.order.of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])
        return self._purge(nodes[ranges.holds(places)])

    def remove_before(self, time: int) -> pa.Table:
        """Forget all groups that end before `time`; their rows. What the progress tells again need not be noted."""
        gone, _ = self.lists.expire(time, self.segments.left, ring=False)
        return self.rows(gone)[0]

    def remove_all(self) -> pa.Table:
        slots = self.lists.living()
        rows = self.rows(slots)[0]
        self.remove(slots)
        return rows

    def _purge(self, nodes: Int64s) -> pa.Table:
        gone = self.lists.purge(nodes, self.segments.left)
        self._note(gone)
        return self.rows(gone)[0]

    def _note(self, slots: Int64s) -> None:
        numbers = self.lists.segment[slots]
        ids = np.full(max(self.segments.parts, default=-1) + 1, -1, np.int64)
        for number, part in self.segments.parts.items():
            ids[number] = part.id
        durable = ids[numbers] >= 0
        if durable.any():
            self._gone.append((ids[numbers[durable]], self.lists.row[slots[durable]].copy()))

    # ------------------------------------------------------------ the durable form

    def deltas(self, stream: int, entries: Sequence[Entry]) -> list[Delta]:
        """Rows that are gone since the last time, or all that stand in living segments when there are many pieces."""
        gone, self._gone = self._gone, []
        known = sum((e.kind, e.stream) == (GONE, stream) for e in entries)
        if known >= MOST_PIECES:
            return [Delta(GONE, stream, _pairs(self._dead()), whole=True)]
        return [Delta(GONE, stream, _pairs(gone))] if gone else []

    def _dead(self) -> list[tuple[Int64s, npt.NDArray[np.int32]]]:
        lists, out = self.lists, []
        living = np.flatnonzero(lists.lists.node[: lists.slots] != kernel.NIL)
        for number, part in self.segments.parts.items():
            dead = np.ones(part.rows.num_rows, np.bool_)
            dead[lists.row[living[lists.segment[living] == number]]] = False
            rows = np.flatnonzero(dead).astype(np.int32)
            out.append((np.full(rows.size, part.id, np.int64), rows))
        return out

    def replay(self, rows: pa.RecordBatch) -> None:
        """Rows that are gone, read back; they go with `restored`, when all is read."""
        self._replayed.append(rows)

    def restored(self) -> None:
        said, self._replayed = self._replayed, []
        if not said:
            return
        lists = self.lists
        numbers = {part.id: number for number, part in self.segments.parts.items()}
        ids = np.concatenate([r.column("segment").to_numpy() for r in said])
        gone_rows = np.concatenate([r.column("row").to_numpy() for r in said])
        of = np.array([numbers.get(id, -1) for id in ids.tolist()], np.int64)
        gone = (of << 32 | gone_rows)[of >= 0]
        living = np.flatnonzero(lists.lists.node[: lists.slots] != kernel.NIL)
        at = lists.segment[living].astype(np.int64) << 32 | lists.row[living]
        lists.discard(living[np.isin(at, gone)], self.segments.left)


def _pairs(parts: list[tuple[Int64s, npt.NDArray[np.int32]]]) -> pa.RecordBatch:
    ids = np.concatenate([p[0] for p in parts]) if parts else np.empty(0, np.int64)
    rows = np.concatenate([p[1] for p in parts]) if parts else np.empty(0, np.int32)
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(rows, pa.int32())], names=["segment", "row"])
