"""Pipelines with mistakes, and their error messages; `python -m lab.query.pipeline_mistakes` writes these to a file."""

from __future__ import annotations

from pathlib import Path

from lab import ROOT
from watersmeet.errors import PipelineError
from watersmeet.pipelines.loader import from_text

MESSAGES = ROOT / "tests" / "pipelines" / "mistakes.txt"
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

#: From the punctuation of the one stream to the window of the other, without either.
WITHOUT_BOTH = """\

[streams.bid]
format = "csv"
path = "bids"
schema = "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE, closed BOOLEAN"
time = "bid_at"
"""

#: The pipeline, the text to replace, and its replacement.
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
    (FOLDERS, 'delay = "5 seconds"', 'delay = "-5 seconds"'),
    (FOLDERS, 'delay = "5 seconds"', 'idle_after = "0 seconds"'),
    (FOLDERS, 'delay = "5 seconds"', 'late_share = 0.01'),
    (FOLDERS, 'window = "12 hours"\ndelay', 'window = "-1 hours"\ndelay'),
    (FOLDERS, 'trigger = "10 seconds"', 'trigger = "-10 seconds"'),
    (FOLDERS, 'options = { header = true }\ntime = "bid_at"', 'options = { heder = true }\ntime = "bid_at"'),
    (FOLDERS, 'path = "out/results"', 'path = "out/results"\noptions = { compresion = "zstd" }'),
    (FOLDERS, "{ unique = \"item_id\" }", "{ unique = \"title\" }"),
    (FOLDERS, "item_id BIGINT, opened_at", "item_id STRING, opened_at"),
    (FOLDERS, "title STRING", "price STRING"),
    (FOLDERS, "title STRING", "item_id STRING"),
    (FOLDERS, "title STRING", "`title.de` STRING"),
    (FOLDERS, 'on = "item_id"\nhow', 'on = "auction.item_id = bids.item_id"\nhow'),
    (FOLDERS, 'on = "item_id"\nhow', 'on = "auction.item_id = item_id"\nhow'),
    (FOLDERS, 'on = "item_id"\nhow', 'on = "auction.item = bid.item_id"\nhow'),
    (FOLDERS, 'how = "left"', 'how = "left"\nmemory = 256'),
    (FOLDERS, 'how = "left"', 'how = "left"\nstrategy = "dbf"'),
    (FOLDERS, 'how = "left"', 'how = "left"\nbetween = ["0 hours", "1 hour"]'),
    (FOLDERS, 'how = "left"', 'how = "left"\nbetween = ["1 hour", "0 hours"]'),
    (FOLDERS, 'how = "left"', 'how = "left"\nbetween = ["1 hour", "2 feet"]'),
    (FOLDERS, 'how = "left"', 'how = "left"\nclosed = "left"'),
    (FOLDERS, 'how = "left"', 'how = "left"\nclosed = "lefft"'),
    (FOLDERS, 'how = "left"', 'how = "left"\nstreams = ["auction", "bid", "bid"]'),
    (FOLDERS, FOLDERS[FOLDERS.index("punctuation") : FOLDERS.index("delay")], WITHOUT_BOTH),
    (FOLDERS, 'how = "left"', 'how = "left"\nwhere = "prize > 10"'),
    (FOLDERS, 'how = "left"', 'how = "left"\nwhere = "price >"'),
    (KAFKA, 'subscribe = "bids" }', 'subscribe = "bids", startingOffset = "earliest" }'),
    (KAFKA, '"${BROKERS}", subscribe = "auctions"', '"${BROKER}", subscribe = "auctions"'),
    (KAFKA, '"kafka.bootstrap.servers" = "${BROKERS}", subscribe = "bids"', '"bootstrap.servers" = "${BROKERS}"'),
    (KAFKA, 'schema = "item_id BIGINT, bid_at TIMESTAMP, price DOUBLE"\n', ""),
    (KAFKA, 'topic = "counts"', 'subscribe = "counts"'),
    (KAFKA, "COUNT(*) AS bids", "MAX(prize) AS best"),
    (KAFKA, "FROM auction [", "FROM auctions ["),
    (KAFKA, "{ heartbeat = ", "{ heartbeet = "),
    (KAFKA, 'subscribe = "bids" }', 'subscribe = "bids" }\nprefix_bytes = 5'),
    (KAFKA, 'subscribe = "bids" }', 'subscribe = "bids" }\nmalformed = "sink"'),
    (KAFKA, 'subscribe = "bids" }', 'subscribe = "bids" }\nvalue = "text"\nmalformed = "sink"'),
    (KAFKA, "[sinks.results]", '[sinks.malformed]\nformat = "json"\npath = "out/malformed"\n\n[sinks.results]'),
    (FOLDERS, 'format = "parquet"\npath = "out/results"', 'format = "iceberg"'),
    (KAFKA, 'subscribe = "bids" }', 'subscribe = "bids" }\nselect = ["*", "prise * 2 AS double_price", "price +"]'),
]  # fmt: skip


def message(text: str) -> str:
    """The error message of a pipeline."""
    try:
        from_text(text, "pipeline.toml", Path(), ENVIRONMENT)
    except PipelineError as error:
        return str(error)
    raise AssertionError(f"there is no mistake in\n{text}")


def changed(text: str, what: str, instead: str) -> str:
    assert text.count(what) == 1, f"{what} stands {text.count(what)} times there"
    return text.replace(what, instead)


def all_messages() -> str:
    return "\n\n----\n\n".join(message(changed(*change)) for change in CHANGES) + "\n"


if __name__ == "__main__":
    MESSAGES.write_text(all_messages())
