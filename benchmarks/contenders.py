"""The contenders: queries on Spark over the same files, with the same sink and the same two partitions.

    python -m benchmarks.contenders native-memory steady-200k [--quick] [--set spark.name=value]

runs one of them in this process and prints its measurements as JSON on the last line.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from benchmarks import cases, data
from benchmarks.cases import CASES, DELAY_SECONDS, PEERS, SCALE, SEVERAL, WINDOW_SECONDS, Case
from watersmeet.spark.joined import Joined
from watersmeet.spark.runtime.packing import PACKED_DDL, Packer
from watersmeet.spark.session import FILE_MANAGER, LOCAL_FILE_MANAGER

PARTITIONS = 2
SETTINGS = {
    "spark.driver.memory": "8g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": str(PARTITIONS),
    "spark.sql.streaming.numRecentProgressUpdates": "1000",
    "spark.log.level": "ERROR",
    FILE_MANAGER: LOCAL_FILE_MANAGER,  # as wm.session sets it: no contender waits for shell processes
}
_STORE = "spark.sql.streaming.stateStore."
_PROVIDERS = "org.apache.spark.sql.execution.streaming.state."
ROCKSDB = {
    _STORE + "providerClass": _PROVIDERS + "RocksDBStateStoreProvider",
    _STORE + "rocksdb.changelogCheckpointing.enabled": "true",
}
IN_MEMORY = {_STORE + "providerClass": _PROVIDERS + "HDFSBackedStateStoreProvider"}
NEWEST_JOIN_FORMAT = {"spark.sql.streaming.join.stateFormatVersion": "4"}


@dataclass(frozen=True)
class Contender:
    build: Callable[..., DataFrame]
    settings: dict[str, str] = field(default_factory=dict)
    session: Callable[[dict[str, str]], SparkSession] | None = None  # Spark's own unless given

    def start_session(self, extra: dict[str, str]) -> SparkSession:
        os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        settings = SETTINGS | self.settings | extra
        if self.session is not None:
            return self.session(settings)
        builder = SparkSession.Builder().master(f"local[{PARTITIONS}]")
        return builder.config(map=dict(settings)).getOrCreate()


@dataclass(frozen=True)
class Run:
    """The measurements of one contender on one case; times are in milliseconds unless a name has another unit."""

    contender: str
    case: str
    results: int
    expected_results: int
    first_result_s: float  # from start() of the query
    process_to_first_result_s: float  # from the start of this process's work: session, plan, start()
    checkpoint_bytes: float  # mean of the steady batches
    batches: list[dict[str, Any]]


def native_join(*streams: DataFrame) -> DataFrame:
    """Two streams, or a chain of joins in which all pairs must be near: with equal windows, the join of all at once.

    Spark takes one event time per input of a join, so in a chain all but the first stream's become plain columns once
    they are joined.
    """
    names = [_name_of(stream) for stream in streams]
    joined: DataFrame | None = None
    for number, (name, stream) in enumerate(zip(names, streams, strict=True)):
        right = stream.withWatermark(f"{name}_ts", f"{DELAY_SECONDS} seconds").alias(name)
        if joined is None:
            joined = right
            continue
        window = f"interval {WINDOW_SECONDS} seconds"
        near = [f"{name}_ts BETWEEN {n}_ts - {window} AND {n}_ts + {window}" for n in names[:number]]
        left = joined.alias("joined") if number > 1 else joined
        key = f"{'joined' if number > 1 else names[0]}.k = {name}.k"
        joined = left.join(right, sf.expr(" AND ".join([key, *near]))).drop(sf.col(f"{name}.k"))
        if number < len(streams) - 1:
            joined = joined.withColumn(f"{name}_ts", sf.expr(f"{name}_ts + interval 0 seconds"))
    assert joined is not None, "there are streams"
    return joined


def watersmeet_join(*streams: DataFrame) -> DataFrame:
    return _joined(*streams).df


def _joined(*streams: DataFrame) -> Joined:
    delay, window = f"{DELAY_SECONDS} seconds", f"{WINDOW_SECONDS} seconds"
    named = [(_name_of(df), df) for df in streams]
    return wm.join(*(wm.stream(df, time=f"{n}_ts", window=window, delay=delay, name=n) for n, df in named), on="k")


def _name_of(stream: DataFrame) -> str:
    return next(column[:-3] for column in stream.columns if column.endswith("_ts"))


def watersmeet_session(settings: dict[str, str]) -> SparkSession:
    return wm.session(master=f"local[{PARTITIONS}]", shards=PARTITIONS, **settings)


def source_sink(a: DataFrame, b: DataFrame) -> DataFrame:
    """Both streams as one, under the names of the first; where payload types differ Spark widens them."""
    return a.union(b)


def shuffle_identity(a: DataFrame, b: DataFrame) -> DataFrame:
    moved = source_sink(a, b).repartition(PARTITIONS, "k")
    return moved.mapInArrow(_identity, moved.schema)


def packed_identity(a: DataFrame, b: DataFrame) -> DataFrame:
    """Watersmeet's steps before its state operator: the rows are packed into blobs, the blobs are shuffled."""
    joined = _joined(a, b)
    packers = [Packer(spec, number, joined.ids) for number, spec in enumerate(joined.query.streams)]
    left, right = (s.df.mapInArrow(p, PACKED_DDL) for s, p in zip(joined.streams, packers, strict=True))
    return left.unionAll(right).repartition(PARTITIONS, "shard").mapInArrow(_identity, PACKED_DDL)


def _identity(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches


CONTENDERS = {
    cases.NATIVE_ROCKSDB: Contender(native_join, ROCKSDB),
    cases.NATIVE_ROCKSDB_V4: Contender(native_join, ROCKSDB | NEWEST_JOIN_FORMAT),
    cases.NATIVE_MEMORY: Contender(native_join, IN_MEMORY),
    cases.WATERSMEET: Contender(watersmeet_join, session=watersmeet_session),
    cases.WATERSMEET_WRITE: Contender(watersmeet_join, session=watersmeet_session),
    cases.SHUFFLE_IDENTITY: Contender(shuffle_identity),
    cases.PACKED_IDENTITY: Contender(packed_identity, session=watersmeet_session),
    cases.SOURCE_SINK: Contender(source_sink),
}
ALL = CASES | SEVERAL | SCALE | {PEERS.name: PEERS}


def run(name: str, case: Case, extra: dict[str, str]) -> Run:
    """Run a contender over all files of a case, batch by batch; the times are from Spark's progress."""
    files, checkpoint = data.make(case), Path(tempfile.mkdtemp(prefix=name, dir=data.scratch("checkpoints")))
    contender, began = CONTENDERS[name], time.time()
    spark = contender.start_session(extra)
    try:
        streams = [
            spark.readStream.schema(data.schema(case, stream))
            .option("maxFilesPerTrigger", data.FILES_PER_BATCH)
            .parquet(str(files / stream))
            for stream in case.streams
        ]
        query, started = start(name, case, streams, checkpoint / "checkpoint", checkpoint / "results")
        query.processAllAvailable()
        progress = [json.loads(p.json) for p in query.recentProgress if p.numInputRows > 0]
        query.stop()
        batches = [batch(p, phase) for p, phase in zip(progress, case.phases, strict=True)]
        first = next(b["ended"] for b in batches if b["results"] > 0)
        return Run(
            contender=name,
            case=case.name,
            results=sum(b["results"] for b in batches),
            expected_results=data.expected_results(files),
            first_result_s=round(first - started, 3),
            process_to_first_result_s=round(first - began, 3),
            checkpoint_bytes=_bytes_per_steady_batch(checkpoint / "checkpoint", batches),
            batches=batches,
        )
    finally:
        spark.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


def start(
    name: str, case: Case, streams: list[DataFrame], checkpoint: Path, results: Path
) -> tuple[StreamingQuery, float]:
    """The query with the case's sink, and the time at which it was started."""
    if name == cases.WATERSMEET_WRITE:
        joined, began = _joined(*streams), time.time()
        return wm.write(joined, checkpoint=checkpoint, results=results), began
    counted = CONTENDERS[name].build(*streams).observe("bench", sf.count(sf.lit(1)).alias("results"))
    writer = counted.writeStream.format(case.sink).option("checkpointLocation", str(checkpoint))
    began = time.time()
    return (writer.start() if case.sink == "noop" else writer.start(str(results))), began


def batch(progress: dict[str, Any], phase: str) -> dict[str, Any]:
    durations = progress["durationMs"]
    began = datetime.fromisoformat(progress["timestamp"]).timestamp()
    operators, observed = progress["stateOperators"], progress["observedMetrics"]
    own = wm.counters(progress)
    own.pop("shards", None)
    return {
        "phase": phase,
        "rows": progress["numInputRows"],
        "results": observed["bench"]["results"] if "bench" in observed else own["results"],
        "began": began,
        "ended": began + durations["triggerExecution"] / 1000,
        "durations": durations,
        "state_rows": own.get("stored", sum(o["numRowsTotal"] for o in operators)),
        "state_bytes": own.get("state_bytes", sum(o["memoryUsedBytes"] for o in operators)),
        "watersmeet": own,
    }


def _bytes_per_steady_batch(checkpoint: Path, batches: list[dict[str, Any]]) -> float:
    """Bytes of the files written since the first steady batch began; Spark deletes none in so short a run."""
    steady = [b for b in batches if b["phase"] == "steady"]
    stats = [path.stat() for path in checkpoint.rglob("*") if path.is_file()]
    return sum(s.st_size for s in stats if s.st_mtime >= steady[0]["began"]) / len(steady)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contenders")
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("case", choices=ALL)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a further Spark setting")
    options = parser.parse_args()
    case = ALL[options.case]
    extra = dict(setting.split("=", 1) for setting in options.set)
    print(json.dumps(asdict(run(options.contender, case.quick() if options.quick else case, extra))))


if __name__ == "__main__":
    main()
