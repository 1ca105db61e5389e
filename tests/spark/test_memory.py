"""Joins with windows whose state is larger than their memory: exact, and the memory is kept."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, remove_working_states
from watersmeet.errors import QueryError
from watersmeet.spark.runtime import worker_cache
from watersmeet.state.durable.cache import files_of

pytestmark = pytest.mark.spark

ROWS = 2000
TEXT = 1000


class Texts:
    """Two streams of rows with long texts, of which every one has one partner in a later batch."""

    def __init__(self, spark: SparkSession, tmp_path: Path) -> None:
        self.feeds = {n: Feed(spark, tmp_path / n, f"k long, {n}_at timestamp, {n} string") for n in "ab"}

    def add(self, batch: int) -> None:
        keys = range(batch * ROWS, (batch + 1) * ROWS)
        self.feeds["a"].add_rows([(k, k * 1000, f"{k:07d}" * (TEXT // 7)) for k in keys])
        earlier = [k - 3 * ROWS for k in keys]
        self.feeds["b"].add_rows([(k, (k + 3 * ROWS) * 1000, f"{k:09d}" * (TEXT // 9)) for k in earlier])

    def joined(self, **options: Any) -> wm.Joined:
        streams = [wm.stream(f.stream(), time=f"{n}_at", window="1 hour", name=n) for n, f in self.feeds.items()]
        return wm.join(*streams, on="k", **options)

    def nearest(self, **options: Any) -> wm.Joined:
        a, b = (wm.stream(f.stream(), time=f"{n}_at", name=n) for n, f in self.feeds.items())
        return wm.join_asof(b, a, on="k", how="inner", tolerance="1 hour", **options)


@pytest.mark.parametrize(
    ("kind", "memory", "open_rows", "stored"), [("joined", 8, 0, 16 * ROWS), ("nearest", 4, 1, 8 * ROWS + 1)]
)
def test_a_join_three_times_larger_than_its_memory_is_exact(
    spark: SparkSession, tmp_path: Path, kind: str, memory: int, open_rows: int, stored: int
) -> None:
    """Over a restart on a machine that has nothing of it. The last row of an as-of join is not final yet."""
    texts, found = Texts(spark, tmp_path), Counter[Any]()
    joined = getattr(texts, kind)(memory=f"{memory} MB", shards=2)

    def collect(results: DataFrame, batch: int) -> None:
        rows = results.toArrow().to_pylist()
        found.update((r["k"], r["a"][:7], r["b"][:9], len(r["a"])) for r in rows)

    for half in range(2):
        for n in range(4 * half, 4 * half + 4):
            texts.add(n)
        if half:
            remove_working_states()
        query = wm.write(joined, results=collect, checkpoint=tmp_path / "checkpoint", trigger={"availableNow": True})
        query.awaitTermination()
    assert found == Counter((k, f"{k:07d}", f"{k:09d}", TEXT // 7 * 7) for k in range(5 * ROWS - open_rows))
    last = [counted for progress in query.recentProgress if (counted := wm.counters(progress))][-1]
    assert last["stored"] == stored
    assert last["state_bytes"] > 3 * memory << 20
    assert last["spilled_bytes"] > last["state_bytes"] - (memory << 20)
    states = worker_cache.folder(os.path.abspath(SparkFiles.getRootDirectory())) / "states"
    in_memory = sum(file.lstat().st_size for folder in states.iterdir() for file in folder.iterdir())
    assert in_memory < (memory << 20) + (64 << 10), "lists, rows that have room, and lists of files"
    spilled = [file for folder in states.iterdir() for file in files_of(folder) if file.parent != folder]
    assert sum(file.stat().st_size for file in spilled) >= last["spilled_bytes"]
    assert "blockmgr-" in str(spilled[0].resolve()), "in a local folder of Spark's"
    assert "of it spilled to disk" in str(joined.explain(query))


def test_when_rows_spill_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    texts = Texts(spark, tmp_path)
    given = {n: {"rate": 1000, "keys": 1000, "row_bytes": 500} for n in "ab"}
    facts = texts.joined(memory="1 GB").explain(statistics=given).to_dict()["memory"]
    assert (facts["bytes"], facts["spills_after_s"]) == (1 << 30, pytest.approx((1 << 30) / 1e6))
    text = "1 GB of lists and rows; state predicted 3.6 GB: rows spill to disk from about 18 minutes on"
    assert facts["text"] == text
    assert f"  memory: {text}" in str(texts.joined(memory="1 GB").explain(statistics=given)).splitlines()
    enough = texts.joined(memory="4 GB").explain(statistics=given)
    assert enough.to_dict()["memory"]["text"] == "4 GB of lists and rows; state predicted 3.6 GB: no rows spill to disk"
    assert "memory" not in texts.joined().explain(statistics=given).to_dict()
    warnings = texts.joined(memory="1 MB").explain(statistics=given).to_dict()["warnings"]
    assert any(w.startswith("`memory` is 1 MB, and the lists alone, which stay in memory") for w in warnings)
    assert "state predicted more than 1.0 TB: rows spill" in str(texts.joined(memory="1 GB").explain(statistics=LARGE))


#: A state of petabytes.
LARGE = {n: {"rate": 1e9, "keys": 1000, "row_bytes": 500} for n in "ab"}


@pytest.mark.parametrize(
    ("memory", "message"),
    [
        (256, "`memory` is 256; a number alone could be bytes or megabytes.\nHint: write it with its unit"),
        ("256", "`memory` is '256'; a number alone could be bytes or megabytes.\nHint: write it with its unit"),
        ("-5", "`memory` is '-5'; a number alone could be bytes or megabytes."),
        ("0 MB", "`memory` is '0 MB'; the rows that are joined need some.\nHint: write it like"),
        ("-1 MB", "`memory` is '-1 MB'; that is not an amount of memory.\nHint: write it like"),
        ("much", "`memory` is 'much'; that is not an amount of memory."),
    ],
)
def test_what_is_no_amount_of_memory_is_refused(spark: SparkSession, tmp_path: Path, memory: Any, message: str) -> None:
    with pytest.raises(QueryError) as caught:
        Texts(spark, tmp_path).joined(memory=memory)
    assert str(caught.value).startswith(message)


def test_a_strategy_is_for_joins_without_windows(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(QueryError, match="`strategy` is about joins that find by themselves what to keep"):
        Texts(spark, tmp_path).joined(memory="1 MB", strategy="dbf")


def test_operators_and_shards_divide_the_memory(spark: SparkSession, tmp_path: Path) -> None:
    kinds = {
        "a": "k long, a_at timestamp, x long",
        "b": "k long, b_at timestamp, y long",
        "c": "y long, c_at timestamp",
    }
    streams = [
        wm.stream(Feed(spark, tmp_path / n, kind).stream(), time=f"{n}_at", window="1 minute", name=n)
        for n, kind in kinds.items()
    ]
    tree = wm.join(*streams, on=["a.k = b.k", "b.y = c.y"], memory="8 MB", shards=4)
    assert [one.memory for one in (*tree.inner, tree)] == [4 << 20, 4 << 20]
    assert tree.shard_memory == 1 << 20
