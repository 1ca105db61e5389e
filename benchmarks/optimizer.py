"""Does the optimiser take the best plan? Loads of many kinds, each run with many plans.

    python -m benchmarks.optimizer [--quick] [--only LOAD] [--out DIR]
    python -m benchmarks.optimizer --redraw       report and chart again from the last results

One shard, one process, no Spark. A plan is chosen from figures that a run over the first third of the load has
measured: once with the default constants, and judged on what the plans count, at the prices of these constants; once
with the constants of this machine (`./run calibrate`; fitted first, if they were not), and judged on the median time of
five runs.
"""

import json
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks import command, optimizer_report
from benchmarks.plans import judge, warm_up
from benchmarks.spark import describe
from watersmeet.cost.calibration import calibrate
from watersmeet.cost.machine import Machine, here, save
from watersmeet.workload.steady import Steady

RATES: dict[int, tuple[tuple[float, ...], ...]] = {
    2: ((20, 20), (500, 500), (2000, 50), (2000, 2000)),
    3: ((20, 20, 20), (1000, 100, 10), (300, 300, 300)),
    4: ((100, 100, 20, 20), (10, 50, 250, 500)),
    5: ((50, 50, 50, 50, 50), (200, 10, 100, 20, 50)),
}
WINDOWS: dict[int, tuple[tuple[float, ...], ...]] = {
    2: ((1.0, 1.0), (4.0, 2.0)),
    3: ((2.0, 2.0, 2.0), (4.0, 1.0, 2.0)),
    4: ((2.0, 2.0, 2.0, 2.0), (1.0, 4.0, 2.0, 3.0)),
    5: ((2.0, 2.0, 2.0, 2.0, 2.0), (1.0, 2.0, 4.0, 3.0, 2.0)),
}
#: Tuples of a key in the windows of a load, on average over its streams: few match, or many.
PER_KEY = (0.3, 1.5)
#: Of the keys that live, the share that retires in a second, closed by all streams.
CLOSED_KEYS = (0.0, 0.3)


def loads() -> dict[str, Steady]:
    """The grid: numbers of streams, rates, windows, selectivities, punctuations.

    In every second load of several streams each stream has its own number of keys, the fewer among the more.
    """
    found = {}
    for n in RATES:
        grid = product(enumerate(RATES[n]), enumerate(WINDOWS[n]), PER_KEY, CLOSED_KEYS)
        for number, ((r, rates), (w, windows), per_key, punctuated) in enumerate(grid):
            held = sum(rate * window for rate, window in zip(rates, windows, strict=True)) / n
            keys = max(2, round(held / per_key))
            each = tuple(max(1, keys // (1 + i)) for i in range(n)) if n > 2 and number.bit_count() % 2 else (keys,) * n
            closes = "punctuations" if punctuated else "no punctuations"
            name = f"{n} streams, rates {r}, windows {w}, {per_key} per key, {closes}"
            found[name] = Steady(rates, windows, each, punctuations=punctuated * keys)
    return found


def quick_loads() -> dict[str, Steady]:
    return dict(list(loads().items())[::11])


class Case:
    """What `describe` wants to know of a case."""

    about, contenders = "plans", ()


def run_all(chosen: dict[str, Steady], machine: Machine, quick: bool, console: Console) -> dict[str, Any]:
    repetitions, found = 1 if quick else 5, {}
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=repetitions * len(chosen))
        for name, streams in chosen.items():
            progress.update(bar, description=name)
            for so_far in judge(streams, machine, repetitions):
                found[name] = so_far
                progress.advance(bar)
    return found


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    optimizer_report.draw(results, folder / "optimizer.svg")
    command.publish(
        "optimizer", optimizer_report.markdown(results), [optimizer_report.verdicts(results)], folder, console, "plans"
    )


def main() -> None:
    parser = command.parser("optimizer", __doc__, "a few loads, once")
    parser.add_argument(
        "--only", metavar="TEXT", help="only loads with this in their name; the others keep their results"
    )
    options = parser.parse_args()
    folder = command.folder_of(options)
    stored, console = folder / "optimizer.json", Console()
    results = command.read(stored, {"loads": {}})
    if not options.redraw:
        chosen = {n: s for n, s in (quick_loads() if options.quick else loads()).items() if (options.only or "") in n}
        if not chosen:
            parser.error("no such load; there are\n" + "\n".join(loads()))
        machine = here()
        if not machine.fitted:
            console.print("fitting the constants of this machine")
            machine, _ = calibrate(options.quick, report=console.print)
            if not options.quick:
                save(machine)
        warm_up()
        results["about"] = describe(Case(), options.quick)
        results["loads"] |= run_all(chosen, machine, options.quick, console)
        stored.write_text(json.dumps(results))
    write(results, folder, console)


if __name__ == "__main__":
    main()
