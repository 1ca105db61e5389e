"""A standalone cluster of two workers on loopback: shards for each core, memory, and the loss of an executor.

Two executors of one core. Memory is that of an executor's JVM and of its Python workers, from outside; `rebuilt` counts
working states that were read again from the checkpoint, of all batches after the first.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from benchmarks import cases, data
from benchmarks.scale_parts.cluster_driver import ClusterDriver
from lab.processes import family, kill, wait_for
from lab.spark.cluster import Cluster

CORES = 2
SHARDS = (1, 2, 4, 8)
QUICK_SHARDS = (2,)
WARM_UP, BATCHES, QUICK_BATCHES = 3, 5, 2
BOUNDED = {
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
    "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "100",
}
WAIT = {"spark.locality.wait": "0s"}


def run(quick: bool) -> Iterator[dict[str, Any]]:
    """A row for each number of shards, for bounded RocksDB memory, and for the loss of an executor."""
    folder = Path(tempfile.mkdtemp(prefix="workers", dir=data.scratch("checkpoints")))
    count = QUICK_BATCHES if quick else BATCHES
    try:
        with Cluster(folder / "cluster", cores=1, memory="1500m") as cluster:
            for shards in QUICK_SHARDS if quick else SHARDS:
                yield shards_of(cluster, folder / str(shards), shards, count, quick, {}, "")
            if not quick:
                yield shards_of(cluster, folder / "bounded", 8, count, quick, BOUNDED, "RocksDB bounded to 100 MB")
                yield shards_of(cluster, folder / "wait", 4, count, quick, WAIT, "spark.locality.wait=0s")
            yield loss(cluster, folder / "loss", 4, quick)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def shards_of(
    cluster: Cluster, folder: Path, shards: int, count: int, quick: bool, settings: dict[str, str], about: str
) -> dict[str, Any]:
    """Steady batches with so many shards."""
    with ClusterDriver(cluster.url, cases.WATERSMEET, shards, folder, quick=quick, settings=settings) as driver:
        first = driver.batches(1 if quick else WARM_UP)
        batches = driver.batches(count)
        memory = memory_of(cluster)
    return {
        "about": about,
        "shards": shards,
        "shards_a_core": shards / CORES,
        "rows": batches[0]["rows"],
        "batch_ms": float(np.median(times(batches))),
        "rebuilt": sum(b["watersmeet"].get("rebuilt", 0) for b in [*first[1:], *batches]),
        "state_mb": batches[-1]["state_bytes"] / 1e6,
        "first_ms": times(first)[0],
    } | memory


def loss(cluster: Cluster, folder: Path, shards: int, quick: bool) -> dict[str, Any]:
    """An executor is killed between two batches."""
    with ClusterDriver(cluster.url, cases.WATERSMEET, shards, folder, quick=quick) as driver:
        driver.batches(1 if quick else WARM_UP)
        before = driver.batches(2)
        executors = cluster.executors()
        kill(*family(executors[0].pid))
        began = time.monotonic()
        after = driver.batches(3)
        wait_for("an executor in its place", lambda: len(cluster.executors()) == len(executors), 60)
        replaced = time.monotonic() - began
    return {
        "about": "an executor is killed",
        "shards": shards,
        "rows": before[0]["rows"],
        "before_ms": float(np.median(times(before))),
        "after_ms": times(after),
        "rebuilt_after": [b["watersmeet"].get("rebuilt", 0) for b in after],
        "replaced_s": replaced,
    }


def times(batches: list[dict[str, Any]]) -> list[float]:
    return [float(b["durations"]["triggerExecution"]) for b in batches]


def memory_of(cluster: Cluster) -> dict[str, float]:
    """Megabytes of the largest executor's JVM, and of the Python workers of one executor together."""
    virtual, python = [], []
    for executor in cluster.executors():
        virtual.append(rss(executor))
        python.append(sum(rss(p) for p in family(executor.pid)[1:]))
    return {"jvm_mb": max(virtual, default=0.0), "python_mb": max(python, default=0.0)}


def rss(process: psutil.Process) -> float:
    """Without what it shares with others: forked workers share their parent's pages."""
    try:
        return float(process.memory_full_info().uss) / 1e6
    except psutil.Error:
        return 0.0
