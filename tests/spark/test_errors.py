"""What a user can get wrong in `wm.stream` and `wm.join`: refused with argument, rule, reason and hint."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.spark.refusals import auctions_of_all_types, bids_of_all_types, refusal
from watersmeet.errors import ColumnError, QueryError, WindowError

pytestmark = pytest.mark.spark

UNITS = (
    'Hint: write it like "10 seconds", "1 hour 30 minutes" or timedelta(seconds=10); units are microsecond, '
    "millisecond, second, minute, hour, day, week."
)


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    return bids_of_all_types(spark)


@pytest.fixture(scope="module")
def auctions(spark: SparkSession) -> DataFrame:
    return auctions_of_all_types(spark)


# ---------------------------------------------------------------- wm.stream


def test_ties_and_silence_are_named_in_columns_and_times_that_there_are(bids: DataFrame, auctions: DataFrame) -> None:
    assert refusal(ColumnError, lambda: wm.stream(bids, time="bid_at", order_by="prize", name="bids")) == (
        "`order_by` names column `prize`, which stream `bids` does not have.\nHint: did you mean `price`?"
    )
    assert refusal(WindowError, lambda: wm.stream(bids, time="bid_at", idle_after="soon")).endswith(UNITS)
    a = wm.stream(auctions.select("item_id", "opened_at"), time="opened_at", window="1 hour", name="auctions")
    plain = bids.select("item_id", "bid_at", "tags")
    b = wm.stream(plain, time="bid_at", window="1 hour", idle_after="0 seconds", name="bids")
    assert "`idle_after` of stream `bids` is 0 seconds" in refusal(WindowError, lambda: wm.join(a, b, on="item_id"))
    b = wm.stream(plain, time="bid_at", window="1 hour", order_by="tags", name="bids")
    assert "whose values have no order" in refusal(ColumnError, lambda: wm.join(a, b, on="item_id"))


def test_keys_without_an_order_have_no_ranges(bids: DataFrame, auctions: DataFrame) -> None:
    a = wm.stream(auctions.select("item_id", "opened_at", "word"), time="opened_at", window="1 hour", name="auctions")
    ranged = wm.when("price > 3", low="item_id")
    b = wm.stream(bids.drop("tags", "name"), time="bid_at", window="1 hour", punctuation=ranged, name="bids")
    assert refusal(ColumnError, lambda: wm.join(a, b, on=["item_id", "word"])) == (
        "`punctuation` of stream `bids` closes ranges of item_id, word (int64, string); "
        "a range is one of values of one column, of a type with an order.\n"
        'Hint: close single values, wm.when("…", on=…), or join on one column of numbers, texts or times.'
    )
    lists = [df.withColumn("item_id", F.array("item_id")) for df in (a.df.drop("word"), b.df.drop("word"))]
    a = wm.stream(lists[0], time="opened_at", window="1 hour", name="auctions", punctuation=wm.ordered("item_id"))
    b = wm.stream(lists[1], time="bid_at", window="1 hour", name="bids")
    assert "only one column of a type with an order can ascend" in refusal(
        ColumnError, lambda: wm.join(a, b, on="item_id")
    )


def test_an_unknown_time_column_comes_with_the_one_that_was_meant(bids: DataFrame) -> None:
    assert refusal(ColumnError, lambda: wm.stream(bids, time="bid_att", name="bids")) == (
        "`time` names column `bid_att`, which stream `bids` does not have.\nHint: did you mean `bid_at`?"
    )
    assert refusal(ColumnError, lambda: wm.stream(bids, time="zzz", name="bids")) == (
        "`time` names column `zzz`, which stream `bids` does not have.\n"
        "Hint: its columns are item_id, bid_at, price, tags, word, name."
    )


def test_a_time_must_be_a_timestamp(bids: DataFrame) -> None:
    assert refusal(ColumnError, lambda: wm.stream(bids, time="price", name="bids")) == (
        "`time` of stream `bids` is column `price` of type double; an event time is a timestamp.\n"
        'Hint: convert it first: df.withColumn("price", F.to_timestamp("price")) or F.timestamp_seconds(…).'
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"window": "-5 seconds"},
            "`window` is -5 seconds; a window reaches back in time, so it cannot be negative.\n"
            'Hint: give a duration such as "10 seconds", or None to keep tuples until a punctuation.',
        ),
        (
            {"window": "1 second", "delay": "-1 second"},
            "`delay` of stream `bids` is -1 second; a tuple cannot come before it happened.\n"
            'Hint: use "0 seconds" for a stream that is in order.',
        ),
        (
            {"window": "ten seconds"},
            '`window` is "ten seconds"; that is not a duration of fixed length.\n' + UNITS,
        ),
        (
            {"window": "1 second", "delay": "1 month"},
            '`delay` is "1 month"; that is not a duration of fixed length.\n'
            'Hint: months and years differ in length; count days, e.g. "30 days".',
        ),
        (
            {"window": " "},
            "`window` is empty; it is a duration.\n"
            'Hint: write it like "10 seconds", "1 hour 30 minutes" or timedelta(seconds=10).',
        ),
    ],
)
def test_durations_are_read_with_care(bids: DataFrame, arguments: dict[str, str], text: str) -> None:
    assert refusal(WindowError, lambda: wm.stream(bids, time="bid_at", name="bids", **arguments)) == text


def test_two_columns_of_one_name_are_refused(bids: DataFrame) -> None:
    twice = bids.select("item_id", "bid_at", "word", F.lit(1).alias("word"))
    assert refusal(ColumnError, lambda: wm.stream(twice, time="bid_at", name="bids")) == (
        "stream `bids` has two columns called `word`; nothing could tell them apart.\n"
        "Hint: leave one out, or rename it, before the stream is made."
    )


@pytest.mark.parametrize("name", ["a.b", "a`b"])
def test_names_that_pyspark_does_not_hand_to_python_are_refused(bids: DataFrame, name: str) -> None:
    odd = bids.select("item_id", "bid_at", F.lit(1).alias(name))
    assert refusal(ColumnError, lambda: wm.stream(odd, time="bid_at", name="bids")) == (
        f"column `{name}` of stream `bids` has a dot or a backtick in its name; PySpark does not hand such columns to "
        f'Python.\nHint: rename it: df.withColumnRenamed("{name}", "a_b").'
    )


@pytest.mark.parametrize("name", ["watersmeet kind", "Watersmeet sign 0"])
def test_names_of_added_columns_are_refused(bids: DataFrame, name: str) -> None:
    assert refusal(ColumnError, lambda: wm.stream(bids.withColumn(name, F.lit(1)), time="bid_at", name="bids")) == (
        f"column `{name}` of stream `bids` begins with `watersmeet `, as columns that operators add do.\n"
        f'Hint: rename it: df.withColumnRenamed("{name}", "{name[11:]}").'
    )


# ---------------------------------------------------------------- wm.join


@pytest.fixture
def a(auctions: DataFrame) -> wm.Stream:
    return wm.stream(auctions.drop("word", "name"), time="opened_at", window="1 hour", name="auctions")


@pytest.fixture
def b(bids: DataFrame) -> wm.Stream:
    return wm.stream(bids, time="bid_at", window="1 hour", name="bids")


def test_a_join_needs_a_window_on_both_sides(a: wm.Stream, bids: DataFrame) -> None:
    endless = wm.stream(bids, time="bid_at", name="bids")
    text = refusal(WindowError, lambda: wm.join(a, endless, on="item_id"))
    assert text.startswith("stream `bids` has no")
    assert "its tuples would be kept for ever.\nHint: give it one: wm.stream(" in text


def test_an_unknown_key_comes_with_the_one_that_was_meant(a: wm.Stream, b: wm.Stream) -> None:
    assert refusal(ColumnError, lambda: wm.join(a, b, on="itemid")) == (
        "`on` names column `itemid`, which stream `auctions` does not have.\nHint: did you mean `item_id`?"
    )
    assert refusal(ColumnError, lambda: wm.join(a, b, on=["item_id", "price"])) == (
        "`on` names column `price`, which stream `auctions` does not have.\nHint: its columns are item_id, opened_at."
    )
    assert refusal(QueryError, lambda: wm.join(a, b, on=[])) == "`on` names no column; a join needs at least one key."


def test_columns_that_clash_are_refused(auctions: DataFrame, b: wm.Stream) -> None:
    clashing = wm.stream(auctions.drop("name"), time="opened_at", window="1 hour", name="auctions")
    assert refusal(ColumnError, lambda: wm.join(clashing, b, on="item_id")) == (
        "column `word` stands in stream `bids` and in `auctions`; the result could not tell them apart.\n"
        'Hint: rename one: df.withColumnRenamed("word", "bids_word").'
    )


def test_columns_that_differ_in_case_only_are_refused(auctions: DataFrame, b: wm.Stream) -> None:
    shouting = auctions.select("item_id", "opened_at", F.col("word").alias("WORD"))
    a = wm.stream(shouting, time="opened_at", window="1 hour", name="auctions")
    assert refusal(ColumnError, lambda: wm.join(a, b, on="item_id")) == (
        "columns `WORD` and `word` of the result differ in upper and lower case only, "
        "which Spark does not tell apart.\n"
        'Hint: rename one: df.withColumnRenamed("word", "bids_word").'
    )


def test_keys_must_be_comparable(auctions: DataFrame, bids: DataFrame) -> None:
    def joined_on(column: str, kind: str | None = None) -> wm.Joined:
        left = auctions.select(F.lit("1").alias("item_id"), "opened_at", "name", F.lit("x").alias("tags"))
        if column != "item_id":
            left = left.select(column, "opened_at")
        right = bids.select(column, "bid_at")
        a = wm.stream(left.select(column, "opened_at"), time="opened_at", window="1 hour", name="auctions")
        return wm.join(a, wm.stream(right, time="bid_at", window="1 hour", name="bids"), on=column)

    assert refusal(ColumnError, lambda: joined_on("item_id")) == (
        "`on` column `item_id` is string in `auctions`, bigint in `bids`; values of these types cannot be compared as "
        'they are.\nHint: cast one side, e.g. df.withColumn("item_id", F.col("item_id").cast("bigint")).'
    )
    assert refusal(ColumnError, lambda: joined_on("name")) == (
        "`on` column `name` of stream `bids` has collation UTF8_LCASE; keys are compared byte by byte.\n"
        'Hint: collate(df.name, "UTF8_BINARY"), or join on lower(df.name).'
    )
    assert refusal(ColumnError, lambda: joined_on("tags")) == (
        "`on` column `tags` of stream `bids` is map<string,int>; values of that type cannot be compared for equality.\n"
        "Hint: join on a column of a comparable type."
    )


def test_nested_keys_are_judged_by_their_types_and_not_by_names_of_fields(spark: SparkSession) -> None:
    def joined_on(value: str) -> wm.Joined:
        a, b = (spark.sql(f"SELECT {value} AS k, timestamp '2024-01-01' AS {t}") for t in ("a_at", "b_at"))
        return wm.join(
            wm.stream(a, time="a_at", window="1 hour", name="a"),
            wm.stream(b, time="b_at", window="1 hour", name="b"),
            on="k",
        )

    assert joined_on("named_struct('variant', 1, 'void', 2, 'map<', 3)").df.columns == ["k", "a_at", "b_at"]
    for value, kind in (("NULL", "void"), ("array(map('x', 1))", "array<map<string,int>>")):
        text = f"`on` column `k` of stream `a` is {kind}; values of that type cannot be compared for equality."
        assert refusal(ColumnError, lambda value=value: joined_on(value)).startswith(text)
    assert "has collation UTF8_LCASE" in refusal(ColumnError, lambda: joined_on("array('x' COLLATE UTF8_LCASE)"))


def test_columns_that_python_never_sees_are_refused(spark: SparkSession, a: wm.Stream) -> None:
    odd = spark.sql("SELECT 1L AS item_id, timestamp '2024-01-01' AS bid_at, interval '1' year AS years")
    b = wm.stream(odd, time="bid_at", window="1 hour", name="bids")
    assert refusal(ColumnError, lambda: wm.join(a, b, on="item_id")) == (
        "column `years` of stream `bids` is interval year, which PySpark does not hand to Python.\n"
        'Hint: leave it out with df.drop("years"), or cast it (an interval of months to int, say).'
    )


def test_what_is_joined_is_two_to_eight_streams(a: wm.Stream, b: wm.Stream, bids: DataFrame) -> None:
    assert refusal(QueryError, lambda: wm.join(a, on="item_id")).startswith("`join` takes two to 8 streams; 1 given.")
    assert refusal(QueryError, lambda: wm.join(*[a, b] * 5, on="item_id")) == (
        "`join` takes two to 8 streams; 10 given.\n"
        "Hint: join some first, and the result with the others: wm.join(…).as_stream(…)."
    )
    assert refusal(QueryError, lambda: wm.join(a, bids, on="item_id")) == (  # type: ignore[arg-type]
        '`join` takes streams; got DataFrame.\nHint: wrap it: wm.stream(df, time="…", window="…").'
    )
    assert refusal(QueryError, lambda: wm.join(a, a, on="item_id")) == (
        "two streams are called `auctions`; messages could not tell them apart.\nHint: set `name`."
    )


def test_static_and_streaming_do_not_mix(spark: SparkSession, a: wm.Stream) -> None:
    rate = spark.readStream.format("rate").load().selectExpr("value AS item_id", "timestamp AS at")
    streaming = wm.stream(rate, time="at", window="1 hour", name="rate")
    assert refusal(QueryError, lambda: wm.join(a, streaming, on="item_id")) == (
        "`auctions` is a static DataFrame and others are streaming; a static side has no watermark.\n"
        'Hint: a table needs no state: stream_df.join(table, "…", "left") is Spark\'s own; or read it as a stream.'
    )


def test_there_is_at_least_one_shard(a: wm.Stream, b: wm.Stream) -> None:
    assert (
        refusal(QueryError, lambda: wm.join(a, b, on="item_id", shards=-1)) == "`shards` is -1; there is at least one."
    )
