"""Pipelines on Spark: files in and out, schemas inferred, what a message becomes and what becomes a message."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from watersmeet.errors import ColumnError, QueryError
from watersmeet.pipelines.loader import from_text
from watersmeet.pipelines.pipeline import Pipeline, Sink, Source
from watersmeet.spark.pipelines import assembly, messages, sources
from watersmeet.spark.write import start_writing

pytestmark = pytest.mark.spark

TEXT = """\
checkpoint = "out/checkpoint"

[streams.auction]
format = "csv"
path = "auctions"
options = { header = true, maxFilesPerTrigger = 1 }
select = ["item_id", "opened_at", "upper(title) AS title"]
time = "opened_at"
window = "1 hour"
punctuation = { unique = "item_id" }

[streams.bid]
format = "csv"
path = "bids"
schema = "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE, closed BOOLEAN"
options = { header = true, maxFilesPerTrigger = 1 }
time = "bid_at"
window = "1 hour"
delay = "5 seconds"
punctuation = { when = "closed", on = "item_id" }

[join]
on = "item_id"
how = "left"

[sinks.results]
format = "parquet"
path = "out/results"

[sinks.late]
format = "json"
path = "out/late"

[sinks.punctuations]
format = "json"
path = "out/punctuations"
"""
AUCTIONS = ["1,2026-05-01T10:00:00,teapot", "2,2026-05-01T10:00:04,atlas"]
BIDS = [
    ["1,2026-05-01T10:00:03,12.5,false", "1,2026-05-01T10:00:20,14.0,false"],
    [  # the last one takes the stream past the closings: with a delay, they hold from then on
        "1,2026-05-01T10:00:02,1.0,false",
        "2,2026-05-01T10:00:21,,true",
        "1,2026-05-01T10:00:22,,true",
        "9,2026-05-01T10:00:40,1.0,false",
    ],
]


def files(folder: Path, name: str, head: str, *batches: list[str]) -> None:
    (folder / name).mkdir(exist_ok=True)
    for n, rows in enumerate(batches):
        (folder / name / f"{n}.csv").write_text("\n".join([head, *rows]) + "\n")


def run(pipeline: Pipeline, spark: SparkSession) -> None:
    query = assembly.start(pipeline, assembly.assemble(pipeline, spark), once=True)
    query.awaitTermination()


def test_files_in_files_out_restart_included(spark: SparkSession, tmp_path: Path) -> None:
    files(tmp_path, "auctions", "item_id,opened_at,title", AUCTIONS)
    files(tmp_path, "bids", "item_id,bid_at,price,closed", BIDS[0])
    pipeline = from_text(TEXT, "pipeline.toml", tmp_path, {})
    run(pipeline, spark)
    assert rows(spark, tmp_path / "out/results") == [(1, "TEAPOT", 12.5), (1, "TEAPOT", 14.0)]
    files(tmp_path, "bids", "item_id,bid_at,price,closed", *BIDS)
    run(pipeline, spark)
    # the auction without bids comes when it is closed, an hour before its window would have ended
    assert rows(spark, tmp_path / "out/results") == [(1, "TEAPOT", 12.5), (1, "TEAPOT", 14.0), (2, "ATLAS", None)]
    (late,) = spark.read.json(str(tmp_path / "out/late/*/*.json")).collect()
    assert (late.stream, late.kind, json.loads(late.row)["price"]) == ("bid", "late", 1.0)
    closed = spark.read.json(str(tmp_path / "out/punctuations/*/*.json")).collect()
    assert sorted(json.loads(c.row)["key"] for c in closed if "key" in json.loads(c.row)) == [[1], [2]]


def rows(spark: SparkSession, folder: Path) -> list[tuple[Any, ...]]:
    found = spark.read.parquet(str(folder)).collect()
    return sorted(((r.item_id, r.title, r.price) for r in found), key=lambda r: (r[0], r[2] or 0))


def test_a_schema_that_cannot_be_inferred_must_be_given(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "auctions").mkdir()
    source = Source("auction", "csv", "opened_at", str(tmp_path / "auctions"))
    with pytest.raises(QueryError, match=r"stream `auction` has no `schema`, and .* has no file to infer it from"):
        sources.stream(spark, source)


# ---------------------------------------------------------------- messages

JSON = "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE"
KAFKA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, "
KAFKA += "headers array<struct<key: string, value: binary>>"
AT = datetime(2026, 5, 1, 10, tzinfo=UTC)


def received(spark: SparkSession, *values: bytes | None, headers: Mapping[str, str] | None = None) -> DataFrame:
    given = None if headers is None else [(name, text.encode()) for name, text in headers.items()]
    rows = [(b"7", value, "bids", 1, offset, AT, given) for offset, value in enumerate(values)]
    return spark.createDataFrame(rows, KAFKA)


def source(**given: Any) -> Source:
    return Source(name="bid", format="kafka", time="bid_at", **{"schema": JSON, **given})


def test_a_message_is_its_value_and_what_stands_beside_it(spark: SparkSession) -> None:
    got = messages.decoded(
        received(spark, b'{"item_id": 1, "bid_at": "2026-05-01T10:00:03Z", "price": 2.5}', headers={"kind": "bid"}),
        source(),
    )
    assert got.columns == ["item_id", "bid_at", "price", "kafka"]
    (row,) = got.selectExpr(
        "item_id", "price", "kafka.key", "kafka.headers['kind'] k", "kafka.headers['x'] x"
    ).collect()
    assert tuple(row) == (1, 2.5, "7", "bid", None)


def test_a_tombstone_closes_the_key_of_its_message(spark: SparkSession) -> None:
    """What punctuations take from the message is computed beside the columns, and is none of the tuple's."""
    got = messages.decoded(received(spark, None), source())
    given = [{"when": "item_id IS NULL", "on": {"item_id": "kafka.key"}}, {"end": "kafka.headers['x'] = 'y'"}]
    df, rules, hidden = sources._without_envelope(got, given)
    assert df.columns == ["item_id", "bid_at", "price", *hidden]
    assert rules == [
        {"when": "item_id IS NULL", "on": {"item_id": "`kafka 0 on 0`"}},
        {"end": "`kafka 1 end 0`"},
    ]
    closing = [sources._punctuation(rule) for rule in rules]
    made = wm.stream(df, time="bid_at", punctuation=closing, name="bid")
    assert (made.rules[0].about, made.rules[0].columns) == (("item_id",), ("`kafka 0 on 0`",))
    _, unnamed, _ = sources._without_envelope(got, [{"when": "item_id IS NULL", "on": "kafka.key"}])
    with pytest.raises(ColumnError, match=r'`on` of `when` names column `kafka.key`.*\n.*on=\{"key": "…"\} closes'):
        wm.stream(df, time="bid_at", punctuation=sources._punctuation(unnamed[0]), name="bid")


def test_a_message_without_headers_or_value_is_one_of_nulls(spark: SparkSession) -> None:
    got = messages.decoded(received(spark, None, b"{}"), source())
    found = got.selectExpr("item_id", "kafka.key", "kafka.headers['kind']", "kafka.offset").collect()
    assert [tuple(row) for row in found] == [(None, "7", None, 0), (None, "7", None, 1)]


def test_of_two_headers_of_one_name_the_last_counts(spark: SparkSession) -> None:
    given = [("kind", b"bid"), ("kind", b"close")]
    df = spark.createDataFrame([(b"7", b"{}", "bids", 1, 0, AT, given)], KAFKA)
    assert messages.decoded(df, source()).selectExpr("kafka.headers['kind'] k").first().k == "close"


@pytest.mark.parametrize("value", [b"no json", b'{"item_id": "one"}', b'{"bid_at": "yesterday"}', b"\xff\xfe"])
def test_a_malformed_message_stops_the_query_and_is_named(spark: SparkSession, value: bytes) -> None:
    got = messages.decoded(received(spark, b"{}", value), source())
    with pytest.raises(
        PySparkException, match="stream `bid`: the message at bids, partition 1, offset 1 is not item_id"
    ):
        got.collect()


def test_malformed_messages_are_dropped_where_that_is_requested(spark: SparkSession) -> None:
    got = messages.decoded(received(spark, b'{"item_id": 1}', b"no json", b'{"item_id": 3}'), source(malformed="drop"))
    assert [row.item_id for row in got.collect()] == [1, 3]


def test_dead_letters_have_their_place_and_reason(spark: SparkSession) -> None:
    values = (b'{"item_id": 1}', b"no json", None, b'{"item_id": "one"}', b"\xff\xfe")
    letters = messages.dead_letters(received(spark, *values), source(malformed="sink")).orderBy("offset").collect()
    assert [(r.stream, r.topic, r.partition, r.offset, r.key, b64decode(r.value)) for r in letters] == [
        ("bid", "bids", 1, offset, "7", values[offset]) for offset in (1, 3, 4)
    ]
    unfit = f"the value does not fit the schema {JSON}"
    assert [r.reason for r in letters] == ["the value is not JSON", unfit, "the value is not JSON"]
    got = messages.decoded(received(spark, *values), source(malformed="sink"))
    assert got.count() == 2


def test_dead_letters_go_to_a_sink_of_their_own_each_once(spark: SparkSession, tmp_path: Path) -> None:
    """Rows and dead letters of one source in one query, over a restart in the middle of a batch."""
    bid = source(malformed="sink")

    def start(fail: bool) -> StreamingQuery:
        read = spark.readStream.schema(KAFKA).option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "bids"))
        rows = {n: messages.decoded(read, replace(bid, name=n)).drop("kafka") for n in "ab"}
        streams = [
            wm.stream(df.toDF("item_id", f"{n}_at", f"{n}_price"), time=f"{n}_at", window="1 hour", name=n)
            for n, df in rows.items()
        ]

        def results(df: DataFrame, batch: int) -> None:
            if fail and batch == 1:
                raise OSError("full")
            df.write.mode("overwrite").parquet(str(tmp_path / "results" / f"batch={batch}"))

        sinks = {"malformed": tmp_path / "malformed", "results": results}
        letters = messages.dead_letters(read, bid)
        return start_writing(
            wm.join(*streams, on="item_id"), letters, sinks, tmp_path / "checkpoint", {"availableNow": True}
        )

    for n in range(2):
        good = f'{{"item_id": {n}, "bid_at": "2026-05-01T10:00:0{n}Z", "price": 1.5}}'.encode()
        received(spark, good, b"broken").coalesce(1).write.mode("append").parquet(str(tmp_path / "bids"))
    with pytest.raises(StreamingQueryException, match="full"):
        start(fail=True).awaitTermination()
    start(fail=False).awaitTermination()
    letters = spark.read.parquet(str(tmp_path / "malformed")).selectExpr("*", "unix_seconds(timestamp) AS seconds")
    assert sorted((r.batch, r.topic, r.offset, r.seconds, r.reason) for r in letters.collect()) == [
        (n, "bids", 1, int(AT.timestamp()), "the value is not JSON") for n in range(2)
    ]
    assert sorted(r.item_id for r in spark.read.parquet(str(tmp_path / "results")).collect()) == [0, 1]


def test_text_is_one_column(spark: SparkSession) -> None:
    got = messages.decoded(received(spark, b"plain"), source(value="text", schema=None))
    assert got.drop("kafka").collect()[0].asDict() == {"value": "plain"}


def test_a_column_called_kafka_is_refused(spark: SparkSession) -> None:
    with pytest.raises(ColumnError, match="has a column `kafka`"):
        messages.decoded(received(spark, b"{}"), source(schema="kafka STRING"))


def test_a_row_becomes_a_message_with_key_headers_and_the_number_of_its_batch(spark: SparkSession) -> None:
    rows = spark.createDataFrame([(1, None)], "item_id bigint, best double")
    sink = Sink("results", "kafka", key="item_id * 10", headers={"kind": "'result'", "item": "item_id"})
    (message,) = messages.encoded(rows, sink, 4).collect()
    assert (bytes(message.key), message.value) == (b"10", '{"item_id":1,"best":null}')
    headers = {h.key: bytes(h.value) for h in message.headers}
    assert headers.pop(messages.ROW).endswith(b"-1")
    assert headers == {messages.BATCH: b"4", "kind": b"result", "item": b"1"}


def test_messages_of_a_batch_are_distinguished_by_content_and_number(spark: SparkSession) -> None:
    """The same at every attempt, whatever the order of the rows."""
    rows = [(1, None), (2, 0.5), (1, None), (1, 0.5)]
    ids = []
    for given in (rows, rows[::-1]):
        df = spark.createDataFrame(given, "item_id bigint, best double").repartition(2)
        found = messages.encoded(df, Sink("results", "kafka", key="item_id"), 4).collect()
        ids.append(sorted(bytes(h.value) for m in found for h in m.headers if h.key == messages.ROW))
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(rows)
    assert sorted(id.rpartition(b"-")[2] for id in ids[0]) == [b"1", b"1", b"1", b"2"]
