"""The report of `benchmarks.shards`: batches by the number of shards, the idle shard, the progress of many, claims."""

from statistics import median
from typing import Any

from benchmarks.report import conditions
from lab.measure.claims import NOT_MEASURED, answer
from lab.measure.tables import Table

#: What a steady batch of 64 shards may take, as a multiple of that of two.
MOST_TIMES = 2.5
#: Milliseconds of a core that a shard without rows may cost us.
MOST_IDLE_MS = 5.0
#: Bytes of the progress of a batch, whatever the number of shards; and milliseconds of the driver for a thousand.
MOST_PROGRESS, MOST_DRIVER_MS = 256 << 10, 500.0
STEADY, IDLE = "shards-60k", "shards-idle"
NAMES = {
    "watersmeet": "watersmeet",
    "watersmeet-task-each": "watersmeet, a task for each shard",
    "native-rocksdb-v4": "Spark's own join, RocksDB",
}
Results = dict[str, Any]


def _run(results: Results, contender: str, case: str, shards: int) -> dict[str, Any] | None:
    same = (r for r in results["runs"] if (r["contender"], r["case"], r["shards"]) == (contender, case, shards))
    return next((r for r in same if "error" not in r), None)


def _times(results: Results, contender: str, shards: int) -> float | None:
    """The median batch as a multiple of that of two shards."""
    run, two = _run(results, contender, STEADY, shards), _run(results, contender, STEADY, 2)
    if contender == "watersmeet-task-each":
        two = _run(results, "watersmeet", STEADY, 2)  # two tasks
    return median(run["ms"]) / median(two["ms"]) if run and two else None


def idle_ms(results: Results, contender: str = "watersmeet") -> dict[str, float] | None:
    """Milliseconds of a core that one shard more costs a batch, by the runs with the most shards and with two."""
    runs = [r for r in results["runs"] if r["case"] == IDLE and "error" not in r]
    few = next((r for r in runs if r["shards"] == 2), None)
    most = next((r for r in runs if r["shards"] > 2 and r["contender"] == contender), None)
    if few is None or most is None:
        return None
    more = most["shards"] - few["shards"]
    return {kind: (ms - few["processor_ms"][kind]) / more for kind, ms in most["processor_ms"].items()}


def batches(results: Results) -> Table:
    rows = []
    for run in (r for r in results["runs"] if r["case"] == STEADY):
        head = (NAMES[run["contender"]], str(run["shards"]))
        if "error" in run:
            rows.append((*head, "–", "–", "–", "–", run["error"]))
            continue
        times = _times(results, run["contender"], run["shards"])
        spent = run["processor_ms"]
        rows.append(
            (
                *head,
                f"{median(run['ms']):,.0f}",
                f"{min(run['ms']):,.0f}–{max(run['ms']):,.0f}",
                f"{times:.2f}" if times else "–",
                f"{spent['jvm']:,.0f}",
                f"{spent['python']:,.0f}",
            )
        )
    columns = ("join", "shards", "batch, ms", "from–to", "× two shards", "JVM, ms of a core", "Python, ms of a core")
    caption = (
        f"{results['about'][STEADY]}. Two cores; Spark's own join has a task for each shard, Watersmeet two tasks."
    )
    return Table("Batches by the number of shards", caption, columns, rows)


def idle(results: Results) -> Table:
    rows = []
    for run in (r for r in results["runs"] if r["case"] == IDLE and r["shards"] > 2 and "error" not in r):
        spent = idle_ms(results, run["contender"])
        timers = " ".join(f"{part} {us / 1000:.2f}" for part, us in run["timers_us"].items())
        cells = ("–", "–") if spent is None else (f"{spent['python']:.2f}", f"{spent['jvm']:.2f}")
        rows.append((NAMES[run["contender"]], f"{median(run['ms']):,.0f}", *cells, timers))
    caption = (
        f"{results['about'][IDLE]}, 64 shards. Milliseconds of a core that each shard costs a batch, measured from "
        "outside: what a batch takes more than one with two shards, for each shard more. By the clock: the timers of "
        "a shard without rows, which include waiting for Spark and for a core."
    )
    return Table("A shard without rows", caption, ("join", "batch, ms", "Python", "JVM", "by the clock"), rows)


def progress(results: Results) -> Table:
    rows = [
        (
            f"{p['shards']:,}",
            f"{p['report_bytes']:,}",
            f"{p['progress_bytes']:,}",
            f"{p['without_ms']:,.0f}",
            f"{p['tasks_ms']:,.0f}",
            f"{p['batch_ms']:,.0f}",
            f"{p['spread_without_ms']:,.0f}" if "spread_ms" in p else "–",
            f"{p['spread_ms']:,.0f}" if "spread_ms" in p else "–",
            f"{p['counters_ms']:.1f}",
        )
        for p in results["progress"]
    ]
    columns = (
        "shards",
        "report, bytes",
        "progress, bytes",
        "counted, ms",
        "parsed, ms",
        "batch, ms",
        "many tasks, counted, ms",
        "many tasks, batch, ms",
        "wm.counters, ms",
    )
    caption = (
        "Batches of synthetic reports, all in one task: merely counted; parsed and collected, which in a query the "
        "tasks of the shards do; and observed as those of a join, where the driver ranks and sums them; medians. "
        "Many tasks: the same reports from a task each, at most 100, merely counted, and observed. "
        "A report is that of a real shard; the progress is the JSON of the whole batch."
    )
    return Table("The progress of many shards", caption, columns, rows)


def claims(results: Results) -> Table:
    quick, most = results.get("quick", False), max((r["shards"] for r in results["runs"]), default=0)
    times, theirs = (_times(results, name, most) for name in ("watersmeet", "native-rocksdb-v4"))
    spent = idle_ms(results)
    thousand = next((p for p in results["progress"] if p["shards"] == 1_000), None)
    largest = max((p["progress_bytes"] for p in results["progress"]), default=None)
    driver = None if thousand is None else thousand["batch_ms"] - thousand["tasks_ms"] + thousand["counters_ms"]
    of_tasks = None
    if thousand is not None and "spread_ms" in thousand:
        of_tasks = thousand["spread_ms"] - thousand["spread_without_ms"] + thousand["counters_ms"]

    def row(text: str, required: str, value: float | None, shown: str, most: float) -> tuple[str, ...]:
        found = NOT_MEASURED if value is None else answer(value <= most, quick=quick)
        return (text, required, "–" if value is None else shown, found)

    beside = f" (Spark's own {'not measured' if theirs is None else f'{theirs:.2f}'})"
    rows = [
        row(
            f"{most} shards over two, time of a batch",
            f"≤ {MOST_TIMES}",
            times,
            f"{times or 0:.2f}{beside}",
            MOST_TIMES,
        ),
        row(
            "our processes, a shard without rows",
            f"≤ {MOST_IDLE_MS:.0f} ms of a core",
            spent and spent["python"],
            f"{spent['python'] if spent else 0:.2f} ms",
            MOST_IDLE_MS,
        ),
        row(
            "progress of up to 10,000 shards", f"≤ {MOST_PROGRESS:,} bytes", largest, f"{largest or 0:,}", MOST_PROGRESS
        ),
        row(
            "reports of 1,000 shards, the driver's part",
            f"≤ {MOST_DRIVER_MS:.0f} ms a batch",
            driver,
            f"{driver or 0:.0f} ms",
            MOST_DRIVER_MS,
        ),
        row(
            "the same from 100 tasks",
            f"≤ {MOST_DRIVER_MS:.0f} ms a batch",
            of_tasks,
            f"{of_tasks or 0:.0f} ms",
            MOST_DRIVER_MS,
        ),
    ]
    return Table("Claims", "What is required of this run.", ("claim", "required", "measured", "answer"), rows)


def tables(results: Results) -> list[Table]:
    return [claims(results), batches(results), idle(results), progress(results)]


def markdown(results: Results) -> str:
    where = conditions({"cases": {"shards": results}})
    return "\n".join([f"Measured on:\n\n{where}\n", *(table.markdown() for table in tables(results))])
