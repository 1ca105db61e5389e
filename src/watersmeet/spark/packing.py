"""Rows to blobs: before the shuffle every source partition writes one Arrow blob per shard.

Spark's Python state operator walks over its input row by row; packed, it meets a few rows instead of millions.
Every partition sends every shard a blob in every batch, if only an empty one: with it travels the largest event time
that the partition saw, so all shards know the same progress and are called in every batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernels.hashing import split_rows
from watersmeet.model.batches import NO_TIME, no_rows
from watersmeet.model.queries import StreamSpec
from watersmeet.state.keys import encode

#: Rows gathered before they are packed, in bytes of Arrow memory; about the largest blob times the shards.
GATHER_BYTES = 64 << 20

#: `seen` is `NO_TIME` where there was none: a NULL would make pandas read the whole column as floats.
PACKED = pa.schema(
    [("shard", pa.int32()), ("stream", pa.int32()), ("seen", pa.int64()), ("rows", pa.int64()), ("blob", pa.binary())]
)
PACKED_DDL = "shard int, stream int, seen bigint, rows bigint, blob binary"


@dataclass(frozen=True)
class Packer:
    """Packs the rows of stream number `index` for the shards `ids`. A function for `mapInArrow`."""

    spec: StreamSpec
    index: int
    ids: tuple[int, ...]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        seen: int | None = None
        for rows in gather(batches):
            rows = rows.cast(self.spec.schema)
            newest = pc.max(rows.column(self.spec.time)).cast(pa.int64()).as_py()
            seen = newest if seen is None or (newest is not None and newest > seen) else seen
            yield self._blobs(rows, newest)
        if seen is None:
            yield self._blobs(no_rows(self.spec.schema), None)

    def _blobs(self, rows: pa.RecordBatch, seen: int | None) -> pa.RecordBatch:
        """One blob for each shard, in one batch."""
        n, shards = rows.num_rows, len(self.ids)
        order = np.empty(n, np.int64)
        starts = np.zeros(shards + 1, np.int64)
        if shards > 1 and n:
            split_rows(encode([rows.column(k) for k in self.spec.key]).words, shards, order, starts)
            rows = rows.take(pa.array(order))
        else:
            starts[1:] = n
        pieces = [rows.slice(a, b - a) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
        return pa.record_batch(
            [
                pa.array(self.ids, pa.int32()),
                pa.array([self.index] * shards, pa.int32()),
                pa.array([NO_TIME if seen is None else seen] * shards, pa.int64()),
                pa.array([p.num_rows for p in pieces], pa.int64()),
                pa.array([p.serialize().to_pybytes() for p in pieces], pa.binary()),
            ],
            schema=PACKED,
        )


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a partition in larger pieces."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.get_total_buffer_size()
        if size >= GATHER_BYTES:
            yield one(held)
            held, size = [], 0
    if held:
        yield one(held)


def one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def unpack(blob: bytes, spec: StreamSpec) -> pa.RecordBatch:
    """The rows of a blob."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), spec.schema)
