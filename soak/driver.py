"""The process that is killed: a Spark driver that runs queries on demand.

    python -m soak.driver EVENTS MASTER [SETTING=VALUE …]

Commands are lines of JSON on standard input; events are lines of JSON in the file EVENTS.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from soak import cases, traps
from watersmeet.errors import WatersmeetError
from watersmeet.spark.progress import hot_key_tables
from watersmeet.state.hot_keys.phases import HOT_KEYS, Phase
from watersmeet.state.hot_keys.rule import Rule

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.python.daemon.module": "soak.daemon",
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.sql.streaming.minBatchesToRetain": "6",
    # frequent snapshots, so that faults hit them, too
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
    "spark.sql.streaming.stateStore.maintenanceInterval": "2s",
}

#: A key of few rows is hot in the batch after the first one in which it was.
RULE = Rule(rows=50, hot_batches=1, cool_batches=1)


class EventLog:
    """Writes events, each in one atomic write."""

    def __init__(self, path: Path) -> None:
        self.handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def __call__(self, event: str, **facts: Any) -> None:
        os.write(self.handle, (json.dumps({"event": event, "at": time.time(), **facts}) + "\n").encode())


def start(spark: SparkSession, command: dict[str, Any], trigger: dict[str, Any] | None = None) -> StreamingQuery:
    """Start a case in its folder, with results and late rows in folders by batch, and traps between the writes."""
    folder = Path(command["folder"])

    def results(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(folder / "results" / f"batch={batch:06d}"))
        traps.reach("results-out")

    def late(rows: DataFrame, batch: int) -> None:
        rows.write.mode("overwrite").parquet(str(folder / "late" / f"batch={batch:06d}"))
        traps.reach("output-written")

    joined = cases.query(spark, command["case"], folder, changed=command["changed"])
    return wm.write(joined, checkpoint=command["checkpoint"], results=results, late=late, trigger=trigger)


def drained(spark: SparkSession, started: dict[str, Any], query: StreamingQuery) -> StreamingQuery:
    """The query once all input is processed; one that follows the clock never ends, so a run of what is there does."""
    if cases.CASES[started["case"]].idle_clock is None:
        query.processAllAvailable()
        return query
    query.stop()
    query = start(spark, started, {"availableNow": True})
    query.awaitTermination()
    return query


def main() -> None:
    emit = EventLog(Path(sys.argv[1]))
    extra = dict(setting.split("=", 1) for setting in sys.argv[3:])
    spark = wm.session(master=sys.argv[2], shards=2, **(SETTINGS | extra))
    hot_key_tables.RULE = RULE
    emit("ready")
    query: StreamingQuery | None = None
    started: dict[str, Any] = {}
    for line in sys.stdin:
        command = json.loads(line)
        try:
            match command["do"]:
                case "start":
                    started, query = command, start(spark, command)
                    emit("started")
                case "rescale":
                    wm.rescale_state(spark, command["checkpoint"], command["to"], shards=command["shards"])
                    emit("made")
                case "evolve":
                    joined = cases.query(spark, command["case"], Path(command["folder"]), changed=True)
                    wm.evolve_state(command["checkpoint"], command["to"], joined)
                    emit("made")
                case "bootstrap":
                    name, folder = command["case"], Path(command["folder"])
                    streams, files = cases.CASES[name].streams, command["files"]
                    tables = {s: cases.table(spark, name, s, folder, files) for s in streams}
                    wm.bootstrap(cases.query(spark, name, folder), command["to"], tables)
                    emit("made")
                case "drain":
                    assert query is not None, "started before"
                    query = drained(spark, started, query)
                    emit("drained", counters=[_found(p) for p in query.recentProgress])
                case "stop":
                    if query is not None:
                        query.stop()
                    query = None
                    emit("stopped")
        except StreamingQueryException as error:
            query = None
            emit("failed", error=str(error))
        except WatersmeetError as error:
            query = None
            emit("failed", error=f"{type(error).__name__}: {error}")
        except Exception as error:
            emit("failed", error=f"{type(error).__name__}: {error}")


def _found(progress: Any) -> dict[str, int]:
    counters = wm.counters(progress)
    tables = [shard[HOT_KEYS]["table"] for shard in counters.get("shards", ())[:1] if HOT_KEYS in shard]
    split = any(entry[3] == Phase.SPREAD for table in tables for entry in table)
    return {"split": split} | {
        name: counters.get(name, 0) for name in ("cache_hit", "caught_up", "rebuilt", "late", "stored")
    }


if __name__ == "__main__":
    main()
