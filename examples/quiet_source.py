"""A source that goes quiet: orders without a payment are reported although nothing more arrives.

Orders and payments come from shops, with the time of the clock. After closing time nothing comes any more, and a
watermark that follows rows alone would stand still: the last unpaid orders would wait for the next morning. With
`idle_clock` the watermark of a silent stream follows the clock, so they come out the same evening. Here the evening is
a few seconds long.
"""

from __future__ import annotations

import tempfile
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame

import watersmeet as wm
from watersmeet import testing


def main() -> list[int]:
    """Run the example; returns the unpaid orders."""
    spark = wm.session(shards=2)
    now = datetime.now(UTC)
    ordered = [(n, now - timedelta(seconds=n)) for n in range(4)]
    paid = [(n, now) for n in (1, 3)]
    unpaid: list[int] = []
    complete = threading.Event()

    def report(batch: DataFrame, number: int) -> None:
        found: list[Any] = batch.where("paid_at IS NULL").select("id").collect()
        unpaid.extend(row.id for row in found)
        if found:
            print(f"batch {number}: unpaid orders {sorted(row.id for row in found)}")
        if len(unpaid) == 2:
            complete.set()

    with tempfile.TemporaryDirectory() as folder:
        orders = testing.feed(spark, "id long, ordered_at timestamp", [ordered], f"{folder}/orders")
        payments = testing.feed(spark, "id long, paid_at timestamp", [paid], f"{folder}/payments")

        def live(name: str, feed: testing.Feed, time: str) -> wm.Stream:
            return wm.stream(feed.stream(), time=time, window="3 seconds", idle_clock="2 seconds", name=name)

        joined = wm.join(
            live("orders", orders, "ordered_at"), live("payments", payments, "paid_at"), on="id", how="left"
        )
        query = wm.write(joined, checkpoint=f"{folder}/checkpoint", results=report, trigger="1 second")
        complete.wait(timeout=300)
        query.stop()
    return sorted(unpaid)


if __name__ == "__main__":
    main()
