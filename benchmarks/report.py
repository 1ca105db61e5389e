"""The report of `benchmarks.spark`: tables on the screen and as Markdown."""

from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks import measures
from benchmarks.cases import FLOORS, WATERSMEET
from benchmarks.goals import judge
from benchmarks.measures import CaseResults, batch_times, runs_of
from lab.measure.spreads import spread
from lab.measure.tables import Table

README = Path(__file__).parent / "README.md"
MEGABYTE = 1e6
COLUMNS = (
    "contender",
    "batch, s",
    "min–max",
    "rows/s",
    "×",
    "written, MB",
    "first, s",
    "cold, s",
    "state rows",
    "state, MB",
)
LEGEND = """batch: median and range over the steady batches of all repetitions, trigger to commit; ×: that median over
Watersmeet's; written: to the checkpoint, per steady batch; first: from start() of the query to the end of the first
batch with results; cold: the same from an empty process, with the session; state: as each reports it itself."""


def case_table(name: str, case: CaseResults) -> Table:
    names = list(dict.fromkeys(run["contender"] for run in case["runs"]))
    rows = [_row(case, contender) for contender in sorted(names, key=lambda n: (n in FLOORS, n != WATERSMEET, n))]
    failures = [f"{run['contender']} failed: {run['error']}." for run in case["runs"] if "error" in run]
    return Table(name, " ".join([f"{case['about']}.", *failures]), COLUMNS, rows, whole=True)


def _row(case: CaseResults, contender: str) -> tuple[str, ...]:
    runs = runs_of(case, contender)
    times = spread(batch_times(runs))
    if times is None:
        return (contender, "failed", *("–" for _ in COLUMNS[2:]))
    rows = next(b["rows"] for b in runs[0]["batches"] if b["phase"] == "steady")
    joins = contender not in FLOORS
    return (
        contender,
        f"{times.median / 1000:.2f}",
        f"{times.low / 1000:.2f}–{times.high / 1000:.2f}",
        f"{rows / times.median * 1000:,.0f}",
        _number(measures.ratio(case, [contender], [WATERSMEET], measures.batch_time)),
        _number(measures.checkpoint_bytes(runs), MEGABYTE),
        _number(measures.first_result(runs)),
        _number(measures.whole_start(runs)),
        f"{measures.state(runs, 'state_rows'):,.0f}" if joins else "–",
        _number(measures.state(runs, "state_bytes"), MEGABYTE) if joins else "–",
    )


def _number(value: float | None, unit: float = 1.0) -> str:
    return "–" if value is None else f"{value / unit:.2f}"


def verdict_table(results: dict[str, Any]) -> Table:
    rows = [(v.case, v.text, v.required, v.measured, v.answer) for v in judge(results)]
    caption = "Ratios of medians; in brackets the smallest and largest ratio of a single repetition."
    return Table("Floors and goals", caption, ("case", "Watersmeet is / has …", "required", "measured", "answer"), rows)


def tables(results: dict[str, Any]) -> list[Table]:
    return [verdict_table(results), *(case_table(name, case) for name, case in results["cases"].items())]


def conditions(results: dict[str, Any]) -> str:
    """Date and machine of each case's measurement, one line per distinct machine and day."""
    lines: dict[str, list[str]] = {}
    for name, case in results["cases"].items():
        facts = ", ".join(f"{key} {value}" for key, value in (case["machine"] | case["versions"]).items())
        lines.setdefault(f"{case['date']}: {facts}", []).append(f"{name} (load before: {case['load_before']:.2f})")
    return "\n".join(f"- {facts}. Cases: {', '.join(names)}." for facts, names in lines.items())


def markdown(results: dict[str, Any]) -> str:
    verdicts, *cases = (table.markdown() for table in tables(results))
    return "\n".join(
        [f"Measured on:\n\n{conditions(results)}\n", verdicts, f"How to read the tables. {LEGEND}\n", *cases]
    )


def show(results: dict[str, Any], console: Console) -> None:
    for table in tables(results):
        console.print(table.rich())
    console.print(LEGEND, style="dim")
