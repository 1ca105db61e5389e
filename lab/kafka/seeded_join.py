"""A join of two topics that is seeded from tables and starts at given offsets.

    python -m lab.kafka.seeded_join SERVERS FOLDER JAR,…

The tables have the first rows of each topic, `startingOffsets` is behind them, and one more message of each comes
before a restart. Prints a JSON: the results by batch, and those of the same join over all rows.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm

IN_TABLES, LIVE = 6, 9  # rows of each topic in the tables, and in the topics before the restart


def rows(name: str, start: int, stop: int) -> list[dict[str, Any]]:
    return [{"k": n % 2, f"{name}_at": f"2026-01-01 00:00:{n:02d}", name: n} for n in range(start, stop)]


def ddl(name: str) -> str:
    return f"k bigint, {name}_at timestamp, {name} bigint"


def produce(servers: str, start: int, stop: int) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for name in "ab":
        for row in rows(name, start, stop):
            producer.produce(name, json.dumps(row), partition=0)
    producer.flush()


def topic(spark: SparkSession, servers: str, name: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": servers, "subscribe": name}
    options["startingOffsets"] = json.dumps({name: {"0": IN_TABLES}})
    messages = spark.readStream.format("kafka").options(**options).load()
    return messages.select(F.from_json(F.col("value").cast("string"), ddl(name)).alias("row")).select("row.*")


def table(spark: SparkSession, name: str, stop: int) -> DataFrame:
    texts = spark.createDataFrame([(json.dumps(row),) for row in rows(name, 0, stop)], "value string")
    return texts.select(F.from_json("value", ddl(name)).alias("row")).select("row.*")


def main(servers: str, folder: Path, jars: str) -> None:
    spark = wm.session(master="local[2]", shards=2, **{"spark.jars": jars})

    def join(dfs: dict[str, DataFrame]) -> wm.Joined:
        return wm.join(*(wm.stream(df, time=f"{n}_at", window="3 seconds", name=n) for n, df in dfs.items()), on="k")

    def run() -> None:
        live = join({name: topic(spark, servers, name) for name in "ab"})
        out = {"checkpoint": folder / "checkpoint", "results": folder / "out"}
        wm.write(live, trigger={"availableNow": True}, **out).awaitTermination()

    produce(servers, 0, LIVE)
    tables = {name: table(spark, name, IN_TABLES) for name in "ab"}
    wm.bootstrap(join({name: topic(spark, servers, name) for name in "ab"}), folder / "checkpoint", tables)
    run()
    produce(servers, LIVE, LIVE + 1)
    run()
    found = spark.read.parquet(str(folder / "out")).select("batch", "a", "b").collect()
    expected = join({name: table(spark, name, LIVE + 1) for name in "ab"}).df.select("a", "b").collect()
    print(json.dumps({"found": sorted(map(tuple, found)), "expected": sorted(map(tuple, expected))}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
