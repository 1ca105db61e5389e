"""Interval joins on a real Spark: what Spark's own batch join gives, over a restart, in Python and in SQL."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.spark.feeds import Feed, remove_working_states, run

pytestmark = pytest.mark.spark

SECOND = 1_000_000
NAMES = ("k", "a_ts", "b_ts")
QUERY = """
    SELECT A.k, a_ts, b_ts FROM a A LEFT JOIN b B ON A.k = B.k
    AND b_ts >= a_ts + INTERVAL 20 SECONDS AND b_ts < a_ts + INTERVAL 50 SECONDS
"""


def rows(table: Any) -> Counter[Any]:
    return Counter(tuple(row[name] for name in NAMES) for row in table.to_pylist())


def test_a_left_join_within_bounds_is_sparks_over_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    feeds = [Feed(spark, tmp_path / name, f"k long, {name}_ts timestamp") for name in "ab"]
    checkpoint = tmp_path / "checkpoint"

    def streams(read: Any = Feed.stream) -> list[wm.Stream]:
        return [wm.stream(read(f), time=f"{n}_ts", delay="5 seconds", name=n) for f, n in zip(feeds, "ab", strict=True)]

    def joined() -> wm.Joined:
        bounds = ("20 seconds", timedelta(seconds=50))
        return wm.join(*streams(), on="k", how="left", between=bounds, closed="left", shards=2)

    found: Counter[Any] = Counter()
    for half in range(2):
        for n in (2 * half, 2 * half + 1):
            feeds[0].add_rows([(k % 4, (30 * n + k) * SECOND) for k in range(8)])
            feeds[1].add_rows([(k % 4, (30 * n + 3 * k) * SECOND) for k in range(8)])
        found += rows(run(joined().df, checkpoint).table)
        if half == 0:
            remove_working_states()
    a, b = (f.static() for f in feeds)
    within = F.expr("a.k = b.k AND b_ts >= a_ts + INTERVAL 20 SECONDS AND b_ts < a_ts + INTERVAL 50 SECONDS")
    wanted = rows(a.alias("a").join(b.alias("b"), within, "left").select("a.k", "a_ts", "b_ts").toArrow())
    # the newest of a is at 97 s and of b at 111 s: their watermarks are 5 s behind
    state = wm.read_state(spark, checkpoint)
    stored = [Counter((r["k"], r[f"{n}_ts"]) for r in state.rows(n).toArrow().to_pylist()) for n in "ab"]
    kept_a = Counter((r["k"], r["a_ts"]) for r in a.toArrow().to_pylist() if r["a_ts"].timestamp() + 50 > 106)
    kept_b = Counter((r["k"], r["b_ts"]) for r in b.toArrow().to_pylist() if r["b_ts"].timestamp() - 20 >= 92)
    assert stored == [kept_a, kept_b]
    waiting = Counter((k, t, None) for k, t in kept_a.elements() if (k, t, None) in wanted)
    assert found + waiting == wanted
    assert "partners from + 20 seconds to + 49 seconds" in repr(joined())
    assert rows(wm.sql(QUERY, **dict(zip("ab", streams(Feed.static), strict=True))).df.toArrow()) == wanted


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_full_join_within_the_same_ten_seconds_is_sparks(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    feeds = [Feed(spark, tmp_path / name, f"k long, {name}_ts {kind}") for name in "ab"]
    for n in range(3):
        feeds[0].add_rows([(k % 3, moment(12 * n + k - 20, kind)) for k in range(8)])
        feeds[1].add_rows([(k % 2, moment(12 * n + 2 * k - 20, kind)) for k in range(6)])
    checkpoint = tmp_path / "checkpoint"
    a, b = (wm.stream(f.stream(), time=f"{n}_ts", name=n) for f, n in zip(feeds, "ab", strict=True))
    joined = wm.join(a, b, on=["k", wm.bucket("a_ts", "10 seconds", name="start")], how="full", shards=2)
    found = Counter(tuple(row.values()) for row in run(joined.df, checkpoint).table.to_pylist())
    sides = [
        f.static().withColumn("start", F.window(f"{n}_ts", "10 seconds").start)
        for f, n in zip(feeds, "ab", strict=True)
    ]
    whole = sides[0].join(sides[1], ["k", "start"], "full").select("k", "start", "a_ts", "b_ts")
    wanted = Counter(tuple(row.values()) for row in whole.toArrow().to_pylist())
    state = wm.read_state(spark, checkpoint)
    # the streams end at 11 and 14 seconds: rows from 10 seconds on may still match, and no others are stored
    kept = [Counter((row.k, row[f"{n}_ts"]) for row in state.rows(n).collect()) for n in "ab"]
    assert kept == [
        Counter(tuple(r) for r in f.static().where(f"{n}_ts >= '1970-01-01 00:00:10'").collect())
        for f, n in zip(feeds, "ab", strict=True)
    ]
    assert not found - wanted
    assert all(start.second == 10 and start.minute == 0 for _, start, _, _ in wanted - found)
    text = joined.explain().to_dict()["streams"][0]["retention"]
    assert text.startswith("a row is kept until b is past the end of its 10 seconds of a_ts (watermark")


def moment(second: int, kind: str) -> datetime:
    zone = UTC if kind == "timestamp" else None
    return datetime(1970, 1, 1, tzinfo=zone) + timedelta(seconds=second)
