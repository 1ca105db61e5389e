"""The time of a batch with a key that half of a stream's rows have: whole in one shard, and split while the query runs.

    python -m benchmarks.hot_key [--rows 300000] [--batches 20] [--rounds 2] [--out DIR]

Two streams in two shards on two cores; `even` is the same load without the hot key: as many rows, and as many results.
The runs take turns. A time is the median of the batches in which the key is split, and of the same batches elsewhere.
"""

import argparse
import json
import os
import shutil
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import watersmeet as wm
from benchmarks import data
from benchmarks.command import RESULTS
from lab.measure.circumstances import circumstances

KEYS, HOT = 50_000, 7
SECONDS = 10  # event time of a batch
LOADS = {"even": ("even", True), "whole": ("hot", False), "split": ("hot", True)}


def make(folder: Path, rows: int, batches: int) -> None:
    """Write both loads: a file of each stream for every batch. Of stream b no key has more rows than others."""
    for load in ("even", "hot"):
        for i, stream in enumerate("ab"):
            (folder / load / stream).mkdir(parents=True)
            for n in range(batches):
                rng = np.random.default_rng((i, n))
                count = rows if stream == "a" else rows // 8
                keys = rng.integers(0, KEYS, count)
                if load == "hot" and stream == "a":
                    keys[::2] = HOT
                at = n * SECONDS * data.SECOND + np.sort(rng.integers(0, SECONDS * data.SECOND, count))
                path = folder / load / stream / f"{n:04d}.parquet"
                columns = {"k": keys, f"{stream}_ts": data._timestamps(at), f"{stream}_v": np.arange(count)}
                pq.write_table(pa.table(columns), path)
                os.utime(path, (data.START // data.SECOND + n,) * 2)


def run(spark: SparkSession, folder: Path, name: str) -> dict[str, Any]:
    """Seconds and shards' rows of every batch, the phase of the key in it, and a digest of the results."""
    load, splits = LOADS[name]
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    streams = []
    for stream in "ab":
        schema = f"k bigint, {stream}_ts timestamp, {stream}_v bigint"
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        df = reader.parquet(str(folder / load / stream))
        streams.append(wm.stream(df, time=f"{stream}_ts", window="10 seconds", delay="0 seconds", name=stream))
    query = wm.write(
        wm.join(*streams, on="k"),
        checkpoint=out / "checkpoint",
        results=out / "results",
        trigger={"availableNow": True},
        split_hot_keys=splits,
    )
    query.awaitTermination()
    found: dict[str, Any] = {"seconds": [], "shard_rows": [], "phases": []}
    for progress in query.recentProgress:
        counters = wm.counters(progress)
        if counters["rows_in"]:
            table = counters["shards"][0]["hot_keys"]["table"]
            found["seconds"].append(progress.durationMs["triggerExecution"] / 1000)
            found["shard_rows"].append([s["rows_in"] for s in counters["shards"]])
            found["phases"].append(next((entry[3] for entry in table if entry[0] == HOT), None))
    results = spark.read.parquet(str(out / "results"))
    digest = results.agg(sf.count("*"), sf.sum(sf.xxhash64("k", "a_ts", "a_v", "b_ts", "b_v").cast("decimal(38,0)")))
    return found | {"results": [str(value) for value in digest.collect()[0]]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.hot_key", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=300_000, help="of stream a in a batch; b has an eighth")
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    folder = data.scratch("hot_key")
    shutil.rmtree(folder, ignore_errors=True)
    make(folder, options.rows, options.batches)
    before = circumstances()
    spark = wm.session(master="local[2]", shards=2)
    run(spark, folder, "even")  # compiles
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in LOADS}
    for turn in range(options.rounds):
        for name in [*LOADS, *LOADS][turn : turn + len(LOADS)]:
            runs[name].append(run(spark, folder, name))
    spark.stop()
    if {r["results"][1] for r in runs["whole"] + runs["split"]} != {runs["whole"][0]["results"][1]}:
        raise AssertionError("the results differ")
    split = [n for n, phase in enumerate(runs["split"][0]["phases"]) if phase == "spread"]
    medians = {name: statistics.median([r["seconds"][n] for r in found for n in split]) for name, found in runs.items()}
    ratios = {name: round(medians[name] / medians["even"], 2) for name in medians}
    summary = {"batches": split, "median_s": medians, "times_even": ratios}
    stored = before | {"rows": options.rows, "runs": runs} | summary
    (options.out / "hot_key.json").write_text(json.dumps(stored, indent=1))
    shutil.rmtree(folder)
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
