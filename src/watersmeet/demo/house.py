"""What the demo joins: an auction house, the query a user would write, and how to count its results without us."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import watersmeet as wm
from watersmeet.demo.measuring import Run
from watersmeet.spark.source import register
from watersmeet.workload import SECOND, AuctionHouse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

WINDOW = 10  # seconds for which either side waits for the other
DELAY = 2  # seconds by which a bid may come late
BATCH = 2  # seconds of stream time in a batch, at most

CODE = f"""\
auctions = wm.stream(auction_df, time="opened_at", window="{WINDOW} seconds", punctuation=wm.unique("item_id"))
bids = wm.stream(bid_df, time="bid_at", window="{WINDOW} seconds", delay="{DELAY} seconds",
                 punctuation=wm.when("closed", on="item_id"))
wm.join(auctions, bids, on="item_id").df.writeStream.start(...)
"""


@dataclass(frozen=True)
class Demo:
    """One run: how long, how much, which day."""

    seconds: int
    rate: int
    seed: int

    @property
    def house(self) -> AuctionHouse:
        """NEXMark's 3 auctions to 46 bids; an auction runs for 4 s, and one end marker in twenty is lost."""
        duration = 4.0
        in_flight = round(self.rate * 3 / 49 * duration)
        return AuctionHouse(self.rate, self.seed, in_flight, duration, delay=DELAY, lost=0.05)

    @property
    def window_tuples(self) -> int:
        """Rows that lie in the two windows at any time: what a join holds that forgets by windows alone."""
        return self.rate * WINDOW

    def start(self, spark: SparkSession, folder: Path) -> StreamingQuery:
        """Start the join as a streaming query into Parquet files."""
        register(spark)
        auctions = wm.stream(
            self._read(spark, "auctions"),
            time="opened_at",
            window=f"{WINDOW} seconds",
            punctuation=wm.unique("item_id"),
            name="auctions",
        )
        bids = wm.stream(
            self._read(spark, "bids"),
            time="bid_at",
            window=f"{WINDOW} seconds",
            delay=f"{DELAY} seconds",
            punctuation=wm.when("closed", on="item_id"),
            name="bids",
        )
        joined = wm.join(auctions, bids, on="item_id")
        sink = joined.df.writeStream.format("parquet").option("checkpointLocation", str(folder / "checkpoint"))
        return sink.start(str(folder / "results"))

    def results(self, spark: SparkSession, folder: Path) -> pa.Table:
        """What the query wrote."""
        return spark.read.parquet(str(folder / "results")).toArrow()

    def finished(self, run: Run) -> bool:
        """Whether both streams have been read to their end."""
        return bool(run.batches) and min(run.batches[-1].stream_time) >= self.seconds * SECOND

    def _read(self, spark: SparkSession, workload: str) -> DataFrame:
        source = spark.readStream.format("watersmeet").options(**asdict(self.house))
        return source.options(workload=workload, seconds=self.seconds, batch_seconds=BATCH).load()
