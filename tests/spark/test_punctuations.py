"""Punctuations through Spark: all sources at once, every kind of join, restarts between all batches, against DuckDB."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, failure, run
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
BATCHES = 4
A = "k long, a_ts timestamp, a_n long, through array<long>, beat boolean, over boolean"
B = "k long, b_ts timestamp, b_n long, over boolean"
PUNCTUATION_ROWS = "high long, b_ts timestamp"
SQL = {
    "inner": "SELECT a.k, a_n, b_n FROM a JOIN b ON {on}",
    "left": "SELECT a.k, a_n, b_n FROM a LEFT JOIN b ON {on}",
    "right": "SELECT b.k, a_n, b_n FROM a RIGHT JOIN b ON {on}",
    "full": "SELECT coalesce(a.k, b.k), a_n, b_n FROM a FULL JOIN b ON {on}",
    "semi": "SELECT a.k, a_n FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {on})",
    "anti": "SELECT a.k, a_n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {on})",
}
ON = "a.k = b.k AND abs(a.a_ts - b.b_ts) <= 40"


class Punctuated:
    """Two streams whose keys move on. a closes lists of keys among its rows, b ranges in a DataFrame of their own;
    a beats, both end with the last batch. What they say is true."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.a, self.b = Feed(spark, folder / "a", A), Feed(spark, folder / "b", B)
        self.punctuation_rows = Feed(spark, folder / "punctuations", PUNCTUATION_ROWS)
        self.rows: dict[str, list[tuple[int | None, int, int]]] = {"a": [], "b": []}
        self.chance = Random(11)

    def add(self, batch: int) -> None:
        low, last = 4 * batch, batch == BATCHES - 1
        for n in "ab":
            rows = [(self._key(low), 30 * batch + self.chance.randint(0, 29), len(self.rows[n]) + i) for i in range(25)]
            self.rows[n] += rows
            (self._add_a if n == "a" else self._add_b)(rows, low, 30 * batch + 29, last)
        self.punctuation_rows.add_rows([(low - 1, (30 * batch + 29) * SECOND)])

    def _key(self, low: int) -> int | None:
        return None if self.chance.random() < 0.1 else self.chance.randint(low, low + 6)

    def _add_a(self, rows: list[tuple[int | None, int, int]], low: int, time: int, last: bool) -> None:
        more = [(None, time, -1, list(range(low - 4, low)), False, False), (None, time, -2, None, True, False)]
        more += [(None, time, -3, None, False, True)] if last else []
        table = [(k, t, i, None, False, False) for k, t, i in rows] + more
        self.a.add_rows([(k, t * SECOND, *rest) for k, t, *rest in table])

    def _add_b(self, rows: list[tuple[int | None, int, int]], low: int, time: int, last: bool) -> None:
        table = [(k, t, i, False) for k, t, i in rows] + ([(None, time, -3, True)] if last else [])
        self.b.add_rows([(k, t * SECOND, *rest) for k, t, *rest in table])

    def join(self, how: str, *, static: bool = False) -> wm.Joined:
        read = Feed.static if static else Feed.stream
        punctuations = [
            wm.when("through IS NOT NULL", values="through"),
            wm.heartbeat("beat"),
            wm.end("over"),
        ]
        a = wm.stream(read(self.a), time="a_ts", window="40 seconds", punctuation=punctuations, name="a")
        ranges = wm.when("high IS NOT NULL", high="high", df=read(self.punctuation_rows))
        rows = read(self.b).withColumnRenamed("over", "b_over")
        b = wm.stream(rows, time="b_ts", window="40 seconds", punctuation=[ranges, wm.end("b_over")], name="b")
        return wm.join(a, b, on="k", how=how)

    def expected(self, how: str) -> Counter[tuple[Any, ...]]:
        with duckdb.connect(config={"threads": 1}) as database:
            for n, rows in self.rows.items():
                names = ["k", f"{n}_ts", f"{n}_n"]
                database.register(
                    n, pa.table([pa.array([r[c] for r in rows], pa.int64()) for c in range(3)], names=names)
                )
            return Counter(database.execute(SQL[how].format(on=ON)).fetchall())


def numbers(rows: list[dict[str, Any]], how: str) -> Counter[tuple[Any, ...]]:
    names = ("k", "a_n") if how in ("semi", "anti") else ("k", "a_n", "b_n")
    return Counter(tuple(r[n] for n in names) for r in rows)


@pytest.fixture(scope="module")
def streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Punctuated:
    made = Punctuated(spark, tmp_path_factory.mktemp("punctuated"))
    for batch in range(BATCHES):
        made.add(batch)
    return made


@pytest.mark.parametrize("how", SQL)
def test_static_streams_give_what_sql_gives(streams: Punctuated, how: str) -> None:
    found = streams.join(how, static=True).df.toArrow().to_pylist()
    assert numbers(found, how) == streams.expected(how)


@pytest.mark.parametrize("how", ["full", "semi"])
def test_restarts_between_all_batches_change_nothing(spark: SparkSession, tmp_path: Path, how: str) -> None:
    streams, rows, stored = Punctuated(spark, tmp_path), [], []
    for batch in range(BATCHES):
        streams.add(batch)
        output = run(streams.join(how).tagged, tmp_path / "checkpoint")
        rows += output.table.to_pylist()
        stored.append(output.metrics[-1]["stored"])
        assert output.metrics[-1]["late"] == output.metrics[-1]["violations"] == 0
    assert numbers([r for r in rows if r["kind"] == "result"], how) == streams.expected(how)
    assert all(stored[:-1])
    assert stored[-1] == 0, "both streams have ended"
    punctuations = [r["row"] for r in rows if r["kind"] == "punctuation"]
    assert any('"range"' in s or '"key"' in s for s in punctuations)
    assert any('"heartbeat"' in s for s in punctuations)


def test_a_lie_is_set_apart_or_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(spark, tmp_path / "a", "k long, a_ts timestamp, over boolean")
    other = Feed(spark, tmp_path / "b", "k long, b_ts timestamp")
    for k, over in ((7, True), (7, False)):
        feed.add_rows([(k, 5 * SECOND if over else 6 * SECOND, over)])
        other.add_rows([(7, 5 * SECOND)])

    def streams() -> tuple[Stream, Stream]:
        a = wm.stream(feed.stream(), time="a_ts", window="1 hour", punctuation=wm.when("over", on="k"), name="a")
        return a, wm.stream(other.stream(), time="b_ts", window="1 hour", name="b")

    rows = run(wm.join(*streams(), on="k").tagged, tmp_path / "drop").table.to_pylist()
    contradicted = [r for r in rows if r["kind"] == "violation"]
    assert [(r["stream"], '"k":7' in r["row"].replace(" ", "")) for r in contradicted] == [("a", True)]
    assert not [r for r in rows if r["kind"] == "result"]
    strict = wm.join(*streams(), on="k", on_violation="error")
    text = failure(lambda: run(strict.tagged, tmp_path / "error"))
    assert "stream `a` brought a tuple with k = 7 at 1970-01-01 00:00:06" in text
    assert "against a punctuation (at 1970-01-01 00:00:05+00:00) by which no more of these would come" in text


def test_silence_and_ends_that_are_missing(spark: SparkSession, tmp_path: Path) -> None:
    """b falls silent and stops holding a back; a range of a's without an end closes nothing and is reported."""
    a = Feed(spark, tmp_path / "a", "k long, a_ts timestamp, low long, high long")
    b = Feed(spark, tmp_path / "b", "k long, b_ts timestamp")
    for n in range(4):
        at = 100 * n * SECOND
        a.add_rows([(n, at, None, None), (None, at, 50, None if n == 1 else 60)])
        b.add_rows([(n, at)] if n in (0, 3) else [])
    closing = wm.when("low IS NOT NULL", low="low", high="high")
    first = wm.stream(a.stream(), time="a_ts", window="5 seconds", punctuation=closing, name="a")
    second = wm.stream(b.stream(), time="b_ts", window="1 minute", idle_after="90 seconds", order_by="k", name="b")
    joined = wm.join(first, second, on="k", how="left")
    assert "idle: while it has no rows and a advances by more than 90 seconds" in str(joined.explain())
    output = run(joined.tagged, tmp_path / "checkpoint")
    assert [m["idle"] for m in output.metrics] == [0, 1, 1, 0]
    assert [m["violations"] for m in output.metrics] == [0, 1, 0, 0]
    results = [sorted(r["k"] for r in t.to_pylist() if r["kind"] == "result") for t in output.tables]
    assert results == [[0], [], [1], [2, 3]], "b is taken to be at 110 when a is at 200"
    (wrong,) = [r for t in output.tables for r in t.to_pylist() if r["kind"] == "violation"]
    assert wrong["stream"] == "a"
    assert '"low":50,"high":null' in wrong["row"].replace(" ", "")
