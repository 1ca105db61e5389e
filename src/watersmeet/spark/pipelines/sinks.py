"""The sinks of a pipeline: functions of (rows, batch number), for `wm.write`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pyspark.sql import DataFrame

from watersmeet.pipelines.pipeline import Sink
from watersmeet.pipelines.schema import FILES, TABLES
from watersmeet.spark.checkpoints.result_folder import Folder, location
from watersmeet.spark.lake_tables import delta, iceberg
from watersmeet.spark.pipelines.messages import encoded
from watersmeet.spark.write import Sink as Writes


def writer(sink: Sink) -> Writes:
    """The writer of a sink. Files and tables: each batch exactly once. Messages and others: at least once."""
    if sink.format in FILES:
        return Folder(location(sink.path, sink.name), sink.name, sink.format, sink.options)
    if sink.format in TABLES:
        assert sink.path is not None, "validated when the pipeline was read"
        return (delta if sink.format == "delta" else iceberg)(sink.path, **sink.options)
    if sink.format == "kafka":
        return Topic(sink)
    return _console(sink) if sink.format == "console" else _others(sink)


@dataclass(frozen=True)
class Topic:
    """A topic of Kafka."""

    sink: Sink
    reads_once: ClassVar[bool] = True

    def __call__(self, rows: DataFrame, batch: int) -> None:
        encoded(rows, self.sink, batch).write.format("kafka").options(**self.sink.options).save()


def _console(sink: Sink) -> Writes:
    def write(rows: DataFrame, batch: int) -> None:
        if not rows.isEmpty():
            print(f"{sink.name} of batch {batch}")
            rows.show(int(sink.options.get("numRows", 20)), truncate=sink.options.get("truncate", "false") == "true")

    return write


def _others(sink: Sink) -> Writes:
    def write(rows: DataFrame, batch: int) -> None:
        writes = rows.write.format(sink.format).options(**sink.options).mode("append")
        writes.save(sink.path) if sink.path is not None else writes.save()

    return write
