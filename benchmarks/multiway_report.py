"""The report of `benchmarks.multiway`: claims with their numbers, a table per case, a chart."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from matplotlib.axes import Axes

from benchmarks import measures
from benchmarks.cases import NATIVE_MEMORY, NATIVE_ROCKSDB, SEVERAL, WATERSMEET
from benchmarks.measures import CaseResults, Run, Statistic, repetitions, runs_of
from benchmarks.orders import ADAPTIVE
from benchmarks.report import case_table, conditions
from lab.measure.charts import GREY, OTHER, OURS, chart
from lab.measure.claims import NOT_JUDGED, NOT_MEASURED, answer
from lab.measure.spreads import spread
from lab.measure.tables import Table

SPARK = tuple(SEVERAL)
CHAINS = (NATIVE_ROCKSDB, NATIVE_MEMORY)
ENGINE_COLUMNS = ("order", "looked at", "× best", "CPU, s", "× best", "choosing, s", "results", "state, kB")
LEGEND = """looked at: stored tuples that probes met, in the whole run; CPU: seconds of the join, its results put
together and its orders chosen, median of the repetitions; choosing: CPU seconds of that for statistics and for the
choice; state: bytes after the last batch."""


def work(runs: Sequence[Run]) -> float | None:
    return float(runs[0]["probed"]) if runs else None


def cpu(runs: Sequence[Run]) -> float | None:
    """Seconds of the join and of the choice of its orders."""
    return median(run["step_s"] + run["order_s"] for run in runs) if runs else None


def fixed(case: CaseResults) -> list[str]:
    return list(dict.fromkeys(run["contender"] for run in case["runs"] if run["contender"] != ADAPTIVE))


def claims(results: dict[str, Any]) -> Table:
    cases, rows = results["cases"], []
    for name in SPARK:
        case = cases.get(name)
        for store, peers, least in (("RocksDB", (NATIVE_ROCKSDB,), 10), ("in memory", (NATIVE_MEMORY,), None)):
            text = f"steady batch, chain ({store}) over Watersmeet"
            rows.append(_spark(name, case, text, peers, measures.batch_time, least))
        rows.append(_spark(name, case, "rows in state, chain over Watersmeet", CHAINS, _state("state_rows"), None))
        text = "bytes of state, chain (in memory) over Watersmeet"  # RocksDB reports its memory, not its state
        rows.append(_spark(name, case, text, (NATIVE_MEMORY,), _state("state_bytes"), 5))
        rows.append(_right(name, case))
    for name in ("orders", "orders-scan"):
        for label, statistic in (("tuples looked at", work), ("CPU time", cpu)):
            rows.append(_worst(name, cases.get(name), f"{label}, worst order over best", statistic))
    for label, statistic in (("tuples looked at", work), ("CPU time, statistics included", cpu)):
        rows.append(_adaptive(cases.get("swap"), f"{label}, adaptive over the best fixed order", statistic))
    caption = "Ratios of medians; in brackets the smallest and largest of a single repetition."
    return Table("Claims", caption, ("case", "what", "required", "measured", "answer"), rows)


def _state(field: str) -> Statistic:
    return lambda runs: measures.state(runs, field)


def _spark(
    name: str, case: CaseResults | None, text: str, peers: Sequence[str], statistic: Statistic, least: float | None
) -> tuple[str, ...]:
    required = f"at least {least}" if least else "–"
    value = measures.ratio(case, peers, [WATERSMEET], statistic) if case else None
    if case is None or value is None:
        return name, text, required, "–", NOT_MEASURED
    each = (measures.ratio(case, peers, [WATERSMEET], statistic, r) for r in repetitions(case))
    return name, text, required, _ratio(value, [v for v in each if v is not None]), _answer(case, value, least=least)


def _right(name: str, case: CaseResults | None) -> tuple[str, ...]:
    runs = [r for r in case["runs"] if "error" not in r] if case else []
    text = "results, of every join alike"
    if case is None or not runs:
        return name, text, "–", "–", NOT_MEASURED
    wrong = {f"{r['contender']}: {r['results']:,}" for r in runs if r["results"] != r["expected_results"]}
    required = f"{runs[0]['expected_results']:,}"
    return name, text, required, "; ".join(sorted(wrong)) or required, answer(not wrong)


def _worst(name: str, case: CaseResults | None, text: str, statistic: Statistic) -> tuple[str, ...]:
    values = {o: statistic(runs_of(case, o)) or 0.0 for o in fixed(case)} if case else {}
    if not values:
        return name, text, "–", "–", NOT_MEASURED
    best, worst = min(values, key=values.__getitem__), max(values, key=values.__getitem__)
    return name, text, "–", f"{values[worst] / values[best]:.2f} ({worst} over {best})", "–"


def _adaptive(case: CaseResults | None, text: str, statistic: Statistic) -> tuple[str, ...]:
    required = "at most 1.10"

    def ratio(repetition: int | None = None) -> float | None:
        assert case is not None, "called for a case that ran"
        best = measures.best_of(case, fixed(case), statistic, repetition)
        own = statistic(runs_of(case, ADAPTIVE, repetition))
        return own / best if own is not None and best else None

    value = ratio() if case else None
    if case is None or value is None:
        return "swap", text, required, "–", NOT_MEASURED
    each = [v for r in repetitions(case) if (v := ratio(r)) is not None]
    return "swap", text, required, _ratio(value, each), _answer(case, value, most=1.1)


def _ratio(value: float, each: Sequence[float]) -> str:
    around = spread(each)
    return f"{value:.2f}" + (f" ({around.low:.2f}–{around.high:.2f})" if around else "")


def _answer(case: CaseResults, value: float, least: float | None = None, most: float | None = None) -> str:
    if least is None and most is None:
        return NOT_JUDGED if case["quick"] else "–"
    return answer(value >= least if least is not None else value <= (most or 0.0), quick=case["quick"])


def growth(results: dict[str, Any]) -> Table:
    """Cost of a row, by the number of streams."""
    rows = []
    for name, case in results["cases"].items():
        if name.startswith("growth-"):
            runs = runs_of(case, "general_lazy")
            seconds = cpu(runs) or 0.0
            rows.append(
                (
                    name.removeprefix("growth-"),
                    f"{seconds / runs[0]['rows_in'] * 1e6:.2f}",
                    f"{runs[0]['probed'] / runs[0]['rows_in']:.2f}",
                    f"{runs[0]['results'] / runs[0]['rows_in']:.2f}",
                    f"{runs[0]['state_bytes'] / 1000:,.0f}",
                )
            )
    caption = "Streams alike, 20 k rows a second each, windows of 4 s, about one tuple of a key in a window."
    return Table("Growth", caption, ("streams", "CPU, µs a row", "looked at a row", "results a row", "state, kB"), rows)


def engine_table(name: str, case: CaseResults) -> Table:
    names = sorted(fixed(case), key=lambda o: work(runs_of(case, o)) or 0.0)
    if runs_of(case, ADAPTIVE):
        names.append(ADAPTIVE)
    best = [min(s(runs_of(case, o)) or 0.0 for o in fixed(case)) for s in (work, cpu)]
    rows = []
    for order in names:
        runs = runs_of(case, order)
        looked, seconds = work(runs) or 0.0, cpu(runs) or 0.0
        rows.append(
            (
                order,
                f"{looked:,.0f}",
                f"{looked / best[0]:.2f}",
                f"{seconds:.3f}",
                f"{seconds / best[1]:.2f}",
                f"{median(r['order_s'] for r in runs):.3f}" if order == ADAPTIVE else "–",
                f"{runs[0]['results']:,}",
                f"{runs[0]['state_bytes'] / 1000:,.0f}",
            )
        )
    changes = [f"after batch {c['batch']}: {c['reason']}." for r in runs_of(case, ADAPTIVE)[:1] for c in r["changes"]]
    caption = f"{case['about']}." + (f" Changes: {' '.join(changes)}" if changes else "")
    return Table(name, caption, ENGINE_COLUMNS, rows)


def tables(results: dict[str, Any]) -> list[Table]:
    cases = results["cases"]
    spark = [case_table(name, cases[name]) for name in SPARK if name in cases]
    engine = [engine_table(name, cases[name]) for name in ("orders", "orders-scan", "swap") if name in cases]
    return [claims(results), *spark, growth(results), *engine]


def markdown(results: dict[str, Any]) -> str:
    first, *rest = (table.markdown() for table in tables(results))
    return "\n".join([f"Measured on:\n\n{conditions(results)}\n", first, f"How to read the tables. {LEGEND}\n", *rest])


def draw(results: dict[str, Any], path: Path) -> None:
    """Steady batches beside the chain, the cost of a row by streams, and the work of orders while rates swap."""
    with chart(path, 12, 3.2) as figure:
        batches, cost, swap = figure.subplots(1, 3)
        _batches(batches, results["cases"])
        _growth(cost, growth(results))
        if "swap" in results["cases"]:
            _swap(swap, results["cases"]["swap"])


def _batches(axes: Axes, cases: dict[str, CaseResults]) -> None:
    labels, height = [], 0
    for name in SPARK:
        for contender in (*CHAINS, WATERSMEET):
            times = measures.batch_times(runs_of(cases[name], contender)) if name in cases else []
            if times:
                axes.barh(height, median(times) / 1000, color=OURS if contender == WATERSMEET else OTHER)
                labels.append(f"{name.removesuffix('-streams')}: {contender}")
                height += 1
    axes.set_yticks(range(height), labels)
    axes.set_title("seconds a steady batch", loc="left", fontweight="bold")


def _growth(axes: Axes, table: Table) -> None:
    axes.plot([int(row[0]) for row in table.rows], [float(row[1]) for row in table.rows], "o-", color=OURS)
    axes.set(xlabel="streams", ylim=(0, None))
    axes.set_title("CPU, µs a row", loc="left", fontweight="bold")


def _swap(axes: Axes, case: CaseResults) -> None:
    by_work = sorted(fixed(case), key=lambda o: work(runs_of(case, o)) or 0.0)
    chosen = ((by_work[0], OTHER, "best fixed"), (by_work[-1], GREY, "worst fixed"), (ADAPTIVE, OURS, "adaptive"))
    for name, colour, kind in chosen:
        for run in runs_of(case, name)[:1]:
            looked = [probed for probed, _ in run["samples"]]
            label = kind if name == ADAPTIVE else f"{kind}: {name}"
            axes.plot(looked, color=colour, label=label, linewidth=1.4)
    axes.set(xlabel="batch", ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.legend(frameon=False, fontsize=8)
    axes.set_title("tuples looked at, rates swap half-way", loc="left", fontweight="bold")
