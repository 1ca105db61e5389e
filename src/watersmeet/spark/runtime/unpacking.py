"""Blobs to batches: what all source partitions sent to a shard, stream by stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.model import blocks
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, NO_TIME, Batch, micros, no_rows
from watersmeet.model.instants import Instants
from watersmeet.model.lags import Lags
from watersmeet.model.punctuations import BatchPunctuations, Range
from watersmeet.model.queries import StreamSpec
from watersmeet.spark.runtime.order_detail import OrderDetail
from watersmeet.spark.runtime.packing import ROW_BITS, TIME, WHERE, Blob, blob_schema, one
from watersmeet.state.keys import Int64s


def unpack(
    blob: bytes, spec: StreamSpec, kind: int = Blob.ROWS, order_detail: OrderDetail = OrderDetail.NOTHING
) -> pa.RecordBatch:
    """The rows of a blob."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), blob_schema(kind, spec, order_detail))


class Unpacker:
    """Collects the blobs of one stream, from all source partitions and in any order, into its batch."""

    def __init__(self, spec: StreamSpec, order_detail: OrderDetail = OrderDetail.NOTHING) -> None:
        self.spec = spec
        self.order_detail = order_detail
        self.seen = NO_TIME
        self.received: dict[int, list[pa.RecordBatch]] = {}
        self.kinds: set[int] = set()  # of the blobs, with rows or without

    def put(self, kind: int, seen: int, rows: int, blob: bytes) -> None:
        self.seen = max(self.seen, seen)
        self.kinds.add(kind)
        if rows:
            of = Blob.ROWS if kind == Blob.ROUTED else kind
            self.received.setdefault(of, []).append(unpack(blob, self.spec, kind, self.order_detail))

    def tables(self) -> set[str]:
        """The tables of hot keys by which rows were sent, as text."""
        return {text for (text,) in self._tuples(Blob.TABLE)} if Blob.TABLE in self.received else set()

    def copies(self) -> pa.RecordBatch | None:
        """The rows that every shard gets; None if there are none."""
        return self._all(Blob.COPIES) if Blob.COPIES in self.received else None

    def batch(self, *, ended: bool) -> Batch:
        """The batch of the stream: the blobs of all source partitions together."""
        rows, order, positions = self._positioned()
        return Batch(
            rows,
            self.seen if self.seen != NO_TIME else None,
            ended,
            self._punctuations(),
            self._newest(),
            self._instants(Blob.LARGEST),
            self._all(Blob.REJECTED) if Blob.REJECTED in self.received else None,
            order,
            positions,
            self._lags(),
            self._instants(Blob.DIFFERENT),
        )

    def passed_on(self) -> list[tuple[int, str]]:
        """Late and violating rows of the upstream operator: kind and detail."""
        return [(kind, detail) for kind, detail in self._tuples(Blob.PASSED_ON)]

    def _positioned(self) -> tuple[pa.RecordBatch, blocks.Blocks | None, Int64s | None]:
        """The rows, the order of the stream's keys, and the positions of the rows in it."""
        rows = self._all(Blob.ROWS)
        if not self.order_detail:
            return rows, None, None
        order, positions = blocks.interleaved(self._tuples(Blob.BLOCKS))
        if self.order_detail == OrderDetail.BLOCKS:
            return rows, order, None
        where = rows.column(WHERE.name).to_numpy()
        rows = rows.select(self.spec.schema.names)
        return rows, order, positions.of(where >> ROW_BITS, where & ((1 << ROW_BITS) - 1))

    def _lags(self) -> Lags | None:
        parts = [Lags(*(c.to_numpy() for c in rows.columns)) for rows in self.received.get(Blob.LAGS, [])]
        return Lags.together(parts) if parts else None

    def _instants(self, kind: int) -> Instants | None:
        n = len(self.spec.punctuated)
        parts = [
            Instants(rows.select(list(range(n))), micros(rows.column(n)), rows.column(n + 1)[0].as_py())
            for rows in self.received.get(kind, [])
        ]
        return Instants.together(parts) if parts else None

    def _all(self, kind: int) -> pa.RecordBatch:
        received = self.received.get(kind)
        return one(received) if received else no_rows(blob_schema(kind, self.spec, self.order_detail))

    def _tuples(self, kind: int) -> list[tuple[Any, ...]]:
        return list(zip(*(c.to_pylist() for c in self._all(kind).columns), strict=True))

    def _newest(self) -> tuple[pa.RecordBatch, int] | None:
        keys = self._all(Blob.NEWEST)
        if not keys.num_rows:
            return None
        time = pc.max(keys.column(TIME)).as_py()
        return keys.filter(pc.equal(keys.column(TIME), time)).select(list(self.spec.punctuated)), time

    def _punctuations(self) -> BatchPunctuations | None:
        if not self.received.keys() & {Blob.KEYS, Blob.RANGES, Blob.BEATS}:
            return None
        keys = self._all(Blob.KEYS)
        ranges = tuple((Range(low, high, a, b), time) for low, high, a, b, time, _ in self._tuples(Blob.RANGES))
        beat = self._beat()
        return BatchPunctuations(
            keys.select(list(self.spec.punctuated)),
            micros(keys.column(TIME)),
            ranges,
            beat if beat != AFTER_ALL else None,
            beat == AFTER_ALL,
        )

    def _beat(self) -> int | None:
        """The latest heartbeat; for the output of a join, the lowest of the latest ones of its shards."""
        beats = [
            (AFTER_ALL if ended else time, upstream_shard) for time, ended, upstream_shard in self._tuples(Blob.BEATS)
        ]
        if not self.spec.upstream_shards:
            return max((time for time, _ in beats if time is not None), default=None)
        latest: dict[int, int] = {}
        for time, upstream_shard in beats:
            latest[upstream_shard] = max(time, latest.get(upstream_shard, BEFORE_ALL))
        return min(latest.values()) if len(latest) == self.spec.upstream_shards else None
