"""The report of `benchmarks.joins`: the claims, and a table for each case."""

from dataclasses import dataclass
from typing import Any

from benchmarks import measures
from benchmarks.join_contenders import ASOF, BAND, EQUALITY, HASH, NATIVE_BAND, PER_KEY
from benchmarks.measures import CaseResults, Run, batch_times, runs_of
from benchmarks.report import conditions
from lab.measure.claims import NOT_MEASURED, answer
from lab.measure.spreads import spread
from lab.measure.tables import Table

COLUMNS = ("contender", "batch, s", "min–max", "rows/s", "state rows", "results", "answer")
LEGEND = """batch: median and range over the steady batches of all repetitions, trigger to commit. native-band: Spark's
stream-stream join with a key that is the same in all rows, in-memory state store. per-key: applyInPandasWithState with
the same state store, NumPy inside. state rows: as each reports them itself; of per-key, keys."""


@dataclass(frozen=True)
class Ratio:
    """The batch time of one contender over that of another, and how large or small it is to be."""

    case: str
    over: str
    under: str
    limit: float
    at_least: bool

    @property
    def text(self) -> str:
        return f"time of {self.over} over that of {self.under}"

    @property
    def required(self) -> str:
        return f"at {'least' if self.at_least else 'most'} {self.limit:g}"

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


RATIOS = (
    Ratio("band-20k", NATIVE_BAND, BAND, 20, at_least=True),
    Ratio("band-200k", BAND, EQUALITY, 3, at_least=False),
    Ratio("asof-200k", PER_KEY, ASOF, 5, at_least=True),
    Ratio("asof-few-keys", PER_KEY, ASOF, 5, at_least=True),
    Ratio("asof-200k", ASOF, HASH, 1.5, at_least=False),
)


def right(run: Run) -> bool:
    """Whether a run found what NumPy says."""
    return bool(run["found"] == run["expected"])


def claims(results: dict[str, Any]) -> Table:
    """A claim whose contenders did not all find the right results does not hold."""
    rows = []
    for ratio in RATIOS:
        case = results["cases"].get(ratio.case)
        value = case and measures.ratio(case, [ratio.over], [ratio.under], measures.batch_time)
        if value is None:
            rows.append((ratio.case, ratio.text, ratio.required, "–", NOT_MEASURED))
            continue
        all_right = all(right(run) for name in (ratio.over, ratio.under) for run in runs_of(case, name))
        verdict = answer(ratio.holds(value) and all_right, quick=case["quick"])
        rows.append((ratio.case, ratio.text, ratio.required, f"{value:.2f}", verdict))
    caption = "Ratios of medians of steady batches over the same files."
    return Table("What is claimed", caption, ("case", "ratio", "required", "measured", "answer"), rows)


def case_table(name: str, case: CaseResults) -> Table:
    names = list(dict.fromkeys(run["contender"] for run in case["runs"]))
    failures = [f"{run['contender']} failed: {run['error']}." for run in case["runs"] if "error" in run]
    caption = " ".join([f"{case['about']}.", *failures])
    return Table(name, caption, COLUMNS, [_row(case, contender) for contender in names])


def _row(case: CaseResults, contender: str) -> tuple[str, ...]:
    runs = runs_of(case, contender)
    times = spread(batch_times(runs))
    if times is None:
        return (contender, *("–" for _ in COLUMNS[2:]), "failed")
    steady = [b for run in runs for b in run["batches"] if b["phase"] == "steady"]
    found = runs[0]["found"]
    return (
        contender,
        f"{times.median / 1000:.2f}",
        f"{times.low / 1000:.2f}–{times.high / 1000:.2f}",
        f"{steady[0]['rows'] / times.median * 1000:,.0f}",
        f"{steady[-1]['state_rows']:,}",
        f"{found.get('results', found.get('answers')):,}",
        "results as counted" if all(map(right, runs)) else f"{runs[0]['expected']} expected",
    )


def tables(results: dict[str, Any]) -> list[Table]:
    return [claims(results), *(case_table(name, case) for name, case in results["cases"].items())]


def markdown(results: dict[str, Any]) -> str:
    first, *cases = (table.markdown() for table in tables(results))
    return "\n".join([f"Measured on:\n\n{conditions(results)}\n", first, f"How to read the tables. {LEGEND}\n", *cases])
