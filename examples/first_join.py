"""The example of the README: bids within ten seconds of their auction's opening, from two folders of CSV files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import watersmeet as wm

AUCTIONS = """item_id,opened_at,title
1,2026-05-01T10:00:00,teapot
2,2026-05-01T10:00:04,atlas
"""
BIDS = """item_id,bid_at,price
1,2026-05-01T10:00:03,12.50
2,2026-05-01T10:00:05,30.00
1,2026-05-01T10:00:09,14.00
1,2026-05-01T10:00:20,99.00
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("auctions", AUCTIONS), ("bids", BIDS)):
            (Path(folder) / name).mkdir()
            (Path(folder) / name / "1.csv").write_text(text)
        spark = wm.session(master="local[2]")
        read = spark.readStream.option("header", True)
        auctions = wm.stream(
            read.schema("item_id long, opened_at timestamp, title string").csv(f"{folder}/auctions"),
            time="opened_at",
            window="10 seconds",
        )
        bids = wm.stream(
            read.schema("item_id long, bid_at timestamp, price double").csv(f"{folder}/bids"),
            time="bid_at",
            window="10 seconds",
            delay="5 seconds",
        )
        joined = wm.join(auctions, bids, on="item_id")
        query = joined.df.writeStream.format("memory").queryName("joined").trigger(availableNow=True).start()
        query.awaitTermination()
        spark.table("joined").orderBy("item_id", "bid_at").show()
        spark.stop()


if __name__ == "__main__":
    main()
