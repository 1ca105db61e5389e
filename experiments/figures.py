"""The style of figures: readable in print, without colours, and with colour blindness."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from lab.measure.charts import STYLE

#: Okabe and Ito's colours, each always with the same dashes and marker.
STYLES: tuple[dict[str, Any], ...] = (
    {"color": "#0072B2", "linestyle": "-", "marker": "o"},
    {"color": "#D55E00", "linestyle": (0, (5, 2)), "marker": "s"},
    {"color": "#009E73", "linestyle": (0, (1, 1.2)), "marker": "^"},
    {"color": "#CC79A7", "linestyle": (0, (5, 1.5, 1, 1.5)), "marker": "D"},
    {"color": "#E69F00", "linestyle": (0, (8, 2)), "marker": "v"},
    {"color": "#56B4E9", "linestyle": (0, (3, 1, 1, 1, 1, 1)), "marker": "P"},
    {"color": "#000000", "linestyle": (0, (2, 2)), "marker": "x"},
)
PREDICTED: dict[str, Any] = {"color": "#000000", "linestyle": (0, (1, 1)), "linewidth": 1.0, "marker": ""}
SETTINGS: Any = STYLE | {
    "svg.fonttype": "none",  # text stays text: small files, and found by a search
    "font.family": "DejaVu Sans",
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "lines.linewidth": 1.4,
    "lines.markersize": 4.5,
    "legend.frameon": False,
    "legend.fontsize": 8,
}


def save(path: Path, size: tuple[float, float], draw: Callable[[Figure, Any], None], found: Any) -> None:
    """A reproducible SVG: the same results give the same file."""
    with rc_context(SETTINGS):
        figure = Figure(figsize=size, layout="constrained")
        draw(figure, found)
        drawn = StringIO()
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    # a hundredth of a point is precise enough and halves the size
    path.write_text(re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}", drawn.getvalue()))


def line(axes: Axes, x: Sequence[float], y: Sequence[float], style: int, label: str, **more: Any) -> None:
    """A series with about a dozen markers."""
    every = max(1, len(x) // 12)
    axes.plot(x, y, **STYLES[style] | {"label": label, "markevery": (style % every, every)} | more)


def predicted(axes: Axes, x: Sequence[float], y: Sequence[float], label: str | None = None, **more: Any) -> None:
    axes.plot(x, y, **PREDICTED | {"label": label} | more)


def below(figure: Figure, axes: Axes | Iterable[Axes], columns: int = 4) -> None:
    """One legend for all panels, under the figure."""
    several = [axes] if isinstance(axes, Axes) else list(axes)
    known = {text: handle for a in several for handle, text in zip(*a.get_legend_handles_labels(), strict=True)}
    last = sorted(
        known, key=lambda text: getattr(known[text], "get_color", str)() == PREDICTED["color"]
    )  # predictions last
    figure.legend([known[text] for text in last], last, loc="outside lower center", ncols=columns, handlelength=3.2)


def log_axis(axes: Axes, which: str) -> None:
    """A logarithmic axis, for what has been drawn; over few decades with ticks at 2 and 5, too."""
    axes.set(**{f"{which}scale": "log"})
    axis, (low, high) = (axes.xaxis, axes.get_xlim()) if which == "x" else (axes.yaxis, axes.get_ylim())
    if high / low < 100:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_formatter(NullFormatter())


def thousands(axes: Axes, which: str = "y") -> None:
    axis = axes.xaxis if which == "x" else axes.yaxis
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))


def bars(
    axes: Axes, names: Sequence[str], values: Sequence[float], errors: Sequence[tuple[float, float]] | None = None
) -> None:
    """Horizontal bars, named; errors are (lowest, highest)."""
    places = list(range(len(names)))[::-1]
    for place, value, style in zip(places, values, STYLES, strict=False):
        axes.barh(place, value, color=style["color"], alpha=0.8, height=0.65)
    if errors is not None:
        low = [v - e[0] for v, e in zip(values, errors, strict=True)]
        high = [e[1] - v for v, e in zip(values, errors, strict=True)]
        axes.errorbar(values, places, xerr=[low, high], fmt="none", ecolor="black", elinewidth=0.8, capsize=2)
    axes.set_yticks(places, list(names))
    axes.grid(axis="y", visible=False)


def few() -> MaxNLocator:
    """Few ticks, for long numbers."""
    return MaxNLocator(4)
