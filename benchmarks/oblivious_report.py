"""The report of `benchmarks.oblivious`: tables, a picture, and the measured parts of the documents."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lab import ROOT
from lab.measure.charts import GREY, OTHER, OURS, chart
from lab.measure.sections import fill

DOCUMENT = ROOT / "docs" / "operators" / "wo_join.md"

Runs = dict[str, list[dict[str, float]]]


def buffers(found: Runs) -> str:
    """Accuracy and tuples of every buffer, beside the optimum."""
    best = _mean(found["optimum"], "kept")
    lines = [
        "| buffer | accuracy, median | least | tuples in memory | of the optimum | too late |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for name, runs in found.items():
        accuracy, kept = [r["accuracy"] for r in runs], _mean(runs, "kept")
        cells = f"{np.median(accuracy):.4f} | {min(accuracy):.4f} | {kept:.0f} | {kept / best:.2f}"
        lines.append(f"| {name} | {cells} | {_mean(runs, 'too_late'):.1f} |")
    return "\n".join([*lines, "", f"{len(found['optimum'])} seeds."])


def tuning(found: dict[str, Any]) -> str:
    """The parameters tried for the learned buffer, and their seeds."""
    lines = ["| `loss` | tuples of which half the weight fades | accuracy, median | tuples in memory |"]
    lines.append("|---:|---:|---:|---:|")
    for t in found["tried"]:
        lines.append(f"| {t['loss']} | {t['memory']} | {t['accuracy']:.4f} | {t['kept']:.0f} |")
    first, last = found["seeds"]
    lines += ["", f"Seeds {first} to {last}, which are reported on nowhere else."]
    if found["chosen"]:
        least, default = found["chosen"], next(t for t in found["tried"] if (t["loss"], t["memory"]) == (0.005, 4096))
        lines[-1] += (
            f" Least memory at an accuracy of 0.995: {least['loss']} and {least['memory']}; the default, 0.005 and "
            f"4096, keeps {default['kept'] / least['kept']:.2f} times as much."
        )
    return "\n".join(lines)


def windows(found: dict[str, float]) -> str:
    return (
        f"Windows of as many tuples for each stream as the measured sound buffer holds on average find "
        f"{found['share']:.0%} of the results; to find as many as it does they have to be {found['factor']:.1f} times "
        "as large."
    )


def strategies(found: Runs) -> str:
    """Memory, latency and CPU time of every way to hold tuples back."""
    cpu, latency = (_mean(found["window join"], name) for name in ("cpu_s", "mean_s"))
    lines = [
        "| | tuples in memory | at most | a result comes after its last part, s | at most, s | latency | CPU time |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, runs in found.items():
        cells = [f"{_mean(runs, n):.{d}f}" for n, d in (("kept", 0), ("most", 0), ("mean_s", 2), ("worst_s", 1))]
        ratios = [f"× {_mean(runs, n) / base:.1f}" for n, base in (("mean_s", latency), ("cpu_s", cpu))]
        lines.append(f"| {name} | {' | '.join([*cells, *ratios])} |")
    return "\n".join([*lines, "", f"Batches of 0.2 s of the streams' own time; {len(found['none'])} seeds."])


PARTS: dict[str, Callable[[Any], str]] = {
    "buffers": buffers,
    "steady": buffers,
    "pairs": buffers,
    "tuning": tuning,
    "windows": windows,
    "strategies": strategies,
}


def write(results: dict[str, Any], folder: Path, *, documents: bool) -> list[Path]:
    """Write the tables and the picture, and with `documents` the measured parts of the documents."""
    parts = {name: PARTS[name](found) for name, found in results.items()}
    table = folder / "window_oblivious.md"
    table.write_text("\n\n".join(f"## {name}\n\n{text}" for name, text in parts.items()) + "\n")
    written = [table]
    if "buffers" in results:
        written.append(draw(results, folder / "window_oblivious.svg"))
    if documents:
        fill(DOCUMENT, parts)
        written.append(DOCUMENT)
    return written


def draw(results: dict[str, Any], path: Path) -> Path:
    """Tuples in memory and results lost of every buffer; latency and memory of every strategy."""
    with chart(path, 10, 4) as figure:
        lost, late = figure.subplots(1, 2)
        for name, runs in results["buffers"].items():
            colour = OTHER if "equation" in name else GREY if name == "optimum" else OURS
            x, y = _mean(runs, "kept"), 1 - float(np.median([r["accuracy"] for r in runs]))
            lost.plot(x, max(y, 1e-5), "o", color=colour)
            lost.annotate(name, (x, max(y, 1e-5)), (5, 3), textcoords="offset points", fontsize=7)
        lost.set_yscale("log")
        lost.set_xlabel("tuples in memory")
        lost.set_title("results lost (at the bottom: none)", loc="left", fontweight="bold")
        for name, runs in results.get("strategies", {}).items():
            x, y = _mean(runs, "kept"), _mean(runs, "mean_s")
            late.plot(x, y, "o", color=GREY if name == "window join" else OURS)
            late.annotate(name, (x, y), (5, 3), textcoords="offset points", fontsize=7)
        late.set_xlabel("tuples in memory")
        late.set_title("seconds until a result comes", loc="left", fontweight="bold")
    return path


def _mean(runs: list[dict[str, float]], name: str) -> float:
    return float(np.mean([r[name] for r in runs]))
