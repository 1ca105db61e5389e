"""A shard's durable state in Spark's state store."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import MapState, ValueState


class SparkStore:
    """A shard's durable state in Spark's state store: a value for the header, a map for the segments."""

    def __init__(self, header: ValueState, segments: MapState) -> None:
        self._header = header
        self._segments = segments
        self.written = 0
        self.read = 0

    def read_header(self) -> bytes | None:
        row = self._header.get()
        return None if row is None else bytes(row[0])

    def write_header(self, data: bytes) -> None:
        self.written += len(data)
        self._header.update((data,))

    def read_segment(self, id: int) -> bytes | None:
        row = self._segments.getValue((id,))
        if row is None:
            return None
        self.read += len(row[0])
        return bytes(row[0])

    def write_segment(self, id: int, data: pa.Buffer) -> None:
        self.written += data.size
        self._segments.updateValue((id,), (data.to_pybytes(),))

    def remove_segment(self, id: int) -> None:
        self._segments.removeKey((id,))
