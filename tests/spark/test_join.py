"""The join on a real Spark, against a batch join in SQL: restarts, late rows, every type, static inputs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StructField, StructType

import watersmeet as wm
from lab.joins.oracle import Scenario, Side, bag, duckdb_join, expected, expected_state, rows_of
from lab.spark.feeds import Feed, QueryOutput, remove_working_states, run
from watersmeet.errors import ColumnError
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.runtime.placement import shard_ids, spark_hash

pytestmark = pytest.mark.spark

SECOND = 1_000_000
TODAY = 1_700_000_000 * SECOND


def made_up(batches: int, rows: int, seed: int) -> Scenario:
    """Two streams with disorder within and beyond their delays, ties, duplicates, NULL keys and NULL times."""
    chance = Random(seed)

    def side(window: int, delay: int) -> Side:
        number, out = 0, []
        for batch in range(batches):
            tuples = []
            for _ in range(rows if batch != 2 else 0):  # one batch brings nothing
                at = TODAY + batch * 10 * SECOND + chance.randrange(12) * SECOND - chance.randrange(2) * delay
                if chance.random() < 0.1:
                    at -= 60 * SECOND
                key = chance.choice(["a", "b", "ä", "", None])
                tuples.append(Tuple(None if chance.random() < 0.05 else at, (key, chance.randrange(3)), number))
                number += 1
            out.append(tuple(tuples))
        return Side(TimeWindow(window), delay, tuple(out))

    sides = (side(5 * SECOND, 4 * SECOND), side(8 * SECOND, 0))
    return Scenario("text and number", pa.timestamp("us", "UTC"), sides)


@pytest.fixture(autouse=True)
def key_of_text_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    from lab.joins import oracle

    monkeypatch.setitem(oracle.KEYS, "text and number", ((pa.string(), ()), (pa.int64(), ())))


class Streams:
    """A scenario as two streams of files. The second key column is an int on one side and a bigint on the other."""

    DDL = ("a_ts timestamp, k0 string, k1 int, a_n bigint", "b_ts timestamp, k0 string, k1 bigint, b_n bigint")

    def __init__(self, spark: SparkSession, folder: Path, scenario: Scenario) -> None:
        self.scenario = scenario
        self.feeds = [Feed(spark, folder / name, ddl) for name, ddl in zip("ab", self.DDL, strict=True)]
        self.checkpoint = folder / "checkpoint"

    def add(self, n: int) -> None:
        for i, feed in enumerate(self.feeds):
            rows = self.scenario.rows(i, self.scenario.sides[i].batches[n])
            names = [f"k{name[1:]}" if name in ("j0", "j1") else name for name in rows.schema.names]
            table = pa.table(rows.columns, names=names)
            feed.add(table.set_column(2, "k1", table["k1"].cast(pa.int32())) if i == 0 else table)

    def joined(self, a: DataFrame, b: DataFrame) -> wm.Joined:
        return wm.join(
            wm.stream(a, time="a_ts", window="5 seconds", delay="4 seconds", name="a"),
            wm.stream(b, time="b_ts", window="8 seconds", name="b"),
            on=["k0", "k1"],
        )


def test_a_query_that_starts_again_after_every_batch_gives_the_batch_join(spark: SparkSession, tmp_path: Path) -> None:
    scenario = made_up(batches=5, rows=40, seed=1)
    streams = Streams(spark, tmp_path, scenario)
    tagged = streams.joined(*(feed.stream() for feed in streams.feeds)).tagged
    names = ["kind", "stream", "k0", "k1", "a_ts", "a_n", "b_ts", "b_n", "row", "shard", "shards"]
    assert tagged.columns == names
    everything = []
    for n, results in enumerate(expected(scenario)):
        streams.add(n)
        if n == 3:
            remove_working_states()
        output = run(tagged, streams.checkpoint)
        assert len(output.tables) == 1, "a file is a batch"
        found, late = parts(output)
        assert bag(found) == bag(results)
        everything += found

        not_late = [{t.row for t in side.admitted()[n]} for side in scenario.sides]
        missed = [
            ("ab"[i], t) for i, side in enumerate(scenario.sides) for t in side.batches[n] if t.row not in not_late[i]
        ]
        assert sorted((row["stream"], row["row"]["n"]) for row in late) == sorted((name, t.row) for name, t in missed)

        (metrics,) = output.metrics
        assert metrics["rows_in"] == sum(len(side.batches[n]) for side in scenario.sides)
        assert metrics["late"] == len(missed)
        assert metrics["null_keys"] == sum(None in t.key for side in scenario.sides for t in side.admitted()[n])
        assert metrics["results"] == len(results)
        assert metrics["stored"] == sum(len(expected_state(scenario, i)[n]) for i in (0, 1))
        found_as = (metrics["cache_hit"], metrics["caught_up"], metrics["rebuilt"])
        assert found_as == ((0, 0, 0) if n == 0 else (0, 0, 2) if n == 3 else (2, 0, 0))
    assert bag(everything) == bag(duckdb_join(scenario))
    assert len(everything) > 100
    assert any(None in t.key for side in scenario.sides for batch in side.batches for t in batch)


def parts(given: QueryOutput) -> tuple[list[Any], list[dict[str, Any]]]:
    """Results as the oracle has them, and late rows with their JSON read."""
    table = given.table
    results = table.filter(pa.compute.equal(table["kind"], "result"))
    assert set(results["stream"].to_pylist()) <= {None}
    late = table.filter(pa.compute.equal(table["kind"], "late")).to_pylist()
    for row in late:
        assert {row[name] for name in ("k0", "k1", "a_ts", "a_n", "b_ts", "b_n")} == {None}
        assert row["shards"] == 2
        assert row["shard"] in (0, 1)
        row["row"] = json.loads(row["row"])
        name = row["stream"]
        assert list(row["row"]) == [f"{name}_ts", "k0", "k1", f"{name}_n"]
        row["row"]["n"] = row["row"][f"{name}_n"]
    return rows_of(results.select(["k0", "k1", "a_ts", "a_n", "b_ts", "b_n"])), late


def test_static_inputs_give_the_batch_join_by_the_same_call(spark: SparkSession, tmp_path: Path) -> None:
    scenario = made_up(batches=3, rows=60, seed=2)
    streams = Streams(spark, tmp_path, scenario)
    for n in range(3):
        streams.add(n)
    joined = streams.joined(*(feed.static() for feed in streams.feeds))
    assert joined.df.columns == ["k0", "k1", "a_ts", "a_n", "b_ts", "b_n"]
    assert [kind for _, kind in joined.df.dtypes] == ["string", "bigint", "timestamp", "bigint", "timestamp", "bigint"]
    at_once = [
        replace(side, batches=(tuple(t for batch in side.batches for t in batch),), ends_after=0)
        for side in scenario.sides
    ]
    whole = replace(scenario, sides=(at_once[0], at_once[1]))
    assert bag(rows_of(joined.df.toArrow())) == bag(duckdb_join(whole))
    assert joined.tagged.where("kind = 'late'").count() == sum(
        t.ts is None for side in scenario.sides for batch in side.batches for t in batch
    )
    assert "static (one batch, nothing is kept)" in str(joined.explain())


def test_a_half_open_window_leaves_its_edge_out(spark: SparkSession) -> None:
    a = spark.sql("SELECT 1 AS k, timestamp_seconds(id) AS a_ts FROM range(6)")
    b = spark.sql("SELECT 1 AS k, timestamp_seconds(3) AS b_ts")

    def ages(closed: bool) -> list[int]:
        streams = wm.stream(a, time="a_ts", window="2 seconds"), wm.stream(b, time="b_ts", window="1 second")
        found = wm.join(*streams, on="k", closed=closed).df
        return sorted(row[0] for row in found.select(F.col("a_ts").cast("long")).collect())

    assert ages(True) == [1, 2, 3, 4]
    assert ages(False) == [2, 3]


# ---------------------------------------------------------------- every type

EVERYTHING: dict[str, tuple[pa.DataType, str, list[Any]]] = {
    "flag": (pa.bool_(), "boolean", [True, False, None]),
    "tiny": (pa.int8(), "tinyint", [-128, 127, None]),
    "small": (pa.int16(), "smallint", [-(2**15), 2**15 - 1, None]),
    "whole": (pa.int32(), "int", [-(2**31), 2**31 - 1, None]),
    "big": (pa.int64(), "bigint", [-(2**63), 2**63 - 1, None]),
    "single": (pa.float32(), "float", [0.1, float("inf"), None]),
    "double": (pa.float64(), "double", [-0.0, 5e-324, None]),
    "money": (pa.decimal128(38, 18), "decimal(38,18)", [Decimal("-0.000000000000000001"), Decimal(10**19), None]),
    "short": (pa.decimal128(4, 1), "decimal(4,1)", [Decimal("-999.9"), Decimal("0.0"), None]),
    "text": (pa.string(), "string", ["", 'ä "quoted" \0 text', None]),
    "raw": (pa.binary(), "binary", [b"", b"\0\xff", None]),
    "day": (pa.date32(), "date", [date(1, 1, 1), date(9999, 12, 31), None]),
    "instant": (
        pa.timestamp("us", "UTC"),
        "timestamp",
        [datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, UTC), None],
    ),
    "clock": (pa.timestamp("us"), "timestamp_ntz", [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59), None]),
    "span": (pa.duration("us"), "interval day to second", [timedelta(days=-1, microseconds=1), timedelta(0), None]),
    "array": (pa.list_(pa.int64()), "array<bigint>", [[], [1, None], None]),
    "record": (
        pa.struct([("when", pa.timestamp("us", "UTC")), ("of", pa.list_(pa.string()))]),
        "struct<when: timestamp, of: array<string>>",
        [{"when": datetime(2024, 3, 10, 7, tzinfo=UTC), "of": ["x", None]}, {"when": None, "of": None}, None],
    ),
    "dictionary": (
        pa.map_(pa.string(), pa.struct([("d", pa.decimal128(9, 2))])),
        "map<string, struct<d: decimal(9,2)>>",
        [[("k", {"d": Decimal("1.50")})], [], None],
    ),
}
NESTED = ("array", "record", "dictionary")


@pytest.mark.parametrize("nested", [False, True], ids=["flat", "nested"])
def test_all_types_survive_in_any_time_zone(spark: SparkSession, tmp_path: Path, nested: bool) -> None:
    """Keys of NTZ timestamps; rows are stored in one batch, matched in the next, and half of the others come late."""
    names = [name for name in EVERYTHING if nested or name not in NESTED]
    ddl = ", ".join(f"{name} {EVERYTHING[name][1]}" for name in names)
    keys = [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999), datetime(2024, 3, 10, 2, 30)]
    times = [datetime(2024, 3, 10, 6, 59, second, tzinfo=UTC) for second in (57, 58, 59)]

    def file(stamps: list[datetime], prefix: str) -> pa.Table:
        columns = {"k": pa.array(keys, pa.timestamp("us")), f"{prefix}_ts": pa.array(stamps, pa.timestamp("us", "UTC"))}
        if prefix == "a":
            columns |= {name: pa.array(EVERYTHING[name][2], EVERYTHING[name][0]) for name in names}
        return pa.table(columns)

    a = Feed(spark, tmp_path / "a", f"k timestamp_ntz, a_ts timestamp, {ddl}")
    b = Feed(spark, tmp_path / "b", "k timestamp_ntz, b_ts timestamp")
    a.add(file(times, "a"))
    b.add(file(times, "b").slice(0, 0))
    late_times = [t - timedelta(hours=1) for t in times]
    a.add(file(late_times, "a"))
    b.add(file(times, "b"))
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "America/St_Johns")
    try:
        joined = wm.join(
            wm.stream(a.stream(), time="a_ts", window="1 second", name="a"),
            wm.stream(b.stream(), time="b_ts", window="1 second", name="b"),
            on="k",
        )
        output = run(joined.tagged, tmp_path / "checkpoint").table
        given = a.static().orderBy("a_ts").toArrow().slice(len(late_times))
    finally:
        spark.conf.set("spark.sql.session.timeZone", before or "UTC")
    results = output.filter(pa.compute.equal(output["kind"], "result")).sort_by("a_ts")
    assert results.select(given.schema.names).equals(given), "as they went in"
    late = [json.loads(row) for row in output.filter(pa.compute.equal(output["kind"], "late"))["row"].to_pylist()]
    assert [row["a_ts"] for row in sorted(late, key=lambda row: row["a_ts"])] == [
        f"2024-03-10 05:59:{second}.000000Z" for second in (57, 58, 59)
    ]
    assert all(list(row) == ["k", "a_ts", *names] for row in late)


# ---------------------------------------------------------------- names, keys, places


def test_columns_may_be_called_what_they_like(spark: SparkSession) -> None:
    """Also like the columns of `tagged`, which then says so, and like what means something to SQL."""
    names = ["kind", "note", "blob", "with space", "SELECT", "äöü"]
    a = spark.range(2).select(
        F.col("id").alias("the key"), F.timestamp_seconds("id").alias("seen"), *(F.lit(n).alias(n) for n in names)
    )
    b = spark.range(2).select(F.col("id").cast("int").alias("the key"), F.timestamp_seconds("id").alias("stream"))
    streams = wm.stream(a, time="seen", window="0 seconds"), wm.stream(b, time="stream", window="0 seconds")
    joined = wm.join(*streams, on="the key")
    assert joined.df.columns == ["the key", "seen", *names, "stream"]
    rows = [tuple(row) for row in joined.df.collect()]
    assert sorted(key for key, *_ in rows) == [0, 1]
    assert {row[2:-1] for row in rows} == {tuple(names)}
    with pytest.raises(ColumnError) as caught:
        joined.tagged  # noqa: B018  # asking is the test
    assert str(caught.value) == (
        "`tagged` has columns kind, stream, row, shard, shards of its own, "
        "and the results have one called `kind`, too.\n"
        'Hint: rename it before the join: df.withColumnRenamed("kind", "…"), or use `df` or `wm.write`.'
    )


def test_the_time_may_be_the_key(spark: SparkSession) -> None:
    a, b = (spark.range(n).select(F.timestamp_seconds("id").alias("ts"), F.col("id").alias(f"n{n}")) for n in (3, 5))
    streams = (wm.stream(df, time="ts", window="1 hour") for df in (a, b))
    assert sorted(tuple(row)[1:] for row in wm.join(*streams, on="ts").df.collect()) == [(0, 0), (1, 1), (2, 2)]


def test_inputs_without_rows_have_no_results(spark: SparkSession) -> None:
    schema = StructType([StructField("k", IntegerType())])
    nothing = spark.createDataFrame([], schema)
    a, b = (nothing.withColumn(name, F.current_timestamp()) for name in ("a_ts", "b_ts"))
    joined = wm.join(wm.stream(a, time="a_ts", window="1 day"), wm.stream(b, time="b_ts", window="1 day"), on="k")
    assert joined.tagged.collect() == []


def test_the_hash_is_sparks_own(spark: SparkSession) -> None:
    values = [0, 1, -1, 42, 2**31 - 1, -(2**31), *(Random(3).randrange(-(2**31), 2**31) for _ in range(100))]
    df = spark.createDataFrame([(v,) for v in values], "v int")
    assert [row[0] for row in df.select(F.hash("v")).collect()] == [spark_hash(v) for v in values]


@pytest.mark.parametrize(("shards", "partitions"), [(2, 2), (7, 7), (16, 16), (3, 8), (10, 4), (64, 2), (12, 4)])
def test_every_shard_has_a_partition_of_its_own_while_there_are_enough(
    spark: SparkSession, shards: int, partitions: int
) -> None:
    ids = shard_ids(shards, partitions)
    df = spark.createDataFrame([(id,) for id in ids], "shard int").repartition(partitions, "shard")
    places = [row[0] for row in df.select(F.spark_partition_id()).collect()]
    loads = sorted(places.count(place) for place in range(partitions))
    assert len(set(ids)) == shards
    assert sum(loads) == shards
    assert loads[-1] - loads[0] <= 1
