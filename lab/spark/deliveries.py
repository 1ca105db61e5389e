"""A query that delivers to a sink and can kill its driver between the write of a batch and its commit.

    python -m lab.spark.deliveries SINK FOLDER [--kill] [--servers HOST:PORT] [--jars JAR,…]

With `--kill` the process ends by SIGKILL, with its JVM, when the second batch is in the sink. Otherwise it runs to the
end of its input and prints a JSON: the rows in the sink, those of the same join over the whole input, and how many
there were before duplicates were removed (Kafka).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.jars import NotAtHand, fetched
from lab.processes import family, kill
from lab.spark.feeds import Feed
from lab.spark.three_streams import DDL, at
from watersmeet.pipelines.pipeline import Sink
from watersmeet.spark import write as door
from watersmeet.spark.pipelines import messages, sinks

BATCHES, KILLED_IN = 3, 1
TABLE = "lake.shop.results"
COLUMNS = ("k", "a", "b")
#: Packages by the minor version of Spark that they are made for.
DELTA = {version: f"io.delta:delta-spark_{version}_2.13:4.4.0" for version in ("4.0", "4.1", "4.2")}
ICEBERG = {
    "4.0": "org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:1.11.0",
    "4.1": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
_EXTENSIONS = "spark.sql.extensions"
SETTINGS: dict[str, dict[str, str]] = {
    "parquet": {},
    "kafka": {},
    "delta": {
        _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "2",
    },
    "iceberg": {
        _EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


def jars(kind: str) -> str:
    """The jars of Delta Lake or Iceberg for this Spark, as `spark.jars` takes them."""
    version = ".".join(pyspark.__version__.split(".")[:2])
    module = {"delta": DELTA, "iceberg": ICEBERG}[kind].get(version)
    if module is None:
        raise NotAtHand(f"Maven has no package of {kind} for Spark {version}")
    return ",".join(map(str, fetched(kind, [module]).glob("*.jar")))


def feeds(spark: SparkSession, folder: Path) -> list[Feed]:
    """Two streams of three files; every second row comes twice, so that results are a bag and no set."""
    out = []
    for n in "ab":
        written = (folder / n).exists()
        feed = Feed(spark, folder / n, DDL.format(n=n))
        for batch in range(0 if written else BATCHES):
            rows = [(r % 4, at(10 * batch + r), f"{n}{batch}.{r}", False) for r in range(10)]
            feed.add_rows([*rows, *rows[::2]])
        out.append(feed)
    return out


def joined(streams: list[DataFrame]) -> wm.Joined:
    made = [wm.stream(df, time=f"{n}_at", window="15 seconds", name=n) for n, df in zip("ab", streams, strict=True)]
    return wm.join(*made, on="k")


def sink(kind: str, folder: Path, servers: str) -> Any:
    if kind == "delta":
        return wm.delta(folder / "table")
    if kind == "iceberg":
        return wm.iceberg(TABLE)
    if kind == "kafka":
        options = {"kafka.bootstrap.servers": servers, "topic": "results"}
        return sinks.writer(Sink("results", "kafka", options=options, key="k"))
    return folder / "table"


def delivered(spark: SparkSession, kind: str, folder: Path, servers: str) -> tuple[DataFrame, int]:
    """The rows in the sink, and their number with duplicates."""
    if kind == "iceberg":
        found = spark.table(TABLE)
    elif kind == "kafka":
        reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "results")
        topic = reader.option("includeHeaders", "true").load()
        named = "map_from_entries(transform(headers, h -> struct(h.key, CAST(h.value AS string))))"
        both = topic.select(
            F.from_json(F.col("value").cast("string"), "k bigint, a string, b string").alias("row"),
            F.expr(named).alias("h"),
        )
        ids = both.select("row.*", *(F.col("h").getItem(name).alias(name) for name in (messages.BATCH, messages.ROW)))
        return ids.dropDuplicates([messages.BATCH, messages.ROW]), ids.count()
    else:
        found = spark.read.format(kind).load(str(folder / "table"))
    return found, found.count()


def die_after_delivery(marker: Path) -> None:
    """End this process and its JVM when a batch is in the sink and Spark does not know it yet."""
    deliver = door._deliver

    def deliver_and_die(sink: Any, rows: DataFrame, batch: int, writer: str) -> None:
        deliver(sink, rows, batch, writer)
        if batch == KILLED_IN:
            marker.touch()
            kill(*reversed(family(os.getpid())))

    door._deliver = deliver_and_die


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("sink", choices=sorted(SETTINGS))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--servers", default="")
    parser.add_argument("--jars", default="")
    given = parser.parse_args()
    settings = dict(SETTINGS[given.sink], **({"spark.jars": given.jars} if given.jars else {}))
    if given.sink == "iceberg":
        settings["spark.sql.catalog.lake.warehouse"] = str(given.folder / "lake")
    spark = wm.session(master="local[2]", shards=2, **settings)
    inputs = feeds(spark, given.folder)
    if given.kill:
        die_after_delivery(given.folder / "killed")
    target = sink(given.sink, given.folder, given.servers)
    arguments = {"checkpoint": given.folder / "checkpoint", "trigger": {"availableNow": True}}
    wm.write(joined([feed.stream() for feed in inputs]), results=target, **arguments).awaitTermination()
    found, raw = delivered(spark, given.sink, given.folder, given.servers)
    expected = joined([feed.static() for feed in inputs]).df
    rows = {name: sorted(map(list, df.select(*COLUMNS).collect())) for name, df in
            (("delivered", found), ("expected", expected))}  # fmt: skip
    print(json.dumps(rows | {"raw": raw}))
    spark.stop()


if __name__ == "__main__":
    main()
