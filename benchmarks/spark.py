"""Watersmeet against Spark's own stream-stream join and against the cost of merely moving the rows.

    python -m benchmarks.spark [--quick] [--only CASE] [--contender NAME] [--out DIR]
    python -m benchmarks.spark --redraw          tables, charts and README again from the last results

Each contender runs in a fresh process; repetitions are interleaved, so that a slow phase of the machine affects all.
"""

import json
import sys
from collections.abc import Callable, Iterator
from compileall import compile_dir
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from benchmarks import chart, command, data, report
from benchmarks.cases import CASES, EVERYONE, JOINS, NATIVE_MEMORY, NATIVE_ROCKSDB, NATIVE_ROCKSDB_V4, Case
from lab import ROOT
from lab.measure.circumstances import circumstances
from lab.measure.sections import fill
from lab.processes import measured

START_UP, PER_BATCH = 16.0, 0.7  # seconds, only to guess how long a run takes
ROWS_PER_SECOND = {NATIVE_ROCKSDB: 20_000, NATIVE_ROCKSDB_V4: 20_000, NATIVE_MEMORY: 80_000}


def guess_seconds(contender: str, case: Case) -> float:
    """The estimated duration of a run, for the progress bar."""
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
    label, left = TextColumn("{task.description}"), TextColumn("left:")
    columns = (label, BarColumn(), TimeElapsedColumn(), left, TimeRemainingColumn())
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
    """Move the bar during a run, by its elapsed time but never past its estimated end."""
    progress.update(bar, completed=done + min(seconds, guess))


def run_one(
    contender: str,
    case: str,
    quick: bool,
    tick: Callable[[float], None] = lambda seconds: None,
    settings: dict[str, str] | None = None,
) -> dict[str, Any]:
    """The measurements of one contender in a process of its own, or the error if it did not finish.

    Our sources are compiled before, as pip does with a wheel: where Python may not write bytecode, each process would
    compile all that it imports within the time to the first result.
    """
    compile_dir(ROOT / "src", quiet=1)
    program = [sys.executable, "-m", "benchmarks.contenders", contender, case] + ["--quick"] * quick
    program += [f"--set={name}={value}" for name, value in (settings or {}).items()]
    outcome = measured(program, data.scratch("logs") / f"{case}-{contender}.log", tick=tick)
    return {"contender": contender, "case": case} | outcome


def describe(case: Case, quick: bool) -> dict[str, Any]:
    """The description of a case and of the machine."""
    joins = [name for name in case.contenders if name in JOINS]
    return {"about": case.about, "quick": quick, "joins": joins} | circumstances() | {"runs": []}


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    """Write tables and charts of all results to a folder, and to the README if it shows these results."""
    (folder / "spark.md").write_text(report.markdown(results))
    drawn = chart.draw(results, folder)
    if folder == command.RESULTS:
        pictures = "\n".join(f"![{path.stem}](results/{path.name})" for path in drawn)
        fill(command.README, {"results": f"{pictures}\n\n{command.summary('spark', report.markdown(results))}"})
    report.show(results, console)
    console.print(f"Written to {folder}: spark.json, spark.md, {', '.join(path.name for path in drawn)}")


def main() -> None:
    parser = command.parser("spark", __doc__, "a twentieth of the data, once")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    parser.add_argument(
        "--contender", action="append", choices=EVERYONE, metavar="NAME", help=f"of {', '.join(EVERYONE)}"
    )
    parser.add_argument("--repetitions", type=int, metavar="N", help="of every case; default: one to three, by case")
    options = parser.parse_args()
    console = Console()
    folder = command.folder_of(options, incomplete=bool(options.contender))
    stored = folder / "spark.json"
    results = command.read(stored, {"cases": {}})
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
