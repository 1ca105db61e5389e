"""`where=` on a real Spark: the operator computes what Spark computes, Spark filters what the operator cannot."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.query.conditions import ROWS, SAME
from lab.spark.feeds import Feed, run
from watersmeet.errors import QueryError
from watersmeet.query.predicate_parser import parse
from watersmeet.spark.runtime.spark_versions import joins_static
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
A = "k long, a_ts timestamp, reserve int, seller string"
B = "k long, b_ts timestamp, price decimal(10,2), bidder string, closed boolean"
NAMES = ("k", "a_ts", "reserve", "seller", "b_ts", "price", "bidder")
OPERATOR = "price >= reserve * 1.5 AND bidder <> seller"
BY_SPARK = "upper(bidder) <> upper(seller) AND coalesce(price, 0) >= reserve"


class House:
    """Auctions with a reserve, bids with and without a price or a bidder; the last batch closes all items."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.a, self.b = Feed(spark, folder / "a", A), Feed(spark, folder / "b", B)
        for batch in range(3):
            items, at = range(10 * batch, 10 * batch + 10), 60 * batch * SECOND
            reserves = [None if k % 7 == 0 else k % 5 for k in items]
            opened = zip(items, reserves, strict=True)
            self.a.add_rows([(None if k % 10 == 9 else k, at, reserve, "xyz"[k % 3]) for k, reserve in opened])
            bids: list[tuple[Any, ...]] = []
            for k, n in product(range(10 * max(0, batch - 1), 10 * batch + 10), range(4)):
                price = None if (k + n) % 6 == 0 else Decimal((k * n) % 8)
                bidder = None if (k + n) % 5 == 0 else "xyzX"[(k + 2 * n) % 4]
                bids.append((None if n == 3 and k % 2 else k, at + n * SECOND, price, bidder, False))
            closing = [(k, at + 59 * SECOND, None, None, True) for k in range(30)] if batch == 2 else []
            self.b.add_rows(bids + closing)

    def streams(self, *, static: bool = False) -> tuple[Stream, Stream]:
        read = Feed.static if static else Feed.stream
        a = wm.stream(read(self.a), time="a_ts", window="90 seconds", punctuation=wm.unique("k"), name="a")
        b = wm.stream(read(self.b), time="b_ts", window="90 seconds", punctuation=wm.when("closed", on="k"), name="b")
        return a, b

    def answer(self, how: str, where: str) -> Counter[Any]:
        """Spark's own, over everything at once."""
        a = self.a.static()
        b = self.b.static().where("NOT closed").withColumnRenamed("k", "b_k")
        within = F.expr("k = b_k AND b_ts BETWEEN a_ts - INTERVAL 90 SECONDS AND a_ts + INTERVAL 90 SECONDS")
        return bag(a.join(b, within & F.expr(where), how).select(*NAMES).toArrow())


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(row[n] for n in NAMES) for row in table.to_pylist())


@pytest.fixture(scope="module")
def house(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(spark, tmp_path_factory.mktemp("house"))


def test_a_left_join_asks_its_predicate_before_a_row_counts_as_matched(house: House, tmp_path: Path) -> None:
    joined = wm.join(*house.streams(), on="k", how="left", where=OPERATOR)
    output = run(joined.df, tmp_path / "checkpoint")
    want = house.answer("left", OPERATOR)
    pairs = sum(n for row, n in want.items() if row[4] is not None)
    assert 0 < pairs < want.total(), "some auctions have such bids, some have none"
    assert bag(output.table) == want
    assert "where price >= reserve * 1.5 AND bidder <> seller: checked for every pair in the operator" in str(
        joined.explain()
    )
    if joins_static(house.a.spark):
        static = wm.join(*house.streams(static=True), on="k", how="left", where=OPERATOR)
        assert bag(static.df.toArrow()) == want


@pytest.mark.parametrize("by", ["operator", "sql", "column"])
def test_results_of_an_inner_join_are_filtered(house: House, tmp_path: Path, by: str) -> None:
    where = {"operator": OPERATOR, "sql": BY_SPARK, "column": F.expr(BY_SPARK)}[by]
    joined = wm.join(*house.streams(), on="k", where=where)
    assert (joined.condition is None) == (by == "operator")
    want = house.answer("inner", OPERATOR if by == "operator" else BY_SPARK)
    output = run(joined.tagged, tmp_path / "checkpoint").table
    results = output.filter(pa.compute.equal(output["kind"], "result"))
    assert bag(results) == want
    assert "punctuation" in output["kind"].to_pylist(), "only results are filtered"
    static = wm.join(*house.streams(static=True), on="k", where=where)
    groups = static.group_by("k", wm.bucket("b_ts", "1 hour")).agg(n=wm.count()).df.toArrow().to_pylist()
    count: Counter[Any] = Counter()
    for row, n in want.items():
        count[row[0]] += n
    assert {g["k"]: g["n"] for g in groups} == count


def test_predicates_are_those_of_spark(spark: SparkSession) -> None:
    rows = spark.createDataFrame(pa.Table.from_batches([ROWS])).coalesce(1)
    columns = [F.coalesce(F.expr(text), F.lit(False)).alias(str(n)) for n, text in enumerate(SAME)]
    found = rows.select(*columns).toArrow()
    for n, text in enumerate(SAME):
        assert found[str(n)].to_pylist() == parse(text, ROWS.schema).holds(ROWS).tolist(), text


def test_what_is_refused(house: House, spark: SparkSession) -> None:
    a, b = house.streams(static=True)
    for how in ("left", "right", "full", "semi", "anti"):
        with pytest.raises(QueryError, match="has a call of upper; a join evaluates comparisons"):
            wm.join(a, b, on="k", how=how, where=BY_SPARK)
    with pytest.raises(QueryError, match="`where` is a Column, which only Spark evaluates, behind the join"):
        wm.join(a, b, on="k", how="left", where=F.expr(OPERATOR))
    with pytest.raises(QueryError, match="`where` is an int; it is a condition over the columns of both streams"):
        wm.join(a, b, on="k", where=3)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"`where` names column `nowhere`, which no stream has") as unknown:
        wm.join(a, b, on="k", where="upper(nowhere) = 'X'")
    assert str(unknown.value).endswith("\nHint: the columns are k, a_ts, reserve, seller, b_ts, price, bidder, closed.")
    with pytest.raises(QueryError, match=r"names column `sellr`, .*\nHint: did you mean `seller`\? the columns"):
        wm.join(a, b, on="k", where="sellr = bidder")
    with pytest.raises(QueryError, match=r"of the join: \[DATATYPE_MISMATCH[^\n]*\nHint: the columns are"):
        wm.join(a, b, on="k", where="upper(seller)")
    with pytest.raises(QueryError, match="`where` is no condition over the columns of the join: "):
        wm.join(a, b, on="k", where="upper(seller")
    named = wm.stream(b.df.withColumn("bidder", F.expr("bidder COLLATE UTF8_LCASE")), time="b_ts", window="9 seconds")
    with pytest.raises(QueryError, match="names column `bidder` with collation UTF8_LCASE"):
        wm.join(a, named, on="k", how="left", where="bidder <> 'x'")
    assert wm.join(a, named, on="k", where="bidder <> 'x'").condition is not None
    with pytest.raises(QueryError, match="Spark filters the results by `where` before they are grouped"):
        wm.join(a, b, on="k", where=BY_SPARK).group_by("k").agg(n=wm.count())
    assert wm.join(a, b, on="k", where=OPERATOR).group_by("k").agg(n=wm.count()).query.where is not None
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(QueryError, match=r"evaluated as in ANSI mode, and spark\.sql\.ansi\.enabled is false"):
            wm.join(a, b, on="k", how="left", where=OPERATOR)
        assert wm.join(a, b, on="k", where=OPERATOR).condition is not None
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")
