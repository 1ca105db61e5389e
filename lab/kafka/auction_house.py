"""An auction house that writes to Kafka, and the pipeline that joins its streams."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import fastavro
from confluent_kafka import Producer

from lab.processes import environment

PATIENCE = 600  # seconds to wait for messages
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
    """Writes auctions and bids, and keeps them for comparison."""

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
        self.producer.flush()  # all earlier messages arrive before the tick
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


@contextmanager
def running(folder: Path, servers: str, connector: str) -> Iterator[subprocess.Popen[str]]:
    """`watersmeet run`; it gets SIGTERM at the end and must stop cleanly. Its output is in `printed` then."""
    process = subprocess.Popen(
        [sys.executable, "-m", "watersmeet.cli", "run", "pipeline.toml", "--ui", "--events", "out/events.jsonl"],
        cwd=folder,
        env=environment(BROKERS=servers, PYSPARK_SUBMIT_ARGS=f"--jars {connector} pyspark-shell"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        yield process
        process.send_signal(signal.SIGTERM)
        process.printed = process.communicate(timeout=PATIENCE)[0]  # type: ignore[attr-defined]
        assert process.returncode == 130, process.printed  # type: ignore[attr-defined]
    finally:
        process.kill()
        process.wait()
