"""The charts of `benchmarks.scale`: one shard over time, a batch against the bandwidth, the simulator's predictions."""

from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

from benchmarks.cases import WATERSMEET
from lab.measure.charts import GREY, OTHER, OURS, chart


def draw(results: dict[str, Any], folder: Path) -> list[tuple[str, str, str]]:
    """Write the charts of the parts that are there; returns part, file and text of each."""
    drawn = []
    for part, (file, alt, paint, height) in CHARTS.items():
        found = results["parts"].get(part, {}).get("found")
        if not found or _missing(found):
            continue
        with chart(folder / file, 8, height) as figure:
            paint(figure, found)
        drawn.append((part, file, alt))
    return drawn


def _missing(found: Any) -> bool:
    rows = found if isinstance(found, list) else [found]
    return any("error" in row or "skipped" in row for row in rows)


def _one_shard(figure: Figure, found: Any) -> None:
    series = found[0]["series"]
    minutes = [point["minute"] for point in series]
    axes = figure.subplots(3, 1, sharex=True)
    for each, (name, title) in zip(
        axes,
        (
            ("cpu_ms", "core time\na batch, ms"),
            ("memory_mb", "memory of the\nprocess, MB"),
            ("state_rows", "rows in\nstate"),
        ),
        strict=True,
    ):
        values = [point[name] for point in series]
        each.plot(minutes, values, color=OURS, linewidth=1)
        each.set_ylim(0, 1.25 * max(values))
        each.set_ylabel(title)
        each.grid(axis="y", color="#e5e7eb", linewidth=0.6)
    axes[0].set_title(f"One shard of {found[0]['shards']:,}: flat or not", loc="left", fontweight="bold")
    axes[-1].set_xlabel("minutes")


def _network(figure: Figure, found: Any) -> None:
    """Bandwidth on the left, delay on the right."""
    left, right = figure.subplots(1, 2, sharey=True)
    for name in dict.fromkeys(row["contender"] for row in found):
        mine = [row for row in found if row["contender"] == name]
        colour = OURS if name == WATERSMEET else OTHER
        undelayed = [row for row in mine if not row["delay_ms"]]
        places = range(len(undelayed))
        left.plot(places, [row["batch_ms"] / 1000 for row in undelayed], "o-", color=colour, label=name)
        limits = ["no limit" if row["megabits"] is None else f"{row['megabits']:g}" for row in undelayed]
        left.set_xticks(places, limits)
        delayed = [row for row in mine if row["megabits"] == 1000]
        right.plot(
            [row["delay_ms"] for row in delayed], [row["batch_ms"] / 1000 for row in delayed], "o-", color=colour
        )
    left.set(xlabel="bandwidth, Mbit/s, without delay", ylabel="seconds a batch", ylim=(0, None))
    right.set(xlabel="delay of each direction, ms, at 1,000 Mbit/s")
    left.set_title("Two workers, a link between them", loc="left", fontweight="bold")
    left.legend(frameon=False)
    for axes in (left, right):
        axes.grid(axis="y", color="#e5e7eb", linewidth=0.6)


def _simulator(figure: Figure, found: Any) -> None:
    left, right = figure.subplots(1, 2)
    compared = found["compared"]
    middle = [row["predicted"]["median"] / 1000 for row in compared]
    low = [row["predicted"]["low"] / 1000 for row in compared]
    high = [row["predicted"]["high"] / 1000 for row in compared]
    measured = [row["measured"] / 1000 for row in compared]
    ends = [0.0, 1.1 * max(measured + high)]
    left.plot(ends, ends, color=GREY, linewidth=1)
    bars = [[m - a for m, a in zip(middle, low, strict=True)], [b - m for m, b in zip(middle, high, strict=True)]]
    left.errorbar(measured, middle, bars, fmt="o", color=OURS, markersize=4, linewidth=1)
    left.set(
        xlabel="measured at two cores, s a batch", ylabel="predicted from one core", xlim=(0, None), ylim=(0, None)
    )
    left.set_title("The test of the simulator", loc="left", fontweight="bold")
    for load, colour in (("grows with the cores", OURS), ("stays", OTHER)):
        rows = [row for row in found["beyond"] if row["load"] == load]
        cores = [row["cores"] for row in rows]
        speed = [[row["rows"] / row[name] * 1000 / 1e6 for row in rows] for name in ("median", "low", "high")]
        right.plot(cores, speed[0], "o-", color=colour, markersize=3, linewidth=1, label=f"load {load}")
        right.fill_between(cores, speed[2], speed[1], color=colour, alpha=0.15, linewidth=0)
    right.set(xlabel="cores, a shard each", ylabel="million rows a second, simulated", xscale="log", yscale="log")
    right.set_xticks([row["cores"] for row in found["beyond"]][::2])
    right.legend(frameon=False)
    right.set_title("Beyond", loc="left", fontweight="bold")
    _plain(left)
    _plain(right)


def _plain(axes: Axes) -> None:
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(color="#e5e7eb", linewidth=0.6)
    axes.set_axisbelow(True)


CHARTS = {
    "shard": ("scale-shard.svg", "One shard over time: time of a batch, memory, state", _one_shard, 4.5),
    "network": ("scale-network.svg", "Seconds a batch against bandwidth and delay", _network, 3.2),
    "simulator": ("scale-simulator.svg", "Predicted and measured batches, and predictions beyond", _simulator, 3.4),
}
