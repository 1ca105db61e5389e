"""Redraw the papers' figures: run experiments, check their claims, write the report."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from experiments import report, results
from experiments.catalogue import EXPERIMENTS
from experiments.experiment import Experiment
from experiments.report import Judged
from lab import ROOT
from watersmeet.kernels.warm_up import warm_up

REPORT = ROOT / "docs" / "experiments"
QUICK = ROOT / ".cache" / "experiments"
README = ROOT / "README.md"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="./run experiments", description=__doc__.splitlines()[0], epilog=f"ids: {', '.join(EXPERIMENTS)}"
    )
    parser.add_argument("ids", nargs="*", metavar="ID", help="experiments to run; all, if none is named")
    parser.add_argument("--quick", action="store_true", help="a fraction of the size: does everything run?")
    parser.add_argument("--redraw", action="store_true", help="run nothing; figures and report from stored results")
    parser.add_argument("--seed", type=int, default=1, help="of all streams (1)")
    parser.add_argument(
        "--output", type=Path, help="folder of results and report; docs/experiments, with --quick .cache/experiments"
    )
    options = parser.parse_args(arguments)
    unknown = [id for id in options.ids if id not in EXPERIMENTS]
    if unknown:
        parser.error(f"no experiment is called {', '.join(unknown)}; there are {', '.join(EXPERIMENTS)}")
    folder = (options.output or (QUICK if options.quick else REPORT)).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    failed = []
    if not options.redraw:
        chosen = [EXPERIMENTS[id] for id in options.ids or EXPERIMENTS]
        failed = run_all(chosen, folder, quick=options.quick, seed=options.seed, console=console)
    judged = report.write(folder, results.load(folder), README if folder == REPORT else None)
    show(judged, console)
    console.print(f"Written to {folder}: report.md, one-page.html, figures, results")
    if failed:
        console.print(f"[bold red]Failed: {', '.join(failed)}")
    return 1 if failed else 0


def run_all(chosen: Sequence[Experiment], folder: Path, *, quick: bool, seed: int, console: Console) -> list[str]:
    """Run experiments one after the other and store each result at once; returns the ids of failed ones."""
    failed = []
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, speed_estimate_period=86_400) as progress:
        bar = progress.add_task("loading", total=sum(e.seconds for e in chosen))
        warm_up(multiway_joins=True, baselines=True)
        done = 0.0
        for experiment in chosen:
            progress.update(bar, description=experiment.id)

            def on_progress(share: float, done: float = done, mine: float = experiment.seconds) -> None:
                progress.update(bar, completed=done + share * mine)

            try:
                result = results.perform(experiment, quick=quick, seed=seed, on_progress=on_progress)
            except Exception:  # the others still run
                progress.console.print(f"[bold red]{experiment.id} failed")
                progress.console.print(traceback.format_exc(), markup=False, highlight=False)
                failed.append(experiment.id)
            else:
                results.store(folder, result)
                held = [c.check(result["found"]).holds for c in experiment.claims]
                progress.console.print(
                    f"{experiment.id}: {sum(held)} of {len(held)} claims hold, {result['seconds']:.0f} s"
                )
            done += experiment.seconds
            progress.update(bar, completed=done)
    return failed


def show(judged: Sequence[Judged], console: Console) -> None:
    table = Table("figure", "claim", "", "found")
    for j in judged:
        for claim, verdict in j.verdicts:
            text = "[green]holds" if verdict.holds else "[bold red]does not hold"
            table.add_row(j.experiment.row, claim.text, text, verdict.numbers)
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
