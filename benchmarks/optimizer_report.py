"""The optimiser's report: how often it takes a good plan, how bad the worst is, how true its predictions are."""

from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from lab.measure.charts import GREY, OTHER, OURS, chart
from lab.measure.claims import answer
from lab.measure.tables import Table

#: Required: a plan within a fifth of the best in nine loads of ten, none twice as bad; state within a quarter.
NEAR, OFTEN, WORST, TRUE = 1.2, 0.9, 2.0, 0.25
#: The criteria of plans: the key of a choice, the key of a plan's figure, and the label.
JUDGED = (("counters", "work", "work counted"), ("time", "seconds", "median time of five runs"))


def cost(plan: dict[str, Any], figure: str) -> float:
    value = plan[figure]
    return float(median(value)) if isinstance(value, list) else float(value)


def ratio(load: dict[str, Any], by: str, figure: str) -> float:
    """The cost of the chosen plan over that of the best one tried."""
    plans = load["plans"]
    best = min(cost(plan, figure) for plan in plans.values())
    return cost(plans[load["chosen"][by]], figure) / best


def errors(load: dict[str, Any], what: str) -> float:
    """Predicted over measured state of the plan that was chosen by counters."""
    measured = load["plans"][load["chosen"]["counters"]]["stored" if what != "bytes" else "bytes"]
    predicted = load["predicted_given"] if what == "given" else load["predicted"][what]
    return float(predicted) / max(float(measured), 1.0)


def verdicts(results: dict[str, Any]) -> Table:
    loads = list(results["loads"].values())
    rows = []
    for by, figure, label in JUDGED:
        ratios = [ratio(load, by, figure) for load in loads]
        near = sum(r <= NEAR for r in ratios) / len(ratios)
        rows.append(_row(f"plans within 20 % of the best, by {label}", "≥ 90 %", f"{near:.0%}", near >= OFTEN))
        rows.append(_row(f"worst plan over the best, by {label}", "< 2", f"{max(ratios):.2f}", max(ratios) < WORST))
    for what, label, judged in (
        ("tuples", "stored tuples predicted from measured figures", True),
        ("bytes", "bytes of state predicted from measured figures", True),
        ("given", "stored tuples predicted from what the loads were made with", False),
    ):
        off = [errors(load, what) for load in loads]
        good = sum(abs(e - 1) <= TRUE for e in off) / len(off)
        row = _row(f"{label}: within 25 %", "≥ 90 %", f"{good:.0%} ({min(off):.2f} to {max(off):.2f})", good >= OFTEN)
        rows.append(row if judged else (*row[:1], "–", row[2], "–"))
    losses = sorted(load["loss"] for load in loads if load["loss"] is not None)
    if losses:
        most = losses[int(0.9 * (len(losses) - 1))]
        text = f"median {median(losses):.2f}, nine in ten {most:.2f}, worst {losses[-1]:.2f}"
        rows.append(("the heuristic's order over the best one, by the model", "–", text, "–"))
        counted = [cost(x["plans"][x["heuristic"]], "work") / _best_order(x) for x in loads if x["heuristic"]]
        text = f"median {median(counted):.2f}, worst {max(counted):.2f}"
        rows.append(("the heuristic's order over the best one tried, by work counted", "–", text, "–"))
    agree = all(load["results_agree"] for load in loads)
    rows.append(_row("all plans of a load give as many results", "yes", "yes" if agree else "no", agree))
    about = results.get("about", {})
    facts = ", ".join(f"{k} {v}" for k, v in (about.get("machine", {}) | about.get("versions", {})).items())
    caption = f"{len(loads)} loads. {about.get('date', '')}: {facts}; load before: {about.get('load_before', 0):.2f}."
    return Table("The optimiser's plans", caption, ("what", "required", "found", "answer"), rows)


def _best_order(load: dict[str, Any]) -> float:
    return min(cost(plan, "work") for name, plan in load["plans"].items() if name.startswith("general_lazy"))


def _row(what: str, required: str, found: str, holds: bool) -> tuple[str, ...]:
    return (what, required, found, answer(holds))


def load_table(results: dict[str, Any]) -> Table:
    rows = []
    for name, load in results["loads"].items():
        best = min(load["plans"], key=lambda n: cost(load["plans"][n], "seconds"))
        rows.append(
            (
                name,
                load["chosen"]["counters"],
                f"{ratio(load, 'counters', 'work'):.2f}",
                load["chosen"]["time"],
                f"{ratio(load, 'time', 'seconds'):.2f}",
                best,
                f"{errors(load, 'tuples'):.2f}",
                f"{errors(load, 'bytes'):.2f}",
                f"{errors(load, 'given'):.2f}",
            )
        )
    columns = (
        "load",
        "chosen by default constants",
        "work over the least",
        "chosen by this machine's",
        "time over the least",
        "fastest",
        "tuples, predicted over measured",
        "bytes",
        "tuples, from given figures",
    )
    return Table("Load by load", "An order for each origin has bars between them.", columns, rows)


def markdown(results: dict[str, Any]) -> str:
    return verdicts(results).markdown() + "\n" + load_table(results).markdown()


def draw(results: dict[str, Any], path: Path) -> None:
    """Chosen over best, sorted, by work and by time; and predicted over measured state."""
    loads = list(results["loads"].values())
    with chart(path, 9, 3.4) as figure:
        left, right = figure.subplots(1, 2)
        shares = np.arange(1, len(loads) + 1) / len(loads)
        for (by, key, label), colour in zip(JUDGED, (OURS, OTHER), strict=True):
            left.plot(shares, sorted(ratio(x, by, key) for x in loads), "o-", ms=2, lw=1, color=colour, label=label)
        _bound(left, NEAR, "within 20 %")
        left.set(title="The plan chosen over the best one tried", xlabel="share of the loads", ylabel="times the cost")
        left.legend(frameon=False)
        stored = [x["plans"][x["chosen"]["counters"]]["stored"] for x in loads]
        right.loglog(stored, [x["predicted"]["tuples"] for x in loads], "o", ms=3, color=OURS)
        ends = np.array([max(1.0, min(stored)), max(stored)])
        for factor in (1 - TRUE, 1.0, 1 + TRUE):
            right.plot(ends, ends * factor, color=GREY, linewidth=0.8)
        right.set(title="State, predicted and measured", xlabel="tuples stored", ylabel="tuples predicted")


def _bound(axes: Axes, height: float, label: str) -> None:
    axes.axhline(height, color=GREY, linewidth=0.8)
    axes.annotate(label, (0, height), (2, 2), textcoords="offset points", fontsize=7)
