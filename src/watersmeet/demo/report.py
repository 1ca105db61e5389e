"""What the demo leaves behind: some results, the comparison with a batch join, a picture, and the code."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from matplotlib.figure import Figure
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from watersmeet.demo.house import CODE, WINDOW, Demo
from watersmeet.demo.measuring import Run
from watersmeet.demo.view import rows_in_windows
from watersmeet.workload import SECOND, STREAMS

SAMPLE = 6
BATCH_JOIN = f"""
    SELECT item_id, seller, category, bidder, price, epoch_us(opened_at) AS opened, epoch_us(bid_at) AS bid
    FROM auctions JOIN bids USING (item_id)
    WHERE NOT closed AND abs(epoch_us(bid_at) - epoch_us(opened_at)) <= {WINDOW * SECOND}
"""
STREAM_JOIN = """
    SELECT item_id, seller, category, bidder, price, epoch_us(opened_at) AS opened, epoch_us(bid_at) AS bid
    FROM results
"""


class Comparison(NamedTuple):
    """Results of the stream join and of the batch join, and how many rows only one of them has."""

    stream: int
    batch: int
    different: int

    def __str__(self) -> str:
        if self.different:
            return f"[red]not exact[/]: {self.stream:,} results, {self.batch:,} by batch SQL, {self.different:,} differ"
        return f"[green]exact[/]: {self.stream:,} results = {self.batch:,} by batch SQL, row for row"


def show(console: Console, demo: Demo, run: Run, results: pa.Table, out: Path) -> None:
    """Print the end of a run and save the picture."""
    if not run.batches:
        console.print("Ended before the first batch was through: nothing to show.")
        return
    console.print(_sample(results))
    try:
        console.print(str(compare(demo, run, results)))
    except ImportError:
        console.print("Install duckdb to have the results compared with a batch join.")
    peak = max(batch.stored for batch in run.batches)
    console.print(f"At most {peak:,} tuples were in state; the windows span {demo.window_tuples:,} rows.")
    out.mkdir(parents=True, exist_ok=True)
    picture(demo, run).savefig(out / "state.png", dpi=150)
    console.print(f"The state over time: {out / 'state.png'}\n\nThe code:\n")
    console.print(Syntax(CODE, "python", background_color="default"))


def compare(demo: Demo, run: Run, results: pa.Table) -> Comparison:
    """Join the rows that the query has read once more, as a batch, in DuckDB.

    Raises ImportError where DuckDB is not installed.
    """
    import duckdb

    options = {name: str(value) for name, value in asdict(demo.house).items()}
    read_auctions, read_bids = run.batches[-1].stream_time
    with duckdb.connect() as database:
        database.register("results", results)
        database.register("auctions", STREAMS["auctions"](options).table(0, read_auctions))
        database.register("bids", STREAMS["bids"](options).table(0, read_bids))
        database.execute(f"CREATE TABLE stream AS {STREAM_JOIN}")
        database.execute(f"CREATE TABLE batch AS {BATCH_JOIN}")
        counts = database.execute(
            "SELECT (SELECT count(*) FROM stream), (SELECT count(*) FROM batch),"
            " (SELECT count(*) FROM (FROM stream EXCEPT ALL FROM batch))"
            " + (SELECT count(*) FROM (FROM batch EXCEPT ALL FROM stream))"
        ).fetchall()
    return Comparison(*counts[0])


def picture(demo: Demo, run: Run) -> Figure:
    """Tuples in state against rows read, under what the windows alone would keep."""
    rows, read = [], 0
    for batch in run.batches:
        read += batch.rows
        rows.append(read)
    stored = [batch.stored for batch in run.batches]
    windows = [rows_in_windows(demo, min(batch.stream_time) / SECOND) for batch in run.batches]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rows, windows, color="0.6", linestyle="--", label=f"rows in the {WINDOW} s windows")
    axes.plot(rows, stored, color="#0b7285", linewidth=2, label="tuples in state")
    axes.set(xlabel="rows read", title="auctions ⋈ bids on item_id", xlim=(0, None), ylim=(0, None))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    return figure


def _sample(results: pa.Table) -> Table:
    table = Table(title=f"{min(SAMPLE, results.num_rows)} of {results.num_rows:,} results", title_justify="left")
    names = ["item_id", "category", "reserve", "opened_at", "bidder", "price", "bid_at"]
    for name in names:
        table.add_column(name, justify="left" if name == "category" else "right")
    step = max(1, results.num_rows // SAMPLE)
    for row in results.select(names).take(list(range(0, results.num_rows, step))[:SAMPLE]).to_pylist():
        table.add_row(*(_cell(row[name]) for name in names))
    return table


def _cell(value: object) -> str:
    return (
        f"{value:%H:%M:%S.%f}"
        if hasattr(value, "hour")
        else f"{value:,.2f}"
        if isinstance(value, float)
        else f"{value}"
    )
