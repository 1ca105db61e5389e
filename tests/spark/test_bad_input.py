"""Rows that nobody would send, through a real Spark: an exact result or an error by name."""

from __future__ import annotations

import struct
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from hashlib import md5
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from lab.spark.feeds import Feed, failure, run
from watersmeet.spark.session import BATCH_BYTES, BATCH_ROWS, FEW_ROWS, LIMITS, MANY_ROWS

pytestmark = pytest.mark.spark

NAN, ANOTHER_NAN = float("nan"), struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
FIRST, LAST = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
NOON = datetime(2026, 3, 29, 12, tzinfo=UTC)


def feeds(spark: SparkSession, folder: Path, key: str, payload: str = "string") -> list[Feed]:
    return [Feed(spark, folder / s, f"k {key}, {s}_ts timestamp, {s}_v {payload}") for s in "ab"]


def joined(both: list[Feed], window: str = "10 seconds", how: str = "inner") -> wm.Joined:
    streams = [
        wm.stream(f.stream(), time=f"{s}_ts", window=window, delay="5 seconds", name=s)
        for s, f in zip("ab", both, strict=True)
    ]
    return wm.join(*streams, on="k", how=how)


def values(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(table.column(c).to_pylist() for c in ("a_v", "b_v")), strict=True))


def test_nan_nulls_zeros_and_the_first_and_last_instant(spark: SparkSession, tmp_path: Path) -> None:
    both = feeds(spark, tmp_path, "double")
    keys = [NAN, -0.0, float("inf"), None, 5e-324]
    same = [ANOTHER_NAN, 0.0, float("inf"), None, 5e-324]
    for at, word in ((FIRST, "first"), (NOON, "now"), (LAST, "last")):
        both[0].add_rows([(k, at, f"{word} {n}") for n, k in enumerate(keys)] + [(1.0, None, "no time")])
        both[1].add_rows([(k, at, None if n == 1 else f"{word} {n}") for n, k in enumerate(same)])
    output = run(joined(both).tagged, tmp_path / "checkpoint").table
    results = output.filter(pc.equal(output.column("kind"), "result"))
    words = [f"{word} {n}" for word in ("first", "now", "last") for n in (0, 1, 2, 4)]
    assert values(results) == Counter((w, None if w.endswith("1") else w) for w in words)
    late = output.filter(pc.equal(output.column("kind"), "late"))
    assert late.num_rows == 3, "a row without a time is late, each time"


@pytest.mark.parametrize("here", ["UTC", "America/New_York"])
def test_times_of_all_zones_are_one_time(spark: SparkSession, tmp_path: Path, here: str) -> None:
    """Stream a has texts with offsets and one without, by the session's clock; b has files of several zones."""
    a = Feed(spark, tmp_path / "a", "k string, a_ts string, a_v string")
    b = Feed(spark, tmp_path / "b", "k string, b_ts timestamp, b_v string")
    zones = [timezone(timedelta(hours=h, minutes=m)) for h, m in ((-12, 0), (0, 0), (5, 45), (14, 0))]
    local = NOON.astimezone(ZoneInfo(here)).replace(tzinfo=None)
    texts = [*(NOON.astimezone(zone).isoformat() for zone in zones), local.isoformat()]
    a.add_rows([("", text, text) for text in texts])
    for n, zone in enumerate(("+05:45", "Asia/Tokyo", "UTC", "America/St_Johns")):
        kinds = pa.schema([("k", pa.string()), ("b_ts", pa.timestamp("us", zone)), ("b_v", pa.string())])
        b.add(pa.table([[""], pa.array([NOON], kinds.field(1).type), ["x" * n]], schema=kinds))
    usual = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", here)
    try:
        frames = {"a": a.stream().withColumn("a_ts", F.to_timestamp("a_ts")), "b": b.stream()}
        streams = [wm.stream(df, time=f"{s}_ts", window="0 seconds", name=s) for s, df in frames.items()]
        found = run(wm.join(*streams, on="k").df, tmp_path / "checkpoint").table
    finally:
        spark.conf.set("spark.sql.session.timeZone", usual)
    wanted = Counter((text, "x" * n) for text in texts for n in range(4))
    assert values(found) == wanted, "an empty string is a key, and all these are the same instant"


def test_empty_batches_and_huge_texts(spark: SparkSession, tmp_path: Path) -> None:
    both = feeds(spark, tmp_path, "string")
    text = "ü" * (34 << 20)  # 68 MB, larger than a segment and than a table of results
    both[0].add_rows([])
    both[1].add_rows([])
    both[0].add_rows([(text[:1000], NOON, text), ("", NOON, "")])
    both[1].add_rows([])
    both[0].add_rows([])
    both[1].add_rows([(text[:1000], NOON, "b"), ("", NOON, None), (text[:1000], NOON, "c")])
    df = joined(both).df.selectExpr("length(a_v) AS a_v", "md5(a_v) AS sum", "b_v")
    found = run(df, tmp_path / "checkpoint").table
    assert values(found) == Counter([(0, None), (len(text), "b"), (len(text), "c")])
    assert set(found.column("sum").to_pylist()) == {md5(t.encode()).hexdigest() for t in (text, "")}


@pytest.mark.more
def test_a_huge_batch(spark: SparkSession, tmp_path: Path) -> None:
    """A million rows of each stream at once."""
    both, many = feeds(spark, tmp_path, "bigint", "bigint"), 1_000_000
    for s, feed in zip("ab", both, strict=True):
        keys = np.random.default_rng(1).permutation(many) if s == "b" else np.arange(many)
        times = pa.array(np.full(many, int(NOON.timestamp()) * 1_000_000), pa.timestamp("us", "UTC"))
        feed.add(pa.table({"k": keys, f"{s}_ts": times, f"{s}_v": keys * 3}))
    df = joined(both).df.where("a_v = b_v").selectExpr("count(*) AS n", "sum(k) AS k")
    query = df.writeStream.format("memory").queryName("huge").outputMode("complete")
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert spark.table("huge").collect() == [(many, many * (many - 1) // 2)]


def test_a_schema_that_changes_under_a_running_query_is_an_error_and_nothing_is_lost(
    spark: SparkSession, tmp_path: Path
) -> None:
    both, out = feeds(spark, tmp_path, "bigint", "bigint"), tmp_path / "out"

    def start() -> StreamingQuery:
        writer = (
            joined(both).df.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        )
        return writer.start(str(out))

    query = start()
    both[0].add_rows([(1, NOON, 10)])
    both[1].add_rows([(2, NOON, 20)])
    query.processAllAvailable()
    assert query.lastProgress is not None
    other = pa.table({"k": ["one"], "a_ts": pa.array([NOON], pa.timestamp("us", "UTC")), "a_v": ["ten"]})
    both[0].add(other)
    both[1].add_rows([(1, NOON, 21)])
    text = failure(query.processAllAvailable)
    assert "FAILED_READ_FILE" in text
    assert not query.isActive
    both[0].files -= 1
    both[0].add_rows([(2, NOON, 11)])  # the file, as it should have been
    query = start()
    query.processAllAvailable()
    query.stop()
    assert values(spark.read.parquet(str(out)).toArrow()) == Counter([(10, 21), (11, 20)])


def test_a_column_that_is_gone_reads_as_null(spark: SparkSession, tmp_path: Path) -> None:
    both = feeds(spark, tmp_path, "bigint", "bigint")
    both[0].add(pa.table({"k": [1], "a_ts": pa.array([NOON], pa.timestamp("us", "UTC"))}))
    both[1].add_rows([(1, NOON, 20)])
    assert values(run(joined(both).df, tmp_path / "checkpoint").table) == Counter([(None, 20)])


@pytest.mark.parametrize(
    ("limits", "payload", "rows"),
    [
        (LIMITS, "bigint", MANY_ROWS),
        (LIMITS, "decimal(20,3)", MANY_ROWS),
        (LIMITS, "string", FEW_ROWS),
        (LIMITS, "struct<x: binary>", FEW_ROWS),
        (LIMITS | {BATCH_ROWS: "70000"}, "string", "70000"),
        (LIMITS | {BATCH_BYTES: "1000000"}, "string", MANY_ROWS),
    ],
)
def test_few_rows_of_any_length_are_in_an_arrow_batch(
    spark: SparkSession, tmp_path: Path, limits: dict[str, str], payload: str, rows: str
) -> None:
    """They are not measured; rows of fixed width may be many. What the user has set stays."""
    usual = {name: spark.conf.get(name) for name in limits}
    for name, value in limits.items():
        spark.conf.set(name, value)
    try:
        _ = joined(feeds(spark, tmp_path, "bigint", payload)).df
        assert spark.conf.get(BATCH_ROWS) == rows
        assert spark.conf.get(BATCH_BYTES) == limits[BATCH_BYTES]
    finally:
        for name, value in usual.items():
            spark.conf.set(name, str(value))


def test_secrets_of_a_source_are_not_shown(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Options of sources and settings of the session may be passwords; plans and logs have their names at most."""
    both = feeds(spark, tmp_path, "bigint")
    secret = "hunter2-very-secret"
    reader = spark.readStream.option("password", secret)
    frames = [reader.schema(f.schema).parquet(str(f.folder)) for f in both]
    streams = [wm.stream(df, time=f"{s}_ts", window="1 hour", name=s) for s, df in zip("ab", frames, strict=True)]
    with caplog.at_level("DEBUG", "watersmeet"):
        wm.session(master="local[2]", shards=2, spark_hadoop_fs_s3a_secret_key=secret)
    explained = wm.join(*streams, on="k").explain()
    spark.conf.unset("spark.hadoop.fs.s3a.secret.key")
    assert secret not in str(explained) + str(explained.to_dict()) + explained.to_svg() + caplog.text
    assert "spark.hadoop.fs.s3a.secret.key" in caplog.text
