"""An endless run, for a while, at full speed: checks that memory, state and files do not grow.

    python -m soak endless [--minutes 30] [--rows 50000]

The size of the state is compared with a prediction from windows and punctuations, row by row from the source itself.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import psutil
from pyspark import SparkFiles

import watersmeet as wm
from lab.processes import environment, family
from soak import endless_source
from soak.endless_source import SECOND, EndlessSource, Ints
from watersmeet.spark.runtime import worker_cache

WINDOW, DELAY, IDLE_AFTER = 10, 1, 3  # seconds
BETWEEN_SAMPLES = 2.0
#: Figures that must not grow: the median of the last third of the run is compared with that of the middle third.
WATCHED = (
    "jvm_mb",
    "workers_mb",
    "working_mb",
    "state",
    "closed_keys",
    "files",
    "checkpoint_mb",
    "jvm_threads",
    "handles",
)
MOST_GROWTH = 1.10


def run(results: Path, *, minutes: float, rows: int) -> dict[str, Any]:
    """Run, sample, and write the outcome as JSON."""
    os.environ.update({k: v for k, v in environment().items() if k.startswith(("PYTHON", "PYSPARK", "SPARK"))})
    folder = Path(tempfile.mkdtemp(prefix="endless-"))
    spark = wm.session(
        master="local[2]",
        shards=2,
        spark_driver_memory="2g",
        spark_log_level="ERROR",
        spark_local_dir=str(folder / "spark"),
        **{"spark.sql.streaming.minBatchesToRetain": "10", "spark.sql.streaming.numRecentProgressUpdates": "20"},
    )
    try:
        (folder / "signals").mkdir()
        query = _start(spark, rows, folder / "checkpoint", folder / "signals")
        samples = _watch(query, folder / "checkpoint", minutes * 60)
        query.stop()
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    compared = compare(samples, rows)
    outcome = {
        "minutes": minutes,
        "rows": rows,
        "date": time.strftime("%Y-%m-%d"),
        "load": round(os.getloadavg()[0], 1),
        "samples": samples,
        "predicted": compared,
        "growth": growth(samples),
    }
    results.parent.mkdir(parents=True, exist_ok=True)
    results.write_text(json.dumps(outcome))
    return outcome


def _start(spark: Any, rows: int, checkpoint: Path, signals: Path) -> Any:
    spark.dataSource.register(EndlessSource)
    streams = []
    for s in "ab":
        df = spark.readStream.format("endless").options(stream=s, rows=rows, signals=str(signals)).load()
        closes = wm.when(f"{s}_closing", low=f"{s}_low", high=f"{s}_high")
        idle = f"{IDLE_AFTER} seconds" if s == "b" else None
        streams.append(
            wm.stream(
                df,
                time=f"{s}_ts",
                window=f"{WINDOW} seconds",
                delay=f"{DELAY} seconds",
                punctuation=closes,
                idle_after=idle,
                name=s,
            )
        )
    joined = wm.join(*streams, on="k")
    return joined.df.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()


def _watch(query: Any, checkpoint: Path, seconds: float) -> list[dict[str, Any]]:
    """A sample every two seconds: memory of the processes, and counters of the last batch."""
    samples = []
    began, over = time.monotonic(), threading.Event()
    while time.monotonic() < began + seconds and query.isActive:
        over.wait(BETWEEN_SAMPLES)
        progress = query.lastProgress
        if progress is None:
            continue
        counters = wm.counters(progress)
        if not counters:
            continue
        files = _sizes(checkpoint)
        samples.append(
            {
                "at": round(time.monotonic() - began, 1),
                "batch": progress.batchId,
                "rows_in": counters["rows_in"],
                "ms": progress.durationMs.get("triggerExecution", 0),
                "state": counters["stored"],
                "state_mb": counters["state_bytes"] / 2**20,
                "closed_keys": counters.get("closed_keys", 0),
                "late": counters["late"],
                "violations": counters["violations"],
                "results": counters["results"],
                "files": len(files),
                "checkpoint_mb": sum(files) / 2**20,
                **_processes(),
            }
        )
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    return samples


def _sizes(folder: Path) -> list[int]:
    """Sizes of the files in a folder and below it; files that vanish meanwhile are skipped."""
    found = []
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                found.append(os.path.getsize(os.path.join(path, name)))
    return found


def _processes() -> dict[str, float]:
    """Memory in MB, threads and open files of the JVM and of the Python workers; mapped states separately."""
    own = psutil.Process()
    jvm = next(p for p in own.children() if p.name() == "java")
    workers = family(jvm.pid)[1:]
    with suppress(psutil.Error):
        memory = [_own_memory(p) for p in workers]
        states = worker_cache.folder(os.path.abspath(SparkFiles.getRootDirectory()))
        mapped = sum(_sizes(states))
        return {
            "jvm_mb": jvm.memory_info().rss / 2**20,
            "workers_mb": sum(memory) / 2**20,
            "workers": len(workers),
            "working_mb": mapped / 2**20,
            "jvm_threads": jvm.num_threads(),
            "handles": jvm.num_fds() + sum(p.num_fds() for p in workers),
        }
    return {}


def _own_memory(process: psutil.Process) -> int:
    try:
        return int(process.memory_full_info().uss)
    except psutil.Error:
        return 0


# ---------------------------------------------------------------- the predicted state


def predicted(batch: int, rows: int) -> int:
    """The number of tuples in the state after a batch: within their windows, of keys not closed by the other stream."""
    batches = range(max(0, batch - WINDOW - IDLE_AFTER - 3), batch + 1)
    shown = {s: [endless_source.made(s, n, rows) for n in batches] for s in "ab"}
    newest = {s: max((int(r.times.max()) for r in shown[s] if r.times.size), default=-SECOND) for s in "ab"}
    watermarks = {s: newest[s] - DELAY * SECOND for s in "ab"}
    last_active = _last_active(batch)
    if last_active is not None:
        then = int(endless_source.made("a", last_active, rows).times.max()) - DELAY * SECOND
        if watermarks["a"] - then > IDLE_AFTER * SECOND:
            watermarks["b"] = max(watermarks["b"], watermarks["a"] - IDLE_AFTER * SECOND)
    bounds = {s: max((r.bound for r in shown[s] if r.times.size), default=0) for s in "ab"}
    held = 0
    for s, other in ("ab", "ba"):
        for r in shown[s]:
            held += _held(r.keys, r.times, watermarks[other], bounds[other])
    return held


def _last_active(batch: int) -> int | None:
    """The last batch with rows of stream b, if the stream is idle now."""
    at = batch % endless_source.CYCLE
    return batch - at + endless_source.IDLE.start - 1 if at in endless_source.IDLE else None


def _held(keys: Ints, times: Ints, watermark: int, bound: int) -> int:
    in_window = times + WINDOW * SECOND >= watermark
    closed = (keys >= 0) & (keys < bound)
    return int(np.count_nonzero(in_window & ~closed))


def compare(samples: list[dict[str, Any]], rows: int, most: int = 60) -> list[dict[str, int]]:
    """The measured and the predicted size of the state, for some of the samples."""
    chosen = samples[:: max(1, len(samples) // most)]
    return [{"batch": s["batch"], "state": s["state"], "predicted": predicted(s["batch"], rows)} for s in chosen]


def growth(samples: list[dict[str, Any]]) -> dict[str, float]:
    """The growth of each watched figure: the median of the last third of the run over that of the middle third."""
    third = len(samples) // 3
    middle, last = samples[third : 2 * third], samples[2 * third :]
    out = {}
    for name in WATCHED:
        before, after = ([s[name] for s in part if name in s] for part in (middle, last))
        if before and after and median(before):
            out[name] = round(median(after) / median(before), 3)
    return out


def flat(outcome: dict[str, Any]) -> list[str]:
    """The figures that have grown too much."""
    return [f"{name} × {ratio}" for name, ratio in outcome["growth"].items() if ratio > MOST_GROWTH]
