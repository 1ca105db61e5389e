"""Blobs to batches: what all source partitions sent to a shard, stream by stream."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.model import blocks
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, NO_TIME, Batch, micros, no_rows
from watersmeet.model.lags import Lags
from watersmeet.model.punctuations import Closings, Range
from watersmeet.model.queries import StreamSpec
from watersmeet.spark.measuring import Measuring
from watersmeet.spark.packing import (
    BEATS,
    BLOCKS,
    KEYS,
    LAGS,
    LARGEST,
    NEWEST,
    RANGES,
    REJECTED,
    ROW_BITS,
    ROWS,
    TOLD,
    WHERE,
    blob_schema,
    one,
)
from watersmeet.state.keys import Int64s


def unpack(blob: bytes, spec: StreamSpec, kind: int = ROWS, measuring: Measuring = Measuring.NOTHING) -> pa.RecordBatch:
    """The rows of a blob."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), blob_schema(kind, spec, measuring))


class Inbox:
    """Collects the blobs of one stream, from all source partitions and in any order, into its batch."""

    def __init__(self, spec: StreamSpec, measuring: Measuring = Measuring.NOTHING) -> None:
        self.spec = spec
        self.measuring = measuring
        self.seen = NO_TIME
        self.held: dict[int, list[pa.RecordBatch]] = {}

    def put(self, kind: int, seen: int, rows: int, blob: bytes) -> None:
        self.seen = max(self.seen, seen)
        if rows:
            self.held.setdefault(kind, []).append(unpack(blob, self.spec, kind, self.measuring))

    def batch(self, *, ended: bool) -> Batch:
        """What all of them said together."""
        largest = max(self._tuples(LARGEST), default=None, key=_by_key_then_first)
        rows, order, positions = self._placed()
        return Batch(
            rows,
            self.seen if self.seen != NO_TIME else None,
            ended,
            self._closings(),
            self._newest(),
            largest,
            self._all(REJECTED) if REJECTED in self.held else None,
            order,
            positions,
            self._lags(),
        )

    def told(self) -> list[tuple[int, str]]:
        """Late and violating rows of the operator whose output the stream is: kind and note."""
        return [(kind, note) for kind, note in self._tuples(TOLD)]

    def _placed(self) -> tuple[pa.RecordBatch, blocks.Blocks | None, Int64s | None]:
        """The rows, the order of the stream's keys, and where the rows stand in it."""
        rows = self._all(ROWS)
        if not self.measuring:
            return rows, None, None
        order, positions = blocks.interleaved(self._tuples(BLOCKS))
        if self.measuring == Measuring.BLOCKS:
            return rows, order, None
        where = rows.column(WHERE.name).to_numpy()
        rows = rows.select(self.spec.schema.names)
        return rows, order, positions.of(where >> ROW_BITS, where & ((1 << ROW_BITS) - 1))

    def _lags(self) -> Lags | None:
        parts = [Lags(*(c.to_numpy() for c in rows.columns)) for rows in self.held.get(LAGS, [])]
        return Lags.together(parts) if parts else None

    def _all(self, kind: int) -> pa.RecordBatch:
        held = self.held.get(kind)
        return one(held) if held else no_rows(blob_schema(kind, self.spec, self.measuring))

    def _tuples(self, kind: int) -> list[tuple[Any, ...]]:
        return list(zip(*(c.to_pylist() for c in self._all(kind).columns), strict=True))

    def _newest(self) -> tuple[pa.RecordBatch, int] | None:
        keys = self._all(NEWEST)
        if not keys.num_rows:
            return None
        time = pc.max(keys.column("time")).as_py()
        return keys.filter(pc.equal(keys.column("time"), time)).select(list(self.spec.key)), time

    def _closings(self) -> Closings | None:
        if not self.held.keys() & {KEYS, RANGES, BEATS}:
            return None
        keys = self._all(KEYS)
        ranges = tuple((Range(low, high, a, b), time) for low, high, a, b, time, _ in self._tuples(RANGES))
        beat = self._beat()
        return Closings(
            keys.select(list(self.spec.key)),
            micros(keys.column("time")),
            ranges,
            beat if beat != AFTER_ALL else None,
            beat == AFTER_ALL,
        )

    def _beat(self) -> int | None:
        """The latest heartbeat; of a join's output the one that all of its shards have reached."""
        beats = [(AFTER_ALL if ended else time, teller) for time, ended, teller in self._tuples(BEATS)]
        if not self.spec.tellers:
            return max((time for time, _ in beats if time is not None), default=None)
        told: dict[int, int] = {}
        for time, teller in beats:
            told[teller] = max(time, told.get(teller, BEFORE_ALL))
        return min(told.values()) if len(told) == self.spec.tellers else None


def _by_key_then_first(shown: tuple[Any, int]) -> tuple[Any, ...]:
    key, time = shown
    return (True, -time) if key != key else (False, key, -time)
