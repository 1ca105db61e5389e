"""`spark.readStream.format("watersmeet")`: made-up streams to join, as a Spark data source.

    bids = spark.readStream.format("watersmeet").option("workload", "bids").option("rate", 20_000).load()

Sessions of `wm.session` have the format; any other session needs `register(spark)` first where Spark does not find it
by itself (`pyspark_watersmeet`).

Options: `workload` (a name in `watersmeet.workload.STREAMS`), `partitions` (tasks per batch, 2), `seconds` (the stream
ends after so much stream time; default: never), `batch_seconds` (so much of it in each batch but the last, and the
first batch is there at once; default: all that is there) or `rows_per_batch` (the same, as the rows that come in that
time on average), `speed` (seconds of stream time per second on the clock, 1; "inf": as fast as batches are taken), and
everything the workload itself takes, such as `rate`, `seed` and `delay`.

An offset is a stream time, `{"micros": 2500000}`, and the rows follow from it alone: a query that starts again reads
exactly the rows that it would have read, whatever the number of partitions.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

import pyarrow as pa
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from watersmeet.errors import QueryError
from watersmeet.spark.runtime.spark_versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    stream_reader,
)
from watersmeet.workload import SECOND, STREAMS, TableStream
from watersmeet.workload.arrivals import micros

Offset = dict[str, int]


def register(spark: SparkSession) -> None:
    """Make the format `watersmeet` known to a session."""
    try:
        spark.dataSource.register(WorkloadSource)
    except AnalysisException as error:  # Spark 4.0 found it by itself, and keeps that
        if error.getCondition() != "DATA_SOURCE_ALREADY_EXISTS":
            raise


@dataclass(frozen=True)
class Interval(InputPartition):
    """A piece of stream time, [start, end) in microseconds: what one task makes."""

    start: int
    end: int


@dataclass(frozen=True)
class SourceOptions:
    """The options of the format, read from text."""

    stream: TableStream
    partitions: int
    end: float  # microseconds of stream time; inf if the stream never ends
    speed: float
    batch_seconds: float  # inf: no limit

    @classmethod
    def read(cls, options: Mapping[str, str]) -> SourceOptions:
        rest = {name.lower(): text for name, text in options.items()}
        workload = rest.pop("workload", None)
        if workload not in STREAMS:
            raise QueryError(f"option `workload` is {workload!r}.", hint=f"it is one of {', '.join(STREAMS)}.")
        partitions = int(_positive(rest, "partitions", "2", whole=True))
        end = _positive(rest, "seconds", "inf") * SECOND
        speed = _positive(rest, "speed", "1")
        if "batch_seconds" in rest and "rows_per_batch" in rest:
            raise QueryError("options `batch_seconds` and `rows_per_batch` both set how long a batch is; give one.")
        batch_seconds = _positive(rest, "batch_seconds", "inf")
        rows = _positive(rest, "rows_per_batch", "inf")
        stream = STREAMS[workload](rest)
        return cls(stream, partitions, min(end, stream.end), speed, min(batch_seconds, rows / stream.rate))

    def cut(self, start: int, end: int) -> list[Interval]:
        """[start, end) in equal pieces, one per partition; empty pieces are left out."""
        cuts = [start + (end - start) * i // self.partitions for i in range(self.partitions + 1)]
        return [Interval(low, high) for low, high in pairwise(cuts) if low < high]

    def rows(self, piece: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one piece."""
        assert isinstance(piece, Interval), "partitions of this source are intervals"
        yield from self.stream.table(piece.start, piece.end).combine_chunks().to_batches()


class WorkloadSource(DataSource):
    """The format `watersmeet`, for streams and, with `seconds` given, for batches."""

    @classmethod
    def name(cls) -> str:
        return "watersmeet"

    def schema(self) -> StructType:
        return from_arrow_schema(SourceOptions.read(self.options).stream.schema)

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(SourceOptions.read(self.options))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return stream_reader(StreamReader(SourceOptions.read(self.options)))


@dataclass
class BatchReader(DataSourceReader):
    """The whole stream at once: what a batch query over the same rows sees."""

    options: SourceOptions

    def partitions(self) -> list[InputPartition]:
        return [*self.options.cut(0, _end_of(self.options, "a batch"))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.options.rows(partition)


@dataclass
class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Stream time runs on with the clock, from where the query starts or starts again."""

    options: SourceOptions
    _clock: float | None = field(default=None, init=False)  # when `_origin` was the latest offset
    _origin: int = field(default=0, init=False)
    _target: int | None = field(default=None, init=False)  # where a query with trigger availableNow ends

    def initialOffset(self) -> Offset:
        return {"micros": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.batch_seconds == inf:
            return ReadAllAvailable()
        return ReadMaxRows(max(1, round(self.options.batch_seconds * self.options.stream.rate)))

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = _end_of(self.options, "trigger availableNow")

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        began, latest = start["micros"], min(self._available(start["micros"]), self.options.end)
        if not isinstance(limit, ReadAllAvailable):  # our own limit, the rows of `batch_seconds`, comes back
            full = min(began + max(1, micros(self.options.batch_seconds)), self.options.end)
            latest = full if full <= latest else began
        if latest == inf:
            raise QueryError(
                'option `speed` is "inf", the stream has no end, and so has a batch.',
                hint="give `seconds` or `batch_seconds`.",
            )
        return {"micros": max(began, int(latest))}

    def partitions(self, start: Offset, end: Offset) -> list[Interval]:
        return self.options.cut(start["micros"], end["micros"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.options.rows(partition)

    def _available(self, start: int) -> float:
        """The stream time up to which rows exist by now."""
        if self._target is not None:
            return self._target
        if self.options.speed == inf:
            return inf
        now = time.monotonic()
        if self._clock is None:
            self._clock, self._origin = now, start
        ahead = 0 if self.options.batch_seconds == inf else self.options.batch_seconds
        return self._origin + (ahead + (now - self._clock) * self.options.speed) * SECOND


def _positive(options: dict[str, str], name: str, default: str, *, whole: bool = False) -> float:
    text = options.pop(name, default)
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        number = 0
    if not number > 0:
        raise QueryError(f"option `{name}` is {text!r}; it must be a positive {'whole ' if whole else ''}number.")
    return number


def _end_of(options: SourceOptions, purpose: str) -> int:
    if options.end == inf:
        raise QueryError(f"{purpose} needs an end of the stream.", hint="give option `seconds`.")
    return int(options.end)
