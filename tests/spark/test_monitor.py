"""`wm.monitor` on a real Spark: events, page, metrics and log say what the query's own progress says."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from random import Random
from typing import Any
from urllib.request import urlopen

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from lab.dashboard.prometheus_text import parse
from lab.dashboard.run_events import batch
from lab.spark.feeds import Feed, failure
from watersmeet.dashboard.event_files import read_events
from watersmeet.errors import QueryError
from watersmeet.pipelines import secrets

pytestmark = pytest.mark.spark

SECOND = 1_000_000
A = "k long, a_ts timestamp, a_n long"
B = "k long, b_ts timestamp, b_n long, last boolean"


class House:
    """Every key of a comes once; b follows it, closes most keys, and breaks its word at times. Some rows are late."""

    def __init__(self, spark: SparkSession, folder: Path, batches: int = 4) -> None:
        self.a, self.b = Feed(spark, folder / "a", A), Feed(spark, folder / "b", B)
        chance = Random(3)
        for n in range(batches):
            keys = range(20 * n, 20 * n + 20)
            times = [60 * n + chance.randint(0, 59) for _ in range(70)]
            self.a.add_rows([(k, (60 * n + 3 * (k % 20)) * SECOND, k) for k in keys])
            rows = [(chance.choice([*keys, 7]), t * SECOND, i, False) for i, t in enumerate(times)]
            closed = [(k - 20, (60 * n + 59) * SECOND, -1, True) for k in keys if k % 5]
            self.b.add_rows(rows + closed)

    def join(self, **options: Any) -> wm.Joined:
        a = wm.stream(self.a.stream(), time="a_ts", window="2 minutes", punctuation=wm.unique("k"), name="a")
        b = wm.stream(
            self.b.stream(),
            time="b_ts",
            window="2 minutes",
            delay="5 seconds",
            punctuation=wm.when("last", on="k"),
            name="b",
        )
        return wm.join(a, b, on="k", **options)


def start(df: DataFrame, folder: Path, name: str | None = None) -> StreamingQuery:
    writer = df.writeStream.format("noop").option("checkpointLocation", str(folder)).trigger(availableNow=True)
    return (writer.queryName(name) if name else writer).start()


def finish(query: StreamingQuery) -> list[dict[str, Any]]:
    """Run to the end; the counters of each batch in which a shard was called."""
    query.awaitTermination()
    return [counters for counters in map(wm.counters, query.recentProgress) if counters]


def test_all_outputs_say_what_the_progress_says(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    joined, path = House(spark, tmp_path).join(), tmp_path / "events.jsonl"
    caplog.set_level(logging.INFO, "watersmeet.events")
    with wm.monitor(joined, events=path, ui=True, prometheus=0, log=True) as monitor:
        query = start(joined.df, tmp_path / "checkpoint", "house")
        batches = finish(query)
        assert monitor.flush()
        planned, started, *events, ended = read_events(path)
        assert monitor.url
        assert monitor.metrics_url
        with urlopen(monitor.metrics_url, timeout=10) as response:
            metrics = parse(response.read().decode())
        with urlopen(f"{monitor.url}events", timeout=10) as stream:
            lines = [line for line in iter(stream.readline, b"event: caught-up\n") if line.startswith(b"data: ")]

    assert planned["plan"] == json.loads(json.dumps(joined.explain().to_dict()))
    assert planned["svg"] == joined.explain().to_svg()
    assert (started["run"], started["query"], started["name"]) == (str(query.runId), str(query.id), "house")
    assert (ended["kind"], ended["run"], ended["error"]) == ("ended", str(query.runId), None)

    assert len(events) == len(batches) >= 4
    for event, details in zip(events, batches, strict=True):
        shards = details.pop("shards")
        assert set(event) == {"v", *batch(0)}, "the fields that are documented, see tests/dashboard/test_documents.py"
        assert all(set(s) == set(batch(0)["streams"][0]) for s in event["streams"])
        assert event["counters"] == details
        assert event["left"] == {
            "window": details["expired"],
            "punctuation": details["purged"],
            "dead": details["dead"],
            "matched": 0,
            "shed": 0,
        }
        assert (event["rows_in"], event["rows_out"]) == (details["rows_in"], details["results"])
        assert event["state"] == {"tuples": details["stored"], "bytes": details["state_bytes"]}
        for name, total in (("stored", "stored"), ("bytes", "state_bytes"), ("late", "late"), ("rows_in", "rows_in")):
            assert sum(s[name] for s in event["streams"]) == details[total]
        assert sum(s["violations"] for s in event["streams"]) == details["violations"]
        assert [s["rows_in"] for s in event["shards"]] == [s["rows_in"] for s in shards]
        assert event["shard_ms"]["join"] in [s["join_us"] / 1000 for s in shards]
        assert event["spark_ms"]["triggerExecution"] == event["seconds"] * 1000
    assert sum(e["left"]["punctuation"] for e in events) > 0
    assert sum(e["left"]["dead"] for e in events) > 0
    assert sum(e["late"] for e in events) + sum(e["violations"] for e in events) > 0
    assert events[-1]["streams"][1]["predicted"] is not None
    assert any(h["key"] == "7" for e in events for h in e["streams"][1]["hot"]), "7 comes in every batch"

    assert [json.loads(line.removeprefix(b"data: ")) for line in lines] == [planned, started, *events, ended]
    house = 'query="house"'
    assert metrics["watersmeet_results_total"] == {house: sum(b["results"] for b in batches)}
    assert metrics["watersmeet_left_tuples_total"][f'{house},reason="punctuation"'] == sum(b["purged"] for b in batches)
    logged = [json.loads(record.getMessage()) for record in caplog.records if record.name == "watersmeet.events"]
    assert [e["kind"] for e in logged] == ["plan", "started", *["batch"] * len(batches), "ended"]
    assert [e["rows_in"] for e in logged[2:-1]] == [b["rows_in"] for b in batches]


def test_a_restart_is_a_run_more_in_the_same_file_and_other_queries_are_none(
    spark: SparkSession, tmp_path: Path
) -> None:
    house, path = House(spark, tmp_path, batches=2), tmp_path / "events.jsonl"
    joined = house.join()
    other = House(spark, tmp_path / "other", batches=1)
    strangers = wm.join(
        wm.stream(other.a.stream(), time="a_ts", window="1 minute", name="x"),
        wm.stream(other.b.stream(), time="b_ts", window="1 minute", name="y"),
        on="k",
    )
    for _ in range(2):
        with wm.monitor(joined, events=path):
            finish(start(strangers.df, tmp_path / "strangers"))
            finish(start(joined.df, tmp_path / "checkpoint"))
        house.a.add_rows([(1000, 400 * SECOND, 1)])
        house.b.add_rows([(1000, 400 * SECOND, 1, False)])
    events = read_events(path)
    kinds = [e["kind"] for e in events]
    assert kinds.count("plan") == kinds.count("started") == kinds.count("ended") == 2
    assert len({e["run"] for e in events if e["kind"] == "batch"}) == 2
    assert {s["name"] for e in events if e["kind"] == "batch" for s in e["streams"]} == {"a", "b"}
    assert [e["batch"] for e in events if e["kind"] == "batch"] == sorted({e["batch"] for e in events if "batch" in e})


def test_groups_in_an_operator_of_their_own_are_distinguished(spark: SparkSession, tmp_path: Path) -> None:
    grouped = House(spark, tmp_path, batches=2).join().group_by(wm.bucket("b_ts", "1 minute")).agg(n=wm.count())
    path = tmp_path / "events.jsonl"
    with wm.monitor(grouped, events=path):
        query = start(grouped.df, tmp_path / "checkpoint")
        batches = finish(query)
    events = [e for e in read_events(path) if e["kind"] == "batch"]
    groups = [wm.counters(p, metrics="watersmeet_groups") for p in query.recentProgress]
    assert [e["counters"]["results"] for e in events] == [b["results"] for b in batches]
    assert [e["rows_out"] for e in events] == [g["groups"] for g in groups if g]
    last = events[-1]
    assert last["operators"]["groups"]["open_groups"] > 0
    assert last["state"]["bytes"] == last["counters"]["state_bytes"] + last["operators"]["groups"]["state_bytes"]


def test_a_query_that_fails_is_reported_without_secrets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(secrets, "_read", {})
    secrets.filled("${WORD}", {"WORD": "brought a tuple"})  # as if this were a password
    joined, path = House(spark, tmp_path).join(on_violation="error"), tmp_path / "events.jsonl"
    with wm.monitor(joined, events=path):
        text = failure(lambda: finish(start(joined.df, tmp_path / "checkpoint")))
    assert "against a punctuation" in text
    ended = read_events(path)[-1]
    assert ended["kind"] == "ended"
    assert "against a punctuation" in ended["error"]
    assert "`b` ${WORD} with" in ended["error"]


def test_what_goes_wrong_in_the_monitor_does_not_reach_the_query(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    joined = House(spark, tmp_path, batches=1).join()
    with wm.monitor(joined, events=tmp_path / "events.jsonl") as monitor:
        monitor._resources[0].close()  # as on a full disk: nothing can be written any more
        results = tmp_path / "results"
        query = wm.write(joined, checkpoint=tmp_path / "checkpoint", results=results, trigger={"availableNow": True})
        assert finish(query)
        assert monitor.flush()
    assert spark.read.parquet(str(results)).count() > 0
    assert "an event could not be published; the query goes on" in caplog.text


def test_a_monitor_without_an_output_or_a_stream_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    house = House(spark, tmp_path, batches=1)
    with pytest.raises(QueryError, match=r"`monitor` has no destination for its events"):
        wm.monitor(house.join())
    static = wm.join(
        wm.stream(house.a.static(), time="a_ts", window="1 minute"),
        wm.stream(house.b.static(), time="b_ts", window="1 minute"),
        on="k",
    )
    with pytest.raises(QueryError, match="follows a streaming query"):
        wm.monitor(static, ui=True)
