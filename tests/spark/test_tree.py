"""A join of a join's output: punctuations and watermarks travel through the tree."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, run
from watersmeet.spark.runtime.spark_versions import joins_static
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
Row = tuple[int, int, int]  # key, seconds, number


class Three:
    """Streams a, b and c; a and b close their keys as they go, c closes nothing."""

    def __init__(self, spark: SparkSession, folder: Path, chance: Random) -> None:
        self.rows: dict[str, list[Row]] = {"a": [], "b": [], "c": []}
        self.feeds = {
            n: Feed(spark, folder / n, f"k long, {n}_ts timestamp, {n}_n long, {n}_done boolean") for n in "abc"
        }
        for batch in range(4):
            for n in "abc":
                self._add(n, batch, chance)

    def _add(self, n: str, batch: int, chance: Random) -> None:
        number = len(self.rows[n])
        rows = [
            (chance.randint(3 * batch, 3 * batch + 8), 60 * batch + chance.randint(0, 59), number + i)
            for i in range(20)
        ]
        self.rows[n] += rows
        closed = [(k, 60 * batch + 59, -1) for k in range(3 * batch - 3, 3 * batch)] if n != "c" else []
        self.feeds[n].add_rows([(k, t * SECOND, i, i < 0) for k, t, i in rows + closed])

    def stream(self, n: str, *, static: bool, window: str) -> Stream:
        df = self.feeds[n].static() if static else self.feeds[n].stream()
        closing = wm.when(f"{n}_done", on="k") if n != "c" else None
        return wm.stream(df, time=f"{n}_ts", window=window, punctuation=closing, name=n)

    def tree(self, *, static: bool) -> wm.Joined:
        a, b = (self.stream(n, static=static, window="90 seconds") for n in "ab")
        both = wm.join(a, b, on="k").as_stream("ab", window="60 seconds")
        return wm.join(both, self.stream("c", static=static, window="60 seconds"), on="k")

    def expected(self) -> Counter[tuple[int, int, int]]:
        """(a, b) within 90 s of each other, and c within 60 s of the later of them."""
        return Counter(
            (i, j, m)
            for k, s, i in self.rows["a"]
            for k2, t, j in self.rows["b"]
            if k == k2 and abs(s - t) <= 90
            for k3, u, m in self.rows["c"]
            if k3 == k and abs(max(s, t) - u) <= 60
        )


def numbers(rows: list[dict[str, Any]]) -> Counter[tuple[int, int, int]]:
    return Counter((r["a_n"], r["b_n"], r["c_n"]) for r in rows)


def test_a_tree_of_joins_is_exact_and_evicts_what_its_inputs_close(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, Random(5))
    want = three.expected()
    assert len(want) > 500
    if joins_static(spark):
        assert numbers(three.tree(static=True).df.toArrow().to_pylist()) == want
    output = run(three.tree(static=False).tagged, tmp_path / "checkpoint")
    rows = output.table.to_pylist()
    assert numbers([r for r in rows if r["kind"] == "result"]) == want
    assert Counter(r["kind"] for r in rows).keys() == {"result", "punctuation"}
    assert sum(m["purged"] for m in output.metrics) > 0, "punctuations of a and b reach the rows of c"
    propagated = [r["row"] for r in rows if r["kind"] == "punctuation" and "key" in r["row"]]
    assert len(propagated) == len(set(propagated))


def test_late_rows_and_violations_of_inner_operators_are_reported(spark: SparkSession, tmp_path: Path) -> None:
    """a meets b on x, what they give meets c on y: a and b are streams of the inner operator. Over a restart."""
    columns = {"a": "x long", "b": "x long, y long", "c": "y long"}
    feeds = {n: Feed(spark, tmp_path / n, f"{keys}, {n}_ts timestamp, {n}_n long") for n, keys in columns.items()}
    closing = {"a": wm.when("a_n < 0", on="x")}
    rows = {
        "a": ([(1, 100 * SECOND, 0), (2, 100 * SECOND, -1)], [(1, 10 * SECOND, 1), (2, 101 * SECOND, 2)]),
        "b": ([(1, 7, 100 * SECOND, 0)], [(1, 7, 10 * SECOND, 1)]),
        "c": ([(7, 100 * SECOND, 0)], [(7, 10 * SECOND, 1)]),
    }
    found: list[dict[str, Any]] = []
    for batch in (0, 1):
        for n, feed in feeds.items():
            feed.add_rows(rows[n][batch])
        streams = (
            wm.stream(f.stream(), time=f"{n}_ts", window="20 seconds", punctuation=closing.get(n), name=n)
            for n, f in feeds.items()
        )
        joined = wm.join(*streams, on=["a.x = b.x", "b.y = c.y"])
        found += run(joined.tagged, tmp_path / "checkpoint").table.to_pylist()
    assert [(r["a_n"], r["b_n"], r["c_n"]) for r in found if r["kind"] == "result"] == [(0, 0, 0)]
    events = [(r["kind"], r["stream"], json.loads(r["row"])[f"{r['stream']}_n"]) for r in found if r["stream"]]
    assert sorted(events) == [("late", "a", 1), ("late", "b", 1), ("late", "c", 1), ("violation", "a", 2)]


def test_the_added_column_must_not_clash(spark: SparkSession, tmp_path: Path) -> None:
    feeds = [Feed(spark, tmp_path / n, f"k long, {n} timestamp") for n in ("event_time", "b")]
    a, b = (
        wm.stream(f.static(), time=n, window="1 second", name=n)
        for f, n in zip(feeds, ("event_time", "b"), strict=True)
    )
    with pytest.raises(wm.WatersmeetError, match="`as_stream` adds the column `event_time`, and the results have one"):
        wm.join(a, b, on="k").as_stream()
