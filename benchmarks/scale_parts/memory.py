"""A window join of which the state is three times as large as its `memory`: what its workers take, from outside.

    python -m benchmarks.scale_parts.memory bounded [--quick]

Three joins with the same rows and as many results in a steady batch: of `tiny` state, where the partner of a row comes
in the same batch; of large state, where it comes batches later; and the same with `memory=`. Memory is that of all
Python workers (PSS) with the files of the working states, while the steady batches run.
"""

import argparse
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

import watersmeet as wm
from benchmarks import contenders, data
from lab.measure.memory import MemoryUsed, used
from lab.processes import family, wait_for
from watersmeet.spark.runtime import worker_cache

#: Rows of a stream in a batch, which is as many seconds of event time long; letters of a row.
ROWS, QUICK_ROWS, SECONDS, LETTERS = 20_000, 2_000, 5, 1_000
#: Batches until the partner of a row comes, and batches that are measured.
LATER, STEADY = 10, 8
#: Bytes that a row takes, about; the state has the rows of the window, of the delay and of a batch.
ROW_BYTES = LETTERS + 32


@dataclass(frozen=True)
class Variant:
    """A join: how many batches later the partner of a row comes, and the part of its state that `memory` is."""

    later: int
    part: float | None = None


VARIANTS = {"tiny": Variant(0), "large": Variant(LATER), "bounded": Variant(LATER, 0.3)}


def state_bytes(variant: Variant, rows: int) -> int:
    return 2 * (variant.later + 2) * rows * ROW_BYTES


def batches(variant: Variant) -> int:
    """The state has its size once the first rows have left it."""
    return variant.later + 4 + STEADY


def make(folder: Path, variant: Variant, rows: int) -> None:
    """A file of each stream for every batch: keys in the order of time, each once in a stream."""
    for i, stream in enumerate("ab"):
        (folder / stream).mkdir(parents=True)
        for n in range(batches(variant)):
            rng = np.random.default_rng((i, n))
            keys = np.arange(rows) + (n - variant.later * i) * rows
            at = (n * SECONDS * data.SECOND) + np.arange(rows) * (SECONDS * data.SECOND // rows)
            letters = rng.bytes(rows * LETTERS // 2).hex()
            texts = pa.array([letters[k * LETTERS : (k + 1) * LETTERS] for k in range(rows)])
            columns = {"k": keys, f"{stream}_ts": data._timestamps(at), f"{stream}_text": texts}
            path = folder / stream / f"{n:04d}.parquet"
            pq.write_table(pa.table(columns), path)
            os.utime(path, (data.START // data.SECOND + n,) * 2)


def start_session() -> SparkSession:
    own = {name: value for name, value in contenders.SETTINGS.items() if name != "spark.sql.shuffle.partitions"}
    return wm.session(master=f"local[{contenders.PARTITIONS}]", shards=contenders.PARTITIONS, **own)


def workers() -> list[int]:
    """The ids of this process's Python workers, with the daemons that fork them."""
    return [pid for pid, name in names_of(family(os.getpid())[1:]) if name.startswith("python")]


def python_memory() -> int:
    """Bytes in memory of the Python workers and of their working states."""
    states = worker_cache.folder(os.path.abspath(SparkFiles.getRootDirectory())) / "states"
    return used(workers(), states)


def names_of(processes: list[psutil.Process]) -> Iterator[tuple[int, str]]:
    """Those that have not ended, with their names; what a JVM starts has its memory, and name, for a moment."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            yield process.pid, process.name()


def run(name: str, quick: bool) -> dict[str, Any]:
    """What one of the joins took, and the digest of its results, of which there must be as many as expected."""
    variant, rows = VARIANTS[name], QUICK_ROWS if quick else ROWS
    memory = None if variant.part is None else round(variant.part * state_bytes(variant, rows))
    folder = data.scratch("memory") / name
    shutil.rmtree(folder, ignore_errors=True)
    make(folder, variant, rows)
    spark = start_session()
    try:
        streams = []
        for s in "ab":
            reader = spark.readStream.schema(f"k bigint, {s}_ts timestamp, {s}_text string")
            df = reader.option("maxFilesPerTrigger", 1).parquet(str(folder / s))
            window = f"{(variant.later + 1) * SECONDS} seconds"
            streams.append(wm.stream(df, time=f"{s}_ts", window=window, delay="0 seconds", name=s))
        joined = wm.join(*streams, on="k", memory=None if memory is None else f"{memory} B")
        steady = batches(variant) - STEADY
        with MemoryUsed(python_memory) as watch:
            query = wm.write(joined, checkpoint=folder / "checkpoint", results=folder / "results")
            wait_for("the first batches", lambda: len(_progress(query)) >= steady, 1200)
            watch.begin()
            query.processAllAvailable()
            samples, processes = list(watch.samples), len(workers())
        progress = _progress(query)
        query.stop()
        results = spark.read.parquet(str(folder / "results"))
        digest = sf.sum(sf.xxhash64("k", "a_ts", "a_text", "b_ts", "b_text").cast("decimal(38,0)"))
        count, checksum = results.agg(sf.count("*"), digest).collect()[0]
        expected = (batches(variant) - variant.later) * rows
        if count != expected:
            raise AssertionError(f"{name}: {count} results, not {expected}")
        last = wm.counters(progress[-1])
        return {
            "name": name,
            "rows": 2 * rows,
            "memory": memory,
            "state_bytes": last["state_bytes"],
            "spilled_bytes": last.get("spilled_bytes", 0),
            "most_bytes": max(samples),
            "median_bytes": median(samples),
            "processes": processes,
            "batch_ms": median(p.durationMs["triggerExecution"] for p in progress[steady:]),
            "results": count,
            "digest": str(checksum),
        }
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _progress(query: Any) -> list[Any]:
    return [p for p in query.recentProgress if p.numInputRows > 0]


def more_than_tiny(found: list[dict[str, Any]], name: str) -> int | None:
    """The bytes that a join takes more than that of tiny state, each at its most; None if one of them failed."""
    most = {run["name"]: run["most_bytes"] for run in found if "error" not in run}
    return most[name] - most["tiny"] if {name, "tiny"} <= most.keys() else None


def same_results(found: list[dict[str, Any]]) -> bool:
    """Whether both joins of large state ran, with the same results."""
    digests = [run["digest"] for run in found if "error" not in run and run["name"] != "tiny"]
    return len(digests) == 2 and len(set(digests)) == 1


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_parts.memory")
    parser.add_argument("name", choices=VARIANTS)
    parser.add_argument("--quick", action="store_true", help="a tenth of the rows")
    options = parser.parse_args()
    print(json.dumps(run(options.name, options.quick)))


if __name__ == "__main__":
    main()
