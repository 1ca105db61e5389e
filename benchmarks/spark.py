"""Watersmeet against Spark's own stream-stream join and against the cost of merely moving the rows.

    python -m benchmarks.spark [--quick] [--only CASE] [--contender NAME] [--out DIR]
    python -m benchmarks.spark --redraw          tables, charts and README again from the last results

Each contender runs in a fresh process; repetitions are interleaved, so that a machine that slows down slows everybody.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks import chart, data, report
from benchmarks.cases import CASES, EVERYONE, JOINS, NATIVE_MEMORY, NATIVE_ROCKSDB, NATIVE_ROCKSDB_V4, Case
from benchmarks.processes import measured

RESULTS = Path(__file__).parent / "results"
START_UP, PER_BATCH = 16.0, 0.7  # seconds, only to guess how long a run takes
ROWS_PER_SECOND = {NATIVE_ROCKSDB: 20_000, NATIVE_ROCKSDB_V4: 20_000, NATIVE_MEMORY: 80_000}


def guess_seconds(contender: str, case: Case) -> float:
    """How long a run will take, for the progress bar."""
    return START_UP + len(case.phases) * PER_BATCH + case.rows / ROWS_PER_SECOND.get(contender, 600_000)


def schedule(case: Case, wanted: list[str]) -> list[tuple[int, str]]:
    """Every repetition visits all contenders, each time beginning with another one."""
    names = [name for name in case.contenders if name in wanted]
    turns = [repetition % max(len(names), 1) for repetition in range(case.repetitions)]
    return [(repetition, name) for repetition, turn in enumerate(turns) for name in names[turn:] + names[:turn]]


def run_all(
    cases: list[Case], wanted: list[str], quick: bool, console: Console
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each case's name and results, as soon as it is through."""
    described = {case.name: describe(case, quick) for case in cases}
    total, done = sum(guess_seconds(name, case) for case in cases for _, name in schedule(case, wanted)), 0.0
    words, left = TextColumn("{task.description}"), TextColumn("left:")
    columns = (words, BarColumn(), TimeElapsedColumn(), left, TimeRemainingColumn())
    with Progress(*columns, console=console, speed_estimate_period=86_400) as progress:
        bar = progress.add_task("", total=total)
        for case in cases:
            data.make(case)
            for repetition, name in schedule(case, wanted):
                progress.update(bar, description=f"{case.name}, {repetition + 1} of {case.repetitions}: {name}")
                guess = guess_seconds(name, case)
                outcome = run_one(name, case.name, quick, partial(_advance, progress, bar, done, guess))
                described[case.name]["runs"].append({"repetition": repetition} | outcome)
                done += guess
                progress.update(bar, completed=done)
                if "error" in outcome:
                    progress.console.print(f"[red]{case.name}, {name}: {outcome['error']}")
            yield case.name, described[case.name]


def _advance(progress: Progress, bar: TaskID, done: float, guess: float, seconds: float) -> None:
    """Moves the bar while a run is under way, by its own time but never past its guessed end."""
    progress.update(bar, completed=done + min(seconds, guess))


def run_one(
    contender: str,
    case: str,
    quick: bool,
    tick: Callable[[float], None] = lambda seconds: None,
    settings: dict[str, str] | None = None,
) -> dict[str, Any]:
    """One contender in a process of its own: its measurements, or what went wrong if it did not finish."""
    command = [sys.executable, "-m", "benchmarks.contenders", contender, case] + ["--quick"] * quick
    command += [f"--set={name}={value}" for name, value in (settings or {}).items()]
    outcome = measured(command, data.scratch("logs") / f"{case}-{contender}.log", tick=tick)
    return {"contender": contender, "case": case} | outcome


def describe(case: Case, quick: bool) -> dict[str, Any]:
    """What has to be known about a case and the machine beside the numbers themselves."""
    joins = [name for name in case.contenders if name in JOINS]
    return {"about": case.about, "quick": quick, "joins": joins} | circumstances() | {"runs": []}


def circumstances() -> dict[str, Any]:
    """When and where a measurement is made."""
    packages = {name: version(name) for name in ("pyspark", "pyarrow", "numpy", "numba")}
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "machine": {"cores": os.cpu_count(), "CPU": _cpu(), "memory": f"{_memory():.0f} GB"},
        "versions": {"Python": platform.python_version(), "Java": _java()} | packages,
        "load_before": os.getloadavg()[0],
    }


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> float:
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")) / 2**30


def _java() -> str:
    shown = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return shown.split('"')[1] if '"' in shown else "unknown"


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    """Tables and charts of all results in a folder; the README too, when they are the ones it shows."""
    (folder / "spark.md").write_text(report.markdown(results))
    drawn = chart.draw(results, folder)
    if folder == RESULTS:
        pictures = "\n".join(f"![{path.stem}](results/{path.name})" for path in drawn)
        report.fill("results", f"{pictures}\n\n{report.markdown(results)}")
    report.show(results, console)
    console.print(f"Written to {folder}: spark.json, spark.md, {', '.join(path.name for path in drawn)}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.spark", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data, once: does everything run?")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--contender", action="append", choices=EVERYONE, metavar="NAME", help=f"of {', '.join(EVERYONE)}"
    )
    parser.add_argument("--repetitions", type=int, metavar="N", help="of every case; default: one to three, by case")
    parser.add_argument("--out", type=Path, help="folder of the results; default: benchmarks/results for whole cases")
    parser.add_argument("--redraw", action="store_true", help="run nothing")
    options = parser.parse_args()
    console = Console()
    incomplete = options.quick or options.contender
    folder = (options.out or (data.scratch("results") if incomplete else RESULTS)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    stored = folder / "spark.json"
    results = json.loads(stored.read_text()) if stored.exists() else {"cases": {}}
    if not options.redraw:
        chosen = [CASES[name] for name in options.only or CASES]
        cases = [case.quick() for case in chosen] if options.quick else chosen
        if options.repetitions:
            cases = [replace(case, repetitions=options.repetitions) for case in cases]
        for name, found in run_all(cases, options.contender or list(EVERYONE), options.quick, console):
            results["cases"][name] = found
            stored.write_text(json.dumps(results, indent=1))
    write(results, folder, console)


if __name__ == "__main__":
    main()
