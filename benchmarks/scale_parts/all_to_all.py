"""The blobs of nearly empty batches: what it costs that every source partition sends one to every shard.

Bytes and time of packing are of one real partition (`Packer`) for 10 to 10,000 shards; decoding is that of one shard
(`Unpacker`) with the blobs of as many partitions. Through Spark's shuffle go the rows of real jobs (`shuffled`), beside
the job that gathering the watermarks first would need (`gathered`).
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks import contenders, data
from benchmarks.scale_parts import event_log
from benchmarks.scale_parts.one_shard import query
from watersmeet.kernels.warm_up import warm_up
from watersmeet.spark.runtime.packing import PACKED_DDL, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.unpacking import Unpacker

SHARDS = (10, 100, 1_000, 10_000)
ROWS = 100  # of a partition in a batch: less than one a shard from a hundred shards on
REPETITIONS = 9
SHUFFLED = ((4, 10), (4, 100), (4, 1_000), (64, 100), (256, 256))  # partitions, shards of real jobs
QUICK_SHARDS, QUICK_SHUFFLED = (10, 100), ((2, 10),)
ALL_TO_ALL, GATHERED = "all to all", "gathered"
DDL = "k BIGINT, a_ts TIMESTAMP, a_v BIGINT"


def rows(count: int) -> pa.RecordBatch:
    rng, schema = np.random.default_rng(1), query().streams[0].schema
    columns = [rng.integers(0, 1 << 40, count), data.START + rng.integers(0, data.SECOND, count), np.arange(count)]
    return pa.record_batch([pa.array(c).cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def run(quick: bool) -> dict[str, Any]:
    warm_up()
    packed = [about(count, shards) for shards in (QUICK_SHARDS if quick else SHARDS) for count in (0, ROWS)]
    return {"packed": packed, "shuffled": shuffled(QUICK_SHUFFLED if quick else SHUFFLED)}


def about(count: int, shards: int) -> dict[str, Any]:
    """Bytes and times of the blobs of one partition for all shards, and of as many partitions' for one shard."""
    spec = query().streams[0]
    ids = shard_ids(shards, shards)
    packer, given = Packer(spec, 0, ids), rows(count)
    sent = list(packer(iter([given])))
    blob, seen = sent[0].column("blob"), sent[0].column("seen")
    payloads = [len(b) for b in blob.to_pylist()]
    counts = sent[0].column("rows").to_pylist()
    one = [(0, int(seen[0].as_py()), counts[n], blob[n].as_py()) for n in range(shards)]

    def unpack() -> None:
        unpacker = Unpacker(spec)
        for kind, moment, some, payload in one:
            unpacker.put(kind, moment, some, payload)
        unpacker.batch(ended=False)

    pack_s, unpack_s = least(lambda: list(packer(iter([given])))), least(unpack)
    return {
        "rows": count,
        "shards": shards,
        "payload_bytes": sum(payloads),
        "arrow_bytes": sent[0].nbytes,
        "pack_us_a_shard": pack_s / shards * 1e6,
        "unpack_us_a_blob": unpack_s / shards * 1e6,
    }


def least(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of some repetitions, after one that is not measured."""
    work()
    times = []
    for _ in range(REPETITIONS):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def shuffled(sizes: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    """Spark jobs that pack, shuffle and count the blobs of empty partitions, and those that gather maxima instead."""
    logs = event_log.folder("all-to-all")
    spark = contenders.watersmeet_session(contenders.SETTINGS | event_log.settings(logs))
    found = []
    try:
        for partitions, shards in sizes:
            for name, job in _jobs(spark, partitions, shards).items():
                job()  # not measured: the workers start, the plan is compiled
                spark.sparkContext.setJobDescription(f"{name} {partitions} {shards}")
                began = time.perf_counter()
                job()
                seconds = time.perf_counter() - began
                spark.sparkContext.setJobDescription(None)
                found.append({"job": name, "partitions": partitions, "shards": shards, "s": seconds})
    finally:
        spark.stop()
    return [row | from_log(row, event_log.stages(logs)) for row in found]


def from_log(row: dict[str, Any], stages: list[event_log.Stage]) -> dict[str, int]:
    """Bytes of the first shuffle of a job, which is the one of the blobs, and the tasks of all stages."""
    mine = [s for s in stages if s.description == f"{row['job']} {row['partitions']} {row['shards']}"]
    first = sum(s.shuffle_write for s in mine if not s.shuffle_read)
    return {"shuffle_bytes": first, "tasks": sum(s.tasks for s in mine), "task_ms": sum(s.run_ms for s in mine)}


def _jobs(spark: SparkSession, partitions: int, shards: int) -> dict[str, Callable[[], Any]]:
    spec = query().streams[0]
    packer = Packer(spec, 0, shard_ids(shards, shards))
    source = spark.range(0, partitions, 1, partitions).mapInArrow(_empty(spec.schema), DDL)
    return {
        ALL_TO_ALL: lambda: source.mapInArrow(packer, PACKED_DDL).repartition(shards, "shard").count(),
        GATHERED: lambda: source.selectExpr("max(a_ts) AS seen").collect(),
    }


def _empty(schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def partition(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.record_batch([pa.array([], f.type) for f in schema], schema=schema)

    return partition
