"""Tests of your own joins: streams from lists of batches, runs with restarts, and the batch answer beside them.

`feed` makes a stream from batches of rows, `Clock` gives their times, `check` runs a join over feeds, with a new start
after every batch, and compares results and state with the answer of the same call on static DataFrames.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType
from pyspark.sql.utils import is_remote

from watersmeet.errors import QueryError
from watersmeet.model import durations
from watersmeet.model.durations import Duration
from watersmeet.spark.checkpoints.state_reader import read_state
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.joined import Joined
from watersmeet.spark.progress.counters import counters
from watersmeet.spark.runtime.spark_versions import arrow_schema
from watersmeet.spark.session import bounded_run

__all__ = ["Clock", "Feed", "Outcome", "QueryOutput", "check", "feed", "run"]

Row = tuple[Any, ...]


class Clock:
    """A clock that stands still until it is moved, for event times.

    >>> clock = Clock("2026-05-01T10:00")
    >>> clock.move("90 seconds").isoformat(), clock.at("-30 seconds").isoformat()
    ('2026-05-01T10:01:30+00:00', '2026-05-01T10:01:00+00:00')
    """

    def __init__(self, start: str | datetime = "2026-01-01") -> None:
        given = start if isinstance(start, datetime) else datetime.fromisoformat(start)
        self.now = given if given.tzinfo is not None else given.replace(tzinfo=UTC)

    def at(self, distance: Duration) -> datetime:
        """The time at this distance from now; the clock stays where it is."""
        return self.now + timedelta(microseconds=durations.parse(distance, "distance"))

    def move(self, distance: Duration) -> datetime:
        """Move the clock, and return its new time."""
        self.now = self.at(distance)
        return self.now


@dataclass
class Feed:
    """A stream of Parquet files in a folder; each batch of a query takes the next one."""

    spark: SparkSession
    folder: Path
    schema: StructType | str
    files: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    def add(self, rows: pa.RecordBatch | pa.Table) -> None:
        """Another batch, as Arrow."""
        table = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        path = self.folder / f"{self.files:04d}.parquet"
        made = path.with_name(f".{path.name}")  # a running query must not see it half written, or with another time
        pq.write_table(table, made)
        os.utime(made, (1_000_000_000 + self.files,) * 2)  # files are taken in this order
        made.rename(path)
        self.files += 1

    def add_rows(self, rows: Sequence[Row]) -> None:
        """Another batch, as tuples; times are datetimes or microseconds."""
        schema = StructType.fromDDL(self.schema) if isinstance(self.schema, str) else self.schema
        assert isinstance(schema, StructType), "the schema of a table names its columns"
        kinds = arrow_schema(schema)
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(kinds)
        self.add(pa.table([pa.array(c, f.type) for c, f in zip(columns, kinds, strict=True)], schema=kinds))

    def batch(self, number: int) -> pa.Table:
        """The rows of a batch."""
        return pq.read_table(self.folder / f"{number:04d}.parquet")

    def stream(self) -> DataFrame:
        """A streaming DataFrame of the batches."""
        reader = self.spark.readStream.schema(self.schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(self.folder))

    def static(self) -> DataFrame:
        """A static DataFrame of all rows."""
        return self.spark.read.schema(self.schema).parquet(str(self.folder))


def feed(spark: SparkSession, schema: StructType | str, batches: Iterable[Sequence[Row]], folder: str | Path) -> Feed:
    """A stream whose batches are these lists of rows, as files in a new folder (in pytest: ``tmp_path / "bids"``)."""
    made = Feed(spark, Path(folder), schema)
    for rows in batches:
        made.add_rows(rows)
    return made


@dataclass
class QueryOutput:
    """The output tables of a query's batches, and its counters batch by batch."""

    tables: list[pa.Table] = field(default_factory=list)
    metrics: list[dict[str, Any]] = field(default_factory=list)

    @property
    def table(self) -> pa.Table:
        """All batches."""
        return pa.concat_tables(self.tables)


def run(df: DataFrame, checkpoint: str | Path) -> QueryOutput:
    """Process all available input of a streaming DataFrame, and stop. The next run with the checkpoint is a restart.

    As in `wm.write`, no batches without rows are run: those for an `idle_clock` would never end.
    """
    output = QueryOutput()
    if is_remote():
        return _run_remotely(df, checkpoint, output)
    query = _finished(df, lambda batch, _: output.tables.append(batch.toArrow()), checkpoint)
    output.metrics = [counters(progress) for progress in query.recentProgress]
    return output


def _run_remotely(df: DataFrame, checkpoint: str | Path, output: QueryOutput) -> QueryOutput:
    """The same over Spark Connect: the server calls the function of each batch, so the batches come as files."""
    with tempfile.TemporaryDirectory() as folder:
        query = _finished(df, lambda batch, n: batch.write.parquet(f"{folder}/{n:06d}"), checkpoint)
        output.tables = [_in_utc(pq.read_table(place)) for place in sorted(Path(folder).iterdir())]
    output.metrics = [counters(progress) for progress in query.recentProgress]
    return output


def _finished(df: DataFrame, each: Callable[[DataFrame, int], Any], checkpoint: str | Path) -> StreamingQuery:
    writer = df.writeStream.foreachBatch(each).option("checkpointLocation", str(checkpoint))
    trigger = {"availableNow": True}
    with bounded_run(df.sparkSession, trigger):
        query = writer.trigger(**trigger).start()
    query.awaitTermination()
    return query


def _in_utc(table: pa.Table) -> pa.Table:
    """The table with timestamps in UTC; Spark's files hold them as nanoseconds without a zone."""
    zoned = pa.timestamp("us", "UTC")
    return table.cast(pa.schema([(f.name, zoned if pa.types.is_timestamp(f.type) else f.type) for f in table.schema]))


@dataclass(frozen=True)
class Outcome:
    """What a join gave in `check`: rows as dictionaries.

    `results` came out of the streams, and `pending` is the part of the batch answer that has not come out yet:
    unmatched rows, rows that wait for their nearest one, and groups that are still in the state. `state` are the rows
    held of each stream at the end.
    """

    results: list[dict[str, Any]]
    pending: list[dict[str, Any]]
    state: dict[str, list[dict[str, Any]]]


def check(define: Callable[..., Joined | Grouped], *feeds: Feed) -> Outcome:
    """Run a join over feeds with a restart after every batch; raise an AssertionError if it differs from the batch.

    `define` makes the join (or final groups) of DataFrames, one for each feed, in this order. It is called with
    streaming DataFrames and with static ones. Every result must be in the batch answer, as often as it came; what the
    batch answer has beyond that must be in the state: an unmatched row, a row of an as-of join or a group that is not
    final yet. Rows that come late, or that violate a punctuation, have no place in a batch, so a run with such rows is
    refused. The clock of an `idle_clock` does not run.
    """
    with tempfile.TemporaryDirectory(prefix="watersmeet-check-") as folder:
        copies = [Feed(f.spark, Path(folder, str(i)), f.schema) for i, f in enumerate(feeds)]
        joined = define(*(copy.stream() for copy in copies))
        _refuse_updates(joined)
        tables, checkpoint = [], Path(folder, "checkpoint")
        for n in range(max(f.files for f in feeds)):
            for own, copy in zip(feeds, copies, strict=True):
                if n < own.files:
                    copy.add(own.batch(n))
            tables += run(joined.tagged, checkpoint).tables
        out = _in_utc(pa.concat_tables(tables)).to_pylist()
        state = read_state(feeds[0].spark, checkpoint)
        held = {name: _in_utc(state.rows(name).toArrow()).to_pylist() for name in state.streams}
    _refuse_rows(out)
    results = [{name: row[name] for name in joined.names} for row in out if row["kind"] == "result"]
    answer = _in_utc(define(*(f.static() for f in feeds)).df.toArrow()).to_pylist()
    return Outcome(results, _pending(results, answer, *_expected(joined, held)), held)


def _refuse_updates(joined: Joined | Grouped) -> None:
    if isinstance(joined, Grouped) and joined.query.group_by.emit != "final":
        raise QueryError(
            '`check` compares final groups, and these have emit="update": a group comes out several times.',
            hint='use emit="final", or compare the last row of each group yourself: testing.run(joined.df, …).',
        )


def _refuse_rows(out: Sequence[dict[str, Any]]) -> None:
    apart = [row for row in out if row["kind"] in ("late", "violation")]
    if apart:
        kinds = Counter((row["kind"], row["stream"]) for row in apart)
        counted = ", ".join(f"{n} {kind} of stream `{stream}`" for (kind, stream), n in sorted(kinds.items()))
        raise AssertionError(
            f"rows were set apart ({counted}), e.g. {apart[0]['row']}; a batch has no such rows, so its answer is "
            "another.\nHint: raise `delay` of the stream, or correct the punctuation; "
            "testing.run(joined.tagged, …) shows all."
        )


def _expected(joined: Joined | Grouped, held: dict[str, list[dict[str, Any]]]) -> tuple[Counter[str], Sequence[str]]:
    """Results that rows in the state may still become, by these columns.

    They are groups, unmatched rows with NULL for other streams, and rows of an as-of join, whatever their nearest row.
    """
    names = joined.names
    if isinstance(joined, Grouped):
        return Counter(_text(_columns(row, names)) for row in held.get("groups", ())), names
    query = joined.query
    out: Counter[str] = Counter()
    if query.asof is not None:
        left = query.streams[0]
        names = [name for name in names if name in left.schema.names]
        return Counter(_text(_columns(row, names)) for row in held.get(left.name, ())), names
    for i in query.preserved:
        spec = query.streams[i]
        called = dict(zip(spec.key, query.streams[0].key, strict=True))
        for row in held.get(spec.name, ()):
            own = {called.get(name, name): row[name] for name in spec.schema.names}
            out[_text({name: own.get(name) for name in names})] += 1
    return out, names


def _columns(row: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: row[name] for name in names}


def _pending(
    results: Sequence[dict[str, Any]], answer: Sequence[dict[str, Any]], expected: Counter[str], names: Sequence[str]
) -> list[dict[str, Any]]:
    found, wanted = Counter(map(_text, results)), Counter(map(_text, answer))
    left_over, out = wanted - found, []
    for row in answer:
        if left_over[_text(row)] > 0:
            left_over[_text(row)] -= 1
            out.append(row)
    missing = Counter(_text(_columns(row, names)) for row in out)
    for what, rows in (("not in the batch answer", found - wanted), ("missing", missing - expected)):
        if rows:
            shown = "\n".join(f"  {row}" for row in sorted(rows.elements())[:5])
            raise AssertionError(
                f"{rows.total()} of {wanted.total()} results are {what}, e.g.\n{shown}\nHint: a missing result may "
                "wait for time to pass: add a last batch to every stream with later times (Clock.move) and keys of "
                "its own."
            )
    return out


def _text(row: dict[str, Any]) -> str:
    """A row as something to compare: values may be lists or NaN."""
    return repr(row)
