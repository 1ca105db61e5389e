"""`wm.write`: results and late rows to sinks of their own, each batch computed once, restarts included."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from tests.spark.feeds import Feed, failure, metrics_of
from watersmeet.errors import QueryError

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}
#: A text column of each stream, called like a column of `tagged`.
KINDS = {"a": "kind", "b": "stream"}


class Pair:
    """Two streams on key `k`. In batch n stream a brings keys 0 to 4, and 5 late ones; b brings keys 2 to 6."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        self.feeds = [
            Feed(spark, folder / n, f"k bigint, {n}_ts timestamp, {kind} string") for n, kind in KINDS.items()
        ]

    def add(self, batches: int) -> None:
        for n in range(self.feeds[0].files, self.feeds[0].files + batches):
            late = [(k, n - 100) for k in range(5)] if n else []
            self.feeds[0].add(table("a", [*((k, n) for k in range(5)), *late]))
            self.feeds[1].add(table("b", [(k, n) for k in range(2, 7)]))

    def joined(self) -> wm.Joined:
        streams = (
            wm.stream(feed.stream(), time=f"{n}_ts", window="0 seconds", name=n)
            for feed, n in zip(self.feeds, "ab", strict=True)
        )
        return wm.join(*streams, on="k")

    def write(self, **sinks: Any) -> StreamingQuery:
        query = wm.write(self.joined(), checkpoint=self.folder / "checkpoint", trigger=NOW, **sinks)
        query.awaitTermination()
        return query


def table(name: str, rows: list[tuple[int, int]]) -> pa.Table:
    times = pa.array([1_000_000 * second for _, second in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"k": [k for k, _ in rows], f"{name}_ts": times, KINDS[name]: [f"{k}" for k, _ in rows]})


class Rows:
    """A function sink that remembers what each batch gave it."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, df: DataFrame, number: int) -> None:
        self.batches[number] = sorted(tuple(row) for row in df.collect())


def test_results_and_late_rows_go_to_a_sink_each_and_a_batch_is_computed_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    pair, results, late = Pair(spark, tmp_path), Rows(), Rows()
    pair.add(2)
    query = pair.write(results=results, late=late)
    assert {n: [row[0] for row in rows] for n, rows in results.batches.items()} == {0: [2, 3, 4], 1: [2, 3, 4]}
    assert {len(row) for rows in results.batches.values() for row in rows} == {5}
    assert {n: len(rows) for n, rows in late.batches.items()} == {0: 0, 1: 5}
    told = [(stream, json.loads(row)["k"]) for stream, row, *_ in late.batches[1]]
    assert sorted(told) == [("a", k) for k in range(5)]
    # a batch that was computed twice would be counted twice
    assert [metrics["rows_in"] for metrics in metrics_of(query)] == [10, 15]
    assert [metrics["late"] for metrics in metrics_of(query)] == [0, 5]
    assert [metrics["results"] for metrics in metrics_of(query)] == [3, 3]


def test_a_sink_need_not_look_at_everything(spark: SparkSession, tmp_path: Path) -> None:
    """State is written by what reads a batch; a sink that reads a part of it, or nothing, must not lose the rest."""
    pair, seen = Pair(spark, tmp_path), []
    pair.add(3)

    def first_row(df: DataFrame, number: int) -> None:
        if number == 0:
            seen.append(df.isEmpty())
        elif number == 2:
            seen.extend(sorted(row.k for row in df.collect()))

    query = pair.write(results=first_row)
    assert seen == [False, 2, 3, 4]
    assert [metrics["rows_in"] for metrics in metrics_of(query)] == [10, 15, 15]


def test_folders_hold_each_batch_once_whatever_happens(spark: SparkSession, tmp_path: Path) -> None:
    pair, late = Pair(spark, tmp_path), Rows()
    pair.add(2)

    def fails(df: DataFrame, number: int) -> None:
        if number == 1:
            raise OSError("the sink for late rows is full")
        late(df, number)

    text = failure(lambda: pair.write(results=tmp_path / "results", late=fails))
    assert "the sink for late rows is full" in text
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == ["batch=000000", "batch=000001"]
    query = pair.write(results=str(tmp_path / "results"), late=tmp_path / "late")
    assert [metrics["rows_in"] for metrics in metrics_of(query)] == [15], "the interrupted batch, again"
    stored = spark.read.parquet(str(tmp_path / "results"))
    assert sorted((row["batch"], row["k"]) for row in stored.collect()) == [(n, k) for n in (0, 1) for k in (2, 3, 4)]
    assert stored.columns == ["k", "a_ts", "kind", "b_ts", "stream", "batch"]
    rows = spark.read.parquet(str(tmp_path / "late")).collect()
    assert sorted((row["stream"], json.loads(row["row"])["k"], row["batch"]) for row in rows) == [
        ("a", k, 1) for k in range(5)
    ]


def test_what_cannot_be_written_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path)
    pair.add(1)
    with pytest.raises(QueryError) as caught:
        wm.write(pair.joined(), checkpoint=tmp_path / "checkpoint")
    assert str(caught.value).startswith("`write` has no sink.\nHint: give `results`")
    static = wm.join(
        *(wm.stream(f.static(), time=f"{n}_ts", window="1 second") for f, n in zip(pair.feeds, "ab", strict=True)),
        on="k",
    )
    with pytest.raises(QueryError) as caught:
        wm.write(static, checkpoint=tmp_path / "checkpoint", results=tmp_path / "results")
    assert str(caught.value) == (
        "`write` starts a streaming query, and these streams are static DataFrames.\n"
        "Hint: use joined.df.write, or read the inputs with spark.readStream."
    )
