"""The cost of a shard: batches by the number of shards, what a shard without rows costs, and the progress of many.

    python -m benchmarks.shards [--quick] [--only TEXT] [--out DIR]
    python -m benchmarks.shards --redraw

Each run is a process of its own with two cores. Processor time is that of Spark's JVM and of the Python workers during
the steady batches, from /proc.
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from rich.console import Console

import watersmeet as wm
from benchmarks import command, contenders, data, shards_report
from benchmarks.cases import NATIVE_ROCKSDB_V4, WATERSMEET, Case, Stretch
from lab.measure.circumstances import circumstances
from lab.processes import family, measured, wait_for
from watersmeet.spark.progress.counters import METRICS, observed
from watersmeet.spark.progress.other_shards import LISTED, PARTS, parsed, with_sums
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, STATS

SHARDS = (2, 16, 64)
#: Watersmeet with as many tasks as shards.
TASK_EACH = "watersmeet-task-each"
#: The number of shards of the synthetic progress.
MANY = (10, 100, 1_000, 10_000)
#: Tasks of which the reports come, at most, where they do not come of one: the driver has work whenever a task ends.
TASKS = 100
STEADY = Case(
    "shards-60k",
    "60 k rows a batch, 5 s of event time each, about three partners a row",
    (Stretch("warm-up", 2, 60_000, 5.0), Stretch("steady", 3, 60_000, 5.0)),
    keys=30_000,
    drift=1_500,
)
#: All rows have one key, so all shards but one have no rows.
IDLE = Case(
    "shards-idle",
    "40 rows of one key a batch, 1 s of event time each",
    (Stretch("warm-up", 6, 40, 1.0), Stretch("steady", 10, 40, 1.0)),
    keys=1,
    drift=0,
)
CASES = {case.name: case for case in (STEADY, IDLE)}
#: Contender, case and numbers of shards.
RUNS = (
    (WATERSMEET, STEADY, SHARDS),
    (TASK_EACH, STEADY, SHARDS[-1:]),
    (NATIVE_ROCKSDB_V4, STEADY, SHARDS),
    (WATERSMEET, IDLE, (SHARDS[0], SHARDS[-1])),
    (TASK_EACH, IDLE, SHARDS[-1:]),
)


def start_session(contender: str, shards: int) -> SparkSession:
    """A session with two cores and so many shards; Spark's own join has a task for each."""
    own = {name: value for name, value in contenders.SETTINGS.items() if name != "spark.sql.shuffle.partitions"}
    if contender == NATIVE_ROCKSDB_V4:
        return contenders.CONTENDERS[contender].start_session({"spark.sql.shuffle.partitions": str(shards)})
    tasks = shards if contender == TASK_EACH else None
    return wm.session(master=f"local[{contenders.PARTITIONS}]", shards=shards, tasks=tasks, **own)


def processor_seconds() -> dict[str, float]:
    """The processor time of this process's JVM, and of its Python workers, with processes that have ended."""
    spent = {"jvm": 0.0, "python": 0.0}
    for process in family(os.getpid())[1:]:
        times = process.cpu_times()
        kind = "jvm" if process.name() == "java" else "python"
        spent[kind] += times.user + times.system + times.children_user + times.children_system
    return spent


def run(contender: str, case: Case, shards: int) -> dict[str, Any]:
    """Times of the steady batches in milliseconds, and processor time of each of them."""
    files, folder = data.make(case), Path(tempfile.mkdtemp(prefix="shards", dir=data.scratch("checkpoints")))
    spark = start_session(contender, shards)
    try:
        warm_up = case.phases.count("warm-up")
        streams = [
            spark.readStream.schema(data.schema(case, s)).option("maxFilesPerTrigger", data.FILES_PER_BATCH)
            .parquet(str(files / s))
            for s in case.streams
        ]  # fmt: skip
        name = WATERSMEET if contender == TASK_EACH else contender
        query, _ = contenders.start(name, case, streams, folder / "checkpoint", folder / "results")
        wait_for("the first batches", lambda: sum(p.numInputRows > 0 for p in query.recentProgress) >= warm_up, 600)
        before = processor_seconds()
        query.processAllAvailable()
        after = processor_seconds()
        progress = [json.loads(p.json) for p in query.recentProgress if p.numInputRows > 0]
        query.stop()
        batches = [contenders.batch(p, phase) for p, phase in zip(progress, case.phases, strict=True)]
        steady = [b for b in batches if b["phase"] == "steady"]
        found = sum(b["results"] for b in batches)
        if found != data.expected_results(files):
            raise AssertionError(f"{contender}: {found} results, not {data.expected_results(files)}")
        return {
            "contender": contender,
            "case": case.name,
            "shards": shards,
            "ms": [b["durations"]["triggerExecution"] for b in steady],
            "progress_bytes": max(len(json.dumps(p)) for p in progress),
            "processor_ms": {kind: (after[kind] - before[kind]) / len(steady) * 1000 for kind in after},
            "timers_us": timers(progress[warm_up:]),
        }
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def timers(progress: list[dict[str, Any]]) -> dict[str, float]:
    """Watersmeet's timers of a shard without rows, in microseconds of the clock; medians."""
    idle = [s for p in progress for s in wm.counters(p).get("shards", ()) if not s["rows_in"]]
    return {part: median(s.get(f"{part}_us", 0) for s in idle) for part in PARTS} if idle else {}


# ---------------------------------------------------------------- the progress of many shards


def report(spark: SparkSession) -> dict[str, Any]:
    """The report of a shard of the steady case, from a static join of its first files."""
    files = data.make(STEADY.quick())
    streams = [spark.read.schema(data.schema(STEADY, s)).parquet(str(files / s)) for s in STEADY.streams]
    (row, *_) = contenders._joined(*streams)._rows.where(sf.col(KIND) == STATS).select(DETAIL).collect()
    found = json.loads(row[0])
    return {name: value for name, value in found.items() if name not in ("sums", "time_us")}


def reports(sample: dict[str, Any], shards: int) -> Iterator[str]:
    for shard in range(shards):
        own = sample | {"shard": shard, "join_us": 1_000 + shard * 7_919 % 10_007}
        yield json.dumps(with_sums(own) if shards > LISTED else own)


def many(repetitions: int) -> list[dict[str, Any]]:
    """The size of the progress and the driver's time, by the number of shards: batches of synthetic reports."""
    folder = Path(tempfile.mkdtemp(prefix="shards", dir=data.scratch("checkpoints")))
    spark = start_session(WATERSMEET, 2)
    try:
        sample, out = report(spark), []
        for shards in MANY:
            texts = list(reports(sample, shards))
            place = folder / str(shards)
            for n in range(repetitions + 2):
                data.write_file(pa.table({DETAIL: texts}), _made(place), n, 0)
            plain, tasks, seen = (
                _batches(spark, place, folder / f"{shards}-{n}", metric)
                for n, metric in enumerate(
                    (
                        sf.sum(sf.length(DETAIL)).alias("letters"),
                        sf.size(sf.collect_list(sf.expr(parsed(DETAIL) if shards > LISTED else f"`{DETAIL}`"))).alias(
                            "n"
                        ),
                        observed(KIND, STATS, DETAIL, shards),
                    )
                )
            )
            metric = observed(KIND, STATS, DETAIL, shards)
            spread = _batches(spark, place, folder / f"{shards}-spread", metric, tasks=min(shards, TASKS))
            counted = sf.count(DETAIL).alias("n")
            alone = _batches(spark, place, folder / f"{shards}-alone", counted, tasks=min(shards, TASKS))
            began = time.process_time()
            for p in seen:
                wm.counters(p)
            out.append(
                {
                    "shards": shards,
                    "report_bytes": len(texts[-1]),
                    "progress_bytes": max(len(p.json) for p in seen),
                    "batch_ms": median(p.durationMs["addBatch"] for p in seen[2:]),
                    "tasks_ms": median(p.durationMs["addBatch"] for p in tasks[2:]),
                    "without_ms": median(p.durationMs["addBatch"] for p in plain[2:]),
                    "spread_ms": median(p.durationMs["addBatch"] for p in spread[2:]),
                    "spread_without_ms": median(p.durationMs["addBatch"] for p in alone[2:]),
                    "counters_ms": (time.process_time() - began) / len(seen) * 1000,
                }
            )
        return out
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _made(folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    return folder


def _batches(spark: SparkSession, place: Path, checkpoint: Path, metric: Column, tasks: int = 1) -> list[Any]:
    """The progress of a query whose batches have these reports, with this metric, of so many tasks."""
    df: DataFrame = spark.readStream.schema(f"`{DETAIL}` string").option("maxFilesPerTrigger", 1).parquet(str(place))
    df = df if tasks == 1 else df.repartition(tasks)
    rows = df.select(sf.lit(STATS).cast("byte").alias(KIND), DETAIL)
    query = (
        rows.observe(METRICS, metric).writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    )
    query.processAllAvailable()
    found = [p for p in query.recentProgress if p.numInputRows > 0]
    query.stop()
    return found


# ---------------------------------------------------------------- the command


def child(options: argparse.Namespace) -> Any:
    if options.child == "progress":
        return {"progress": many(1 if options.quick else 5)}
    contender, case, shards = options.child.split(":")
    chosen = CASES[case].quick() if options.quick else CASES[case]
    return run(contender, chosen, int(shards))


def run_all(results: dict[str, Any], quick: bool, only: str, console: Console) -> None:
    """Run what has `only` in its name, in place of what was measured of it before."""
    wanted = [f"{contender}:{case.name}:{n}" for contender, case, numbers in RUNS for n in numbers]
    results |= {"quick": quick, "about": {c.name: c.about for c in CASES.values()}} | circumstances()
    found = {_name(r): r for r in results["runs"]}
    for what in [what for what in [*wanted, "progress"] if only in what]:
        console.print(f"{what} …")
        program = [sys.executable, "-m", "benchmarks.shards", "--child", what] + ["--quick"] * quick
        outcome = measured(program, data.scratch("logs") / f"shards-{what.replace(':', '-')}.log")
        if "error" in outcome:
            console.print(f"[red]{what}: {outcome['error']}")
        if what == "progress":
            results["progress"] = outcome.get("progress", [])
        else:
            contender, case, shards = what.split(":")
            found[what] = {"contender": contender, "case": case, "shards": int(shards)} | outcome
    results["runs"] = [found[what] for what in wanted if what in found]


def _name(run: dict[str, Any]) -> str:
    return f"{run['contender']}:{run['case']}:{run['shards']}"


def main() -> None:
    parser = command.parser("shards", __doc__, "a twentieth of the data, and few batches")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", metavar="TEXT", help="only what has this in its name, as in the output")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(child(options)))
        return
    folder, console = command.folder_of(options), Console()
    stored = folder / "shards.json"
    results = command.read(stored, {"runs": [], "progress": []})
    if not options.redraw:
        run_all(results, options.quick, options.only, console)
    stored.write_text(json.dumps(results, indent=1))
    tables = shards_report.tables(results)
    command.publish("shards", shards_report.markdown(results), tables, folder, console)


if __name__ == "__main__":
    main()
