"""Open groups: one row each, found by key and by the time that ends them.

They are kept like the tuples of a stream, in segments that are dropped with their last living row. A group that changes
gets a new row; the old one is dead. Dead rows of durable segments are stored as such (`gone_rows`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pyarrow as pa

from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import micros, no_rows
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import Unbounded
from watersmeet.state.arrays import Arrays
from watersmeet.state.gone_rows import GoneRows
from watersmeet.state.key_order import Ranges
from watersmeet.state.keys import Int64s, Keys, encode
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

_ALL_TIME = 1 << 62


@cache
def _null_word() -> int:
    """The 64-bit word of the key NULL: different from the hash of its one byte.

    It is made on first use, as that needs a kernel: those who define joins run none.
    """
    return ~int(encode([pa.array([b"\0"], pa.binary())]).words[0])


def keys_of(columns: Sequence[pa.Array]) -> Keys:
    """Keys among which NULL is one, equal to itself: groups have it, where a join does not."""
    keys = encode(columns)
    if len(columns) > 1 or keys.valid.all():
        return keys  # keys of several columns encode NULLs
    lengths = np.diff(keys.offsets)
    wider = np.where(keys.valid, lengths, 1)
    offsets = np.concatenate([[0], np.cumsum(wider)])
    data = np.zeros(int(offsets[-1]), np.uint8)
    data[np.repeat(keys.valid, wider)] = keys.data[np.repeat(keys.valid, lengths)]
    return Keys(np.where(keys.valid, keys.words, _null_word()), data, offsets, np.ones_like(keys.valid))


class GroupState(StreamState[ValueLists]):
    """Rows of `schema`, found by the columns `key` (several groups may share one), ended by the time in `until`.

    They are stream number `stream` of the operator's state.
    """

    def __init__(self, stream: int, schema: pa.Schema, key: tuple[str, ...], arrays: Arrays | None = None) -> None:
        super().__init__(StreamSpec("groups", schema, "until", key, Unbounded()), ValueLists("groups", arrays))
        self.add(schema.empty_table())
        self.gone = GoneRows(stream, self.lists, self.segments)

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

    # ------------------------------------------------------------ eviction

    def remove(self, slots: Int64s) -> None:
        """Evict single groups."""
        self.gone.add(slots)
        self.lists.discard(slots, self.segments.left)

    def remove_keys(self, columns: Sequence[pa.Array]) -> pa.Table:
        """Evict all groups with these keys; returns their rows."""
        keys = keys_of(columns)
        nodes = np.unique(self.lists.nodes_of(np.arange(len(keys)), keys))
        return self._purge(nodes[nodes != kernel.NIL])

    def remove_ranges(self, ranges: Ranges) -> pa.Table:
        """Evict all groups with a key in one of these intervals; returns their rows. Walks all keys."""
        lists = self.lists.lists
        top = int(lists.meta[kernel.NODE_TOP])
        nodes = np.flatnonzero(lists.length[:top] != kernel.NIL)
        nodes = nodes[(lists.word[nodes] != _null_word()) | (lists.length[nodes] != 1)]
        ranks = ranges.order.of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])
        return self._purge(nodes[ranges.holds(ranks)])

    def remove_before(self, time: int) -> pa.Table:
        """Evict all groups that end before `time`; returns their rows. The watermark implies it: not stored."""
        gone, _ = self.lists.expire(time, self.segments.left)
        return self.rows(gone)[0]

    def remove_all(self) -> pa.Table:
        slots = self.lists.living()
        rows = self.rows(slots)[0]
        self.remove(slots)
        return rows

    def _purge(self, nodes: Int64s) -> pa.Table:
        gone = self.lists.purge(nodes, self.segments.left)
        self.gone.add(gone)
        return self.rows(gone)[0]
