"""`wm.write`: one streaming query, several outputs, each batch computed once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from watersmeet.errors import QueryError
from watersmeet.spark import operators
from watersmeet.spark.grouping import Grouped
from watersmeet.spark.kinds import KIND, LATE, PUNCTUATION, RESULT, VIOLATION
from watersmeet.spark.pipeline import Joined

#: A function of (rows, batch number), or a folder for parquet files.
Sink = Callable[[DataFrame, int], Any] | str | Path


def write(
    joined: Joined | Grouped,
    *,
    checkpoint: str | Path,
    results: Sink | None = None,
    late: Sink | None = None,
    punctuations: Sink | None = None,
    trigger: str | dict[str, Any] | None = None,
) -> StreamingQuery:
    """Start a query that sends results (or groups), late rows and output punctuations to a sink each.

    Violating rows go with the late ones; both come as `stream`, `row` (JSON), `shard` and `kind` ("late", "violation").

    A sink is a function of ``(DataFrame, batch number)``, or a folder: each batch is written there as parquet under
    ``batch=<number>``, replacing what an interrupted attempt left. Delivery is at least once, and exactly once for
    sinks that are idempotent by batch number, as folders are. The batch is computed once and kept while they read it.
    `trigger` is a duration ("10 seconds") or what ``DataStreamWriter.trigger`` takes, as a dictionary.
    """
    if not joined.streaming:
        raise QueryError(
            "`write` starts a streaming query, and these streams are static DataFrames.",
            hint="use joined.df.write, or read the inputs with spark.readStream.",
        )
    if not (results or late or punctuations):
        raise QueryError("`write` has no sink.", hint="give `results`, `late` or `punctuations`.")
    names = joined.names

    def split(batch: DataFrame, number: int) -> None:
        columns = [operators.quoted(name) for name in names]
        kind = F.when(F.col(KIND) == LATE, "late").otherwise("violation").alias("kind")
        sinks = (
            (results, (RESULT,), columns),
            (late, (LATE, VIOLATION), [*operators.about(), kind]),
            (punctuations, (PUNCTUATION,), operators.about()),
        )
        batch.persist()
        batch.count()  # all of it, even if a sink looks at a part: what is not computed writes no state
        try:
            for sink, kinds, selected in sinks:
                if sink is not None:
                    _send(batch.where(F.col(KIND).isin(*kinds)).select(*selected), sink, number)
        finally:
            batch.unpersist()

    options = {"processingTime": trigger} if isinstance(trigger, str) else trigger or {}
    writer = joined._rows.writeStream.foreachBatch(split).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**options) if options else writer).start()


def _send(rows: DataFrame, sink: Sink, number: int) -> None:
    if callable(sink):
        sink(rows, number)
    else:
        rows.write.mode("overwrite").parquet(str(Path(sink) / f"batch={number:06d}"))
