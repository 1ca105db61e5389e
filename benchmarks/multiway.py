"""Joins of several streams: against a chain of Spark's own joins, by number of streams, by order, and adaptive.

    python -m benchmarks.multiway [--quick] [--only CASE] [--out DIR]
    python -m benchmarks.multiway --redraw       tables, chart and README again from the last results

The chain joins a with b, the result with c, and so on; each join requires the new stream to be near all before it.
With equal windows that is the join of all streams at once; with unequal ones a chain gives something else.
"""

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks import cases as spark_cases
from benchmarks import command, data, multiway_report
from benchmarks.orders import ADAPTIVE, Load, orders, run
from benchmarks.spark import describe, run_one, schedule
from watersmeet.kernels.warm_up import warm_up


class EngineCase:
    """A load and its contenders, in this process."""

    def __init__(
        self, name: str, about: str, load: Load, contenders: tuple[str, ...], repetitions: int, **options: Any
    ):
        self.name, self.about, self.load, self.options = name, about, load, options
        self.contenders, self.repetitions = contenders, repetitions

    def measure(self, contender: str) -> dict[str, Any]:
        return run(self.load, contender, **self.options)


def engine_cases(quick: bool) -> list[EngineCase]:
    """All cases without Spark; quick ones have a tenth of the rows and run once."""
    part, turns = (10, 1) if quick else (1, 5)
    growth = [
        EngineCase(
            f"growth-{n}",
            f"{n} streams of 20 k rows a batch, a second each, windows of 4 s, about one tuple of a key in a window",
            Load((20_000 // part,) * n, 80_000 // part, 4, 12),
            ("general_lazy",),
            turns,
        )
        for n in range(2, 7)
    ]
    many, few, fewer = 40_000 // part, 2_000 // part, 1_000 // part
    return [
        *growth,
        EngineCase(
            "orders",
            "four streams of 100, 100, 2 k, 8 k rows a batch over 2 k keys, windows of 4 s, hash indexes; every order",
            Load((100 // part, 100 // part, 2_000 // part, 8_000 // part), 2_000 // part, 4, 10),
            tuple(orders(4)),
            min(turns, 3),
        ),
        EngineCase(
            "orders-scan",
            "four streams of 10, 10, 100 and 200 rows a batch over 50 keys, windows of 4 s, no index; every order",
            Load((5, 5, 50, 100) if quick else (10, 10, 100, 200), 50, 4, 6),
            tuple(orders(4)),
            min(turns, 3),
            algorithm="eager",
            index="scan",
        ),
        EngineCase(
            "swap",
            "three streams over 4 k keys, windows of 4 s: 2 k, 40 k and 1 k rows a batch; half-way the last two swap",
            Load((few, many, fewer), 4_000 // part, 4, 32, (few, fewer, many)),
            (*orders(3), ADAPTIVE),
            min(turns, 3),
        ),
    ]


def run_spark(chosen: list[spark_cases.Case], quick: bool, progress: Progress) -> dict[str, Any]:
    found = {case.name: describe(case, quick) for case in chosen}
    bar = progress.add_task("", total=sum(len(schedule(c, list(c.contenders))) for c in chosen))
    for case in chosen:
        data.make(case)
        for repetition, name in schedule(case, list(case.contenders)):
            progress.update(bar, description=f"{case.name}, {repetition + 1} of {case.repetitions}: {name}")
            outcome = run_one(name, case.name, quick)
            found[case.name]["runs"].append({"repetition": repetition} | outcome)
            if "error" in outcome:
                progress.console.print(f"[red]{case.name}, {name}: {outcome['error']}")
            progress.advance(bar)
    return found


def run_engine(chosen: list[EngineCase], quick: bool, progress: Progress) -> dict[str, Any]:
    warm_up(multiway_joins=True)
    found = {case.name: describe(case, quick) for case in chosen}
    bar = progress.add_task("", total=sum(len(schedule(c, list(c.contenders))) for c in chosen))
    for case in chosen:
        case.measure(case.contenders[0])  # compiles the loops
        for repetition, name in schedule(case, list(case.contenders)):
            progress.update(bar, description=f"{case.name}, {repetition + 1} of {case.repetitions}: {name}")
            found[case.name]["runs"].append({"repetition": repetition} | case.measure(name))
            progress.advance(bar)
    return found


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    multiway_report.draw(results, folder / "multiway.svg")
    command.publish(
        "multiway",
        multiway_report.markdown(results),
        multiway_report.tables(results),
        folder,
        console,
        "several streams",
    )


def main() -> None:
    parser = command.parser("multiway", __doc__, "a small part of the data, once")
    parser.add_argument("--only", action="append", metavar="CASE", help="run this case; the others keep their results")
    options = parser.parse_args()
    folder = command.folder_of(options)
    stored, console = folder / "multiway.json", Console()
    results = command.read(stored, {"cases": {}})
    if not options.redraw:
        several = [case.quick() if options.quick else case for case in spark_cases.SEVERAL.values()]
        engine = engine_cases(options.quick)
        names = [case.name for case in (*several, *engine)]
        wanted = options.only or names
        if not set(wanted) & set(names):
            parser.error(f"no such case; there are {', '.join(names)}")
        with Progress(console=console) as progress:
            found = run_engine([c for c in engine if c.name in wanted], options.quick, progress)
            found |= run_spark([c for c in several if c.name in wanted], options.quick, progress)
        results["cases"] |= found
        results["cases"] = {name: results["cases"][name] for name in names if name in results["cases"]}
        stored.write_text(json.dumps(results))
    write(results, folder, console)


if __name__ == "__main__":
    main()
