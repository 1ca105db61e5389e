"""Joins without equality on Spark: restarts, copies that count once, static DataFrames, SQL, refusals."""

from __future__ import annotations

import io
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from rich.console import Console

import watersmeet as wm
from examples import price_band
from lab.spark.feeds import Feed, failure, run
from watersmeet.errors import ColumnError, QueryError, WindowError

pytestmark = pytest.mark.spark

SECOND = 1_000_000
WHERE = "abs(a.x - b.y) <= 2"


class Bands:
    """Two streams of numbers from 0 to 99, some rows late; NULLs among them."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.checkpoint = spark, folder / "checkpoint"
        self.feeds = [Feed(spark, folder / n, f"{n}_ts timestamp, {c} bigint, {n} bigint") for n, c in ("ax", "by")]
        self.batches = [[self._made(i, n) for n in range(3)] for i in (0, 1)]

    def _made(self, i: int, n: int) -> pa.Table:
        name, rng = "ab"[i], np.random.default_rng((i, n))
        numbers = [None if k % 20 == 7 else int(v) for k, v in enumerate(rng.integers(0, 100, 60))]
        times = n * 10 * SECOND + np.sort(rng.integers(0, 10 * SECOND, 60))
        times[:3] -= 40 * SECOND if n else 0  # hopelessly late
        stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
        return pa.table({f"{name}_ts": stamps, "xy"[i]: numbers, name: list(range(100 * n, 100 * n + 60))})

    def add(self, n: int) -> None:
        for feed, batches in zip(self.feeds, self.batches, strict=True):
            feed.add(batches[n])

    def streams(self, **about: Any) -> list[wm.Stream]:
        known = {"window": "6 seconds", "delay": "10 seconds"} | about
        return [wm.stream(f.stream(), time=f"{n}_ts", name=n, **known) for f, n in zip(self.feeds, "ab", strict=True)]

    def static(self) -> list[wm.Stream]:
        tables = [pa.concat_tables([t.slice(3 if n else 0) for n, t in enumerate(b)]) for b in self.batches]
        return [
            wm.stream(self.spark.createDataFrame(table), time=f"{n}_ts", window="6 seconds", name=n)
            for n, table in zip("ab", tables, strict=True)
        ]

    def answer(self, how: str) -> Counter[tuple[Any, ...]]:
        a, b = (pa.concat_tables([t.slice(3 if n else 0) for n, t in enumerate(batches)]) for batches in self.batches)
        near = "abs(x - y) <= 2 AND abs(epoch_us(a_ts) - epoch_us(b_ts)) <= 6000000"
        columns = "a.a, b.b" if how in ("inner", "left") else "a.a"
        assert a.num_rows
        assert b.num_rows
        return Counter(duckdb.sql(f"SELECT {columns} FROM a {how} JOIN b ON {near}").fetchall())


def test_the_same_results_over_restarts_and_late_rows_once(spark: SparkSession, tmp_path: Path) -> None:
    bands = Bands(spark, tmp_path)
    found: Counter[tuple[Any, ...]] = Counter()
    late: Counter[str] = Counter()
    for n in range(3):
        bands.add(n)
        output = run(wm.join(*bands.streams(), where=WHERE, how="left").tagged, bands.checkpoint)
        rows = output.table.to_pylist()
        found += Counter((r["a"], r["b"]) for r in rows if r["kind"] == "result")
        late += Counter(r["stream"] for r in rows if r["kind"] == "late")
        (counters,) = output.metrics
        assert counters["rows_in"] == 120, "copies are not counted"
        assert len(counters["shards"]) == 2
        assert all(s["streams"][0]["rows_in"] > 10 for s in counters["shards"]), "both have work"
    answer = bands.answer("left")
    assert {pair: n for pair, n in found.items() if pair[1] is not None} == {
        pair: n for pair, n in answer.items() if pair[1] is not None
    }
    assert found <= answer, "rows that still wait for a partner are not out yet"
    assert late == {"a": 6, "b": 6}, "a copy is not handed out"
    other = wm.join(*bands.streams(), where="abs(a.x - b.y) <= 3", how="left")
    bands.add(0)
    assert "StateMismatchError" in failure(lambda: run(other.tagged, bands.checkpoint))


@pytest.mark.parametrize("how", ["inner", "semi", "anti"])
def test_static_streams_and_sql_give_the_same(spark: SparkSession, tmp_path: Path, how: str) -> None:
    bands = Bands(spark, tmp_path)
    a, b = bands.static()
    columns = ["a", "b"] if how == "inner" else ["a"]
    joined = wm.join(a, b, where=WHERE, how=how)
    assert joined.operator.name == "band"
    assert Counter(map(tuple, joined.df.select(*columns).collect())) == bands.answer(how)
    if how == "inner":
        query = "SELECT a.a, b.b FROM a, b WHERE abs(a.x - b.y) <= 2 AND a.x >= 0"
        assert Counter(map(tuple, wm.sql(query, a=a, b=b).df.collect())) == bands.answer(how)
        groups = joined.group_by(wm.bucket("a_ts", "10 seconds")).agg(n=wm.count())
        assert sum(row["n"] for row in groups.df.collect()) == bands.answer(how).total()
    else:
        query = f"SELECT a.a FROM a LEFT {how.upper()} JOIN b ON abs(a.x - b.y) <= 2"
        assert Counter(map(tuple, wm.sql(query, a=a, b=b).df.collect())) == bands.answer(how)


def test_a_semi_join_over_restarts_gives_each_row_once(spark: SparkSession, tmp_path: Path) -> None:
    bands = Bands(spark, tmp_path)
    found: Counter[tuple[Any, ...]] = Counter()
    for n in range(3):
        bands.add(n)
        rows = run(wm.join(*bands.streams(), where=WHERE, how="semi").tagged, bands.checkpoint).table.to_pylist()
        found += Counter((r["a"],) for r in rows if r["kind"] == "result")
    assert found == bands.answer("semi"), "a row comes out at its first match, and is not kept"


def test_three_streams_without_equality(spark: SparkSession, tmp_path: Path) -> None:
    bands = Bands(spark, tmp_path)
    a, b = bands.static()
    c = wm.stream(b.df.selectExpr("b_ts AS c_ts", "y AS z", "b AS c"), time="c_ts", window="6 seconds", name="c")
    joined = wm.join(a, b, c, where="abs(a.x - b.y) <= 2 AND b.y < c.z AND c.z - a.x < 4")
    assert joined.operator.name == "theta"
    tables = {name: df.toArrow() for name, df in (("ta", a.df), ("tb", b.df), ("tc", c.df))}
    with duckdb.connect() as database:
        for name, table in tables.items():
            database.register(name, table)
        times = "[epoch_us(a_ts), epoch_us(b_ts), epoch_us(c_ts)]"
        near = f"list_max({times}) - list_min({times}) <= 6000000"
        where = f"abs(x - y) <= 2 AND y < z AND z - x < 4 AND {near}"
        wanted = Counter(database.execute(f"SELECT a, b, c FROM ta, tb, tc WHERE {where}").fetchall())
    assert wanted
    assert Counter(map(tuple, joined.df.select("a", "b", "c").collect())) == wanted


def test_three_streams_purge_what_the_two_others_have_closed(spark: SparkSession, tmp_path: Path) -> None:
    """Numbers ascend with the batches: rows of earlier ones have no partner to come."""
    names = {"a": "x", "b": "y", "c": "z"}
    feeds = {n: Feed(spark, tmp_path / n, f"{n}_ts timestamp, {c} bigint") for n, c in names.items()}
    results = 0
    for batch in range(3):
        for n, feed in feeds.items():
            stamps = pa.array([SECOND * (1 + 10 * batch)] * 10).cast(pa.timestamp("us", "UTC"))
            feed.add(pa.table({f"{n}_ts": stamps, names[n]: range(10 * batch, 10 * batch + 10)}))
        streams = [
            wm.stream(feed.stream(), time=f"{n}_ts", window="1 hour", name=n, punctuation=wm.ordered(names[n]))
            for n, feed in feeds.items()
        ]
        joined = wm.join(*streams, where="abs(x - y) <= 1 AND abs(y - z) <= 1")
        output = run(joined.df, tmp_path / "checkpoint")
        results += output.table.num_rows
        assert output.metrics[-1]["stored"] == 3 + 2 + 3, "the last ones, which rows to come may be near"
    assert results == 28 * 3 * 3 + 2 * 2 * 2
    retention = joined.explain().to_dict()["streams"][0]["retention"]
    assert "or until b and c have closed every y and z that it could match" in retention


def test_the_explanation_names_indexes_and_copies(spark: SparkSession, tmp_path: Path) -> None:
    bands = Bands(spark, tmp_path)
    text = str(wm.join(*bands.streams(), where=WHERE).explain(verbose=True))
    assert "band (inner) of a, b without equality" in text
    assert "rows of a divided by hash, those of b copied to each" in text
    assert "indexes: a sorted by x, b sorted by y" in text
    assert "theta: " in text
    assert wm.join(*bands.streams(), where="a.x % 7 = b.y % 5").operator.name == "theta"


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    a, b = Bands(spark, tmp_path).streams()
    for about, message in (
        ({}, "`on` is None; and there is no `where`"),
        ({"where": "x < y", "how": "right"}, 'exchange the streams and take how="left"'),
        ({"where": "sqrt(x) < y"}, "has a call of sqrt"),
        ({"where": "x < y", "split_keys": [1]}, "`split_keys` is for joins on a key"),
        ({"where": "x < y", "algorithm": "hash"}, '"hash" computes joins on a key'),
        ({"where": "x % y = 0", "algorithm": "band"}, '"band" needs a condition that bounds'),
    ):
        with pytest.raises(QueryError, match=message):
            wm.join(a, b, **about)
    third = wm.stream(a.df.selectExpr("a_ts AS c_ts", "x AS z"), time="c_ts", window="1 second", name="c")
    with pytest.raises(QueryError, match="has no condition between `c` and the other streams"):
        wm.join(a, b, third, where="x < y AND z > 5")
    with pytest.raises(WindowError, match="stream `a` has no window"):
        wm.join(wm.stream(a.df, time="a_ts", name="a"), b, where="x < y")
    closing = wm.stream(b.df, time="b_ts", window="1 second", name="b", punctuation=wm.when("y > 3", low="y", on="y"))
    endless = wm.stream(a.df, time="a_ts", name="a")
    with pytest.raises(WindowError, match="stream `a` has no window, and `c` no punctuation that would close"):
        wm.join(endless, closing, third, where="x < y AND y < z")
    ends = wm.stream(third.df, time="c_ts", window="1 second", name="c", punctuation=wm.when("z > 3", low="z", on="z"))
    assert wm.join(endless, closing, ends, where="x < y AND y < z")
    with pytest.raises(WindowError, match="`c` never closes all values of `z` that its tuples may match"):
        wm.join(endless, closing, ends, where="x < y AND z < y")
    for where, punctuation in (
        ("x < y", wm.ordered("y")),
        ("x < y", wm.when("y > 3", high="y", on="y")),
        ("x < y", wm.when("y > 3", low="y", high="y + 1", on="y")),
        ("x > y", wm.when("y > 3", low="y", on="y")),
    ):
        closing = wm.stream(b.df, time="b_ts", window="1 second", name="b", punctuation=punctuation)
        with pytest.raises(WindowError, match="`b` never closes all values of `y` that its tuples may match"):
            wm.join(wm.stream(a.df, time="a_ts", name="a"), closing, where=where)
    for where, punctuation in (
        ("x > y", wm.ordered("y", slack=3)),
        ("x > y", wm.when("y > 3", high="y", on="y")),
        ("x < y", wm.when("y > 3", low="y", on="y")),
        ("abs(x - y) <= 2", wm.ordered("y")),
        ("abs(x - y) <= 2", wm.when("y > 3", low="y", high="y + 1", on="y")),
        ("x < y", [wm.ordered("y"), wm.when("y > 3", low="y", on="y")]),
        ("x < y", wm.end("y > 99")),
    ):
        closing = wm.stream(b.df, time="b_ts", window="1 second", name="b", punctuation=punctuation)
        assert wm.join(wm.stream(a.df, time="a_ts", name="a"), closing, where=where)
    for punctuation, message, error in (
        (wm.unique("x"), "is `unique`, and the join has no key", QueryError),
        (wm.when("x > 3", on="x"), "is `when` about single values", QueryError),
        (wm.ordered("a"), "is about column `a`, but `where` compares x", ColumnError),
    ):
        closing = wm.stream(a.df, time="a_ts", window="1 second", name="a", punctuation=punctuation)
        with pytest.raises(error, match=message):
            wm.join(closing, b, where="x < y")
    with pytest.raises(QueryError, match="the join has no key that could end"):
        wm.join(a, b, where="x < y").group_by("a").agg(n=wm.count())


def test_the_market_finds_what_duckdb_finds(spark: SparkSession) -> None:
    found, whole = price_band.show(spark, price_band.Market(seconds=30), Console(file=io.StringIO()))
    assert found <= whole
    assert {pair for pair in whole if pair[1] is not None} <= found
    assert any(offer is None for _, offer in found)
