"""The report of a demo run: some results, the comparison with a batch join, a picture, and the code."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from matplotlib.figure import Figure
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from watersmeet.demo.auction_demo import CODE, WINDOW, Demo
from watersmeet.demo.batch_history import Run
from watersmeet.workload import SECOND, STREAMS

SAMPLE = 6
COLUMNS = "item_id, seller, category, reserve, epoch_us(opened_at) AS opened, bidder, price, epoch_us(bid_at) AS bid"
STREAM_JOIN = f"SELECT {COLUMNS} FROM results"
BATCH_JOIN = f"""
    SELECT {COLUMNS} FROM auctions JOIN bids USING (item_id)
    WHERE NOT closed AND abs(epoch_us(bid_at) - epoch_us(opened_at)) <= {WINDOW * SECOND}
"""


class Comparison(NamedTuple):
    """The numbers of results of the stream join and of the batch join, and of rows that only one of them has."""

    stream: int
    batch: int
    different: int

    def __str__(self) -> str:
        if self.different:
            return f"not exact: {self.stream:,} results, {self.batch:,} by batch SQL, {self.different:,} rows differ"
        return f"exact: {self.stream:,} results = {self.batch:,} by batch SQL, row for row"


def show(console: Console, demo: Demo, run: Run, results: pa.Table, out: Path) -> None:
    """Print the end of a run and save the picture."""
    console.print(_sample(results))
    try:
        comparison = compare(demo, run, results)
        console.print(str(comparison), style="red" if comparison.different else "green")
    except ImportError:
        console.print("With duckdb installed, the results are compared with those of a batch join.")
    peak = max(batch.stored for batch in run.batches)
    console.print(f"{run.rows:,} rows read, at most {peak:,} of them in state at a time, {run.late:,} late.")
    last = run.batches[-1]
    if last.predicted is not None:
        predicted = f"the cost models predicted {last.predicted:,}"
        console.print(f"After the last batch {last.stored:,} tuples are in state; {predicted}.")
    out.mkdir(parents=True, exist_ok=True)
    picture(run).savefig(out / "state.png", dpi=150)
    console.print(f"The state over time is drawn in {out / 'state.png'}.\n\nThe code:")
    console.print(Syntax(CODE, "python", theme="ansi_dark", background_color="default"))


def compare(demo: Demo, run: Run, results: pa.Table) -> Comparison:
    """Compare the results with a batch join, in DuckDB, of the rows that the query has read.

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


def picture(run: Run) -> Figure:
    """Tuples in state against rows read; the dashed line is a join that evicts nothing."""
    rows = [0, *accumulate(batch.rows for batch in run.batches)]
    stored = [0, *(batch.stored for batch in run.batches)]
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot(rows, rows, color="0.6", linestyle="--", label="rows read")
    axes.plot(rows, stored, color="#0b7285", linewidth=2, label="tuples in state")
    axes.set(xlabel="rows read", xlim=(0, rows[-1]), ylim=(0, 2 * max(*stored, 1)))
    axes.set_title(f"auctions joined with bids on item_id, windows of {WINDOW} s", loc="left")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:,.0f}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    return figure


def _sample(results: pa.Table) -> Table:
    """A few results, spread over the run."""
    shown = min(SAMPLE, results.num_rows)
    names = ["item_id", "category", "reserve", "opened_at", "bidder", "price", "bid_at"]
    table = Table(title=f"{shown} of {results.num_rows:,} results", title_justify="left")
    for name in names:
        table.add_column(name, justify="left" if name == "category" else "right")
    some = results.select(names).take([results.num_rows * i // SAMPLE for i in range(shown)])
    for row in some.sort_by("bid_at").to_pylist():
        table.add_row(*map(_cell, row.values()))
    return table


def _cell(value: object) -> str:
    if isinstance(value, datetime):
        return f"{value:%H:%M:%S.%f}"[:-3]
    return f"{value:,.2f}" if isinstance(value, float) else str(value)
