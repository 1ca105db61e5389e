"""Joins of all kinds, and their explanations; `python -m lab.spark.explanations` writes these to files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab import ROOT
from watersmeet.spark.explain.facts import Explanation

STORED = ROOT / "tests" / "golden" / "explain"
AUCTION = "item_id long, opened_at timestamp, seller string, reserve double"
BID = "item_id long, bid_at timestamp, price double, bidder string, closed boolean"
SENSOR = "epoch long, {0}_at timestamp, {0} double"


class House:
    """Streams that are never read."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder

    def empty(self, schema: str, *, static: bool = False) -> DataFrame:
        return (self.spark.read if static else self.spark.readStream).schema(schema).parquet(str(self.folder))

    def auctions(self, window: str | None = "12 hours", **more: Any) -> wm.Stream:
        return wm.stream(self.empty(AUCTION), time="opened_at", window=window, name="auction", **more)

    def bids(self, window: Any = "12 hours", **more: Any) -> wm.Stream:
        return wm.stream(self.empty(BID), time="bid_at", window=window, name="bid", **more)

    def sensor(self, name: str, window: str = "10 seconds", **more: Any) -> wm.Stream:
        return wm.stream(self.empty(SENSOR.format(name)), time=f"{name}_at", window=window, name=name, **more)

    def three(self, **options: Any) -> wm.Joined:
        return wm.join(self.sensor("a"), self.sensor("b", "1 minute"), self.sensor("c"), on="epoch", **options)


def windows_alone(h: House) -> Explanation:
    bids = h.bids("1 minute", delay="5 seconds", idle_after="10 minutes")
    return wm.join(h.auctions("1 minute"), bids, on="item_id").explain()


def punctuations(h: House) -> Explanation:
    auctions = h.auctions(punctuation=wm.unique("item_id"))
    bids = h.bids(delay="5 seconds", punctuation=wm.when("closed", on="item_id"))
    joined = wm.join(auctions, bids, on="item_id", how="left", where="price >= reserve")
    given = {"auction": {"rate": 10, "keys": 400_000}, "bid": {"rate": 200, "keys": 400_000, "closed_keys": 9.5}}
    return joined.explain(statistics=given)


def groups(h: House) -> Explanation:
    auctions = h.auctions(punctuation=wm.unique("item_id"))
    bids = h.bids(None, punctuation=wm.when("closed", on="item_id"))
    counted = wm.join(auctions, bids, on="item_id").group_by("item_id").agg(bids=wm.count(), best=wm.max("price"))
    return counted.explain()


def three_streams(h: House) -> Explanation:
    return h.three().explain()


def three_streams_with_figures(h: House) -> Explanation:
    return h.three().explain(statistics={"a": {"rate": 5000, "keys": 100}, "c": {"rate": 10, "keys": 50}})


def requested_by_name(h: House) -> Explanation:
    algorithm = wm.WindowedHashJoin(buckets=64)
    return wm.join(h.auctions("1 minute"), h.bids("1 minute"), on="item_id", algorithm=algorithm).explain()


def counted_rows(h: House) -> Explanation:
    return wm.join(h.auctions("1 minute"), h.bids(wm.rows(100)), on="item_id").explain()


def without_end(h: House) -> Explanation:
    return wm.join(h.auctions("1 minute"), h.bids(None), on="item_id", allow_unbounded=True).explain()


def hot_and_silent(h: House) -> Explanation:
    bids = {"rate": 3_000_000, "keys": 20, "hottest": 0.7}
    return wm.join(h.auctions("1 minute"), h.bids("1 minute"), on="item_id").explain(
        statistics={"auction": {"rate": 0}, "bid": bids}
    )


def different_attributes(h: House) -> Explanation:
    people = wm.stream(h.empty("who string, met_at timestamp"), time="met_at", window="1 hour", name="person")
    on = ["auction.item_id = bid.item_id", "bid.bidder = person.who"]
    return wm.join(h.auctions("1 hour"), h.bids("10 minutes"), people, on=on).explain()


def sql(h: House) -> Explanation:
    query = (
        "SELECT A.item_id, B.price FROM auction [RANGE 1 HOUR] A LEFT JOIN bid [RANGE 10 MINUTES] B "
        "ON A.item_id = B.item_id AND B.price > 2 WHERE A.reserve > 5"
    )
    return wm.sql(query, auction=h.auctions(), bid=h.bids()).explain()


def static(h: House) -> Explanation:
    a, b = (wm.stream(h.empty(SENSOR.format(n), static=True), time=f"{n}_at", window="5 seconds", name=n) for n in "ab")
    return wm.join(a, b, on="epoch").explain()


def instants(h: House) -> Explanation:
    """A window of 0 in the middle, a delay far above a window, windows of very different length."""
    streams = (h.sensor("a"), h.sensor("b", "0 seconds"), h.sensor("c", "1 day", delay="10 minutes"))
    return wm.join(*streams, on="epoch").explain()


def ages(h: House) -> Explanation:
    """Windows and delays that make every assumed figure absurd."""
    return wm.join(h.auctions("5200 weeks"), h.bids("5200 weeks"), on="item_id").explain()


CASES: tuple[Callable[[House], Explanation], ...] = (
    windows_alone,
    punctuations,
    groups,
    three_streams,
    three_streams_with_figures,
    requested_by_name,
    counted_rows,
    without_end,
    hot_and_silent,
    different_attributes,
    sql,
    static,
    instants,
    ages,
)


def texts(name: str, explained: Explanation) -> dict[str, str]:
    """The texts of a case, by the names of their files."""
    return {f"{name}.txt": f"{explained}\n", f"{name}.verbose.txt": f"{replace(explained, verbose=True)}\n"}


if __name__ == "__main__":
    import os
    from tempfile import TemporaryDirectory

    os.environ["WATERSMEET_CONSTANTS"] = ""
    STORED.mkdir(exist_ok=True)
    with TemporaryDirectory() as folder:
        house = House(wm.session(master="local[2]", shards=2), Path(folder))
        for case in CASES:
            for file, text in texts(case.__name__, case(house)).items():
                (STORED / file).write_text(text)
        house.spark.stop()
