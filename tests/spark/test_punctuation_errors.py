"""What a user can get wrong about punctuations: refused with argument, rule, reason and hint, before it runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.spark.feeds import Feed
from lab.spark.refusals import auctions_of_all_types, bids_of_all_types, refusal
from watersmeet.errors import ColumnError, QueryError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    return bids_of_all_types(spark)


@pytest.fixture(scope="module")
def auctions(spark: SparkSession) -> DataFrame:
    return auctions_of_all_types(spark)


@pytest.mark.parametrize(
    ("source", "kind", "text"),
    [
        (
            lambda df: wm.when("prize > 3", on="item_id"),
            ColumnError,
            "the condition of `when` names column `prize`, which stream `bids` does not have.\n"
            "Hint: did you mean `price`?",
        ),
        (
            lambda df: wm.end(F.col("zzz")),
            ColumnError,
            "the condition of `end` names column `zzz`, which stream `bids` does not have.\n"
            "Hint: its columns are item_id, bid_at, price, tags, word, name.",
        ),
        (
            lambda df: wm.when("price", on="item_id"),
            QueryError,
            "the condition of `when` of stream `bids` is double; a row is a punctuation where it is true.\n"
            'Hint: write a comparison, e.g. wm.when("status = \'closed\'", on="…").',
        ),
        (
            lambda df: wm.heartbeat("price >"),
            QueryError,
            "the condition of `heartbeat` is no expression over the columns of stream `bids`: [PARSE_SYNTAX_ERROR]",
        ),
        (
            lambda df: wm.when("count(*) > 1", on="item_id"),
            QueryError,
            "the condition of `when` is no expression over the columns of stream `bids`: [",
        ),
        (
            lambda df: wm.when("price > 3", on="item"),
            ColumnError,
            "`on` of `when` names column `item`, which stream `bids` does not have.\nHint: did you mean `item_id`? "
            'on={"key": "…"} closes a value that stands in another column, or is computed.',
        ),
        (
            lambda df: wm.when("price > 3", on={"item_id": "itm + 1"}),
            ColumnError,
            "`on` of `when` names column `itm`, which stream `bids` does not have.",
        ),
        (
            lambda df: wm.when("price > 3", values="item_ids"),
            ColumnError,
            "`values` of `when` names column `item_ids`, which stream `bids` does not have.\n"
            "Hint: did you mean `item_id`?",
        ),
        (
            lambda df: wm.when("price > 3", values="item_id"),
            ColumnError,
            "`values` of `when` of stream `bids` is bigint; a list of values is an array.\n"
            'Hint: close one value a row, wm.when("…", on="…"), or make an array of it: values="array(…)".',
        ),
        (
            lambda df: wm.when("price > 3", low=F.col("lowest")),
            ColumnError,
            "`low` of `when` names column `lowest`, which stream `bids` does not have.",
        ),
        (
            lambda df: wm.heartbeat("price > 3", time="bid_att"),
            ColumnError,
            "`time` of `heartbeat` names column `bid_att`, which stream `bids` does not have.\n"
            "Hint: did you mean `bid_at`?",
        ),
        (
            lambda df: wm.heartbeat("price > 3", time="price"),
            ColumnError,
            "`time` of `heartbeat` of stream `bids` is double; a time is a timestamp.\n"
            "Hint: convert it first, with F.to_timestamp(…) or F.timestamp_seconds(…).",
        ),
        (
            lambda df: wm.when("true", on="item_id", df=df.select("bid_at")),
            ColumnError,
            "`on` of `when` names column `item_id`, which `df` of `when`, the punctuations of stream `bids`, does not "
            "have.",
        ),
        (
            lambda df: wm.end("true", df=df.drop("bid_at")),
            ColumnError,
            "`time` names column `bid_at`, which `df` of `end`, the punctuations of stream `bids`, does not have.",
        ),
        (
            lambda df: wm.end("true", df=df.withColumn("bid_at", F.unix_seconds("bid_at"))),
            ColumnError,
            "`time` is column `bid_at`, timestamp in the stream and bigint in `df` of `end`, the punctuations of "
            "stream `bids`, where it is the time of a punctuation; times of two types cannot be compared.\n"
            'Hint: cast it: df.withColumn("bid_at", F.col("bid_at").cast("timestamp")).',
        ),
    ],
)
def test_punctuations_are_read_before_they_are_used(
    bids: DataFrame, source: Callable[[DataFrame], Any], kind: type[Exception], text: str
) -> None:
    found = refusal(kind, lambda: wm.stream(bids, time="bid_at", punctuation=source(bids), name="bids"))
    assert found.startswith(text)


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (
            {},
            "`when` takes one of `on`, `values`, or `low` and `high`: a punctuation closes a value, a list or a range.",
        ),
        ({"values": "a", "low": 1}, "`when` takes one of `on`, `values`, or `low` and `high`"),
        ({"on": []}, "`on` of `when` is []; it names the columns whose values are closed, each once.\nHint: e.g. on="),
        ({"on": ["x", "x"]}, "`on` of `when` is ['x', 'x']; it names the columns whose values are closed, each once."),
        ({"on": [1]}, "`on` of `when` is [1]; it names the columns whose values are closed, each once."),
        (
            {"on": ["x", "y"], "values": "a"},
            "`on` of `when` is ['x', 'y'], and `values` gives a list of values of one column.\nHint: name that column",
        ),
        (
            {"on": {"x": "y"}, "high": 1},
            "`on` of `when` is {'x': 'y'}, and `low` and `high` give a range of values of one column.",
        ),
    ],
)
def test_when_says_what_is_closed(given: dict[str, Any], text: str) -> None:
    assert refusal(QueryError, lambda: wm.when("over", **given)).startswith(text)


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"values": "array(tags)"}, "`values` of `when` of stream `bids` is map<string,int>, and the key `item_id`"),
        ({"values": "array(price)"}, "`values` of `when` of stream `bids` is double, and the key `item_id` is bigint;"),
        ({"low": "price"}, "`low` of `when` of stream `bids` is double, and the key `item_id` is bigint;"),
        ({"low": "item_id", "high": "tags"}, "`high` of `when` of stream `bids` is map<string,int>"),
        (
            {"on": {"item_id": "2.5"}},
            "`on` of `when` of stream `bids` is decimal(2,1), and the key `item_id` is bigint",
        ),
    ],
)
def test_values_that_are_closed_are_values_of_the_key(
    bids: DataFrame, auctions: DataFrame, given: dict[str, Any], part: str
) -> None:
    a = wm.stream(auctions.select("item_id", "opened_at"), time="opened_at", window="1 hour", name="auctions")
    b = wm.stream(bids, time="bid_at", window="1 hour", punctuation=wm.when("price > 3", **given), name="bids")
    found = refusal(ColumnError, lambda: wm.join(a, b, on="item_id"))
    assert found.startswith(part)
    assert "the value that it would become is not the one that was closed.\nHint: give values of the type of" in found


def test_punctuations_are_read_as_their_stream_is(spark: SparkSession, bids: DataFrame, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "a", "item_id long, bid_at timestamp")
    punctuations = wm.end("true", df=bids)
    a = wm.stream(feed.stream(), time="bid_at", window="1 hour", punctuation=punctuations, name="a")
    b = wm.stream(feed.stream().withColumnRenamed("bid_at", "at"), time="at", window="1 hour", name="b")
    assert refusal(QueryError, lambda: wm.join(a, b, on="item_id")) == (
        "`df` of `end`, the punctuations of stream `a`, is a static DataFrame and the stream is streaming; both are "
        "read in the same batches.\n"
        "Hint: read the punctuations as the stream is read, with spark.readStream or with spark.read."
    )
