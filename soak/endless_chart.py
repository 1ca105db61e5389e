"""The endless run as a picture: four panels over its minutes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lab.measure.charts import chart

BLUE, ORANGE, GREY, GREEN = "#1e3a5f", "#c2410c", "#9ca3af", "#3b7a57"


def draw(outcome: dict[str, Any], path: Path) -> None:
    with chart(path, 9, 8) as figure:
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
        predicted = [p for p in outcome["predicted"] if p["batch"] in at]
        thousands = [p["predicted"] / 1000 for p in predicted]
        state.plot([at[p["batch"]] for p in predicted], thousands, ".", color=BLUE, label="predicted")
        state.set_ylabel("thousand")
        shown = [s for s in samples if s["ms"]]
        rate.plot([s["at"] / 60 for s in shown], [s["rows_in"] / s["ms"] for s in shown], color=GREEN, lw=1)
        rate.set_ylabel("thousand rows/s in a batch")
        line(files, "files", BLUE, "files of the checkpoint")
        line(files, "jvm_threads", GREY, "threads of the JVM")
        line(files, "handles", GREEN, "open files")
        line(files, "closed_keys", ORANGE, "closed keys")
        files.set_xlabel("minutes")
        for axes in (memory, state, rate, files):
            axes.set_ylim(bottom=0)
            if axes is not rate:
                axes.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
