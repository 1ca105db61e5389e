"""The join of the demo: an auction house, and the query that a user would write."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import watersmeet as wm
from watersmeet.demo.batch_history import Run
from watersmeet.workload import SECOND, AuctionHouse

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

WINDOW = 10  # seconds: auctions and bids match within this distance in time
DELAY = 2  # seconds by which a bid may come late
BATCH = 2  # seconds of stream time in a batch

CODE = f"""\
auctions = wm.stream(auction_df, time="opened_at", window="{WINDOW} seconds")
bids = wm.stream(bid_df, time="bid_at", window="{WINDOW} seconds", delay="{DELAY} seconds")
wm.join(auctions, bids, on="item_id").df.writeStream.start(...)"""


@dataclass(frozen=True)
class Demo:
    """One run: seconds of stream time, rows per second, seed."""

    seconds: int
    rate: int
    seed: int

    @property
    def house(self) -> AuctionHouse:
        """NEXMark's 3 auctions to 46 bids; auctions run for 4 to 12 s, so that some bids fall outside the window."""
        duration = 8.0
        in_flight = round(self.rate * 3 / 49 * duration)
        return AuctionHouse(self.rate, self.seed, in_flight, duration, delay=DELAY)

    def joined(self, spark: SparkSession) -> wm.Joined:
        """The join, not yet running."""
        window, delay = f"{WINDOW} seconds", f"{DELAY} seconds"
        auction_df, bid_df = self._read(spark, "auctions"), self._read(spark, "bids").where("NOT closed")
        auctions = wm.stream(auction_df, time="opened_at", window=window, name="auctions")
        bids = wm.stream(bid_df, time="bid_at", window=window, delay=delay, name="bids")
        return wm.join(auctions, bids, on="item_id")

    def start(self, joined: wm.Joined, folder: Path) -> StreamingQuery:
        """Start the join as a streaming query into Parquet files."""
        sink = joined.df.writeStream.format("parquet").queryName("demo")
        return sink.option("checkpointLocation", str(folder / "checkpoint")).start(str(folder / "results"))

    def results(self, spark: SparkSession, folder: Path) -> pa.Table:
        """The rows that the query wrote."""
        return spark.read.parquet(str(folder / "results")).toArrow()

    def finished(self, run: Run) -> bool:
        """Whether both streams have been read to their end."""
        return bool(run.batches) and min(run.batches[-1].stream_time) >= self.seconds * SECOND

    def _read(self, spark: SparkSession, workload: str) -> DataFrame:
        source = spark.readStream.format("watersmeet").options(**asdict(self.house))
        return source.options(workload=workload, seconds=self.seconds, batch_seconds=BATCH).load()
