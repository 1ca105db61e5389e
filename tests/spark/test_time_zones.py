"""Sessions whose clocks change: instants are compared as instants, local times by their digits, and never mixed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, run
from watersmeet.errors import ColumnError, QueryError

pytestmark = pytest.mark.spark

ZONE = "spark.sql.session.timeZone"
SPRING, AUTUMN = datetime(2023, 3, 12, 7), datetime(2023, 11, 5, 6)  # New York changes its clocks, in UTC
SECOND = 1_000_000


@pytest.fixture
def new_york(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(ZONE)
    spark.conf.set(ZONE, "America/New_York")
    yield spark
    spark.conf.set(ZONE, before)


def micros(at: datetime) -> int:
    return (at - datetime(1970, 1, 1)) // timedelta(microseconds=1)


def at(spark: SparkSession, name: str, columns: str, times: list[datetime], kind: str = "timestamp") -> DataFrame:
    """A row for each time, of which the year, month … are those of UTC; x and y number them."""
    rows = [(n, n, t if kind == "timestamp_ntz" else micros(t)) for n, t in enumerate(times)]
    df = spark.createDataFrame(rows, f"x long, y long, t {kind if kind == 'timestamp_ntz' else 'long'}")
    time = "t" if kind == "timestamp_ntz" else "timestamp_micros(t)"
    return df.selectExpr(*columns.split(), f"{time} AS {name}_ts")


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_tree_measures_windows_by_the_time_that_passed(new_york: SparkSession, kind: str) -> None:
    """Around the change of clocks, whose hours are there twice or not at all (for local times: at 2:30)."""
    cases = [
        (change, apart) for change in (SPRING, AUTUMN, datetime(2023, 3, 12, 2, 30)) for apart in (2, 10, 11, 3602)
    ]
    first = [change - timedelta(seconds=1) for change, _ in cases]
    last = [time + timedelta(seconds=apart) for time, (_, apart) in zip(first, cases, strict=True)]
    a, b, c = (
        wm.stream(at(new_york, n, keys, times, kind), time=f"{n}_ts", window="10 seconds", name=n)
        for n, keys, times in (("a", "x", first), ("b", "x y", first), ("c", "y", last))
    )
    found = wm.join(a, b, c, on=["a.x = b.x", "b.y = c.y"]).df.toArrow().column("x").to_pylist()
    assert sorted(cases[x] for x in found) == sorted(case for case in cases if case[1] <= 10)


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_a_heartbeat_is_as_late_as_a_row_of_its_time(new_york: SparkSession, tmp_path: Path, kind: str) -> None:
    a = Feed(new_york, tmp_path / "a", f"k long, a_ts {kind}, beat boolean, until {kind}")
    b = Feed(new_york, tmp_path / "b", f"k long, b_ts {kind}")
    rows: list[tuple[Any, ...]] = [(1, 0, False, None), (1, 0, True, 10), (1, 11, False, None), (1, 9, False, None)]
    for k, second, beat, until in rows:
        a.add_rows([(k, second * SECOND, beat, None if until is None else until * SECOND)])
        b.add_rows([(1, second * SECOND)])
    beats = wm.heartbeat("beat", time="until")
    first = wm.stream(a.stream(), time="a_ts", window="1 minute", punctuation=beats, name="a")
    second = wm.stream(b.stream(), time="b_ts", window="1 minute", delay="1 minute", name="b")
    output = run(wm.join(first, second, on="k").tagged, tmp_path / "checkpoint")
    assert [m["late"] for m in output.metrics] == [0, 0, 0, 1]


def test_instants_and_local_times_are_not_mixed(new_york: SparkSession) -> None:
    local, instant = (at(new_york, "a", "x y", [SPRING], kind) for kind in ("timestamp_ntz", "timestamp"))
    a = wm.stream(local, time="a_ts", window="1 second", name="a")
    b = wm.stream(instant.withColumnRenamed("a_ts", "b_ts"), time="b_ts", window="1 second", name="b")
    with pytest.raises(ColumnError) as mixed:
        wm.join(a, b, on="x")
    assert str(mixed.value) == (
        "`time` is timestamp_ntz in `a` (`a_ts`), timestamp in `b` (`b_ts`); an instant and a local time are compared "
        "by way of a time zone, and no stream names one.\nHint: cast one side where you know its zone, e.g. "
        'df.withColumn("b_ts", F.col("b_ts").cast("timestamp_ntz")), which takes the session\'s.'
    )
    both = local.selectExpr("*", "cast(a_ts AS timestamp) AS until")
    with pytest.raises(ColumnError) as beat:
        wm.stream(both, time="a_ts", name="a", punctuation=wm.heartbeat("x = 2", time="until"))
    assert str(beat.value) == (
        "`time` of `heartbeat` names column `until` of the punctuations of stream `a`, of type timestamp, and `a_ts` "
        "of its rows is timestamp_ntz; the one would be turned into the other by the session's time zone.\n"
        'Hint: cast it where you know its zone, e.g. F.col("until").cast("timestamp_ntz").'
    )
    for rule in (wm.when("true", on="x", df=instant), wm.heartbeat("true", df=instant), wm.end("true", df=instant)):
        with pytest.raises(ColumnError, match="`time` is column `a_ts`, timestamp_ntz in the stream and timestamp in"):
            wm.stream(local, time="a_ts", name="a", punctuation=rule)
    c = wm.stream(local.selectExpr("y", "a_ts AS c_ts", "a_ts AS v"), time="c_ts", window="1 second", name="c")
    d = wm.stream(both.selectExpr("y", "a_ts AS d_ts", "until AS v2"), time="d_ts", window="1 second", name="d")
    with pytest.raises(ColumnError, match=r"`on` column `v` is timestamp_ntz in `c`, timestamp in `d`") as key:
        wm.join(c, d, on="c.v = d.v2")
    assert str(key.value).endswith('df.withColumn("v", F.col("v").cast("timestamp")).')
    with pytest.raises(QueryError, match="`where` has a comparison of timestamp"):
        wm.join(c, d, on="y", how="left", where="v < v2")
    assert wm.join(c, d, on="y", where="v = v2").df.count() == 1, "Spark converts by the session's zone"
