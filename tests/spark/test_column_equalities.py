"""`on=` as Columns: which columns of which streams an equality means; also over Spark Connect (see tests/connect)."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.utils import is_remote

import watersmeet as wm
from watersmeet.errors import QueryError
from watersmeet.spark.planning.column_equalities import as_text

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def streams(spark: SparkSession) -> tuple[wm.Stream, ...]:
    columns = {"a": ("id", "x", "y"), "b": ("item_id", "x", "y"), "c": ("x", "y", "z")}
    frames = {
        name: spark.createDataFrame([], ", ".join([*(f"{c} bigint" for c in own), f"{name}_at timestamp"]))
        for name, own in columns.items()
    }
    return tuple(wm.stream(df, time=f"{n}_at", window="1 minute", name=n) for n, df in frames.items())


def test_each_column_is_found_in_its_stream(streams: tuple[wm.Stream, ...]) -> None:
    two, (a, b, c) = streams[:2], (s.df for s in streams)
    assert as_text(a.id == b.item_id, two) == "`a`.`id` = `b`.`item_id`"
    assert as_text(F.col("b.item_id") == F.col("a.id"), two) == "`a`.`id` = `b`.`item_id`"
    assert as_text(a.x == b.y, two) == "`a`.`x` = `b`.`y`"
    assert as_text(a.y == b.x, two) == "`a`.`y` = `b`.`x`"
    assert as_text(b.x == a.y, two) == "`a`.`y` = `b`.`x`"
    assert as_text(a.x == b.x, two) == "`a`.`x` = `b`.`x`"
    assert as_text([a.x == b.x, (b.y == c.y) & (F.col("a.y") == F.col("c.z"))], streams) == [
        "`a`.`x` = `b`.`x`",
        "`a`.`y` = `c`.`z` AND `b`.`y` = `c`.`y`",  # sorted
    ]
    assert as_text(["x", F.expr("a.id = b.item_id")], two) == ["x", "a.id = b.item_id"]
    assert as_text(F.expr("a.id <=> b.item_id"), two) == "a.id <=> b.item_id"


def test_an_equality_by_which_nulls_match(streams: tuple[wm.Stream, ...]) -> None:
    two, (a, b, _) = streams[:2], (s.df for s in streams)
    assert as_text(a.id.eqNullSafe(b.item_id), two) == "`a`.`id` <=> `b`.`item_id`"
    assert as_text(b.x.eqNullSafe(a.y), two) == "`a`.`y` <=> `b`.`x`"
    assert as_text(a.id.eqNullSafe(b.item_id) & (a.x == b.x), two) == "`a`.`id` <=> `b`.`item_id` AND `a`.`x` = `b`.`x`"
    with pytest.raises(QueryError, match="several streams have columns of these names"):
        as_text((a.x == b.y) & a.y.eqNullSafe(b.x), two)  # or a.x <=> b.y and a.y = b.x


def test_several_equalities_are_resolved_together(streams: tuple[wm.Stream, ...]) -> None:
    a, b = (s.df for s in streams[:2])
    assert as_text((a.x == b.y) & (a.y == b.x), streams[:2]) == "`a`.`x` = `b`.`y` AND `a`.`y` = `b`.`x`"


def test_what_no_stream_or_several_may_mean_is_refused(streams: tuple[wm.Stream, ...], spark: SparkSession) -> None:
    a, b, c = (s.df for s in streams)
    foreign = spark.createDataFrame([], "x bigint, w bigint")
    for on in (a.x == foreign.x, a.id == foreign.w, F.col("a.id") == F.col("q.x")):
        with pytest.raises(QueryError, match=r"which is no equality between columns of two of the streams a, b, c;"):
            as_text(on, streams)
    with pytest.raises(QueryError) as caught:
        as_text((a.x == b.y) & (b.x == c.y) & (c.x == a.y), streams)
    assert str(caught.value) == (
        "`on` is a Column, x = y AND x = y AND x = y, and several streams have columns of these names; it does not "
        "show which are meant.\n"
        'Hint: write it as text with the names of the streams: on="a.id = b.item_id".'
    )


def test_streams_of_one_dataframe_are_joined_on_the_column_that_both_have(spark: SparkSession) -> None:
    one = spark.createDataFrame([(1, 5), (2, 6)], "k bigint, s bigint").withColumn("at", F.timestamp_seconds("s"))
    a, b = (wm.stream(one.selectExpr("k", f"at AS {n}_at"), time=f"{n}_at", window="1 minute", name=n) for n in "ab")

    def keys(on: Any) -> list[int]:
        return sorted(row.k for row in wm.join(a, b, on=on, how="left_outer").df.collect())

    assert keys(a.df.k == b.df.k) == keys("k") == [1, 2]
    c = wm.stream(one.selectExpr("k", "at AS c_at"), time="c_at", window="1 minute", name="c")
    if not is_remote():
        with pytest.raises(QueryError, match="several streams have columns of these names"):
            as_text(b.df.k == c.df.k, (a, b, c))
