"""The parts of the time of a steady batch: Spark's own phases, the tasks of each stage, and Watersmeet's timers.

    python -m benchmarks.profile [--quick] [--only CASE] [--contender NAME]

Spark writes an event log while the contender runs; the medians over the steady batches become Markdown, in
`results/profile.md` and in the README.
"""

import argparse
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks import data
from benchmarks.cases import CASES, EVERYONE, PACKED_IDENTITY, WATERSMEET
from benchmarks.command import README, RESULTS
from benchmarks.measures import batch_times
from benchmarks.spark import run_one
from lab.measure.sections import fill
from lab.measure.tables import Table

PHASES = {
    "latestOffset": "look for new files",
    "walCommit": "write the offsets",
    "getBatch": "make the batch's plan from the offsets",
    "queryPlanning": "plan the batch",
    "addBatch": "run it: the stages below and what Spark does around them",
    "commitOffsets": "write the commit",
    "commitBatch": "commit",
    "triggerExecution": "**whole batch**",
}
#: The README's section.
SHOWN = "Phases, stages and timers of each contender: [results/profile.md](results/profile.md)."
SUMMED = {  # counters of Spark's SQL operators in each task
    "time to run Python workers": "python",
    "data sent to Python workers": "sent",
    "RocksDB: load - time taken to load the store": "load",
    "time to commit changes": "commit",
}
STAGE_COLUMNS = (
    "stage",
    "wall, ms",
    "tasks",
    "longest task, ms",
    "JVM CPU, ms",
    "Python, ms",
    "state load, ms",
    "state commit, ms",
    "to Python, MB",
    "shuffle, MB",
)


def event_log_settings(folder: Path) -> dict[str, str]:
    log = "spark.eventLog."
    return {
        log + "enabled": "true",
        log + "dir": folder.as_uri(),
        log + "compress": "false",
        log + "rolling.enabled": "false",
    }


def read_stages(folder: Path, batches: Iterable[int]) -> dict[int, list[dict[str, Any]]]:
    """The stages of each wanted batch, in the order of their running, from the one event log in a folder."""
    wanted, tasks = set(batches), defaultdict(list)
    batch_of: dict[int, int] = {}
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    (log,) = (path for path in folder.iterdir() if path.is_file())
    for line in log.open():
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            number = int(event["Properties"].get("streaming.sql.batchId", -1))
            batch_of |= {stage: number for stage in event["Stage IDs"] if number in wanted}
        elif event["Event"] == "SparkListenerTaskEnd":
            tasks[event["Stage ID"]].append(event)
        elif event["Event"] == "SparkListenerStageCompleted":
            info = event["Stage Info"]
            if info["Stage ID"] in batch_of:
                found[batch_of[info["Stage ID"]]].append(_stage(info, tasks[info["Stage ID"]]))
    return found


def _stage(info: dict[str, Any], tasks: list[dict[str, Any]]) -> dict[str, Any]:
    metrics = [task["Task Metrics"] for task in tasks]
    sums: dict[str, float] = defaultdict(float)
    for task in tasks:
        for value in task["Task Info"]["Accumulables"]:
            if value.get("Name") in SUMMED:
                sums[value["Name"]] += float(value["Update"])
    return {
        "reads": sum(m["Shuffle Read Metrics"]["Local Bytes Read"] for m in metrics),
        "writes": sum(m["Shuffle Write Metrics"]["Shuffle Bytes Written"] for m in metrics),
        "wall": info["Completion Time"] - info["Submission Time"],
        "tasks": len(tasks),
        "longest": max(t["Task Info"]["Finish Time"] - t["Task Info"]["Launch Time"] for t in tasks),
        "cpu": sum(m["Executor CPU Time"] for m in metrics) / 1e6,
        **{short: sums[name] for name, short in SUMMED.items()},
    }


def stage_table(stages: dict[int, list[dict[str, Any]]]) -> Table:
    rows = []
    for number, same in enumerate(zip(*stages.values(), strict=True), 1):
        middle = {name: median(stage[name] for stage in same) for name in same[0]}
        what = "after the shuffle" if middle["reads"] else "before the shuffle" if middle["writes"] else "no shuffle"
        whole = [f"{middle[name]:.0f}" for name in ("wall", "tasks", "longest", "cpu", "python", "load", "commit")]
        sizes = [f"{size / 1e6:.1f}" for size in (middle["sent"], middle["reads"] or middle["writes"])]
        rows.append((f"{number}, {what}", *whole, *sizes))
    caption = "Medians of the steady batches; CPU, Python and state times are sums over the stage's tasks."
    return Table("Stages", caption, STAGE_COLUMNS, rows)


def phase_table(batches: list[dict[str, Any]]) -> Table:
    names = [name for name in PHASES if any(name in b["durations"] for b in batches)]
    rows = [(n, PHASES[n], f"{median(b['durations'].get(n, 0) for b in batches):.0f}") for n in names]
    return Table("Spark's phases", "Medians of the steady batches, milliseconds.", ("phase", "what", "ms"), rows)


def timer_table(batches: list[dict[str, Any]]) -> Table | None:
    names = sorted(name for name in batches[0]["watersmeet"] if name.endswith("_us"))
    rows = [(n.removesuffix("_us"), f"{median(b['watersmeet'][n] for b in batches) / 1000:.1f}") for n in names]
    caption = "Milliseconds, summed over the shards, which run side by side; medians of the steady batches."
    return Table("Watersmeet's timers", caption, ("what", "ms"), rows) if rows else None


def profile(contender: str, case: str, quick: bool) -> str:
    """The Markdown of one contender and case."""
    log = data.scratch(f"events/{case}-{contender}")
    shutil.rmtree(log)
    log.mkdir()
    run = run_one(contender, case, quick, settings=event_log_settings(log))
    if "error" in run:
        raise SystemExit(f"{contender}, {case}: {run['error']}")
    steady = {number: b for number, b in enumerate(run["batches"]) if b["phase"] == "steady"}
    batches = list(steady.values())
    tables = [phase_table(batches), stage_table(read_stages(log, steady)), timer_table(batches)]
    about = f"{batches[0]['rows']:,} rows in, about {median(b['results'] for b in batches):,.0f} rows out"
    times = sorted(batch_times([run]))
    head = f"### {case}: {contender}\n\n{about}; batches took {times[0]:,.0f}–{times[-1]:,.0f} ms.\n"
    return "\n".join([head, *(table.markdown(4) for table in tables if table)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.profile", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data: does everything run?")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--contender", action="append", choices=EVERYONE, metavar="NAME", help=f"of {', '.join(EVERYONE)}"
    )
    options = parser.parse_args()
    cases, names = options.only or ["steady-200k", "large-1.6M"], options.contender or [WATERSMEET, PACKED_IDENTITY]
    text = "\n".join(profile(name, case, options.quick) for case in cases for name in names)
    print(text)
    if not (options.quick or options.only or options.contender):
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "profile.md").write_text(text)
        fill(README, {"profile": SHOWN})


if __name__ == "__main__":
    main()
