"""Where a pipeline writes: functions of (rows, batch number), for `wm.write`."""

from __future__ import annotations

from pyspark.sql import DataFrame

from watersmeet.pipelines.pipeline import Sink
from watersmeet.pipelines.words import FILES
from watersmeet.spark.pipelines.messages import encoded
from watersmeet.spark.write import Sink as Writes


def writer(sink: Sink) -> Writes:
    """What writes a batch. Files: exactly once, under ``batch=<number>``. Messages and others: at least once."""
    if sink.format in FILES:
        return _files(sink)
    if sink.format == "kafka":
        return _messages(sink)
    return _console(sink) if sink.format == "console" else _others(sink)


def _files(sink: Sink) -> Writes:
    def write(rows: DataFrame, batch: int) -> None:
        folder = f"{sink.path}/batch={batch:06d}"
        rows.write.format(sink.format).options(**sink.options).mode("overwrite").save(folder)

    return write


def _messages(sink: Sink) -> Writes:
    def write(rows: DataFrame, batch: int) -> None:
        encoded(rows, sink, batch).write.format("kafka").options(**sink.options).save()

    return write


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
