"""Disordered streams on Spark: state and lost results with a measured window, a given delay, and a watermark.

    python -m benchmarks.disorder [--quick] [--only NAME] [--out DIR]
    python -m benchmarks.disorder --redraw          table and picture again from the last results

Two streams of the window-oblivious paper, one of which dips and the other bursts. A tuple's event time is that of its
epoch; it arrives when the stream brings it, so it lags by as much as the stream is behind, and is scrambled besides.
The join is on equal epochs. Watersmeet measures what to keep (`window="auto"`, `delay="auto"`), or has a given delay
(`delay="10 seconds"`); Spark's own join has a given watermark. Every contender reads the same files, batch by batch,
in a process of its own. `lead` is another case: a stream that is ten million rows ahead, and the memory of the worker.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from rich.console import Console

import watersmeet as wm
from benchmarks import data, disorder_report
from benchmarks.command import RESULTS
from benchmarks.contenders import IN_MEMORY, SETTINGS
from lab.processes import measured
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.scrambled import BURST, DIP, Scrambled, cut

SECONDS, BATCH, SEED = 120, 4.0, 5
STREAMS = (Scrambled(200, swings=(DIP,)), Scrambled(300, lag=100, swings=(BURST,)))
DELAYS = (1, 4, 10, 30, 60)
AUTO, MEASURED = 'window="auto"', 'delay="auto"'
CONTENDERS = (
    AUTO,
    MEASURED,
    *(f"delay {d} s" for d in DELAYS),
    *(f"watermark {d} s" for d in DELAYS),
)
LEAD = tuple(f"lead, {strategy}" for strategy in ("dbf", "none"))
#: Rows by which a stream leads, and rows of a batch.
AHEAD, AT_ONCE = 10_000_000, 500_000


def write_streams(folder: Path, seconds: float) -> int:
    """Write the files of both streams, one each a batch; returns the number of results."""
    rows = [s.rows(seconds, seed=SEED, stream=i) for i, s in enumerate(STREAMS)]
    for i, name in enumerate("ab"):
        for n, parts in enumerate(cut(rows, seconds, BATCH)):
            epochs = parts[i].column("epoch").to_numpy()
            apart = round(STREAMS[i].gap * STREAMS[i].multiplicity * SECOND)  # two epochs
            times = pa.array(epochs * apart, pa.timestamp("us", "UTC"))
            _file(folder / name, n, {"epoch": epochs, f"{name}_at": times, name: parts[i].column("reading")})
    counts = [np.bincount(r.column("epoch").to_numpy(), minlength=1 << 16) for r in rows]
    return int((counts[0] * counts[1]).sum())


def write_lead(folder: Path, ahead: int) -> int:
    """All rows of one stream come before the first of the other, which has as many."""
    batches = -(-ahead // AT_ONCE)
    for n in range(2 * batches):
        keys = np.arange((n % batches) * AT_ONCE, min(ahead, (n % batches + 1) * AT_ONCE))
        for name, mine in (("a", n < batches), ("b", n >= batches)):
            epochs = keys if mine else keys[:0]
            at = pa.array(epochs * 1000, pa.timestamp("us", "UTC"))
            _file(folder / name, n, {"epoch": epochs, f"{name}_at": at, name: epochs * 0.5})
    return ahead


def _file(folder: Path, n: int, columns: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{n:04d}.parquet"
    pq.write_table(pa.table(columns), path)
    os.utime(path, (n, n))  # files are taken in this order


def build(spark: SparkSession, folder: Path, contender: str) -> DataFrame:
    """The join of a contender over the files."""
    frames = {
        n: spark.readStream.schema(f"epoch long, {n}_at timestamp, {n} double")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / n))
        for n in "ab"
    }
    kind, _, length = contender.partition(" ")
    if kind == "watermark":
        a, b = (df.withWatermark(f"{n}_at", f"{length[:-1].strip()} seconds") for n, df in frames.items())
        b = b.withColumnRenamed("epoch", "b_epoch")
        return a.join(b, (F.col("epoch") == F.col("b_epoch")) & (F.col("a_at") == F.col("b_at")))
    if kind == "delay" or contender == MEASURED:
        delay = "auto" if contender == MEASURED else f"{length[:-1].strip()} seconds"
        streams = [wm.stream(df, time=f"{n}_at", name=n, window="0 seconds", delay=delay) for n, df in frames.items()]
        return wm.join(*streams, on="epoch").df
    plain = [wm.stream(df, time=f"{n}_at", name=n) for n, df in frames.items()]
    if contender == AUTO:
        return wm.join(*plain, on="epoch", window="auto").df
    strategy = contender.removeprefix("lead, ")
    memory = "256 MB" if strategy == "dbf" else None
    return wm.join(*plain, on="epoch", window="auto", memory=memory, strategy=strategy).df


def run_one(contender: str, *, quick: bool) -> dict[str, Any]:
    """One contender in this process: results, rows in state after every batch, rows dropped or too late, memory."""
    os.environ |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    native = contender.startswith("watermark")
    settings = SETTINGS | {"spark.driver.memory": "2g"}
    if native:
        builder = SparkSession.builder.master("local[2]")
        for name, value in (settings | IN_MEMORY).items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    else:
        spark = wm.session(master="local[2]", shards=2, **{k: v for k, v in settings.items() if "shuffle" not in k})
    folder = Path(tempfile.mkdtemp(prefix="watersmeet-disorder-"))
    try:
        lead = contender in LEAD
        ahead = AHEAD // 10 if quick else AHEAD
        expected = write_lead(folder, ahead) if lead else write_streams(folder, SECONDS / (3 if quick else 1))
        began, found = time.monotonic(), [0]
        writer = build(spark, folder, contender).writeStream.foreachBatch(lambda batch, _: found.append(batch.count()))
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds, progress = time.monotonic() - began, query.recentProgress
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)
    run = {"contender": contender, "results": sum(found), "expected": expected, "seconds": seconds}
    return run | (_native(progress) if native else _ours(progress))


def _native(progress: Any) -> dict[str, Any]:
    state = [p["stateOperators"][0] for p in progress if p["stateOperators"]]
    return {
        "state": [s["numRowsTotal"] for s in state],
        "lost_rows": sum(s["numRowsDroppedByWatermark"] for s in state),
    }


def _ours(progress: Any) -> dict[str, Any]:
    counters = [c for p in progress if (c := wm.counters(p))]
    return {
        "state": [c["stored"] + c["deferred"] for c in counters],
        "spilled": [c["spilled"] for c in counters],
        "lost_rows": sum(c["late"] + c["too_late"] for c in counters),
        "worker_bytes": max(c["worker_bytes"] for c in counters),
    }


def run_apart(contender: str, *, quick: bool) -> dict[str, Any]:
    """The same in a process of its own."""
    program = [sys.executable, "-m", "benchmarks.disorder", "--one", contender, *(["--quick"] if quick else [])]
    log = data.scratch("logs") / f"disorder-{re.sub(r'[^a-z0-9]+', '-', contender)}.log"
    return {"contender": contender} | measured(program, log)


def main() -> None:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="shorter streams, to see that it runs")
    parser.add_argument("--only", choices=(*CONTENDERS, *LEAD), help="one contender; the others stay as they are")
    parser.add_argument("--out", type=Path, default=RESULTS, help="where results are written (%(default)s)")
    parser.add_argument("--redraw", action="store_true", help="run nothing")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(run_one(options.one, quick=options.quick)))
        return
    path, console = options.out / "disorder.json", Console()
    results = json.loads(path.read_text()) if path.exists() else {}
    for contender in (*CONTENDERS, *LEAD):
        if options.redraw or options.only not in (None, contender):
            continue
        console.print(f"{contender} …")
        results[contender] = run_apart(contender, quick=options.quick)
        if "error" in results[contender]:
            console.print(f"[red]{results[contender]['error']}")
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(results, indent=1))
    for written in disorder_report.write(results, options.out, documents=options.out == RESULTS and not options.quick):
        console.print(f"wrote {written}")


if __name__ == "__main__":
    main()
