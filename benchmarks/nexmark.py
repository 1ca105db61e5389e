"""NEXMark's joins on Spark: Watersmeet and Spark's own join, each result compared with DuckDB's.

    python -m benchmarks.nexmark [--quick] [--only QUERY] [--out DIR]
    python -m benchmarks.nexmark --redraw        tables and README again from the last results

Each run has a fresh process with a fresh JVM; the contenders of a query take turns.
"""

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import Progress

from benchmarks import cases, command, data, report
from benchmarks.nexmark_queries import QUERIES
from benchmarks.nexmark_run import CONTENDERS, FULL, QUICK, Size, make
from lab import ROOT
from lab.measure.circumstances import circumstances
from lab.measure.processor_time import ProcessorTime
from lab.measure.sections import fill
from lab.measure.tables import Table, markdown_table
from lab.processes import measured

#: It has all events a second and a core, beside published figures.
SCALE_PAGE = ROOT / "docs" / "scale.md"
COLUMNS = (
    "contender",
    "rows/s",
    "all events/s",
    "a core",
    "×",
    "state rows",
    "× ",
    "state, MB",
    "×  ",
    "results",
    "as DuckDB",
)
LEGEND = """rows/s: rows of all inputs of the query, over the time of the steady batches, trigger to commit, results
written as Parquet; all events/s: every event of the generator counts, as in NEXMark, also those that the query does not
read; a core: the same over the processor time of all processes in these batches; state: the largest at the end of a
steady batch, as each reports it itself, open groups included; ×: Watersmeet's rows over the contender's, the
contender's state over Watersmeet's; as DuckDB: results compared row by row, as bags."""


def run_all(names: list[str], quick: bool, console: Console) -> dict[str, Any]:
    size = QUICK if quick else FULL
    make(size)
    found = {}
    with Progress(console=console) as progress:
        bar = progress.add_task("", total=len(names) * len(CONTENDERS))
        for name in names:
            case = {"about": QUERIES[name].about, "quick": quick, "size": about(size)} | circumstances()
            case["events_a_batch"] = size.rate * size.seconds
            runs = []
            for contender in CONTENDERS:
                progress.update(bar, description=f"{name}: {contender}")
                runs.append(run_one(name, contender, quick))
                if "error" in runs[-1]:
                    progress.console.print(f"[red]{name}, {contender}: {runs[-1]['error']}")
                progress.advance(bar)
            found[name] = case | {"runs": runs}
    return found


def run_one(query: str, contender: str, quick: bool) -> dict[str, Any]:
    program = [sys.executable, "-m", "benchmarks.nexmark_run", query, contender] + ["--quick"] * quick
    log = data.scratch("logs") / f"nexmark-{query}-{contender}.log"
    with ProcessorTime() as used:
        outcome = measured(program, log)
    if "error" in outcome:
        outcome = {"error": f"did not finish (reason in {log.name})"}
    else:
        steady = [b for b in outcome["batches"] if b["phase"] == "steady"]
        outcome["core_seconds"] = sum(used.between(b["began"], b["ended"]) for b in steady)
    return {"query": query, "contender": contender} | outcome


def about(size: Size) -> str:
    return (
        f"{size.rate:,} events a second of event time, batches of {size.seconds} s, {size.in_flight:,} auctions in "
        f"flight, which last {size.longest_seconds} s at most; {size.small} small batches and {size.warm_up} of this "
        f"size to warm up, {size.steady} steady"
    )


def speed(run: dict[str, Any]) -> float | None:
    """Rows a second over the steady batches."""
    steady = [b for b in run.get("batches", ()) if b["phase"] == "steady"]
    return (
        sum(b["rows"] for b in steady) / sum(b["durations"]["triggerExecution"] for b in steady) * 1e3
        if steady
        else None
    )


def all_events(case: dict[str, Any], run: dict[str, Any]) -> tuple[float, float] | None:
    """Events of the generator a second, and a core-second, over the steady batches; None if they were not counted."""
    steady = [b for b in run.get("batches", ()) if b["phase"] == "steady"]
    if not steady or "core_seconds" not in run:
        return None
    events = case["events_a_batch"] * len(steady)
    return events / sum(b["durations"]["triggerExecution"] for b in steady) * 1e3, events / run["core_seconds"]


def state(run: dict[str, Any], field: str) -> float | None:
    """The largest state of the steady batches; groups count as rows."""
    steady = [b for b in run.get("batches", ()) if b["phase"] == "steady"]
    groups = [b["watersmeet"].get("open_groups", 0) if field == "state_rows" else 0 for b in steady]
    return max((b[field] + g for b, g in zip(steady, groups, strict=True)), default=None)


def query_table(name: str, case: dict[str, Any]) -> Table:
    ours = next(run for run in case["runs"] if run["contender"] == cases.WATERSMEET)
    rows = [_row(case, run, ours) for run in case["runs"]]
    failures = [f"{run['contender']} failed: {run['error']}." for run in case["runs"] if "error" in run]
    about = f"{case['about'][:1].upper()}{case['about'][1:]}."
    lacks = f"Spark's own join. {QUERIES[name].native_lacks}."
    return Table(name, " ".join([about, lacks, *failures]), COLUMNS, rows)


def _row(case: dict[str, Any], run: dict[str, Any], ours: dict[str, Any]) -> tuple[str, ...]:
    if "error" in run:
        return (run["contender"], "failed", *("–" for _ in COLUMNS[2:]))
    rows, size = state(run, "state_rows"), state(run, "state_bytes")
    wrong = f"{run['missing']:,} missing, {run['unexpected']:,} too many"
    return (
        run["contender"],
        f"{speed(run):,.0f}",
        *_events(case, run),
        _ratio(speed(ours), speed(run)),
        f"{rows:,.0f}",
        _ratio(rows, state(ours, "state_rows")),
        f"{(size or 0) / 1e6:.2f}",
        _ratio(size, state(ours, "state_bytes")),
        f"{run['results']:,}",
        "equal" if run["missing"] == run["unexpected"] == 0 else wrong,
    )


def _events(case: dict[str, Any], run: dict[str, Any]) -> tuple[str, str]:
    found = all_events(case, run)
    return ("–", "–") if found is None else (f"{found[0]:,.0f}", f"{found[1]:,.0f}")


def _ratio(over: float | None, under: float | None) -> str:
    return "–" if over is None or not under else f"{over / under:.2f}"


def summary(results: dict[str, Any]) -> Table:
    """How Watersmeet compares with the better of Spark's two, query by query."""
    rows = []
    for name, case in results["queries"].items():
        good = {run["contender"]: run for run in case["runs"] if "error" not in run}
        ours = good.pop(cases.WATERSMEET, {})
        fastest = max((s for run in good.values() if (s := speed(run))), default=None)
        durable = speed(good.get(cases.NATIVE_ROCKSDB, {}))
        smallest = min((s for run in good.values() if (s := state(run, "state_rows"))), default=None)
        equal = all(run["missing"] == run["unexpected"] == 0 for run in case["runs"] if "error" not in run)
        rows.append(
            (
                name,
                _ratio(speed(ours), durable),
                _ratio(speed(ours), fastest),
                _ratio(smallest, state(ours, "state_rows")),
                ("all equal" if equal else "not all equal") + (", some failed" if len(good) < 2 or not ours else ""),
            )
        )
    columns = ("query", "× Spark, RocksDB", "× Spark, the faster", "Spark's state rows ×", "results and DuckDB's")
    return Table(
        "NEXMark", "Ratios of events a second, and of rows in state; above 1 is for Watersmeet.", columns, rows
    )


def counted(results: dict[str, Any]) -> str:
    """The section of docs/scale.md: all events a second and a core, query by query, of the runs that counted them."""
    runs = [(name, case, run) for name, case in results["queries"].items() for run in case["runs"]]
    runs = [(name, case, run) for name, case, run in runs if all_events(case, run) is not None]
    if not runs:
        return "Not measured."
    dates, sizes = ({case[field] for _, case, _ in runs} for field in ("date", "events_a_batch"))
    rows = [(name, run["contender"], *_events(case, run)) for name, case, run in runs]
    batches = " and ".join(f"{size:,}" for size in sorted(sizes))
    about = f"*Measured {', '.join(sorted(dates))}, two cores, batches of {batches} events.*"
    return f"{about}\n\n{markdown_table(('query', 'join', 'all events/s', 'all events/s a core'), rows)}"


def tables(results: dict[str, Any]) -> list[Table]:
    return [summary(results), *(query_table(name, case) for name, case in results["queries"].items())]


def markdown(results: dict[str, Any]) -> str:
    first, *others = (table.markdown() for table in tables(results))
    sizes = list(dict.fromkeys(case["size"] for case in results["queries"].values()))
    where = report.conditions({"cases": results["queries"]})
    loads = f"Measured on:\n\n{where}\n\n{'; '.join(sizes)}.\n"
    return "\n".join([loads, first, f"How to read the tables. {LEGEND}\n", *others])


def write(results: dict[str, Any], folder: Path, console: Console) -> None:
    command.publish("nexmark", markdown(results), tables(results), folder, console)
    if folder == command.RESULTS:
        fill(SCALE_PAGE, {"scale nexmark": counted(results)})


def main() -> None:
    parser = command.parser("nexmark", __doc__, "a small part of the data")
    parser.add_argument("--only", action="append", choices=QUERIES, metavar="QUERY", help=f"of {', '.join(QUERIES)}")
    options = parser.parse_args()
    folder = command.folder_of(options)
    stored, console = folder / "nexmark.json", Console()
    results = command.read(stored, {"queries": {}})
    if not options.redraw:
        found = results["queries"] | run_all(options.only or list(QUERIES), options.quick, console)
        results["queries"] = {name: found[name] for name in QUERIES if name in found}
        stored.write_text(json.dumps(results, indent=1))
    write(results, folder, console)


if __name__ == "__main__":
    main()
