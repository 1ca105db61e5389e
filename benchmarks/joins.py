"""Joins without equality and as-of joins: against what Spark has instead, and against our own equality join.

    python -m benchmarks.joins [--quick] [--only CASE] [--out DIR]
    python -m benchmarks.joins --redraw          tables and README again from the last results

Each contender runs in a fresh process; repetitions are interleaved, so that a slow phase of the machine affects all.
"""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks import command, data, joins_report
from benchmarks.cases import Case
from benchmarks.join_contenders import CASES, SLOW
from benchmarks.spark import describe, schedule
from lab.processes import measured

LONGEST_RUN = 7200  # seconds


def runs_of(case: Case) -> list[tuple[int, str]]:
    """Repetitions and contenders; slow ones in the first repetition alone."""
    turns = schedule(case, list(case.contenders))
    return [(repetition, name) for repetition, name in turns if not repetition or name not in SLOW]


def run_one(contender: str, case: str, quick: bool) -> dict[str, Any]:
    """The measurements of one contender in a process of its own, or the error if it did not finish."""
    program = [sys.executable, "-m", "benchmarks.join_contenders", contender, case] + ["--quick"] * quick
    outcome = measured(program, data.scratch("logs") / f"{case}-{contender}.log", longest=LONGEST_RUN)
    return {"contender": contender, "case": case} | outcome


def run_all(cases: list[Case], quick: bool, console: Console) -> dict[str, Any]:
    found = {case.name: describe(case, quick) for case in cases}
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=sum(len(runs_of(case)) for case in cases))
        for case in cases:
            data.make(case)
            for repetition, name in runs_of(case):
                progress.update(bar, description=f"{case.name}, {repetition + 1} of {case.repetitions}: {name}")
                outcome = run_one(name, case.name, quick)
                found[case.name]["runs"].append({"repetition": repetition} | outcome)
                if "error" in outcome:
                    progress.console.print(f"[red]{case.name}, {name}: {outcome['error']}")
                progress.advance(bar)
    return found


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    command.publish("joins", joins_report.markdown(results), joins_report.tables(results), folder, console)


def main() -> None:
    parser = command.parser("joins", __doc__, "a twentieth of the data, once")
    parser.add_argument("--only", action="append", choices=CASES, metavar="CASE", help=f"of {', '.join(CASES)}")
    options = parser.parse_args()
    folder = command.folder_of(options)
    stored, console = folder / "joins.json", Console()
    results = command.read(stored, {"cases": {}})
    if not options.redraw:
        chosen = [CASES[name] for name in options.only or CASES]
        results["cases"] |= run_all([c.quick() if options.quick else c for c in chosen], options.quick, console)
        results["cases"] = {name: results["cases"][name] for name in CASES if name in results["cases"]}
        stored.write_text(json.dumps(results, indent=1))
    write(results, folder, console)


if __name__ == "__main__":
    main()
