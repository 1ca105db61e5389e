"""Bids per auction within 12 hours of its opening: what punctuations do to the state of a stream join.

One stream has the auctions, another the bids. Two properties of the streams are declared:

    every auction opens once            wm.unique("item_id")                a bid is not stored after its auction
    a row `closed` ends the bids        wm.when("closed", on="item_id")     it purges the auction

Some punctuations get lost; those auctions expire with their window of 12 hours. The same rows go through four queries,
one after the other: with punctuations, with windows alone (bids wait 12 hours for auctions, or not at all), and Spark's
own stream-stream join. All must have the result of a batch query in DuckDB.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from matplotlib import rc_context
from matplotlib.figure import Figure
from pyspark.sql import functions as F
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import watersmeet as wm
from watersmeet.workload import ORIGIN, SECOND, STREAMS, AuctionHouse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "auction-state.svg"
HOUR = 3600  # a second of the generator is an hour of the auctions
BATCH = 2  # hours in a batch
STORE = "spark.sql.streaming.stateStore."
IN_MEMORY = {  # for Spark's own join: faster than RocksDB, and it reports its bytes
    STORE + "providerClass": "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider",
    STORE + "checkpointFormatVersion": "1",
}


@dataclass(frozen=True)
class House:
    """One run: its hours, rows per hour and seed."""

    hours: float
    rate: float
    seed: int

    @property
    def made(self) -> AuctionHouse:
        """Auctions last half an hour to an hour and a half; one punctuation in fifty is lost."""
        return AuctionHouse(self.rate, self.seed, in_flight=max(1, round(self.rate / 16)), duration=1.0, lost=0.02)

    def read(self, spark: SparkSession, workload: str, time: str) -> DataFrame:
        source = spark.readStream.format("watersmeet").options(**asdict(self.made), workload=workload)
        rows = source.options(seconds=self.hours, batch_seconds=BATCH).load()
        since = F.unix_micros(time) - ORIGIN
        return rows.withColumn(time, F.timestamp_micros(since * HOUR + ORIGIN))

    def table(self, workload: str) -> Any:
        """The same rows for a batch query, in the generator's time."""
        options = {name: str(value) for name, value in asdict(self.made).items()}
        return STREAMS[workload](options).table(0, round(self.hours * SECOND))


def punctuated(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    a = wm.stream(auctions, time="opened_at", window="12 hours", punctuation=wm.unique("item_id"))
    b = wm.stream(bids, time="bid_at", window="12 hours", punctuation=wm.when("closed", on="item_id"))
    return wm.join(a, b, on="item_id").df


def windows_alone(auctions: DataFrame, bids: DataFrame, waits: str = "12 hours") -> DataFrame:
    a = wm.stream(auctions, time="opened_at", window="12 hours")
    b = wm.stream(bids.where("NOT closed"), time="bid_at", window=waits)
    return wm.join(a, b, on="item_id").df


def bids_do_not_wait(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    return windows_alone(auctions, bids, "0 seconds")


def sparks_own(auctions: DataFrame, bids: DataFrame) -> DataFrame:
    a = auctions.withWatermark("opened_at", "0 seconds").alias("a")
    b = bids.where("NOT closed").withWatermark("bid_at", "0 seconds").alias("b")
    near = "bid_at BETWEEN opened_at - INTERVAL 12 HOURS AND opened_at + INTERVAL 12 HOURS"
    return a.join(b, F.expr(f"a.item_id = b.item_id AND {near}")).drop(F.col("b.item_id"))


@dataclass(frozen=True)
class Contender:
    name: str
    colour: str
    build: Callable[[DataFrame, DataFrame], DataFrame]


CONTENDERS = (
    Contender("Spark's own join", "#1e3a5f", sparks_own),
    Contender("windows alone", "#3b82c4", windows_alone),
    Contender("windows alone, bids do not wait", "#6b7280", bids_do_not_wait),
    Contender("with punctuations (PWJoin)", "#c2410c", punctuated),
)


@dataclass(frozen=True)
class Run:
    """Output of a contender, and its state after each batch: (hours, tuples, bytes)."""

    contender: Contender
    folder: Path
    state: list[tuple[float, int, int]]


def run(spark: SparkSession, house: House, contender: Contender, folder: Path, tick: Callable[[], None]) -> Run:
    """Run one contender over all batches, into Parquet files."""
    native = contender.build is sparks_own
    before = {name: spark.conf.get(name) for name in IN_MEMORY}
    for name, value in (IN_MEMORY if native else {}).items():
        spark.conf.set(name, value)
    try:
        auctions, bids = house.read(spark, "auctions", "opened_at"), house.read(spark, "bids", "bid_at")
        sink = contender.build(auctions, bids).writeStream.format("parquet").trigger(availableNow=True)
        query = sink.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "results"))
        while not query.awaitTermination(1):
            tick()
    finally:
        for name, value in before.items():
            spark.conf.set(name, str(value))
    return Run(contender, folder / "results", [_state(p) for p in query.recentProgress if p.numInputRows])


def _state(progress: Any) -> tuple[float, int, int]:
    hours = max(json.loads(source.endOffset)["micros"] for source in progress.sources) / SECOND
    counters = wm.counters(progress)
    if counters:
        return hours, counters["stored"], counters["state_bytes"]
    return hours, progress.stateOperators[0].numRowsTotal, progress.stateOperators[0].memoryUsedBytes


def check(house: House, runs: Sequence[Run], console: Console) -> int:
    """Compare bids per auction of every contender with DuckDB's; the number of auctions that differ."""
    with duckdb.connect() as database:
        for name in ("auctions", "bids"):
            database.register(name, house.table(name))
        near = f"abs(epoch_us(bid_at) - epoch_us(opened_at)) <= {12 * SECOND}"
        count = "SELECT item_id, count(*) AS bids, max(price) AS best"
        joined = f"auctions JOIN bids USING (item_id) WHERE NOT closed AND {near}"
        database.execute(f"CREATE TABLE batch AS {count} FROM {joined} GROUP BY 1")
        table = Table("item_id", "DuckDB", *(r.contender.name for r in runs), title="bids per auction, best first")
        top = database.execute("SELECT item_id, bids FROM batch ORDER BY bids DESC, item_id LIMIT 6").fetchall()
        columns, different = [], 0
        for r in runs:
            database.execute(f"CREATE OR REPLACE TABLE stream AS {count} FROM '{r.folder}/*.parquet' GROUP BY 1")
            found = dict(database.execute("SELECT item_id, bids FROM stream").fetchall())
            columns.append([found.get(item, 0) for item, _ in top])
            differ = (
                "SELECT count(DISTINCT item_id) FROM ((FROM {0} EXCEPT FROM {1}) UNION ALL (FROM {1} EXCEPT FROM {0}))"
            )
            different += database.execute(differ.format("stream", "batch")).fetchall()[0][0]
        for (item, bids), *others in zip(top, *columns, strict=True):
            table.add_row(*(f"{n:,}" for n in (item, bids, *others)))
        auctions, bids = database.execute("SELECT count(*), sum(bids) FROM batch").fetchall()[0]
    console.print(table)
    verdict = f"exact: {bids:,} bids on {auctions:,} auctions, the same by all" if not different else "NOT exact:"
    console.print(verdict + (f" {different:,} auctions differ" if different else ""))
    return different


def print_largest(runs: Sequence[Run], console: Console) -> None:
    """Print the largest state of every contender."""
    table = Table("", "tuples", "MB", title="state at its largest")
    for r in runs:
        table.add_row(r.contender.name, f"{max(s[1] for s in r.state):,}", f"{max(s[2] for s in r.state) / 1e6:.2f}")
    console.print(table)


def draw(runs: Sequence[Run], path: Path) -> None:
    """Tuples and bytes in state over the hours."""
    style = {"svg.hashsalt": "watersmeet", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    with rc_context(style):
        figure = Figure(figsize=(9, 3.6), layout="constrained")
        panels = figure.subplots(1, 2)
        for axes, field, title, unit in ((panels[0], 1, "tuples in state", 1), (panels[1], 2, "state, MB", 1e6)):
            for r in runs:
                hours, sizes = [s[0] for s in r.state], [s[field] / unit for s in r.state]
                axes.plot(hours, sizes, color=r.contender.colour, label=r.contender.name, linewidth=1.6)
            axes.set(yscale="log", xlabel="hours", xlim=(0, None))
            axes.yaxis.set_major_formatter("{x:,g}")
            axes.grid(axis="y", color="#e5e7eb", linewidth=0.6)
            axes.set_title(title, loc="left", fontweight="bold")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def show(spark: SparkSession, house: House, out: Path, console: Console) -> tuple[list[Run], int]:
    """Run all contenders, compare them with DuckDB, draw the state over time."""
    with tempfile.TemporaryDirectory() as folder, Progress(console=console, transient=True) as progress:
        bar, runs = progress.add_task("", total=len(CONTENDERS)), []
        for number, contender in enumerate(CONTENDERS):
            progress.update(bar, description=contender.name, completed=number)
            place = Path(folder) / str(number)
            runs.append(run(spark, house, contender, place, lambda: progress.advance(bar, 0.05)))
        progress.update(bar, completed=len(CONTENDERS))
        different = check(house, runs, console)
    print_largest(runs, console)
    draw(runs, out)
    console.print(f"The state over time is drawn in {out}.")
    return runs, different


@contextmanager
def _errors_to(log: int) -> Iterator[None]:
    """Redirect the standard error of processes that start here, Spark and its workers, to a file."""
    kept = os.dup(2)
    try:
        os.dup2(log, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def main() -> None:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--seconds", type=float, default=24, help="hours of auctions, a second of stream time each (24)"
    )
    parser.add_argument("--rate", type=float, default=4_000, help="auctions and bids per hour (4000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated rows (1)")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the picture, .svg or .png (%(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryFile() as log, _errors_to(log.fileno()):
        spark = wm.session(master="local[2]")
    try:
        house = House(options.seconds, options.rate, options.seed)
        _, different = show(spark, house, options.out, Console())
    finally:
        spark.stop()
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
