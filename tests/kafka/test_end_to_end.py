"""From Kafka to Kafka, by the command: tuples, closings, late rows, a restart, and exactly the expected messages."""

from __future__ import annotations

import json
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")

from confluent_kafka import Consumer

from examples.kafka_messages import make_topics
from lab.kafka.auction_house import PATIENCE, PIPELINE, SCHEMA, House, running
from lab.kafka.broker import Broker
from lab.pages.commands import Place, blocks, missing
from lab.processes import free_port
from watersmeet.spark.pipelines import packages
from watersmeet.spark.pipelines.messages import BATCH

pytestmark = [pytest.mark.spark, pytest.mark.more]


class Reader:
    """Reads a topic from its beginning, and keeps what it has read."""

    def __init__(self, servers: str, topic: str) -> None:
        settings = {"bootstrap.servers": servers, "group.id": f"test-{topic}", "auto.offset.reset": "earliest"}
        self.consumer = Consumer(settings)
        self.consumer.subscribe([topic])
        self.messages: list[Any] = []

    def until(self, count: int, running: subprocess.Popen[str] | None = None) -> None:
        """Read until there are so many messages; what is to write them has to be running."""
        deadline = time.monotonic() + PATIENCE
        while len(self.messages) < count:
            assert time.monotonic() < deadline, f"{len(self.messages)} of {count} messages came"
            assert running is None or running.poll() is None, running.communicate()[0]
            self._poll(0.5)

    def rest(self) -> list[Any]:
        """All that is there, read to the end of every partition."""
        ends = {p.partition: self.consumer.get_watermark_offsets(p)[1] for p in self.consumer.assignment()}
        while sum(ends.values()) > len(self.messages):
            self._poll(0.5)
        self.consumer.close()
        return self.messages

    def _poll(self, seconds: float) -> None:
        message = self.consumer.poll(seconds)
        if message is not None and message.error() is None:
            self.messages.append(message)


def test_from_kafka_to_kafka_with_a_restart(broker: Broker, connector: str, tmp_path: Path) -> None:
    (tmp_path / "pipeline.toml").write_text(PIPELINE)
    (tmp_path / "bid.avsc").write_text(json.dumps(SCHEMA))
    make_topics(broker.servers, ("auctions", "bids", "results", "late", "closed"))
    house, results = House(broker.servers), Reader(broker.servers, "results")
    for item in range(30):
        house.auction(item, item)
        if item % 5:  # every fifth gets no bid
            house.bid(item, item + 1, 10.0)
            house.bid(item, item + 3, 12.5)
    for item in range(0, 30, 2):
        house.close(item, 60)
    house.tick(70)
    with running(tmp_path, broker.servers, connector) as first:
        open_alone = sum(1 for item in range(1, 30, 2) if not item % 5)
        results.until(house.expected().total() - open_alone, first)
    for item in range(1, 30, 2):  # while nothing runs
        house.bid(item, 80, 99.0)
    house.bid(1, 20, 1.0, counts=False)  # late: by the heartbeat nothing older than 70 comes
    house.bid(2, 85, 1.0, counts=False)  # against the stream's own word: item 2 is closed
    for item in range(1, 30, 2):
        house.close(item, 90)
    house.auction(30, 95)
    house.close(30, 96)
    house.tick(100)
    with running(tmp_path, broker.servers, connector) as second:
        results.until(house.expected().total(), second)
    got = results.rest()
    values = [json.loads(message.value()) for message in got]
    assert Counter((v["item_id"], v["price"]) for v in values) == house.expected()
    for message, value in zip(got, values, strict=True):
        headers = dict(message.headers())
        assert message.key().decode() == str(value["item_id"])
        assert headers["seller"].decode() == value["seller"] == f"seller {value['item_id'] % 3}"
        assert headers[BATCH].decode().isdigit()
    late = Reader(broker.servers, "late")
    late.until(2)
    found = {(dict(m.headers())["kind"], row_of(m)["item_id"]) for m in late.rest()}
    assert found == {(b"late", 1), (b"violation", 2)}
    closed = Reader(broker.servers, "closed")
    closed.until(1)
    rows = [row_of(message) for message in closed.rest()]
    assert Counter(row["key"][0] for row in rows if "key" in row) == Counter(range(31))
    _same_numbers(first.printed, second.printed, tmp_path / "out" / "events.jsonl")  # type: ignore[attr-defined]
    printed = second.printed  # type: ignore[attr-defined]
    assert "0 tuples in state" in printed.splitlines()[-1], printed
    assert broker.servers not in first.printed + printed  # type: ignore[attr-defined]


def _same_numbers(first: str, second: str, events: Path) -> None:
    """The page shows what the file of events has, which is what the runs themselves have reported."""
    lines = [json.loads(line) for line in events.read_text().splitlines()]
    runs = [event["run"] for event in lines if event["kind"] == "started"]
    assert len(runs) == 2
    for run, given in zip(runs, (first, second), strict=True):
        assert "live page: http://127.0.0.1:" in given
        batches = [event for event in lines if event["kind"] == "batch" and event["run"] == run]
        rows, out = (sum(batch[field] for batch in batches) for field in ("rows_in", "rows_out"))
        assert given.splitlines()[-1].startswith(f"{len(batches)} batches, {rows:,} rows in, {out:,} results")


def row_of(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.loads(message.value())["row"])
    return found


@pytest.mark.usefixtures("connector")  # or a reason to skip
def test_the_commands_of_the_page_of_kafka_as_they_stand(tmp_path: Path) -> None:
    """Nothing of this machine helps: no jars are named, and what was fetched before lies elsewhere."""
    port = str(free_port())
    place = Place(tmp_path, KAFKA_PORT=port, XDG_CACHE_HOME=str(tmp_path / "cache"))
    (block,) = blocks("kafka.md")
    commands, found = (text.replace("9092", port) for text in block)
    try:
        printed = place.run(commands, PATIENCE)
    finally:
        place.run("./run kafka stop")
    assert missing(found, printed) == []
    assert f"kafka: {packages.described('kafka')}" in printed
    assert len(list((tmp_path / "cache" / "watersmeet" / "jars").glob("*.jar"))) == len(packages.modules("kafka"))
