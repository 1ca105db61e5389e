"""A query whose sources are silent, so that its rows come by the clock, in a driver that can kill itself.

    python -m lab.spark.silent_driver KIND FOLDER [--kill]

Stream a has rows from now on, further and further apart, b has one row and follows the clock. With `--kill` the process
ends by SIGKILL, with its JVM, when the first batch with rows is in the sink and not committed. Otherwise it runs until
two batches have had rows. Each batch with rows is a line of `FOLDER/batches.jsonl`: its number and its values of x.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab.processes import family, kill
from lab.spark.feeds import Feed

ROWS = 48  # of stream a, over an hour: however slow the machine is, some are due and others are not
KINDS = ("unmatched", "groups", "as-of")


def feeds(spark: SparkSession, folder: Path) -> tuple[Feed, Feed]:
    """The two streams, written by the first process."""
    written, now = (folder / "a").exists(), datetime.now(UTC)
    a = Feed(spark, folder / "a", "k bigint, at timestamp, x bigint")
    b = Feed(spark, folder / "b", "k bigint, bt timestamp, y bigint")
    if not written:
        a.add_rows([(1, now + timedelta(seconds=n + 2 ** (n / 4)), n) for n in range(ROWS)])
        b.add_rows([(1, now, 0)])
    return a, b


def query(kind: str, a: Feed, b: Feed) -> Any:
    """What comes out by the clock: rows without a partner, groups of pairs and of such rows, or answers."""
    if kind == "as-of":
        left, right = a.stream(), b.stream()
        versions = wm.stream(right, time="bt", name="b", idle_clock="1 second")
        return wm.join_asof(wm.stream(left, time="at", name="a"), versions, on="k", shards=2)
    other = b.stream() if kind == "groups" else b.stream().selectExpr("k + 1 AS k", "bt", "y")
    left = wm.stream(a.stream(), time="at", window="1 second", name="a")
    right = wm.stream(other, time="bt", window="1 second", name="b", idle_clock="1 second")
    joined = wm.join(left, right, on="k", how="left", shards=2)
    if kind == "unmatched":
        return joined
    return joined.group_by("k", wm.bucket("at", "1 second")).agg(x=wm.max("x"), n=wm.count())


class Sink:
    """Writes each batch with rows as a line; dies after the first one, or tells when two are there."""

    def __init__(self, lines: Path, *, dies: bool) -> None:
        self.lines, self.dies, self.batches, self.enough = lines, dies, 0, threading.Event()

    def __call__(self, df: DataFrame, number: int) -> None:
        found = sorted(row["x"] for row in df.collect())
        if not found:
            return
        with self.lines.open("a") as out:
            out.write(json.dumps([number, found]) + "\n")
        self.batches += 1
        if self.dies:
            kill(*reversed(family(os.getpid())))
        if self.batches == 2:
            self.enough.set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kill", action="store_true")
    given = parser.parse_args()
    spark = wm.session(master="local[2]", shards=2)
    sink = Sink(given.folder / "batches.jsonl", dies=given.kill)
    made = query(given.kind, *feeds(spark, given.folder))
    running = wm.write(made, checkpoint=given.folder / "checkpoint", results=sink, trigger="0 seconds")
    while not sink.enough.wait(1):
        if not running.isActive:
            running.awaitTermination()  # raises what ended it
    running.stop()
    spark.stop()


if __name__ == "__main__":
    main()
