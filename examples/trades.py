"""Trades with the quotes in force: an as-of join of two streams that come out of order.

A market sends quotes (bid and ask of a symbol) and trades. Both travel by different ways: quotes come up to five
seconds behind, trades up to two. Each trade is to be compared with the last quote before it:

    wm.join_asof(trades, quotes, on="symbol", tolerance="1 minute")

A trade comes out as soon as the quotes have passed it. Of the quotes one per symbol stays, and those newer than the
trades. `watersmeet.testing.check` runs it with a restart after every batch and compares it with the same call on all
rows at once; the result is compared with that of DuckDB's ASOF JOIN, too.
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

import watersmeet as wm
from watersmeet import testing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SYMBOLS = 50
SECOND = 1_000_000
BATCH = 30  # seconds
#: Rows a second, and seconds that a row may travel, of each stream.
STREAMS = {"quotes": (40, 5.0), "trades": (10, 2.0)}
TOLERANCE = 60  # seconds
SCHEMAS = {
    "quotes": "symbol string, quoted_at timestamp, bid double, ask double",
    "trades": "symbol string, traded_at timestamp, trade long",
}


@dataclass(frozen=True)
class Market:
    """One run: its length in seconds, and its seed."""

    seconds: int
    seed: int

    def batches(self, stream: str) -> list[pa.Table]:
        """Rows of a stream as they arrive, by batch."""
        rate, travel = STREAMS[stream]
        chance = np.random.default_rng([self.seed, len(stream), rate])
        count = self.seconds * rate
        at = np.sort(chance.integers(0, self.seconds * SECOND, count))
        arrives = at + chance.integers(0, int(travel * SECOND), count)
        symbols = chance.zipf(1.3, count) % SYMBOLS
        price = 100 + np.cumsum(chance.normal(0, 0.01, count))
        columns: dict[str, Any] = {"symbol": [f"S{s:02d}" for s in symbols.tolist()]}
        if stream == "quotes":
            columns |= {"quoted_at": pa.array(at, pa.timestamp("us", "UTC")), "bid": price, "ask": price + 0.02}
        else:
            columns |= {"traded_at": pa.array(at, pa.timestamp("us", "UTC")), "trade": np.arange(count)}
        order = np.argsort(arrives, kind="stable")
        rows = pa.table(columns).take(pa.array(order))
        edges = np.searchsorted(arrives[order], np.arange(0, (self.seconds + 5) * SECOND, BATCH * SECOND)).tolist()
        return [rows.slice(a, b - a) for a, b in zip(edges, [*edges[1:], count], strict=True)]


def feeds(spark: SparkSession, market: Market, folder: Path) -> dict[str, testing.Feed]:
    """Both streams as files, one for each batch."""
    made = {stream: testing.Feed(spark, folder / stream, schema) for stream, schema in SCHEMAS.items()}
    for stream, feed in made.items():
        for table in market.batches(stream):
            feed.add(table)
    return made


def priced(trade_df: DataFrame, quote_df: DataFrame) -> wm.Joined:
    trades = wm.stream(trade_df, time="traded_at", delay="2 seconds", name="trades")
    quotes = wm.stream(quote_df, time="quoted_at", delay="5 seconds", name="quotes")
    return wm.join_asof(trades, quotes, on="symbol", tolerance=f"{TOLERANCE} seconds")


def found_by_duckdb(folder: Path) -> dict[int, float | None]:
    """The bid of each trade, by a batch query."""
    with duckdb.connect() as database:
        rows = database.execute(
            f"SELECT trade, CASE WHEN traded_at - quoted_at <= INTERVAL {TOLERANCE} SECONDS THEN bid END "
            f"FROM '{folder}/trades/*.parquet' t ASOF LEFT JOIN '{folder}/quotes/*.parquet' q "
            "ON t.symbol = q.symbol AND t.traded_at >= q.quoted_at"
        ).fetchall()
    return dict(rows)


def show(spark: SparkSession, market: Market) -> tuple[dict[int, float | None], dict[int, float | None], int]:
    """Bids of trades by the join and by DuckDB, and how many rows are in the state at the end."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        streams = feeds(spark, market, folder)
        checked = testing.check(priced, streams["trades"], streams["quotes"])
        found = {row["trade"]: row["bid"] for row in checked.results}
        return found, found_by_duckdb(folder), sum(map(len, checked.state.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=600, help="length of the market, default 600")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    spark = wm.session(master="local[2]")
    found, whole, stored = show(spark, Market(given.seconds, given.seed))
    same = sum(found[trade] == whole[trade] for trade in found)
    priced = sum(bid is not None for bid in found.values())
    print(f"{len(found):,} of {len(whole):,} trades are final, {priced:,} have a quote; {same:,} as by DuckDB")
    print(
        f"rows in: {given.seconds * sum(rate for rate, _ in STREAMS.values()):,}; in the state at the end: {stored:,}"
    )
    spark.stop()


if __name__ == "__main__":
    main()
