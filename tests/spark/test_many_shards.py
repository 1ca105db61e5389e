"""The progress of many shards, as Spark makes it of their reports."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, divided
from watersmeet.spark.progress.counters import observed
from watersmeet.spark.progress.other_shards import LISTED, LISTED_BYTES, with_sums
from watersmeet.spark.progress.summary import BatchSummary
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, STATS

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(("letters", "listed"), [(0, LISTED), (4_900, 25), (LISTED_BYTES, 1)])
def test_the_progress_of_many_shards_is_bounded(spark: SparkSession, letters: int, listed: int) -> None:
    """Reports with a key that looks like their end, and not all with the same numbers; the last shards are slowest."""
    key = ', "time_us": 1, "sums": {"rows_in": 7}}' + "x" * letters
    stream = {"name": "a", "rows_in": 2, "late": 0, "violations": 0, "stored": 1, "hot": [[key, 0.5]]}
    reports: list[dict[str, Any]] = [
        {"shard": n, "rows_in": 2, "join_us": n, "watermarks": [5], "streams": [stream], "predicted": {"stored": 1}}
        for n in range(100)
    ]
    for report in reports[::3]:
        report["emit_us"] = 1
    texts = [(STATS, json.dumps(with_sums(r))) for r in reports]
    rows = spark.createDataFrame([*texts, (0, "a result")], f"`{KIND}` int, `{DETAIL}` string")
    (found,) = rows.agg(observed(KIND, STATS, DETAIL, 100)).collect()
    assert len(found[0]) == listed + 1
    assert sum(map(len, found[0])) < LISTED_BYTES + max(len(text) for _, text in texts) + 1_000
    summary = BatchSummary.of_shards([json.loads(report) for report in found[0]])
    assert summary is not None
    assert list(summary.shards) == reports[-listed:]
    assert summary.shard_count == 100
    assert summary.counters["rows_in"] == 200
    assert summary.counters["join_us"] == sum(range(100))
    assert summary.counters["emit_us"] == 34
    assert summary.counters["predicted"] == {"stored": 100}
    assert summary.others is not None
    assert summary.others["streams"][0]["stored"] == 100 - listed


def test_reports_are_ranked_and_summed_once_all_are_there(spark: SparkSession) -> None:
    """Spark evaluates metrics whenever a task ends: with a task for each shard the driver would do it for each."""
    texts = [(STATS, json.dumps(with_sums({"shard": n, "rows_in": 2, "watermarks": [5]}))) for n in range(100)]
    rows = spark.createDataFrame(texts, f"`{KIND}` int, `{DETAIL}` string")
    (row,) = rows.agg(
        observed(KIND, STATS, DETAIL, 101).alias("some"), observed(KIND, STATS, DETAIL, 100).alias("all")
    ).collect()
    assert row["some"] == []
    assert len(row["all"]) == LISTED + 1


@pytest.mark.more
def test_every_operator_of_a_tree_has_the_reports_of_all_shards(spark: SparkSession, tmp_path: Path) -> None:
    """In each batch that has rows, also of one stream alone: no shard is left out where others are called."""
    kinds = {
        "a": "k long, a_at timestamp, x long",
        "b": "k long, b_at timestamp, y long",
        "c": "y long, c_at timestamp",
    }
    feeds = {name: Feed(spark, tmp_path / name, kind) for name, kind in kinds.items()}
    shards, batches = LISTED + 6, ({"a": [(1, 1000, 1)], "b": [(1, 1000, 7)], "c": [(7, 1000)]}, {"b": [(1, 2000, 7)]})
    for given in batches:
        for name, rows in given.items():
            feeds[name].add_rows(rows)
        streams = [wm.stream(f.stream(), time=f"{n}_at", window="1 minute", name=n) for n, f in feeds.items()]
        with divided(spark, shards, tasks=2):
            joined = wm.join(*streams, on=["a.k = b.k", "b.y = c.y"])
            about = {"checkpoint": tmp_path / "checkpoint", "results": tmp_path / "out"}
            query = wm.write(joined, trigger={"availableNow": True}, **about)
            query.awaitTermination()
        progress = next(p for p in query.recentProgress if p.numInputRows)
        operators = {name.split("#")[0] for name in progress.observedMetrics}
        assert len(operators) == 2
        for name in operators:
            counters = wm.counters(progress, metrics=name)
            assert len(counters["shards"]) + counters["others"]["shards"] == shards, name
