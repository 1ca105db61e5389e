"""Null-safe keys on a real Spark: `<=>` and IS NOT DISTINCT FROM give what Spark's own join gives."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, run

pytestmark = pytest.mark.spark

SECOND = 1_000_000


def bag(table: Any) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_null_meets_null_as_in_spark(spark: SparkSession, tmp_path: Path) -> None:
    """One key column is null-safe, the other is not; the NULL key is closed, too, and goes through `as_stream`."""
    feeds = {n: Feed(spark, tmp_path / n, f"k string, j long, {n}_ts timestamp, {n}_done boolean") for n in "ab"}
    for batch in range(2):
        for n, feed in feeds.items():
            keys = [(None, 1), (None, None), ("", 1), ("x", 1)][: 3 if n == "a" else 4]
            rows = [(k, j, (10 * batch + i) * SECOND, False) for i, (k, j) in enumerate(keys)]
            closing = [(None, 1, 15 * SECOND, True), ("", 1, 15 * SECOND, True)] if batch and n == "b" else []
            feed.add_rows(rows + closing)

    def joined(read: Any) -> wm.Joined:
        closes = {n: wm.when(f"{n}_done", on=["k", "j"]) for n in "ab"}
        a, b = (
            wm.stream(read(f), time=f"{n}_ts", window="1 hour", name=n, punctuation=closes[n]) for n, f in feeds.items()
        )
        return wm.join(a, b, on=["a.k <=> b.k", "j"], how="left", shards=2)

    plain = {n: f.static().where(f"NOT {n}_done") for n, f in feeds.items()}
    own = (
        plain["a"]
        .alias("a")
        .join(plain["b"].alias("b"), plain["a"].k.eqNullSafe(plain["b"].k) & (plain["a"].j == plain["b"].j), "left")
    )
    wanted = bag(own.select("a.k", "a.j", "a_ts", "b_ts").toArrow())
    assert bag(joined(Feed.static).df.select("k", "j", "a_ts", "b_ts").toArrow()) == wanted
    streamed = run(joined(Feed.stream).df.select("k", "j", "a_ts", "b_ts"), tmp_path / "checkpoint")
    assert bag(streamed.table) == wanted, "the rows without a partner have a NULL in j: they come at once"
    assert sum(m["purged"] for m in streamed.metrics) > 0
    left = wm.read_state(spark, tmp_path / "checkpoint").rows("a").collect()
    assert not [row for row in left if (row.k, row.j) in ((None, 1), ("", 1))]
    query = "SELECT a.k, a.j, a_ts, b_ts FROM a LEFT JOIN b ON a.k IS NOT DISTINCT FROM b.k AND a.j = b.j"
    streams = {n: wm.stream(df.drop(f"{n}_done"), time=f"{n}_ts", window="1 hour", name=n) for n, df in plain.items()}
    assert bag(wm.sql(query, **streams).df.toArrow()) == wanted
