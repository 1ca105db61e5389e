"""What is explained of a join before it runs (word for word), while it runs, and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.explanations import CASES, STORED, House, texts
from lab.spark.feeds import Feed
from watersmeet.errors import QueryError
from watersmeet.joins import REGISTRY
from watersmeet.spark.explain.facts import Explanation
from watersmeet.workload.steady import Steady

pytestmark = pytest.mark.spark

ON_A_KEY = {name for name, kind in REGISTRY.items() if not kind.traits.theta and name != "asof"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_explained_word_for_word(case: Callable[[House], Explanation], spark: SparkSession, tmp_path: Path) -> None:
    explained = case(House(spark, tmp_path))
    for file, text in texts(case.__name__, explained).items():
        assert text == (STORED / file).read_text()
    facts = json.loads(json.dumps(explained.to_dict()))
    assert {facts["algorithm"], *(a["algorithm"] for a in facts["rejected"])} == ON_A_KEY
    assert sum(s["predicted"]["tuples"] for s in facts["streams"]) == pytest.approx(facts["predicted"]["tuples"])
    drawn = "".join(ET.fromstring(explained.to_svg()).itertext())
    assert all(s["name"] in drawn for s in facts["streams"])


def test_what_is_short_and_what_is_verbose(spark: SparkSession, tmp_path: Path) -> None:
    for case in CASES:
        explained = case(House(spark, tmp_path))
        text = str(explained)
        assert not {"alternatives:", "settings:"} & {line.strip() for line in text.splitlines()}
        assert len(text.splitlines()) <= 6 + 5 * len(explained.to_dict()["streams"]) * (2 if "tree" in text else 1)
        assert "alternatives:" in str(replace(explained, verbose=True))
        assert "e+" not in str(replace(explained, verbose=True)), "no number in powers of ten"
    joined = House(spark, tmp_path).three()
    assert str(joined.explain(verbose=True)) == (STORED / "three_streams.verbose.txt").read_text().rstrip()
    grouped = joined.group_by("epoch", wm.bucket("a_at", "1 minute")).agg(n=wm.count())
    assert "alternatives:" in str(grouped.explain(verbose=True))


def test_cautions_of_punctuations_that_are_ignored_and_of_one_shard(spark: SparkSession, tmp_path: Path) -> None:
    house = House(spark, tmp_path)
    punctuations = [wm.when("closed", on="item_id"), wm.heartbeat("closed")]
    joined = wm.join(house.auctions(), house.bids(punctuation=punctuations), on="item_id", algorithm="hash")
    caution = "punctuations of bid (value) are ignored by hash: they purge nothing, and violations are not found"
    assert joined.explain().to_dict()["warnings"] == [caution]
    assert "caution" not in str(wm.join(house.auctions(), house.bids(punctuation=punctuations), on="item_id").explain())
    name = "spark.sql.shuffle.partitions"
    before = spark.conf.get(name)
    spark.conf.set(name, "1")
    try:
        text = str(wm.join(house.auctions(), house.bids(), on="item_id").explain())
    finally:
        spark.conf.set(name, before or "2")
    assert "one shard: a single task joins all keys, however many cores there are" in text


def test_a_tree_has_the_cautions_of_all_its_operators(spark: SparkSession, tmp_path: Path) -> None:
    house = House(spark, tmp_path)
    people = wm.stream(house.empty("who string, met_at timestamp"), time="met_at", window="1 hour", name="person")
    on = ["auction.item_id = bid.item_id", "bid.bidder = person.who"]
    text = str(wm.join(house.auctions(None), house.bids("0 seconds"), people, on=on, allow_unbounded=True).explain())
    assert text.count("bid has a window of 0") == 1
    assert "older than its partner in auction or person" in text
    assert "auction_bid has a window of 0" not in text
    assert "auction has no window and bid never closes keys, so its state grows without bound" in text


def test_every_public_object_is_a_line(spark: SparkSession, tmp_path: Path) -> None:
    house = House(spark, tmp_path)
    rules = [wm.when("closed", on="item_id"), wm.heartbeat("closed")]
    auctions, bids = house.auctions(punctuation=wm.unique("item_id")), house.bids(delay="5 seconds", punctuation=rules)
    joined = wm.join(auctions, bids, on="item_id", how="left")
    grouping = joined.group_by("item_id", wm.bucket("bid_at", "1 minute"))
    of_joined = "left join of auction (12 hours), bid (12 hours) on item_id: pwjoin, 2 shards, streaming>"
    query = "SELECT A.item_id FROM auction [RANGE 1 HOUR] A, bid [ROWS 5] B WHERE A.item_id = B.item_id"
    selected = wm.sql(query, auction=house.auctions(), bid=house.bids())
    for one, text in (
        (auctions, "<Stream auction: time opened_at, window 12 hours, delay 0 seconds, punctuations unique>"),
        (bids, "<Stream bid: time bid_at, window 12 hours, delay 5 seconds, punctuations value, heartbeat>"),
        (house.bids(None, delay="auto"), "<Stream bid: time bid_at, window unbounded, delay measured>"),
        (house.bids(wm.rows(9)), "<Stream bid: time bid_at, window 9 rows, delay 0 seconds>"),
        (joined, f"<Joined {of_joined}"),
        (selected, "<Joined inner join of A (1 hour), B (5 rows) on item_id: general_lazy, 1 shard, streaming>"),
        (grouping, f"<Grouping by item_id, bid_at_bucket, without aggregates yet, of <Joined {of_joined}>"),
        (
            grouping.agg(n=wm.count(), best=wm.max("price")),
            f"<Grouped by item_id, bid_at_bucket: n (count), best (max), final, of <Joined {of_joined}>",
        ),
        (
            joined.explain(),
            "<Explanation of pwjoin (left) of auction, bid on item_id; print it, or see to_dict() and to_svg()>",
        ),
        (wm.when("closed", on="item_id"), "<value of item_id when closed>"),
        (
            wm.when("low > 0", low="low", high="high", df=bids.df),
            "<range of low, high when low > 0, in a DataFrame of its own>",
        ),
        (wm.end("closed"), "<end when closed>"),
        (wm.unique("item_id"), "ColumnConstraint(column='item_id', constraint=Unique())"),
    ):
        assert repr(one) == text
        assert len(text) < 200


# ---------------------------------------------------------------- measured

#: Keys that retire and are closed by both streams, over windows that end before the run does.
LOAD = Steady((400, 100), (8.0, 4.0), (50, 50), punctuations=10.0)
SECONDS = 24


class Streams:
    """The load as two feeds of files; rows that close a key have a NULL number."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feeds = [Feed(spark, folder / n, f"key long, {n}_ts timestamp, {n}_n long") for n in "ab"]
        for step in LOAD.steps(SECONDS, batch=3.0):
            for feed, spec, batch in zip(self.feeds, LOAD.query.streams, step, strict=True):
                times = batch.rows.column(spec.time).cast(pa.timestamp("us", "UTC"))
                rows = batch.rows.set_column(1, spec.time, times)
                assert batch.punctuations is not None
                keys, at = batch.punctuations.keys.column(0), pa.array(batch.punctuations.times).cast(times.type)
                found = pa.record_batch([keys, at, pa.nulls(len(keys), pa.int64())], schema=rows.schema)
                feed.add(pa.Table.from_batches([rows, found]))

    def joined(self, *, static: bool = False, punctuated: bool = True, **options: Any) -> wm.Joined:
        streams = []
        for feed, name, window in zip(self.feeds, "ab", LOAD.windows, strict=True):
            df = feed.static() if static else feed.stream()
            rule = wm.when(f"{name}_n IS NULL", on="key") if punctuated else None
            streams.append(
                wm.stream(df, time=f"{name}_ts", window=f"{window:.0f} seconds", punctuation=rule, name=name)
            )
        return wm.join(*streams, on="key", **options)


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    return Streams(spark, tmp_path_factory.mktemp("streams"))


def test_a_running_query_is_measured_beside_what_was_predicted(streams: Streams, tmp_path: Path) -> None:
    joined = streams.joined()
    with pytest.raises(QueryError, match="no query that has run a batch of this session joins a, b"):
        joined.explain(analyze=True)
    writer = joined.df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.start()
    try:
        query.processAllAvailable()
        explained = joined.explain(analyze=True)
        facts = explained.to_dict()
        assert str(joined.explain(query)) == str(explained)
        last = wm.counters(query.recentProgress[SECONDS // 3 - 1])
    finally:
        query.stop()
    measured, predicted = facts["measured"], facts["measured"]["predicted"]
    assert facts["statistics"]["source"] == "measured"
    assert measured["batches"] == SECONDS // 3
    assert measured["stored"] == last["stored"]
    assert predicted == last["predicted"] | {n: predicted[n] for n in ("probed", "results", "join_us")}
    assert predicted["stored"] == pytest.approx(measured["stored"], rel=0.25)
    assert predicted["state_bytes"] == pytest.approx(measured["state_bytes"], rel=0.25)
    assert predicted["probed"] == pytest.approx(measured["compared"]["probed"], rel=0.5)
    assert [s["statistics"]["rate"] for s in facts["streams"]] == pytest.approx(LOAD.rates, rel=0.15)
    assert [s["statistics"]["closed_keys"] for s in facts["streams"]] == pytest.approx([10, 10], rel=0.15)
    assert all(s["statistics"]["stay_s"] < s["kept_s"] for s in facts["streams"])
    assert f"stored {measured['stored']:,} (predicted {predicted['stored']:,}) tuples" in str(explained)
    # what the state remembers of a query that has ended
    again = joined.explain(statistics=tmp_path / "c").to_dict()
    assert again["statistics"] == {"source": "stored", "text": "stored in the state, 8 batches"}
    for now, then in zip(again["streams"], facts["streams"], strict=True):
        assert now["statistics"]["rate"] == pytest.approx(then["statistics"]["rate"], rel=0.05)
        assert now["predicted"]["tuples"] == pytest.approx(then["predicted"]["tuples"], rel=0.25)


def test_a_static_join_is_run_and_sampled(streams: Streams) -> None:
    joined = streams.joined(static=True, punctuated=False)
    facts = joined.explain(analyze=True).to_dict()
    assert facts["measured"]["results"] == joined.df.count()
    assert facts["measured"]["batches"] == 1
    sampled = joined.explain(statistics="sample")
    assert [s["statistics"]["rate"] for s in sampled.to_dict()["streams"]] == pytest.approx(LOAD.rates, rel=0.15)
    assert "statistics: sampled from 100,000 rows of a stream at most" in str(sampled)
    groups = joined.group_by("key").agg(n=wm.count(), emit="update").explain(analyze=True).to_dict()
    assert groups["measured"]["groups"] == joined.df.select("key").distinct().count()
    one = streams.joined().explain(statistics={"a": streams.feeds[0].static()})
    assert one.to_dict()["streams"][0]["statistics"]["rate"] == pytest.approx(400, rel=0.15)
    assert "statistics: as given; assumed for b" in str(one)


def test_what_is_refused(streams: Streams, tmp_path: Path) -> None:
    joined = streams.joined()
    for statistics, message in (
        ({"c": {"rate": 1}}, "`statistics` are of `c`, and the streams are a, b"),
        (
            {"a": {"speed": 1}},
            r"`statistics` of stream `a` have `speed`, .*\nHint: statistics are rate, keys, closed_keys",
        ),
        ("sample", '`statistics` is "sample", and the streams are streaming'),
        (tmp_path / "nowhere", "nowhere, where no state of a query can be read: it does not exist"),
    ):
        with pytest.raises(QueryError, match=message):
            joined.explain(statistics=statistics)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="has no counters of this join; no batch has run yet"):
        joined.explain({"observedMetrics": {}})


def test_settings_that_hold_results_back(streams: Streams, spark: SparkSession) -> None:
    name = "spark.sql.streaming.noDataMicroBatches.enabled"
    assert name not in str(streams.joined().explain())
    spark.conf.set(name, "false")
    try:
        assert f"{name} is false: rows that one of Spark's own operators before the join holds" in str(
            streams.joined().explain()
        )
    finally:
        spark.conf.unset(name)
    assert "1 of 2 shuffle partitions has a shard" in str(streams.joined(shards=1).explain())


def test_an_algorithm_requested_is_shown_as_such(streams: Streams) -> None:
    plain = streams.joined(punctuated=False)
    forced = streams.joined(punctuated=False, algorithm="pwjoin").explain()
    assert (plain.explain().to_dict()["forced"], forced.to_dict()["forced"]) == (False, True)
    assert str(forced).splitlines()[0] == "pwjoin (inner) of a, b on key, chosen by name"
    assert "pwjoin (chosen by name)" in forced.to_svg()
    closing = {"a": {"rate": 400, "closed_keys": 10}}
    assert "with these statistics pwjoin would be taken" in str(plain.explain(statistics=closing))
