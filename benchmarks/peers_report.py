"""The report of `benchmarks.peers`: a table of speeds, a table of properties, and the claim."""

from typing import Any

from benchmarks.report import conditions
from lab.measure.claims import NOT_MEASURED, answer
from lab.measure.tables import Table

COLUMNS = ("peer", "version", "rows/s", "× watersmeet", "seconds", "whole process, s", "results", "answer")
LEGEND = """rows/s: on Spark of the steady batches, trigger to commit; of the others of all rows, from the start of the
job to its last result, in a process that is ready (Flink after a small run before). × watersmeet: its rows a second
over the peer's."""
ABILITIES = ("peer", "durable state", "bounded state", "disorder", "reads")


#: The properties of each peer in this run: durable, bounded, disorder, input.
DOES = {
    "watersmeet": (
        "every batch, RocksDB state store",
        "yes, window and delay",
        "delay per stream; late rows are handed out",
        "Parquet",
    ),
    "spark-rocksdb": (
        "every batch, RocksDB state store",
        "yes, watermark",
        "watermark; late rows are dropped and counted",
        "Parquet",
    ),
    "spark-memory": (
        "every batch, in-memory state store with delta files",
        "yes, watermark, all of it in memory",
        "watermark; late rows are dropped and counted",
        "Parquet",
    ),
    "flink-rocksdb": (
        "checkpoints every 5 s, incremental",
        "yes, watermark",
        "watermark; late rows are dropped",
        "CSV",
    ),
    "flink-heap": (
        "checkpoints every 5 s, of all state",
        "yes, watermark, all of it in memory",
        "watermark; late rows are dropped",
        "CSV",
    ),
    "pathway": (
        "its log of the input, every 5 s; a restart computes anew",
        "no: run without a cutoff, as the streams are not read in step",
        "any; results are corrected",
        "CSV",
    ),
    "bytewax": (
        "snapshots of changed keys every 5 s",
        "no: rows of a key are evicted, keys are not",
        "what the hand-made join keeps: window and delay of each key",
        "Parquet",
    ),
    "duckdb": ("no", "no: a batch of everything", "sorted out, as all is there", "Parquet"),
    "polars": ("no", "no: a batch of everything", "sorted out, as all is there", "Parquet"),
    "kernel": ("no", "yes, window and delay", "delay per stream", "arrays, one core"),
}
STREAMING_AND_DURABLE = ("spark-rocksdb", "spark-memory", "flink-rocksdb", "flink-heap", "pathway", "bytewax")


def speed(run: dict[str, Any]) -> float | None:
    return run["rows"] / run["seconds"] if "error" not in run else None


def _of(results: dict[str, Any], name: str) -> dict[str, Any] | None:
    return next((run for run in results["runs"] if run["peer"] == name), None)


def speeds(results: dict[str, Any]) -> Table:
    ours = _of(results, "watersmeet")
    mine = speed(ours) if ours else None
    rows = [_row(run, results["expected"], mine) for run in results["runs"]]
    return Table("Speed", f"{results['about']}; {results['rows']:,} rows in all.", COLUMNS, rows)


def _row(run: dict[str, Any], expected: int, mine: float | None) -> tuple[str, ...]:
    rate = speed(run)
    if rate is None:
        return (run["peer"], *("–" for _ in COLUMNS[2:]), run["error"])
    return (
        run["peer"],
        run["version"] or "–",
        f"{rate:,.0f}",
        f"{mine / rate:.2f}" if mine else "–",
        f"{run['seconds']:.2f}",
        f"{run['process_s']:.1f}",
        f"{run['results']:,}",
        "results as counted" if run["results"] == expected else f"{expected:,} expected",
    )


def abilities(results: dict[str, Any]) -> Table:
    rows = [(run["peer"], *DOES[run["peer"]]) for run in results["runs"]]
    return Table("What each does", "In this run, as it was set up.", ABILITIES, rows)


def claims(results: dict[str, Any]) -> Table:
    """Ahead of every streaming peer with durable state on."""
    ours = _of(results, "watersmeet")
    mine = speed(ours) if ours else None
    rows = []
    for name in STREAMING_AND_DURABLE:
        run = _of(results, name)
        other = speed(run) if run else None
        if mine is None or other is None:
            rows.append((name, "more than 1", "–", NOT_MEASURED))
            continue
        rows.append((name, "more than 1", f"{mine / other:.2f}", answer(mine > other, quick=results["quick"])))
    caption = "Watersmeet's rows a second over those of each stream processor with durable state."
    return Table("Ahead of every streaming peer", caption, ("peer", "required", "measured", "answer"), rows)


def tables(results: dict[str, Any]) -> list[Table]:
    return [claims(results), speeds(results), abilities(results)]


def markdown(results: dict[str, Any]) -> str:
    first, second, third = (table.markdown() for table in tables(results))
    where = conditions({"cases": {"peers": results}})
    return "\n".join([f"Measured on:\n\n{where}\n", first, second, f"How to read it. {LEGEND}\n", third])
