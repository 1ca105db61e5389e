"""Offers and requests for electricity that are near in price, as they come: a join without equality.

Producers offer power at a price, consumers ask for some at theirs. An offer and a request can be matched while both are
open, ten seconds, if the prices differ by two at most and the offer has enough power:

    wm.join(requests, offers, where="abs(bid - price) <= 2 AND power >= demand", how="left")

No column is equal in both. Sorted indexes on the two prices find the few offers in the band of a request; the rest of
the condition filters those. Requests without any offer come out when they expire. The market closes its price levels
from below: "no more offers below 30" purges the requests that could match nothing else. The result is compared with
that of a batch query in DuckDB.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet import testing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCH = 10  # seconds
OPEN = 10  # seconds that an offer or a request is open
BAND = "abs(bid - price) <= 2 AND power >= demand"
REQUESTS = "requested_at timestamp, request long, bid double, demand double"
OFFERS = "offered_at timestamp, offer long, price double, power double, level double"


@dataclass(frozen=True)
class Market:
    """One run: rows of each stream a second, seconds, and a seed. Prices rise by one every second."""

    rate: int = 20
    seconds: int = 60
    seed: int = 1

    def batch(self, n: int) -> tuple[pa.Table, pa.Table]:
        """The requests and offers of ten seconds. Once a second a row of offers with a `level` closes all below it."""
        chance, count = np.random.default_rng([self.seed, n]), self.rate * BATCH
        tables = []
        for names in (("requested_at", "request", "bid", "demand"), ("offered_at", "offer", "price", "power")):
            at = np.sort(chance.uniform(n * BATCH, (n + 1) * BATCH, count))
            prices = at + chance.uniform(5, 40, count)
            columns = [_times(at), np.arange(n * count, (n + 1) * count), prices, chance.uniform(1, 10, count)]
            tables.append(pa.table(dict(zip(names, columns, strict=True))))
        requests, offers = tables
        levels = np.arange(n * BATCH, (n + 1) * BATCH, dtype=float)
        nothing = pa.nulls(levels.size)
        closed = pa.table([_times(levels), nothing, nothing, nothing, levels], names=[*offers.column_names, "level"])
        offers = offers.append_column("level", pa.nulls(count, pa.float64()))
        return requests, pa.concat_tables([offers, closed.cast(offers.schema)]).sort_by("offered_at")

    def feeds(self, spark: SparkSession, folder: Path) -> tuple[testing.Feed, testing.Feed]:
        """Both streams as files, one for each batch."""
        requests, offers = (
            testing.Feed(spark, folder / "requests", REQUESTS),
            testing.Feed(spark, folder / "offers", OFFERS),
        )
        for n in range(self.seconds // BATCH):
            for feed, table in zip((requests, offers), self.batch(n), strict=True):
                feed.add(table)
        return requests, offers


def _times(seconds: Any) -> pa.Array:
    return pa.array((seconds * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))


def joined(request_df: DataFrame, offer_df: DataFrame) -> wm.Joined:
    """Requests with the offers near them."""
    requests = wm.stream(request_df, time="requested_at", window=f"{OPEN} seconds", name="requests")
    offers = wm.stream(
        offer_df,
        time="offered_at",
        window=f"{OPEN} seconds",
        name="offers",
        punctuation=wm.when("level IS NOT NULL", high="level", closed="neither", on="price"),
    )
    return wm.join(requests, offers, where=BAND, how="left")


def batch_answer(folder: Path) -> list[tuple[int, int | None]]:
    """Pairs of requests and offers, by DuckDB; None where a request has no offer."""
    near = f"{BAND} AND abs(epoch_us(requested_at) - epoch_us(offered_at)) <= {OPEN * 1_000_000}"
    offers = f"(SELECT * FROM '{folder}/offers/*.parquet' WHERE level IS NULL)"
    with duckdb.connect() as database:
        return database.execute(
            f"SELECT request, offer FROM '{folder}/requests/*.parquet' LEFT JOIN {offers} ON {near} ORDER BY ALL"
        ).fetchall()


def show(spark: SparkSession, market: Market, console: Console) -> tuple[set[Any], set[Any]]:
    """Run the join, print its state by batch; its results, and those that DuckDB finds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        requests, offers = market.feeds(spark, folder)
        whole = set(batch_answer(folder))
        output = testing.run(joined(requests.stream(), offers.stream()).df, folder / "checkpoint")
    found: set[Any] = {(row["request"], row["offer"]) for row in output.table.to_pylist()}
    table = Table("seconds", "rows", "results", "rows in state", "purged", "expired", title="state by batch")
    for n, counters in enumerate(output.metrics):
        names = ("rows_in", "results", "stored", "purged", "expired")
        table.add_row(str((n + 1) * BATCH), *(str(counters[name]) for name in names))
    console.print(table)
    pairs = {pair for pair in whole if pair[1] is not None}
    console.print(f"{len(found & pairs):,} of the {len(pairs):,} pairs that DuckDB finds; ", end="")
    console.print(f"{len({r for r, o in found if o is None})} requests without an offer so far")
    return found, whole


def main() -> None:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=int, default=60, help="length of the streams (60)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated prices (1)")
    options = parser.parse_args()
    spark = wm.session(master="local[2]")
    try:
        found, whole = show(spark, Market(seconds=options.seconds, seed=options.seed), Console())
    finally:
        spark.stop()
    raise SystemExit(0 if found <= whole else 1)


if __name__ == "__main__":
    main()
