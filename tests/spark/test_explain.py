"""What is said of a join before it runs (word for word), while it runs, and after."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from tests.spark.explanations import CASES, TOLD, House
from tests.spark.feeds import Feed
from watersmeet.errors import QueryError
from watersmeet.joins import JOINS
from watersmeet.spark.explain import Explanation
from watersmeet.workload.steady import Steady

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_told_word_for_word(case: Callable[[House], Explanation], spark: SparkSession, tmp_path: Path) -> None:
    explained = case(House(spark, tmp_path))
    assert f"{explained}\n" == (TOLD / f"{case.__name__}.txt").read_text()
    facts = json.loads(json.dumps(explained.to_dict()))
    assert {facts["algorithm"], *(a["algorithm"] for a in facts["rejected"])} == set(JOINS)
    assert sum(s["predicted"]["tuples"] for s in facts["streams"]) == pytest.approx(facts["predicted"]["tuples"])
    drawn = "".join(ET.fromstring(explained.to_svg()).itertext())
    assert all(s["name"] in drawn for s in facts["streams"])


# ---------------------------------------------------------------- measured

#: Keys that retire and are closed by both streams, over windows that end before the run does.
LOAD = Steady((400, 100), (8.0, 4.0), (50, 50), closings=10.0)
SECONDS = 24


class Streams:
    """The load as two feeds of files; rows that close a key have a NULL number."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feeds = [Feed(spark, folder / n, f"key long, {n}_ts timestamp, {n}_n long") for n in "ab"]
        for step in LOAD.steps(SECONDS, batch=3.0):
            for feed, spec, batch in zip(self.feeds, LOAD.query.streams, step, strict=True):
                times = batch.rows.column(spec.time).cast(pa.timestamp("us", "UTC"))
                rows = batch.rows.set_column(1, spec.time, times)
                assert batch.closings is not None
                keys, at = batch.closings.keys.column(0), pa.array(batch.closings.times).cast(times.type)
                said = pa.record_batch([keys, at, pa.nulls(len(keys), pa.int64())], schema=rows.schema)
                feed.add(pa.Table.from_batches([rows, said]))

    def joined(self, *, static: bool = False, punctuated: bool = True, **options: Any) -> wm.Joined:
        streams = []
        for feed, name, window in zip(self.feeds, "ab", LOAD.windows, strict=True):
            df = feed.static() if static else feed.stream()
            sign = wm.when(f"{name}_n IS NULL", on="key") if punctuated else None
            streams.append(
                wm.stream(df, time=f"{name}_ts", window=f"{window:.0f} seconds", punctuation=sign, name=name)
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
    assert [s["figures"]["rate"] for s in facts["streams"]] == pytest.approx(LOAD.rates, rel=0.15)
    assert [s["figures"]["closings"] for s in facts["streams"]] == pytest.approx([10, 10], rel=0.15)
    assert all(s["figures"]["stay_s"] < s["kept_s"] for s in facts["streams"])
    assert f"stored {measured['stored']:,} (predicted {predicted['stored']:,}) tuples" in str(explained)
    # what the state remembers of a query that has ended
    again = joined.explain(statistics=tmp_path / "c").to_dict()
    assert again["statistics"] == {"source": "remembered", "text": "remembered in the state, 8 batches"}
    for now, then in zip(again["streams"], facts["streams"], strict=True):
        assert now["figures"]["rate"] == pytest.approx(then["figures"]["rate"], rel=0.05)
        assert now["predicted"]["tuples"] == pytest.approx(then["predicted"]["tuples"], rel=0.25)


def test_a_static_join_is_run_and_sampled(streams: Streams) -> None:
    joined = streams.joined(static=True, punctuated=False)
    facts = joined.explain(analyze=True).to_dict()
    assert facts["measured"]["results"] == joined.df.count()
    assert facts["measured"]["batches"] == 1
    sampled = joined.explain(statistics="sample")
    assert [s["figures"]["rate"] for s in sampled.to_dict()["streams"]] == pytest.approx(LOAD.rates, rel=0.15)
    assert "figures: sampled from 100,000 rows of a stream at most" in str(sampled)
    groups = joined.group_by("key").agg(n=wm.count(), emit="update").explain(analyze=True).to_dict()
    assert groups["measured"]["groups"] == joined.df.select("key").distinct().count()
    one = streams.joined().explain(statistics={"a": streams.feeds[0].static()})
    assert one.to_dict()["streams"][0]["figures"]["rate"] == pytest.approx(400, rel=0.15)
    assert "figures: as given; assumed for b" in str(one)


def test_what_is_refused(streams: Streams, tmp_path: Path) -> None:
    joined = streams.joined()
    for statistics, message in (
        ({"c": {"rate": 1}}, "`statistics` are of `c`, and the streams are a, b"),
        ({"a": {"speed": 1}}, r"`statistics` of stream `a` have `speed`, .*\nHint: figures are rate, keys, closings"),
        ("sample", '`statistics` is "sample", and the streams are streaming'),
        (tmp_path / "nowhere", "nowhere, where no state of a query can be read"),
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
        assert f"{name} is false: rows that an operator of Spark's own before the join holds" in str(
            streams.joined().explain()
        )
    finally:
        spark.conf.unset(name)
    assert "1 of 2 shuffle partitions have a shard" in str(streams.joined(shards=1).explain())


def test_an_algorithm_asked_for_is_shown_as_such(streams: Streams) -> None:
    plain = streams.joined(punctuated=False)
    forced = streams.joined(punctuated=False, algorithm="pwjoin").explain()
    assert (plain.explain().to_dict()["forced"], forced.to_dict()["forced"]) == (False, True)
    assert str(forced).splitlines()[0] == "pwjoin (inner) of a, b on key, asked for by name"
    assert "pwjoin (asked for)" in forced.to_svg()
    closing = {"a": {"rate": 400, "closings": 10}}
    assert "with these figures pwjoin would be taken" in str(plain.explain(statistics=closing))
