"""The time to recover a large state after a kill: Watersmeet against Spark's own join.

    python -m benchmarks.recovery [--rows 5000000] [--contender NAME] [--out DIR]

Each contender joins until its state holds the rows, and is killed (kill -9, driver and JVM). Then one small batch more
is handed out and a new process is started on the same checkpoint. What counts is the time from that start to the commit
of the batch, the start of Python, Java and Spark included, which `floor` measures alone: the batch without a state.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import functions as sf

from benchmarks import cases, data
from benchmarks.command import RESULTS
from benchmarks.contenders import CONTENDERS

CHOSEN = (cases.WATERSMEET, cases.NATIVE_MEMORY, cases.NATIVE_ROCKSDB, cases.NATIVE_ROCKSDB_V4)
BUILDING, LAST_ROWS = 20, 20_000
LONGEST_BUILD, LONGEST_RECOVERY = 3600.0, 600.0
SPREAD = 8 * data.SECOND  # event times of all rows: less than a window, so that everything is kept


def make(folder: Path, rows: int) -> int:
    """Write the files of the state and of one batch more; returns the number of results of the join of all rows."""
    shown = []
    for seed, stream in enumerate("ab"):
        rng = np.random.default_rng(seed)
        keys, times = [], []
        (folder / "all" / stream).mkdir(parents=True)
        for batch in range(BUILDING + 1):
            n = LAST_ROWS // 2 if batch == BUILDING else rows // 2 // BUILDING
            key = rng.integers(0, rows, n)
            at = (batch * SPREAD // BUILDING + rng.integers(0, data.SECOND // 4, n)) // 1000 * 1000
            path = folder / "all" / stream / f"{batch:04d}.parquet"
            value = pa.array(key if stream == "a" else key / 100)
            columns = {"k": key, f"{stream}_ts": data._timestamps(at), f"{stream}_v": value}
            pq.write_table(pa.table(columns), path)
            os.utime(path, (data.START // data.SECOND + batch,) * 2)
            keys.append(key)
            times.append(at)
        shown.append((np.concatenate(keys), np.concatenate(times)))
    return data.count_results(shown)


def child(name: str, folder: Path) -> None:
    """Run the contender over the files handed out, write its counts to `counts.json`, and wait to be killed."""
    spark = CONTENDERS[name].start_session({})
    streams = [
        spark.readStream.schema(data.NARROW[s]).option("maxFilesPerTrigger", 1).parquet(str(folder / "in" / s))
        for s in "ab"
    ]
    counted = CONTENDERS[name].build(*streams).observe("bench", sf.count(sf.lit(1)).alias("results"))
    checkpoint = str(folder / "checkpoint")
    query = counted.writeStream.format("noop").option("checkpointLocation", checkpoint).start()
    query.processAllAvailable()
    progress = [json.loads(p.json) for p in query.recentProgress]
    results = sum(p["observedMetrics"]["bench"]["results"] for p in progress if p["numInputRows"])
    rows = [sum(o["numRowsTotal"] for o in p["stateOperators"]) for p in progress if p["numInputRows"]]
    counts = folder / "counts.json"
    counts.with_suffix(".part").write_text(json.dumps({"results": results, "state_rows": rows[-1:]}))
    counts.with_suffix(".part").rename(counts)
    query.awaitTermination()


def hand_out(folder: Path, batches: range) -> None:
    for stream in "ab":
        (folder / "in" / stream).mkdir(parents=True, exist_ok=True)
        for batch in batches:
            name = f"{batch:04d}.parquet"
            shutil.copy2(folder / "all" / stream / name, folder / "in" / stream / name)


def run(name: str, rows: int) -> dict[str, Any]:
    """The measurements of build, kill and recovery."""
    folder = data.scratch("recovery") / name
    shutil.rmtree(folder, ignore_errors=True)
    expected = make(folder, rows)
    floor = name == "floor"
    contender = cases.WATERSMEET if floor else name
    built: dict[str, Any] = {"results": 0, "seconds": 0.0}
    if not floor:
        hand_out(folder, range(BUILDING))
        built = _run_child(contender, folder, LONGEST_BUILD, _has_counts)
    hand_out(folder, range(BUILDING, BUILDING + 1))
    before = _commits(folder)
    back = _run_child(contender, folder, LONGEST_RECOVERY, lambda f: _commits(f) > before)
    counts = json.loads((folder / "counts.json").read_text())
    if not floor and built["results"] + counts["results"] != expected:
        raise AssertionError(f"{name}: {built['results']} + {counts['results']} results, not {expected}")
    size = sum(f.stat().st_size for f in (folder / "checkpoint" / "state").rglob("*") if f.is_file())
    shutil.rmtree(folder)
    return {
        "contender": name,
        "rows": 0 if floor else rows,
        "build_s": built["seconds"],
        "recovery_s": back["seconds"],
        "checkpoint_mb": round(size / 2**20, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def _commits(folder: Path) -> int:
    """The number of the last batch in the commit log."""
    log = folder / "checkpoint" / "commits"
    return max((int(f.name) for f in log.iterdir() if f.name.isdigit()), default=-1) if log.exists() else -1


def _has_counts(folder: Path) -> bool:
    return (folder / "counts.json").exists()


def _run_child(name: str, folder: Path, longest: float, done: Callable[[Path], bool]) -> dict[str, Any]:
    """Start the contender, wait until it is done, kill it; returns its counts and the seconds from its start."""
    (folder / "counts.json").unlink(missing_ok=True)
    log = (data.scratch("logs") / f"recovery-{name}.log").open("a")
    command = [sys.executable, "-m", "benchmarks.recovery", "--child", name, str(folder)]
    began = time.time()
    process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        while not done(folder):
            if process.poll() is not None or time.time() > began + longest:
                raise AssertionError(f"{name} did not come to its end; see {log.name}")
            time.sleep(0.02)
        seconds = round(time.time() - began, 2)
        while not _has_counts(folder) and process.poll() is None and time.time() < began + longest:
            time.sleep(0.02)
        return json.loads((folder / "counts.json").read_text()) | {"seconds": seconds}
    finally:
        everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        for one in sorted(everyone, key=lambda p: p.name() != "java"):  # the JVM first
            try:
                one.kill()
            except psutil.NoSuchProcess:
                continue
        process.wait()
        psutil.wait_procs(everyone, timeout=30)
        log.close()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recovery", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=5_000_000, help="in the state when it is killed")
    parser.add_argument("--contender", action="append", choices=(*CHOSEN, "floor"), metavar="NAME")
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    stored = options.out / "recovery.json"
    results = json.loads(stored.read_text()) if stored.exists() else {}
    for name in options.contender or (*CHOSEN, "floor"):
        results[name] = run(name, options.rows)
        stored.write_text(json.dumps(results, indent=1))
        print(json.dumps(results[name]), flush=True)


if __name__ == "__main__":
    main()
