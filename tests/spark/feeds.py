"""Streams of files, one per stream and batch, and what a query over them says."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

import watersmeet as wm
from watersmeet.spark import worker_cache


@dataclass
class Feed:
    """A stream of parquet files; each batch of a query takes the next one."""

    spark: SparkSession
    folder: Path
    schema: StructType | str
    files: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        path = self.folder / f"{self.files:04d}.parquet"
        made = path.with_name(f".{path.name}")  # a running query must not see it half written, or with another time
        pq.write_table(table, made)
        os.utime(made, (1_000_000_000 + self.files,) * 2)  # files are taken in this order
        made.rename(path)
        self.files += 1

    def add_rows(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """The same from tuples; times are datetimes or microseconds."""
        schema = StructType.fromDDL(self.schema) if isinstance(self.schema, str) else self.schema
        kinds = to_arrow_schema(schema, timezone="UTC")
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(kinds)
        self.add(pa.table([pa.array(c, f.type) for c, f in zip(columns, kinds, strict=True)], schema=kinds))

    def stream(self) -> DataFrame:
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))

    def static(self) -> DataFrame:
        return self.spark.read.schema(self.schema).parquet(str(self.folder))


@dataclass
class Told:
    """What a query's batches said, and its observed metrics batch by batch."""

    tables: list[pa.Table] = field(default_factory=list)
    metrics: list[dict[str, int]] = field(default_factory=list)

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self.tables)


def run(df: DataFrame, checkpoint: Path) -> Told:
    """Take all there is, and stop."""
    told = Told()
    if is_remote():
        return _run_over_there(df, checkpoint, told)
    writer = df.writeStream.foreachBatch(lambda batch, _: told.tables.append(batch.toArrow()))
    query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    told.metrics = metrics_of(query)
    return told


def _run_over_there(df: DataFrame, checkpoint: Path, told: Told) -> Told:
    """The same over Spark Connect: what is done with a batch is done by the server, so the batches come as files."""
    with tempfile.TemporaryDirectory() as folder:
        writer = df.writeStream.foreachBatch(lambda batch, n: batch.write.parquet(f"{folder}/{n:06d}"))
        query = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        told.tables = [_in_utc(pq.read_table(place)) for place in sorted(Path(folder).iterdir())]
    told.metrics = metrics_of(query)
    return told


def _in_utc(table: pa.Table) -> pa.Table:
    """With the times that Spark's files hold as nanoseconds of no zone."""
    zoned = pa.timestamp("us", "UTC")
    return table.cast(pa.schema([(f.name, zoned if pa.types.is_timestamp(f.type) else f.type) for f in table.schema]))


def metrics_of(query: StreamingQuery) -> list[dict[str, Any]]:
    """Counters of each batch."""
    return [wm.counters(progress) for progress in query.recentProgress]


def forget_working_states() -> None:
    """As on a machine that has never seen the query."""
    root = worker_cache.folder(os.path.abspath(SparkFiles.getRootDirectory()))
    assert list((root / "states").iterdir()), "there was something to forget"
    shutil.rmtree(root)


def failure(start: Callable[[], Any]) -> str:
    """The text with which a query ends."""
    from pyspark.errors import StreamingQueryException

    try:
        start()
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query did not fail")


def rows(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of these columns, in order."""
    return sorted(tuple(row.values()) for row in table.select(names).to_pylist())
