"""What a user of PySpark types by habit: each works, or is refused with its rule and a hint."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from inspect import signature
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from watersmeet.errors import WatersmeetError
from watersmeet.spark.planning.spark_words import CALLS, OTHER_NAMES

pytestmark = pytest.mark.spark


class Desk:
    """Two tables, their streams, their join; and the same as live streams."""

    def __init__(self, spark: SparkSession) -> None:
        a = spark.createDataFrame([(1, 10), (2, 20)], "id bigint, s bigint")
        b = spark.createDataFrame([(1, 12, 5.0), (1, 14, 7.0)], "item_id bigint, s bigint, price double")
        self.a_df = a.select("id", F.timestamp_seconds("s").alias("a_at"))
        self.b_df = b.select("item_id", F.timestamp_seconds("s").alias("b_at"), "price")
        self.a, self.b = self.stream(), wm.stream(self.b_df, time="b_at", window="10 seconds", name="b")
        self.c = wm.stream(
            a.selectExpr("id", "timestamp_seconds(s) AS c_at"), time="c_at", window="10 seconds", name="c"
        )
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
    'joined.groupBy(["id"])': (lambda d: d.joined.groupBy(["id"]) == d.joined.groupBy("id"), True),
    'wm.count("*")': (lambda d: wm.count("*") == wm.count(), True),
    'wm.avg("price")': (lambda d: wm.avg("price") == wm.mean("price"), True),
    'time="A_AT"': (lambda d: d.stream(time="A_AT") == d.a, True),
    'on="ID"': (lambda d: d.join(d.a, d.c, on="ID").names, ["id", "a_at", "c_at"]),
    'on="a.ID = b.Item_Id"': (lambda d: rows(d.join(on="a.ID = b.Item_Id").df), 2),
    'wm.unique("ID")': (lambda d: d.stream(punctuation=wm.unique("ID")) == d.stream(punctuation=wm.unique("id")), True),
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
    'join(a, b, "id")': (lambda d: wm.join(d.a, d.b, "id"), "`join` takes streams by position,", "on=…, how=…"),
    'join(a, b, ["id"], "left_outer")': (
        lambda d: wm.join(d.a, d.b, ["id"], "left_outer"),
        "`join` takes streams by position, and all else by name; got a list.",
        "on=…, how=…",
    ),
    "join(a, b, a.df.id == b.df.item_id)": (
        lambda d: wm.join(d.a, d.b, d.a.df.id == d.b.df.item_id),
        "`join` takes streams by position, and all else by name; got a Column.",
        "on=…, how=…",
    ),
    "a.join(b, on=…)": (lambda d: d.a.join(d.b, on="id"), "`join` is called on a stream;", "wm.join(a, b, on=…)"),
    "joined.join(c)": (lambda d: d.joined.join(d.b), "`join` is called on a join;", "as_stream(window=…)"),
    "a.withWatermark(…)": (
        lambda d: d.a.withWatermark("a_at", "1 minute"),
        "`withWatermark` is called on a stream;",
        "here it is `delay` of the stream",
    ),
    'a["id"]': (lambda d: d.a["id"], "`id` is a column of a stream, not an item of it.", "a.df.id"),
    'joined["price"]': (lambda d: d.joined["price"], "`price` is a column of a join, not an item", "joined.df.price"),
    'joined[["price"]]': (lambda d: d.joined[["price"]], "[['price']] is written behind a join,", "joined.df.select"),
    'stream(df, "at", "10 s")': (
        lambda d: wm.stream(d.a_df, "a_at", "10 seconds"),
        "`stream` takes `df` by position, and all else by name; 3 arguments have no name.",
        'time="…", window="…", delay="…"',
    ),
    "stream(df)": (lambda d: wm.stream(d.a_df), "`time` of `stream` is not given, and has no default.", 'time="…"'),
    "stream(watermark=…)": (
        lambda d: d.stream(watermark="1 minute"),
        "`watermark` is no argument of `stream`.",
        "it is called `delay` here.",
    ),
    "stream(on=…)": (lambda d: d.stream(on="id"), "`on` is no argument of `stream`.", "it belongs to the join"),
    "stream(tme=…)": (lambda d: d.stream(tme="a_at"), "`tme` is no argument of `stream`.", "did you mean `time`?"),
    "join(condition=…)": (lambda d: d.join(condition="price > 5"), "`condition` is no argument", "called `where` here"),
    "join(type=…)": (lambda d: d.join(type="left"), "`type` is no argument of `join`.", "it is called `how` here."),
    "join(watermark=…)": (lambda d: d.join(watermark="1 s"), "`watermark` is no argument", "it belongs to a stream"),
    'join_asof(a, b, "id")': (
        lambda d: wm.join_asof(d.a, d.b, "id"),
        "`join_asof` takes `left` and `right` by position, and all else by name; 3 arguments have no name.",
        'wm.join_asof(a, b, on="…"',
    ),
    'write(joined, "/c")': (
        lambda d: wm.write(d.live, "/nowhere/c"),
        "`write` takes `joined` by position, and all else by name; 2 arguments have no name.",
        'results="…", checkpoint="…"',
    ),
    "write(path=…)": (lambda d: wm.write(d.live, path="/nowhere"), "`path` is no argument", "called `results` here"),
    "write(queryName=…)": (lambda d: wm.write(d.live, queryName="q"), "`queryName` is no argument", "`query.id`"),
    "write(format=…)": (lambda d: wm.write(d.live, format="json"), "`format` is no argument", "wm.delta and wm.ice"),
    "write(availableNow=True)": (
        lambda d: wm.write(d.live, availableNow=True),
        "`availableNow` is no argument of `write`.",
        'trigger={"availableNow": True}',
    ),
    "write(processingTime=…)": (
        lambda d: wm.write(d.live, processingTime="1 s"),
        "`processingTime` is no argument of `write`.",
        'trigger="10 seconds"',
    ),
    'groupBy("id").max("price")': (
        lambda d: d.joined.groupBy("id").max("price"),
        "`max` is called on a `group_by` without `agg`; Spark's GroupedData has it.",
        '.agg(best=wm.max("…"))',
    ),
    'groupBy("id").avg("price")': (
        lambda d: d.joined.groupBy("id").avg("price"),
        "`avg` is called on a `group_by` without `agg`; Spark's GroupedData has it.",
        '.agg(value=wm.avg("…"))',
    ),
    'groupBy("id").pivot("price")': (
        lambda d: d.joined.groupBy("id").pivot("price"),
        "`pivot` is called on a `group_by` without `agg`; Spark's GroupedData has it.",
        "pivot the table that it is written to",
    ),
    'delay=F.expr("INTERVAL 10 SECONDS")': (
        lambda d: d.stream(delay=F.expr("INTERVAL 10 SECONDS")),
        "`delay` is a Column; a duration is a text with its unit, or a timedelta.",
        '"INTERVAL 10 SECONDS"',
    ),
    'window=F.expr("INTERVAL 10 SECONDS")': (
        lambda d: d.stream(window=F.expr("INTERVAL 10 SECONDS")),
        "`window` is a Column; a duration is a text with its unit, or a timedelta.",
        '"INTERVAL 10 SECONDS"',
    ),
    'join(window=F.expr("INTERVAL 10 SECONDS"))': (
        lambda d: d.join(window=F.expr("INTERVAL 10 SECONDS")),
        "`window` is a Column; a duration is a text with its unit, or a timedelta.",
        '"INTERVAL 10 SECONDS"',
    ),
    'agg(F.max("price"))': (
        lambda d: d.joined.groupBy("id").agg(F.max("price")),
        "`agg` takes aggregates by name; got a Column.",
        "best=wm.max(",
    ),
}


def test_there_are_twenty_and_more() -> None:
    assert len(WORKS) + len(REFUSED) >= 20


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


def test_a_session_may_tell_upper_and_lower_case_apart(desk: Desk, spark: SparkSession) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        with pytest.raises(WatersmeetError, match="`time` names column `A_AT`") as of_time:
            desk.stream(time="A_AT")
        with pytest.raises(WatersmeetError, match="`on` names column `ID`") as of_key:
            desk.join(desk.a, desk.c, on="ID")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")
    assert (of_time.value.hint, of_key.value.hint) == ("did you mean `a_at`?", "did you mean `id`?")


@pytest.mark.parametrize("name", CALLS)
def test_words_of_spark_lead_to_arguments_that_there_are(name: str) -> None:
    takes = signature(getattr(wm, name)).parameters
    for word, here in OTHER_NAMES[name].items():
        assert word not in takes
        assert here in takes or " " in here or "=" in here


def test_a_stream_is_no_sequence(desk: Desk) -> None:
    with pytest.raises(TypeError, match="not iterable"):
        list(desk.a)  # type: ignore[call-overload]
