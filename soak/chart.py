"""The endless run as a picture: four panels over its minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.figure import Figure

BLUE, ORANGE, GREY, GREEN = "#1e3a5f", "#c2410c", "#9ca3af", "#3b7a57"


def draw(outcome: dict[str, Any], path: Path) -> None:
    style = {"svg.hashsalt": "watersmeet", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with rc_context(style):
        figure = Figure(figsize=(9, 8), layout="constrained")
        memory, state, rate, files = figure.subplots(4, 1, sharex=True)
        samples = outcome["samples"]

        def line(axes: Any, name: str, colour: str, label: str, scale: float = 1.0) -> None:
            shown = [s for s in samples if name in s]
            axes.plot([s["at"] / 60 for s in shown], [s[name] / scale for s in shown], color=colour, label=label, lw=1)

        line(memory, "jvm_mb", BLUE, "JVM")
        line(memory, "workers_mb", ORANGE, "Python workers, their own")
        line(memory, "working_mb", GREY, "working states, shared")
        memory.set_ylabel("MB")
        line(state, "state", ORANGE, "tuples in state", 1000)
        at = {s["batch"]: s["at"] / 60 for s in samples}
        told = [p for p in outcome["predicted"] if p["batch"] in at]
        state.plot(
            [at[p["batch"]] for p in told], [p["predicted"] / 1000 for p in told], ".", color=BLUE, label="predicted"
        )
        state.set_ylabel("thousand")
        shown = [s for s in samples if s["ms"]]
        rate.plot([s["at"] / 60 for s in shown], [s["rows_in"] / s["ms"] for s in shown], color=GREEN, lw=1)
        rate.set_ylabel("thousand rows/s in a batch")
        line(files, "files", BLUE, "files of the checkpoint")
        line(files, "jvm_threads", GREY, "threads of the JVM")
        line(files, "handles", GREEN, "open files")
        line(files, "closings", ORANGE, "closings remembered")
        files.set_xlabel("minutes")
        for axes in (memory, state, rate, files):
            axes.set_ylim(bottom=0)
            if axes is not rate:
                axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None})
