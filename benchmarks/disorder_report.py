"""The report of `benchmarks.disorder`: a table, a picture, and the measured parts of the documents."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.oblivious_report import DOCUMENT
from lab.measure.charts import GREY, OTHER, OURS, chart
from lab.measure.sections import fill

#: The share of lost results that is drawn for none: a logarithmic scale has no zero.
NONE = 1e-4


def lost(run: dict[str, Any]) -> float:
    """The share of missing results."""
    return 1 - float(run["results"]) / float(run["expected"])


def finished(results: dict[str, Any], *, leading: bool) -> dict[str, dict[str, Any]]:
    return {n: r for n, r in results.items() if "error" not in r and n.startswith("lead") == leading}


def disorder(results: dict[str, Any]) -> str:
    lines = ["| | rows in state, mean | most | results lost | rows late, dropped or too late |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, run in finished(results, leading=False).items():
        state = f"{np.mean(run['state']):,.0f} | {max(run['state']):,}"
        lines.append(f"| {name} | {state} | {lost(run):.2%} | {run['lost_rows']:,} |")
    return "\n".join(lines)


def lead(results: dict[str, Any]) -> str:
    lines = ["| strategy | rows ahead | of them in the state store, at most | worker's memory, at most | lost |"]
    lines.append("|---|---:|---:|---:|---:|")
    for name, run in finished(results, leading=True).items():
        memory = f"{run['worker_bytes'] / (1 << 20):,.0f} MB"
        rows = f"{run['expected']:,} | {max(run['spilled']):,}"
        lines.append(f"| {name.removeprefix('lead, ')} | {rows} | {memory} | {lost(run):.2%} |")
    return "\n".join(lines)


def write(results: dict[str, Any], folder: Path, *, documents: bool) -> list[Path]:
    """Write the table and the picture, and with `documents` the measured parts of the documents."""
    parts = {"disorder": disorder(results), "lead": lead(results)}
    table = folder / "disorder.md"
    table.write_text("\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items()) + "\n")
    picture = draw(results, folder / "disorder.svg")
    if not documents:
        return [table, picture]
    fill(DOCUMENT, parts)
    return [table, picture, DOCUMENT]


def draw(results: dict[str, Any], path: Path) -> Path:
    """Rows in state and lost results, side by side; contenders with a given length are a line through its values."""
    families: dict[str, list[tuple[str, float, float]]] = {}
    for name, run in finished(results, leading=False).items():
        family, _, length = name.partition(" ")
        families.setdefault(family, []).append((length, float(np.mean(run["state"])), max(lost(run), NONE)))
    with chart(path, 6.4, 4.2) as figure:
        axes = figure.subplots()
        for family, points in families.items():
            colour = {"watermark": GREY, "delay": OTHER}.get(family, OURS)
            label = {"watermark": "Spark's own join, watermark given", "delay": "Watersmeet, delay given"}
            _, x, y = zip(*points, strict=True)
            axes.plot(x, y, "o-" if len(points) > 1 else "D", color=colour, label=label.get(family, family))
            for length, at, high in points:
                axes.annotate(length, (at, high), (4, 4), textcoords="offset points", fontsize=7)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xlabel("rows in state, mean over the batches")
        axes.set_ylabel(f"results lost ({NONE:g}: none, or fewer)")
        axes.set_title("The same disordered streams: kept and lost", loc="left", fontweight="bold")
        if families:
            axes.legend(frameon=False, fontsize=8)
    return path
