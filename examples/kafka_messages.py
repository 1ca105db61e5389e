"""Messages for examples/pipelines/kafka.toml: `produce` writes them, `consume` prints the results.

BROKERS is the address of Kafka; `./run kafka start` starts a broker at 127.0.0.1:9092.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

TOPICS = ("auctions", "bids", "counts", "late")
AUCTIONS = [
    {"item_id": 1, "opened_at": "2026-05-01T10:00:00Z", "title": "teapot"},
    {"item_id": 2, "opened_at": "2026-05-01T10:00:04Z", "title": "atlas"},
    {"item_id": 3, "opened_at": "2026-05-01T10:00:06Z", "title": "lamp"},
]
BIDS = [
    {"item_id": 1, "bid_at": "2026-05-01T10:00:03Z", "price": 12.5},
    {"item_id": 2, "bid_at": "2026-05-01T10:00:05Z", "price": 30.0},
    {"item_id": 1, "bid_at": "2026-05-01T10:00:09Z", "price": 14.0},
]
CLOSED_KEYS = [{"item_id": item, "bid_at": "2026-05-01T10:00:10Z"} for item in (1, 2, 3)]
TICK = {"bid_at": "2026-05-01T10:00:30Z"}


def make_topics(servers: str, topics: Iterable[str] = TOPICS, partitions: int = 2) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    existing = admin.list_topics(timeout=30).topics
    made = admin.create_topics([NewTopic(name, partitions, 1) for name in topics if name not in existing])
    for done in made.values():
        done.result()


def produce(servers: str) -> None:
    make_topics(servers)
    producer = Producer({"bootstrap.servers": servers})
    for auction in AUCTIONS:
        producer.produce("auctions", json.dumps(auction), str(auction["item_id"]))
    for bid in BIDS:
        producer.produce("bids", json.dumps(bid), str(bid["item_id"]))
    for closed in CLOSED_KEYS:
        producer.produce("bids", json.dumps(closed), str(closed["item_id"]), headers=[("kind", b"close")])
    producer.flush()  # the heartbeat holds for all partitions, so it comes last
    producer.produce("bids", json.dumps(TICK), headers=[("kind", b"tick")])
    producer.flush()
    print(f"{len(AUCTIONS)} auctions, {len(BIDS)} bids and {len(CLOSED_KEYS)} punctuations are written")


def messages(servers: str, topic: str) -> Iterator[Message]:
    """All messages of a topic so far."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    try:
        for partition in consumer.list_topics(topic, timeout=30).topics[topic].partitions:
            place = TopicPartition(topic, partition, OFFSET_BEGINNING)
            _, end = consumer.get_watermark_offsets(place, timeout=30)
            consumer.assign([place] if end else [])
            offset = -1
            while offset + 1 < end:
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    offset = message.offset()
                    yield message
    finally:
        consumer.close()


def consume(servers: str) -> None:
    for value in sorted(message.value().decode() for message in messages(servers, "counts")):
        print(value)


if __name__ == "__main__":
    job = {"produce": produce, "consume": consume}.get(sys.argv[1] if len(sys.argv) > 1 else "")
    if job is None:
        sys.exit(__doc__)
    job(os.environ.get("BROKERS", "127.0.0.1:9092"))
