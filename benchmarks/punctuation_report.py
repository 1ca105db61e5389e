"""The report of `benchmarks.punctuations`: claims with their numbers, a table per case, the state over time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from typing import Any

from matplotlib.axes import Axes

from benchmarks.measures import CaseResults, Run, repetitions, runs_of
from benchmarks.report import conditions
from lab.measure.charts import chart
from lab.measure.claims import NOT_MEASURED, answer
from lab.measure.spreads import spread
from lab.measure.tables import Table

COLUMNS = ("operator", "tuples/s", "min–max", "× hash", "log, %", "results", "propagated", "stored", "state, kB")
LEGEND = """tuples/s: of both streams together, per CPU second of the join itself, median of the repetitions; × hash:
CPU time of the join over that of the plain window join in the same run; log, %: what making the state durable costs on
top; stored and state: means over the second half of the run, of tuples and of all bytes, closed keys included. `hash,
informed` is the plain window join that leaves out what PWJoin does not store on arrival, and knows it without work."""
COLOURS = {
    "nested_loop": "#9ca3af",
    "hash, 100 buckets": "#7fb0dc",
    "hash": "#1e3a5f",
    "hash, informed": "#4f7fb5",
    "pjoin": "#0f766e",
    "pwjoin": "#c2410c",
    "pwjoin, none": "#f0a070",
}


def join_time(runs: Sequence[Run]) -> float | None:
    return median(run["step_s"] for run in runs) if runs else None


def closed_rate(runs: Sequence[Run]) -> float | None:
    return median(run["closed_keys"] / run["closing_s"] for run in runs) if runs else None


def stored(runs: Sequence[Run], field: int = 1) -> float | None:
    """Mean over the second half of a run of a field of its samples: 1 is tuples, 2 bytes."""
    samples = runs[0]["samples"] if runs else []
    return fmean(s[field] for s in samples[len(samples) // 2 :]) if samples else None


def state_bytes(runs: Sequence[Run]) -> float | None:
    return stored(runs, 2)


Statistic = Callable[[Sequence[Run]], float | None]


@dataclass(frozen=True)
class Claim:
    """A statistic of one operator, over that of another if given: at most, or at least, so much."""

    text: str
    case: str
    statistic: Statistic
    over: str
    under: str | None = None
    most: float | None = None
    least: float | None = None
    why: str = ""  # the reason, should it not hold

    def value(self, case: CaseResults, repetition: int | None = None) -> float | None:
        top = self.statistic(runs_of(case, self.over, repetition))
        bottom = self.statistic(runs_of(case, self.under, repetition)) if self.under else 1.0
        return top / bottom if top is not None and bottom else None

    def holds(self, value: float) -> bool:
        return value <= self.most if self.most is not None else value >= (self.least or 0.0)


FEW_SAVED = (
    "with one list per key both joins look at the same stored tuples, those in results (see Work), and to find and "
    "make the results is most of the time; PWJoin stores and expires fewer tuples, which alone is worth what `hash, "
    "informed` shows, and to close, purge and propagate keys costs more"
)
CLAIMS = (
    Claim("CPU time of PWJoin over the plain window join", "without", join_time, "pwjoin, none", "hash", most=1.05),
    Claim(
        "CPU time of PWJoin over the plain window join",
        "irrelevant",
        join_time,
        "pwjoin",
        "hash",
        most=1.08,
        why="a punctuation makes a node for its key, looks up the key on the other side, is propagated and stored; "
        "together that costs several times what a tuple costs, and the nodes crowd the tables that tuples use",
    ),
    Claim("punctuations a second, log included", "punctuations-int", closed_rate, "pwjoin", least=1e6),
    Claim("punctuations a second, log included", "punctuations-string", closed_rate, "pwjoin", least=1e6),
    Claim("tuples in state, windows alone over PWJoin", "auctions-12", stored, "hash", "pwjoin", least=10),
    Claim(
        "bytes of state, windows alone over PWJoin",
        "auctions-12",
        state_bytes,
        "hash",
        "pwjoin",
        least=10,
        why="nearly all bytes are those of closed keys, which are kept so that violations are found: neighbours "
        "merge, and the oldest go, only when there are a million of them",
    ),
    Claim(
        "tuples in state, windows alone over PWJoin",
        "auctions-0",
        stored,
        "hash",
        "pwjoin",
        least=10,
        why="12 hours of auctions over those that run (an hour's) and those whose end was lost (2 % of 12 hours')",
    ),
    Claim("CPU time of PWJoin over 100 buckets, long window", "rate-15", join_time, "pwjoin", "hash, 100 buckets", 1.0),
    *(
        Claim(
            "output rate of PWJoin over the plain window join",
            case,
            join_time,
            "hash",
            "pwjoin",
            least=1,
            why=FEW_SAVED,
        )
        for case in ("rate-5", "rate-15")
    ),
    *(
        Claim(
            "the same, were punctuations free: hash, informed over the plain window join",
            case,
            join_time,
            "hash",
            "hash, informed",
            least=1,
        )
        for case in ("rate-5", "rate-15")
    ),
)


def claims(results: dict[str, Any]) -> Table:
    rows = [_claim(claim, results["cases"].get(claim.case)) for claim in CLAIMS]
    caption = "Ratios of medians; in brackets the smallest and largest of a single repetition."
    return Table(
        "Claims", caption, ("case", "what", "required", "measured", "answer"), [*rows, _savings(results["cases"])]
    )


def _claim(claim: Claim, case: CaseResults | None) -> tuple[str, ...]:
    required = f"at most {_figure(claim.most)}" if claim.most is not None else f"at least {_figure(claim.least)}"
    value = claim.value(case) if case else None
    if case is None or value is None:
        return claim.case, claim.text, required, "–", NOT_MEASURED
    around = spread(v for r in repetitions(case) if (v := claim.value(case, r)) is not None)
    measured = _figure(value) + (f" ({_figure(around.low)}–{_figure(around.high)})" if around else "")
    return claim.case, claim.text, required, measured, answer(claim.holds(value), quick=case["quick"])


def reasons(results: dict[str, Any]) -> str:
    """The reasons of claims that do not hold."""
    lines = []
    for claim in CLAIMS:
        case = results["cases"].get(claim.case)
        value = claim.value(case) if case else None
        if value is not None and claim.why and not claim.holds(value):
            lines.append(f"- `{claim.case}`, {claim.text}: {claim.why}.")
    cost = _punctuation_cost(results["cases"].get("irrelevant"))
    return "\n".join(["Why not, where a claim does not hold:\n", *lines, *cost]) + "\n" if lines else ""


def _punctuation_cost(case: CaseResults | None) -> list[str]:
    """The cost of an irrelevant punctuation over that of a tuple."""
    more, none = (runs_of(case, name) if case else [] for name in ("pwjoin", "pwjoin, none"))
    with_, without = join_time(more), join_time(none)
    if with_ is None or without is None:
        return []
    each, tuple_ = (with_ - without) / more[0]["closed_keys"] * 1e6, without / none[0]["rows_in"] * 1e6
    return [f"\nAn irrelevant punctuation costs {each:.2f} µs of CPU time in all, a tuple {tuple_:.2f} µs."]


def _savings(cases: dict[str, CaseResults]) -> tuple[str, ...]:
    """The share of the window that PWJoin does not keep, which grows with the window."""
    text, required = "tuples that PWJoin saves, windows of 1, 5, 15 s", "each more than the last"
    if not all(f"state-{w}" in cases for w in (1, 5, 15)):
        return "state", text, required, "–", NOT_MEASURED
    kept = [[stored(runs_of(cases[f"state-{w}"], name)) or 0.0 for name in ("hash", "pwjoin")] for w in (1, 5, 15)]
    saved = [hash_ - pw for hash_, pw in kept]
    measured = ", ".join(f"{s:,.0f} of {h:,.0f}" for s, (h, _) in zip(saved, kept, strict=True))
    grows = saved == sorted(saved) and len(set(saved)) == len(saved)
    quick = cases["state-1"]["quick"]
    return "state", text, required, measured, answer(grows, quick=quick)


def work(cases: dict[str, CaseResults]) -> Table:
    """What the operators do, counted."""
    rows = []
    for name in ("rate-5", "rate-15", "irrelevant"):
        for operator in ("hash", "hash, informed", "pwjoin"):
            runs = runs_of(cases[name], operator) if name in cases else []
            if runs and "probed" in runs[0]:
                counted = ("rows_in", "closed_keys", "probed", "results", "inserted", "dead", "purged", "expired")
                rows.append((name, operator, *(f"{runs[0][counter]:,}" for counter in counted)))
    columns = (
        "case",
        "operator",
        "tuples",
        "punctuations",
        "looked at",
        "results",
        "stored",
        "dead",
        "purged",
        "expired",
    )
    caption = (
        "Looked at: stored tuples that probes meet; stored: tuples in state after their batch; dead: tuples that are "
        "not, because the other stream has closed their key."
    )
    return Table("Work", caption, columns, rows)


def case_table(name: str, case: CaseResults) -> Table:
    names = list(dict.fromkeys(run["contender"] for run in case["runs"]))
    return Table(name, f"{case['about']}.", COLUMNS, [_row(case, operator) for operator in names])


def _row(case: CaseResults, operator: str) -> tuple[str, ...]:
    runs, plain = runs_of(case, operator), join_time(runs_of(case, "hash"))
    rates = spread(run["rows_in"] / run["step_s"] for run in runs)
    mine = join_time(runs)
    assert rates is not None and mine is not None, "an operator in the results has run"  # noqa: PT018
    return (
        operator,
        _figure(rates.median),
        f"{_figure(rates.low)}–{_figure(rates.high)}",
        f"{mine / plain:.2f}" if plain else "–",
        f"{100 * median(run['log_s'] for run in runs) / mine:.0f}",
        f"{runs[0]['results']:,}",
        f"{runs[0]['propagated']:,}",
        _figure(stored(runs)),
        _figure((state_bytes(runs) or 0) / 1000),
    )


def _figure(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value / 1e6:.2f} M" if value >= 1e6 else f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def predictions(cases: dict[str, CaseResults]) -> Table:
    """Equation 1 of PWJoin and the measured state, at the end of each run over the papers' streams."""
    rows = []
    for window in (1, 5, 15):
        case = cases.get(f"state-{window}")
        runs = runs_of(case, "pwjoin") if case else []
        if not runs:
            continue
        seconds = runs[0]["samples"][-1][0] / 1e6
        rate, closed = runs[0]["rows_in"] / 2 / seconds, runs[0]["closed_keys"] / 2
        whole = 2 * rate * window
        predicted, measured = whole * (1 - closed / runs[0]["distinct"]), runs[0]["samples"][-1][1]
        rows.append(
            (f"{window} s", f"{whole:,.0f}", f"{predicted:,.0f}", f"{measured:,}", f"{predicted - measured:+,.0f}")
        )
    columns = ("window", "λT of both", "predicted", "measured", "error")
    caption = (
        "Tuples in both states at the end: λT (1 − punctuations so far / distinct keys so far), against the count."
    )
    return Table("Equation 1", caption, columns, rows)


def tables(results: dict[str, Any]) -> list[Table]:
    cases = results["cases"]
    return [claims(results), work(cases), predictions(cases), *(case_table(name, case) for name, case in cases.items())]


def markdown(results: dict[str, Any]) -> str:
    first, *rest = (table.markdown() for table in tables(results))
    where = f"Measured on:\n\n{conditions(results)}\n"
    return "\n".join([where, first, reasons(results), f"How to read the tables. {LEGEND}\n", *rest])


def draw(results: dict[str, Any], path: Path) -> None:
    """Tuples in state over time: the papers' streams with three windows, and the auction house."""
    panels = [n for n in ("state-1", "state-5", "state-15", "auctions-12") if n in results["cases"]]
    with chart(path, 3.4 * max(len(panels), 1), 2.8) as figure:
        for axes, name in zip(figure.subplots(1, max(len(panels), 1), squeeze=False)[0], panels, strict=False):
            _panel(axes, name, results["cases"][name])
        figure.suptitle("Tuples in state over stream time")


def _panel(axes: Axes, name: str, case: CaseResults) -> None:
    unit, start = ("hours", case["runs"][0]["samples"][0][0]) if name.startswith("auctions") else ("seconds", 0)
    for operator in ("hash", "pwjoin"):
        for run in runs_of(case, operator)[:1]:
            times = [(s[0] - start) / 1e6 for s in run["samples"]]
            axes.plot(times, [s[1] for s in run["samples"]], color=COLOURS[operator], label=operator, linewidth=1.4)
    axes.set(xlabel=unit, ylim=(0, None))
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_title(name, loc="left", fontweight="bold")
    axes.legend(frameon=False, fontsize=8)
