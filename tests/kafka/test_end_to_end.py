"""From Kafka to Kafka, by the command: tuples, closings, late rows, a restart, and exactly the expected messages."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("fastavro")

import fastavro
from confluent_kafka import Consumer, Producer

from examples.kafka_messages import make_topics
from tests.cli.pages import Place, blocks, missing
from tests.kafka.broker import Broker, free_port
from watersmeet.spark.pipelines.messages import BATCH

pytestmark = [pytest.mark.spark, pytest.mark.more]

ROOT = Path(__file__).parents[2]
PATIENCE = 600  # seconds within which messages come
START = datetime(2026, 5, 1, 10, tzinfo=UTC)
SCHEMA = {
    "type": "record",
    "name": "bid",
    "fields": [
        {"name": "item_id", "type": ["null", "long"]},
        {"name": "bid_at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "price", "type": ["null", "double"]},
    ],
}
PIPELINE = """\
checkpoint = "out/checkpoint"

[streams.auction]
format = "kafka"
options = { "kafka.bootstrap.servers" = "${BROKERS}", subscribe = "auctions", startingOffsets = "earliest" }
schema = "item_id BIGINT, opened_at TIMESTAMP"
select = ["*", "kafka.key AS seller"]
time = "opened_at"
window = "12 hours"
punctuation = { unique = "item_id" }

[streams.bid]
format = "kafka"
value = "avro"
schema = "bid.avsc"
options = { "kafka.bootstrap.servers" = "${BROKERS}", subscribe = "bids", startingOffsets = "earliest" }
time = "bid_at"
window = "12 hours"
delay = "5 seconds"
punctuation = [
  { when = "kafka.headers['kind'] = 'close'", on = "item_id" },
  { heartbeat = "kafka.headers['kind'] = 'tick'" },
]

[join]
on = "item_id"
how = "left"

[sinks.results]
format = "kafka"
options = { "kafka.bootstrap.servers" = "${BROKERS}", topic = "results" }
key = "item_id"
headers = { seller = "seller" }

[sinks.late]
format = "kafka"
options = { "kafka.bootstrap.servers" = "${BROKERS}", topic = "late" }
headers = { kind = "kind" }

[sinks.punctuations]
format = "kafka"
options = { "kafka.bootstrap.servers" = "${BROKERS}", topic = "closed" }

[session]
master = "local[2]"
shards = 2
memory = "1g"
"""


def at(second: float) -> datetime:
    return START + timedelta(seconds=second)


class House:
    """Writes auctions and bids, and remembers them."""

    def __init__(self, servers: str) -> None:
        self.producer = Producer({"bootstrap.servers": servers})
        self.items: list[int] = []
        self.bids: list[tuple[int, float]] = []

    def auction(self, item: int, second: float) -> None:
        value = json.dumps({"item_id": item, "opened_at": at(second).isoformat()})
        self.producer.produce("auctions", value, f"seller {item % 3}")
        self.items.append(item)

    def bid(self, item: int, second: float, price: float, *, counts: bool = True) -> None:
        self._bid({"item_id": item, "bid_at": at(second), "price": price})
        self.bids += [(item, price)] if counts else []

    def close(self, item: int, second: float) -> None:
        self._bid({"item_id": item, "bid_at": at(second), "price": None}, "close")

    def tick(self, second: float) -> None:
        self.producer.flush()  # all that it speaks of is there before it
        self._bid({"item_id": None, "bid_at": at(second), "price": None}, "tick")
        self.producer.flush()

    def _bid(self, bid: dict[str, Any], kind: str | None = None) -> None:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), bid)
        headers = [] if kind is None else [("kind", kind.encode())]
        self.producer.produce("bids", out.getvalue(), str(bid["item_id"]), headers=headers)

    def expected(self) -> Counter[tuple[int, float | None]]:
        """The left join, by definition."""
        pairs = [(item, price) for item in self.items for other, price in self.bids if item == other]
        alone = [(item, None) for item in self.items if item not in {other for other, _ in self.bids}]
        return Counter([*pairs, *alone])


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


@contextmanager
def running(folder: Path, servers: str, connector: str) -> Iterator[subprocess.Popen[str]]:
    """`watersmeet run`; it is asked to end, and has to end well."""
    told = {
        "BROKERS": servers,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_SUBMIT_ARGS": f"--jars {connector} pyspark-shell",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "watersmeet.cli", "run", "pipeline.toml", "--ui", "--events", "out/events.jsonl"],
        cwd=folder,
        env=os.environ | told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.said = process.communicate(timeout=PATIENCE)[0]  # type: ignore[attr-defined]
        assert process.returncode == 130, process.said  # type: ignore[attr-defined]
    finally:
        process.kill()
        process.wait()


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
    house.bid(1, 20, 1.0, counts=False)  # late: the tick said that there is nothing older than 70
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
    told = {(dict(m.headers())["kind"], row_of(m)["item_id"]) for m in late.rest()}
    assert told == {(b"late", 1), (b"violation", 2)}
    closed = Reader(broker.servers, "closed")
    closed.until(1)
    rows = [row_of(message) for message in closed.rest()]
    assert Counter(row["key"][0] for row in rows if "key" in row) == Counter(range(31))
    _same_numbers(first.said, second.said, tmp_path / "out" / "events.jsonl")  # type: ignore[attr-defined]
    said = second.said  # type: ignore[attr-defined]
    assert "0 tuples in state" in said.splitlines()[-1], said
    assert broker.servers not in first.said + said  # type: ignore[attr-defined]


def _same_numbers(first: str, second: str, events: Path) -> None:
    """The page shows what the file of events has, and that is what the runs themselves have told."""
    told = [json.loads(line) for line in events.read_text().splitlines()]
    runs = [event["run"] for event in told if event["kind"] == "started"]
    assert len(runs) == 2
    for run, said in zip(runs, (first, second), strict=True):
        assert "live page: http://127.0.0.1:" in said
        batches = [event for event in told if event["kind"] == "batch" and event["run"] == run]
        rows, out = (sum(batch[field] for batch in batches) for field in ("rows_in", "rows_out"))
        assert said.splitlines()[-1].startswith(f"{len(batches)} batches, {rows:,} rows in, {out:,} results")


def row_of(message: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.loads(message.value())["row"])
    return found


def test_the_commands_of_the_page_of_kafka(connector: str, tmp_path: Path) -> None:
    port = str(free_port())
    place = Place(tmp_path, KAFKA_PORT=port, PYSPARK_SUBMIT_ARGS=f"--jars {connector} pyspark-shell")
    (block,) = blocks("kafka.md")
    commands, told = (text.replace("9092", port) for text in block)
    try:
        assert missing(told, place.run(commands, PATIENCE)) == []
    finally:
        place.run("./run kafka stop")
