"""Pipelines with a mistake. What is said of them stands in mistakes.txt; run this to write it anew."""

from __future__ import annotations

from pathlib import Path

from watersmeet.errors import PipelineError
from watersmeet.pipelines.reader import from_text

TOLD = Path(__file__).with_name("mistakes.txt")
ENVIRONMENT = {"BROKERS": "10.1.2.3:9092", "KAFKA_PASSWORD": "correct horse"}

FOLDERS = """\
checkpoint = "out/checkpoint"
trigger = "10 seconds"

[streams.auction]
format = "csv"
path = "auctions"
schema = "item_id BIGINT, opened_at TIMESTAMP, title STRING"
options = { header = true }
time = "opened_at"
window = "12 hours"
punctuation = { unique = "item_id" }

[streams.bid]
format = "csv"
path = "bids"
schema = "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE, closed BOOLEAN"
options = { header = true }
time = "bid_at"
window = "12 hours"
delay = "5 seconds"
punctuation = { when = "closed", on = "item_id" }

[join]
on = "item_id"
how = "left"

[sinks.results]
format = "parquet"
path = "out/results"
"""
KAFKA = """\
checkpoint = "out/checkpoint"
query = \"\"\"
SELECT A.item_id, COUNT(*) AS bids
FROM auction [RANGE 12 HOURS] A, bid [RANGE 12 HOURS] B
WHERE A.item_id = B.item_id
GROUP BY A.item_id
\"\"\"

[streams.auction]
format = "kafka"
options = { "kafka.bootstrap.servers" = "${BROKERS}", subscribe = "auctions" }
schema = "item_id BIGINT, opened_at TIMESTAMP"
time = "opened_at"
punctuation = { unique = "item_id" }

[streams.bid]
format = "kafka"
options = { "kafka.bootstrap.servers" = "${BROKERS}", subscribe = "bids" }
schema = "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE"
time = "bid_at"
punctuation = [
  { when = "kafka.headers['kind'] = 'close'", on = "item_id" },
  { heartbeat = "kafka.headers['kind'] = 'tick'" },
]

[sinks.results]
format = "kafka"
options = { "kafka.bootstrap.servers" = "${BROKERS}", topic = "counts" }
key = "item_id"
"""

#: Of which pipeline, what in it, and what stands there instead.
CHANGES: list[tuple[str, str, str]] = [
    (FOLDERS, 'delay = "5 seconds"', 'dealy = "5 seconds"'),
    (FOLDERS, "[sinks.results]", "[sink.results]"),
    (FOLDERS, "[sinks.results]", "[sinks.result]"),
    (FOLDERS, 'checkpoint = "out/checkpoint"\n', ""),
    (FOLDERS, 'trigger = "10 seconds"', 'trigger = "availablenow"'),
    (FOLDERS, 'window = "12 hours"\npunctuation = { unique', 'window = "12 huors"\npunctuation = { unique'),
    (FOLDERS, 'window = "12 hours"\ndelay', "window = 12\ndelay"),
    (FOLDERS, 'window = "12 hours"\ndelay', "window = { row = 1000 }\ndelay"),
    (FOLDERS, 'format = "parquet"', 'format = "parket"'),
    (FOLDERS, 'how = "left"', 'how = "outer left"'),
    (FOLDERS, "{ header = true }\ntime = \"bid_at\"", '{ header = [1] }\ntime = "bid_at"'),
    (FOLDERS, "opened_at TIMESTAMP", "opened_at TIMSTAMP"),
    (FOLDERS, "opened_at TIMESTAMP", "opened_at BIGINT"),
    (FOLDERS, 'time = "bid_at"', 'time = "bidat"'),
    (FOLDERS, 'on = "item_id"\nhow', 'on = "item"\nhow'),
    (FOLDERS, '{ when = "closed", on = "item_id" }', '{ when = "closd", on = "item_id" }'),
    (FOLDERS, '{ when = "closed", on = "item_id" }', '{ when = "closed" }'),
    (FOLDERS, '{ when = "closed", on = "item_id" }', '{ unique = "item_id", ordered = "item_id" }'),
    (FOLDERS, '{ unique = "item_id" }', '{ unique = "item_id", slack = 5 }'),
    (FOLDERS, 'path = "out/results"', 'path = "bids/"'),
    (FOLDERS, 'path = "auctions"\n', ""),
    (FOLDERS, 'on = "item_id"\nhow', 'streams = ["auction", "bids"]\non = "item_id"\nhow'),
    (FOLDERS, '[join]\non = "item_id"\nhow = "left"\n', ""),
    (FOLDERS, 'trigger = "10 seconds"', 'query = "SELECT 1"'),
    (FOLDERS, 'path = "bids"', "path = bids"),
    (FOLDERS, 'path = "bids"', 'path = "bids'),
    (FOLDERS, 'how = "left"', 'how = "left"\non = "price"'),
    (FOLDERS, 'path = "bids"', 'path = "bids"\nvalue = "json"'),
    (FOLDERS, 'delay = "5 seconds"', 'delay = "${DELAI}"'),
    (KAFKA, '"${BROKERS}", subscribe = "auctions"', '"${BROKER}", subscribe = "auctions"'),
    (KAFKA, '"kafka.bootstrap.servers" = "${BROKERS}", subscribe = "bids"', '"bootstrap.servers" = "${BROKERS}"'),
    (KAFKA, 'schema = "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE"\n', ""),
    (KAFKA, 'topic = "counts"', 'subscribe = "counts"'),
    (KAFKA, "COUNT(*) AS bids", "MAX(prize) AS best"),
    (KAFKA, "FROM auction [", "FROM auctions ["),
    (KAFKA, "{ heartbeat = ", "{ heartbeet = "),
    (KAFKA, 'subscribe = "bids" }', 'subscribe = "bids" }\nprefix_bytes = 5'),
    (KAFKA, 'subscribe = "bids" }', 'subscribe = "bids" }\nselect = ["*", "prise * 2 AS double_price", "price +"]'),
]  # fmt: skip


def told(text: str) -> str:
    """What is said about a pipeline."""
    try:
        from_text(text, "pipeline.toml", Path(), ENVIRONMENT)
    except PipelineError as error:
        return str(error)
    raise AssertionError(f"there is no mistake in\n{text}")


def changed(text: str, what: str, instead: str) -> str:
    assert text.count(what) == 1, f"{what} stands {text.count(what)} times there"
    return text.replace(what, instead)


def all_told() -> str:
    return "\n\n----\n\n".join(told(changed(*change)) for change in CHANGES) + "\n"


if __name__ == "__main__":
    TOLD.write_text(all_told())
