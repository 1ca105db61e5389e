"""Twenty things that a user of PySpark types by habit: each works, or is refused with its rule and a hint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.errors import WatersmeetError

pytestmark = pytest.mark.spark


class Desk:
    """Two tables, their streams, their join; and the same as live streams."""

    def __init__(self, spark: SparkSession) -> None:
        a = spark.createDataFrame([(1, 10), (2, 20)], "id bigint, s bigint")
        b = spark.createDataFrame([(1, 12, 5.0), (1, 14, 7.0)], "item_id bigint, s bigint, price double")
        self.a_df = a.select("id", F.timestamp_seconds("s").alias("a_at"))
        self.b_df = b.select("item_id", F.timestamp_seconds("s").alias("b_at"), "price")
        self.a, self.b = self.stream(), wm.stream(self.b_df, time="b_at", window="10 seconds", name="b")
        self.joined = self.join()
        rate = spark.readStream.format("rate").load()
        live = {n: rate.selectExpr("value AS id", f"timestamp AS {n}_at") for n in "ab"}
        self.live = wm.join(*(wm.stream(live[n], time=f"{n}_at", window="1 s", name=n) for n in "ab"), on="id")

    def stream(self, **more: Any) -> wm.Stream:
        return wm.stream(self.a_df, **({"time": "a_at", "window": "10 seconds", "name": "a"} | more))

    def join(self, *streams: Any, **more: Any) -> wm.Joined:
        return wm.join(*(streams or (self.a, self.b)), **({"on": "a.id = b.item_id"} | more))


@pytest.fixture(scope="module")
def desk(spark: SparkSession) -> Desk:
    return Desk(spark)


def rows(df: DataFrame) -> int:
    return df.count()


#: What is typed, and what it gives.
WORKS: dict[str, tuple[Callable[[Desk], Any], Any]] = {
    'how="left_outer"': (lambda d: rows(d.join(how="left_outer").df), 3),
    'how="leftsemi"': (lambda d: d.join(how="leftsemi").query.how, "semi"),
    "on=a.df.id == b.df.item_id": (lambda d: rows(d.join(on=d.a.df.id == d.b.df.item_id).df), 2),
    'on=F.col("a.id") == F.col("b.item_id")': (
        lambda d: d.join(on=F.col("a.id") == F.col("b.item_id")).query.streams[1].key,
        ("item_id",),
    ),
    "on=eqNullSafe": (
        lambda d: d.join(on=d.a.df.id.eqNullSafe(d.b.df.item_id)).query.streams[0].null_safe,
        (True,),
    ),
    "window=timedelta(…)": (lambda d: d.stream(window=timedelta(seconds=10)) == d.a, True),
    'window="INTERVAL 10 SECONDS"': (lambda d: d.stream(window="INTERVAL 10 SECONDS") == d.a, True),
    "joined.groupBy(…)": (lambda d: rows(d.joined.groupBy("id", wm.bucket("a_at", "1 min")).agg(n=wm.count()).df), 1),
    "joined.df.groupBy(…)": (lambda d: d.joined.df.groupBy("id").agg(F.max("price")).first()[1], 7.0),
}

#: What is typed, and the beginning of its message; a part of its hint.
REFUSED: dict[str, tuple[Callable[[Desk], Any], str, str]] = {
    "window=10": (lambda d: d.stream(window=10), "`window` is 10; it is a duration with its unit,", '"10 seconds"'),
    'delay="10"': (lambda d: d.stream(delay="10"), '`delay` is "10"; that is not a duration', '"10 seconds"'),
    'window="1 month"': (lambda d: d.stream(window="1 month"), '`window` is "1 month"; that is not', '"30 days"'),
    'time=F.col("a_at")': (lambda d: d.stream(time=F.col("a_at")), "`time` is a Column; it is the name", 'time="…"'),
    "join of DataFrames": (lambda d: d.join(d.a_df, d.b_df), "`join` takes streams; got DataFrame.", "wm.stream(df"),
    "on=a.id == b.item_id": (lambda d: d.join(on=d.a.id == d.b.item_id), "`id` is a column of a stream,", "a.df.id"),
    'how="cross"': (lambda d: d.join(how="cross"), '`how` is "cross"; a join is one of inner,', "df.crossJoin"),
    "joined.writeStream": (lambda d: d.live.writeStream, "`writeStream` is called on a join;", "wm.write(joined, "),
    'outputMode="complete"': (
        lambda d: wm.write(d.live, checkpointLocation="/nowhere/c", results="/nowhere/r", outputMode="complete"),
        "`outputMode` is 'complete', and this query has \"append\": a row or group that came out never changes.",
        "leave it out",
    ),
    'trigger="availableNow"': (
        lambda d: wm.write(d.live, checkpointLocation="/nowhere/c", results="/nowhere/r", trigger="availableNow"),
        "`trigger` is 'availableNow'; it is a duration with its unit, or a dictionary.",
        '{"availableNow": True}',
    ),
    'agg(F.max("price"))': (
        lambda d: d.joined.groupBy("id").agg(F.max("price")),
        "`agg` takes aggregates by name; got a Column.",
        "best=wm.max(",
    ),
}


def test_there_are_twenty() -> None:
    assert len(WORKS) + len(REFUSED) == 20


@pytest.mark.parametrize("typed", WORKS)
def test_what_works(desk: Desk, typed: str) -> None:
    call, gives = WORKS[typed]
    assert call(desk) == gives


@pytest.mark.parametrize("typed", REFUSED)
def test_what_is_refused(desk: Desk, typed: str) -> None:
    call, begins, hint = REFUSED[typed]
    with pytest.raises(WatersmeetError) as caught:
        call(desk)
    assert str(caught.value).startswith(begins)
    assert hint in (caught.value.hint or "")
