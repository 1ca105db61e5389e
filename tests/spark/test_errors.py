"""What a user can get wrong: each refused with argument, rule, reason and hint, before anything runs if possible."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.spark.feeds import Feed, failure, run
from watersmeet.errors import ColumnError, QueryError, SettingError, WindowError
from watersmeet.spark.session import PROVIDER, REQUIRED

pytestmark = pytest.mark.spark

UNITS = (
    'Hint: write it like "10 seconds", "1 hour 30 minutes" or timedelta(seconds=10); units are microsecond, '
    "millisecond, second, minute, hour, day, week."
)

#: Spark's own defaults for the required settings.
WRONG = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
}


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    return spark.sql(
        "SELECT 1L AS item_id, timestamp '2024-01-01' AS bid_at, 2.5D AS price, map('a', 1) AS tags, 'x' AS word, "
        "'x' COLLATE UTF8_LCASE AS name, interval '1' year AS years"
    ).drop("years")


@pytest.fixture(scope="module")
def auctions(spark: SparkSession) -> DataFrame:
    return spark.sql("SELECT 1L AS item_id, timestamp '2024-01-01' AS opened_at, 'x' AS word, 'x' AS name")


def refusal(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    return str(caught.value)


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


def test_every_required_setting_has_a_wrong_value_here() -> None:
    assert set(WRONG) == set(REQUIRED)


@pytest.mark.parametrize("setting", REQUIRED)
def test_a_session_without_a_required_setting_is_refused(spark: SparkSession, setting: str) -> None:
    other = spark.newSession()
    other.conf.set(setting, WRONG[setting])
    rate = other.readStream.format("rate").load()
    streams = (
        wm.stream(rate.selectExpr("value AS k", f"timestamp AS {n}_ts"), time=f"{n}_ts", window="1 hour") for n in "ab"
    )
    have, (value, why) = WRONG[setting], REQUIRED[setting]
    text = f"the Spark session has `{setting}` = {have}, but a streaming join needs {value}: {why}."
    hint = f'Hint: spark.conf.set("{setting}", "{value}"), or make the session with wm.session() / wm.configure().'
    assert refusal(SettingError, lambda: wm.join(*streams, on="k")) == f"{text}\n{hint}"


@pytest.mark.parametrize("name", ["com.vendor.streaming.state.RocksDBStateStoreProvider", "com.vendor.FastStateStore"])
def test_the_state_store_of_a_vendor_is_accepted(spark: SparkSession, name: str) -> None:
    other = spark.newSession()
    other.conf.set(PROVIDER, name)
    rate = other.readStream.format("rate").load()
    streams = (
        wm.stream(rate.selectExpr("value AS k", f"timestamp AS {n}_ts"), time=f"{n}_ts", window="1 hour") for n in "ab"
    )
    assert wm.join(*streams, on="k").streaming


# ---------------------------------------------------------------- a checkpoint of another query


class Checkpoint:
    """A query that has run for one batch, and a second batch to come."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feeds = [Feed(spark, folder / n, f"k bigint, j bigint, {n}_ts timestamp") for n in "ab"]
        self.folder = folder / "checkpoint"
        self.add()
        run(self.query(), self.folder)
        self.add()

    def add(self) -> None:
        times = pa.array([0, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
        for feed, n in zip(self.feeds, "ab", strict=True):
            feed.add(pa.table({"k": [1, 2], "j": [1, 2], f"{n}_ts": times}))

    def query(self, *, window: str = "10 seconds", on: str = "k", **options: Any) -> DataFrame:
        a, b = (feed.stream() for feed in self.feeds)
        other = "j" if on == "k" else "k"
        streams = (
            wm.stream(a.drop(other), time="a_ts", window=window, name="a"),
            wm.stream(b.drop(other), time="b_ts", window="10 seconds", name="b"),
        )
        return wm.join(*streams, on=on, **options).df


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint(spark, tmp_path_factory.mktemp("checkpoint"))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"window": "11 seconds"}, ["StateMismatchError", "streams[0].window was 10 seconds, is 11 seconds"]),
        ({"on": "j"}, ["StateMismatchError", "streams[0].key[0] was 'k', is 'j'", "streams[1].key[0] was 'k', is 'j'"]),
        ({"shards": 3}, ["StateMismatchError", "the checkpoint was written with 2 shards", "the query now has 3"]),
        ({"shards": 1}, ["StateMismatchError", "the checkpoint was written with 2 shards", "the query now has 1"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_checkpoint_of_another_query_is_refused(
    checkpoint: Checkpoint, change: dict[str, Any], parts: list[str]
) -> None:
    text = failure(lambda: run(checkpoint.query(**change), checkpoint.folder))
    assert [part for part in parts if part not in text] == []


def test_a_refused_checkpoint_is_as_it_was(checkpoint: Checkpoint) -> None:
    """Runs after the refusals above."""
    output = run(checkpoint.query(), checkpoint.folder)
    assert output.table.num_rows == 6
    assert output.metrics[0]["stored"] == 8


# ---------------------------------------------------------------- punctuations


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


@pytest.mark.parametrize("name", ["watersmeet kind", "Watersmeet sign 0"])
def test_names_of_added_columns_are_refused(bids: DataFrame, name: str) -> None:
    assert refusal(ColumnError, lambda: wm.stream(bids.withColumn(name, F.lit(1)), time="bid_at", name="bids")) == (
        f"column `{name}` of stream `bids` begins with `watersmeet `, as columns that operators add do.\n"
        f'Hint: rename it: df.withColumnRenamed("{name}", "{name[11:]}").'
    )
