"""Two pictures of the results: the time of a steady batch of each contender, and batch by batch with a big state."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.cases import EVERYONE, FLOORS, JOINS, WATERSMEET
from benchmarks.measures import CaseResults, batch_times, runs_of
from lab.measure.charts import GREY, OTHER, OURS, STYLE

SHADES = dict(zip(JOINS, ("#1e3a5f", "#3b6ea5", "#7fb0dc", OURS, "#e3a15b"), strict=True))


def draw(results: dict[str, Any], folder: Path) -> list[Path]:
    """Write `spark.svg` and, if that case ran, `big-state.svg`."""
    figures = {"spark.svg": _batch_times}
    if "big-state" in results["cases"]:
        figures["big-state.svg"] = _batch_by_batch
    for name, figure in figures.items():
        with rc_context(STYLE):
            figure(results["cases"]).savefig(folder / name, metadata={"Date": None})
    return [folder / name for name in figures]


def _batch_times(cases: dict[str, CaseResults]) -> Figure:
    columns = min(len(cases), 3)
    rows = -(-len(cases) // columns)
    figure = Figure(figsize=(4.4 * columns, 2.6 * rows), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    for axes in grid.flat[len(cases) :]:
        axes.set_visible(False)
    for axes, (name, case) in zip(grid.flat, cases.items(), strict=False):
        _contenders(axes, name, case)
    figure.suptitle(
        "Seconds per steady micro-batch (dot: median, thick: quartiles, thin: all); logarithmic, left is faster"
    )
    return figure


def _contenders(axes: Axes, title: str, case: CaseResults) -> None:
    names = [name for name in EVERYONE if batch_times(runs_of(case, name))]
    for height, name in enumerate(reversed(names)):
        seconds = np.array(batch_times(runs_of(case, name))) / 1000
        low, first, middle, third, high = np.percentile(seconds, [0, 25, 50, 75, 100])
        colour = OURS if name == WATERSMEET else GREY if name in FLOORS else OTHER
        axes.plot([low, high], [height, height], color=colour, linewidth=1)
        axes.plot([first, third], [height, height], color=colour, linewidth=4, solid_capstyle="butt")
        axes.plot(middle, height, "o", color=colour, markersize=6)
        axes.annotate(f"{middle:.2f}", (middle, height), (0, 6), textcoords="offset points", ha="center", fontsize=7)
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.set_ylim(-0.6, len(names) - 0.2)
    axes.set_title(title, loc="left", fontweight="bold")
    _log_seconds(axes, "x")


def _batch_by_batch(cases: dict[str, CaseResults]) -> Figure:
    figure = Figure(figsize=(8, 5), layout="constrained")
    times, state = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    for name in JOINS:
        for run in runs_of(cases["big-state"], name)[:1]:
            seconds = [b["durations"]["triggerExecution"] / 1000 for b in run["batches"]]
            times.plot(seconds, "o-", color=SHADES[name], label=name, markersize=3, linewidth=1)
            if name == WATERSMEET:
                state.plot([b["state_rows"] / 1e6 for b in run["batches"]], color=OURS)
                _phases(times, [b["phase"] for b in run["batches"]])
    times.set_ylabel("seconds a batch")
    times.set_title("Small batches before and after large ones have built up the state", loc="left", fontweight="bold")
    if times.lines:
        times.legend(frameon=False)
    _log_seconds(times, "y")
    state.set_ylabel("state, M rows")
    state.set_xlabel("batch")
    return figure


def _phases(axes: Axes, phases: list[str]) -> None:
    for number, phase in enumerate(phases):
        if phase == "build":
            axes.axvspan(number - 0.5, number + 0.5, color=GREY, alpha=0.25, linewidth=0)


def _log_seconds(axes: Axes, which: str) -> None:
    axes.set(**{f"{which}scale": "log"})
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())
    axes.grid(axis="x" if which == "x" else "y", which="both", color="#e5e7eb", linewidth=0.6)
    axes.set_axisbelow(True)
