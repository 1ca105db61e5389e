"""`wm.sql` on a real Spark: streaming, static and DuckDB's batch give the same."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, run
from watersmeet.errors import QueryError
from watersmeet.query.duckdb_query import batch_sql
from watersmeet.query.parser import read
from watersmeet.spark.runtime.spark_versions import joins_static
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
A = "item_id long, at timestamp, reserve int, name string, note string"
B = "item long, at timestamp, price decimal(10,2), name string, closed boolean"
TIMES = {"A": "at", "B": "at"}


class House:
    """Items that open a minute apart, bids on them; the last batch closes all items."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feeds = {"auction": Feed(spark, folder / "a", A), "bid": Feed(spark, folder / "b", B)}
        for batch in range(3):
            at = 60 * batch * SECOND
            items = range(8 * batch, 8 * batch + 8)
            self.feeds["auction"].add_rows([(k, at, k % 4 or None, "xyz"[k % 3], "long text") for k in items])
            bids: list[tuple[Any, ...]] = []
            for k in range(8 * max(0, batch - 1), 8 * batch + 8):
                bids += [(k, at + n * SECOND, Decimal((k * n) % 5), "xyzX"[(k + n) % 4], False) for n in range(k % 4)]
            ends = [(k, at + 59 * SECOND, None, None, True) for k in range(24)] if batch == 2 else []
            self.feeds["bid"].add_rows(bids + ends)

    def streams(self, *, static: bool = False) -> dict[str, Stream]:
        read_ = Feed.static if static else Feed.stream
        auction, bid = (read_(feed) for feed in self.feeds.values())
        return {
            "auction": wm.stream(auction, time="at", punctuation=wm.unique("item_id")),
            "bid": wm.stream(bid, time="at", window="1 second", punctuation=wm.when("closed", on="item")),
        }

    def answer(self, query: str) -> Counter[Any]:
        tables = {name: feed.static().toArrow() for name, feed in self.feeds.items()}
        tables["bid"] = tables["bid"].filter(pa.compute.invert(tables["bid"]["closed"]))
        parsed = read(query, {name: table.schema.names for name, table in tables.items()})
        with duckdb.connect(config={"threads": 1}) as database:
            database.execute("SET TimeZone = 'UTC'")
            for name, table in tables.items():
                database.register(name, table)
            return Counter(database.execute(batch_sql(parsed, TIMES)).fetchall())


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.fixture(scope="module")
def house(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> House:
    return House(spark, tmp_path_factory.mktemp("house"))


LEFT = """
SELECT A.item_id, B.item, A.name || '/' || coalesce(B.name, '-') AS names, price * 2 AS twice
FROM auction [RANGE 70 SECONDS] A LEFT JOIN bid [RANGE 70 SECONDS] B
  ON A.item_id = B.item AND price >= reserve AND B.name <> 'X'
WHERE A.name <> 'z' AND (price IS NULL OR price < 4)
"""


def test_a_left_join_says_what_the_batch_says(house: House, tmp_path: Path) -> None:
    joined = wm.sql(LEFT, **house.streams())
    want = house.answer(LEFT)
    assert 0 < sum(row[1] is None for row in want.elements()) < want.total(), "some have bids, some have none"
    assert joined.df.columns == ["item_id", "item", "names", "twice"]
    assert bag(run(joined.df, tmp_path / "checkpoint").table) == want
    assert bag(wm.sql(LEFT, **house.streams(static=True)).df.toArrow()) == want


def test_what_nothing_names_stays_below_the_join(house: House) -> None:
    joined = wm.sql(LEFT, **house.streams())
    assert isinstance(joined, wm.Joined)
    a, b = joined.query.streams
    assert a.schema.names == ["item_id", "A_at", "reserve", "A_name", "note"], "it is unique: all of it"
    assert b.schema.names == ["item_id", "price", "B_name", "B_at"], "hidden: item, name, at, closed, takes part"
    assert joined.query.where is not None
    assert joined.query.where.text == "`price` >= `reserve`", "the other conditions are about one stream"
    assert [s.takes_part for s in joined.streams] == [None, "watersmeet takes part"]


GROUPS = """
SELECT B.item AS id, COUNT(*) AS bids, MAX(price) - 1 AS best FROM auction [RANGE 70 SECONDS] A, bid [UNBOUNDED] B
WHERE A.item_id = B.item AND price > 0 GROUP BY B.item HAVING COUNT(*) > 1
"""


def test_groups_come_once_when_their_item_is_closed(house: House, tmp_path: Path) -> None:
    grouped = wm.sql(GROUPS, **house.streams())
    want = house.answer(GROUPS)
    assert want
    seen: list[pa.Table] = []
    query = wm.write(
        grouped,
        checkpoint=tmp_path / "c",
        results=lambda df, _: seen.append(df.toArrow()),
        trigger={"availableNow": True},
    )
    query.awaitTermination()
    assert bag(pa.concat_tables(seen)) == want
    if joins_static(house.feeds["bid"].spark):
        assert bag(wm.sql(GROUPS, **house.streams(static=True)).df.toArrow()) == want
    updates = bag(run(wm.sql(f"ISTREAM({GROUPS})", **house.streams()).df, tmp_path / "updates").table)
    assert updates >= want
    assert updates.total() > want.total(), "a group comes whenever it changes"


def test_with_a_slide_results_come_later_and_are_the_same(house: House, tmp_path: Path) -> None:
    query = """SELECT item_id, price FROM auction [RANGE 70 SECONDS SLIDE 1 MINUTE] A, bid [RANGE 70 SECONDS] B
               WHERE item_id = item AND price > 1"""
    output = run(wm.sql(query, **house.streams()).tagged, tmp_path / "c").tables
    results = [t.filter(pa.compute.equal(t["kind"], "result")) for t in output]
    assert bag(wm.sql(query, **house.streams(static=True)).df.toArrow()) == house.answer(query)
    assert not results[0].num_rows, "the first minute is not over"
    got = Counter((r["item_id"], r["price"]) for t in results for r in t.to_pylist())
    assert got
    assert got <= house.answer(query)


def test_windows_of_rows(house: House) -> None:
    query = """SELECT item_id, price FROM auction [PARTITION BY item_id ROWS 1] A, bid [PARTITION BY item ROWS 2] B
               WHERE item_id = item AND price > 0"""
    want = house.answer(query)
    assert want
    assert bag(wm.sql(query, **house.streams(static=True)).df.toArrow()) == want


def test_any_expression_of_spark(spark: SparkSession) -> None:
    """Written again by sqlglot, an expression means what it meant."""
    given = [
        r"'it\'s \\ so' AS quoted",
        "transform(xs, x -> x + v) AS mapped",
        "place.town AS town",
        "B.place.town IS NOT DISTINCT FROM 'b1' AS same",
        "date_add(date '2024-02-28', 2) AS day",
        "B.at + INTERVAL 5 MINUTES AS later",
        "CAST(v AS DECIMAL(10, 3)) / 3 AS third",
        "v DIV 2 + v % 2 AS parts",
        "regexp_extract(place.town, '([a-z])(\\\\d)', 2) AS digit",
        "CASE WHEN v > 1 THEN 'more' WHEN v <=> NULL THEN 'none' END AS size",
        "filter(xs, x -> x > 1)[0] AS first_big",
        "named_struct('a', v, 'b', xs) AS both",
        "date_format(B.at, 'yyyy-MM-dd HH:mm') AS minute",
        "3L + v AS number",
        "map('k', v)['k'] AS looked_up",
        "try_divide(v, 0) AS nothing",
    ]
    a = spark.sql("SELECT id AS k, timestamp_seconds(id) AS at FROM range(3)")
    b = a.selectExpr("*", "k AS v", "array(k, 2) AS xs", "named_struct('town', 'b' || k) AS place")
    streams = {"a": wm.stream(a, time="at", window="1 second"), "b": wm.stream(b, time="at", window="1 second")}
    found = wm.sql(f"SELECT {', '.join(given)} FROM a, b B WHERE a.k = B.k", **streams).df
    want = b.alias("B").selectExpr(*given)
    assert found.schema.simpleString() == want.schema.simpleString()
    assert sorted(map(str, found.collect())) == sorted(map(str, want.collect()))


def test_keys_that_differ_in_case_only(house: House) -> None:
    streams = house.streams(static=True)
    bids = house.feeds["bid"].static().withColumnRenamed("item", "ITEM_ID")
    streams["bid"] = wm.stream(bids, time="at", punctuation=wm.when("closed", on="Item_Id"))
    query = GROUPS.replace("B.item", "B.item_id")
    assert bag(wm.sql(query, **streams).df.toArrow()) == house.answer(GROUPS)


def test_a_stream_meets_itself(spark: SparkSession) -> None:
    rows = [(n % 3, n * SECOND, n) for n in range(12)]
    df = spark.createDataFrame(rows, "k long, us long, n long").selectExpr("k", "timestamp_micros(us) AS at", "n")
    query = "SELECT X.n AS x, Y.n AS y FROM s [RANGE 3 SECONDS] X, s [RANGE 3 SECONDS] Y WHERE X.k = Y.k AND X.n < Y.n"
    found = wm.sql(query, s=wm.stream(df, time="at")).df.collect()
    assert sorted(map(tuple, found)) == [(n, n + 3) for n in range(9)]


def test_what_is_refused(house: House) -> None:
    streams = house.streams(static=True)
    query = "SELECT item_id FROM auction {} A, bid B WHERE item_id = item"
    with pytest.raises(QueryError, match=r"stream `A` has the window \[AUTO\], and `B` has not"):
        wm.sql(query.format("[AUTO]"), **streams)
    with pytest.raises(QueryError, match="`bid` is a DataFrame; a query is over streams"):
        wm.sql(query.format(""), auction=streams["auction"], bid=streams["bid"].df)  # type: ignore[arg-type]
    with pytest.raises(
        QueryError, match=r"column 8: Spark has no function `shout`\.\n  SELECT shout.*\n         \^{5}\n"
    ):
        wm.sql(query.format("[NOW]").replace("item_id FROM", "shout(reserve) AS s FROM"), **streams)
    with pytest.raises(QueryError, match=r"column 69: Spark has no function `odd`\."):
        wm.sql(query.format("[NOW]") + " AND odd(reserve)", **streams)
    with pytest.raises(QueryError, match="`group_by` of a query in SQL"):
        wm.sql(query.format("[NOW]"), **streams).group_by("item_id")  # type: ignore[union-attr]
    with pytest.raises(QueryError, match="`as_stream` of a query in SQL"):
        wm.sql(query.format("[NOW]"), **streams).as_stream()  # type: ignore[union-attr]


TWINS = [(1, 0, 5, "late"), (1, 0, 1, "soon"), (2, 1, 7, "late"), (2, 1, 9, "soon"), (3, 2, 1, "only")]


def test_which_row_of_a_unique_stream_is_a_violation_is_not_decided_by_the_query(spark: SparkSession) -> None:
    """Of two rows of one instant one stays, whatever is selected of it, and whatever the conditions."""
    rows = spark.createDataFrame(TWINS, "k long, s long, v long, name string").selectExpr(
        "k", "timestamp_seconds(s) AS at", "v", "name"
    )
    b = spark.sql("SELECT id AS k, timestamp_seconds(id) AS bt, id AS n FROM range(9)")
    a = wm.stream(rows, time="at", window="1 hour", punctuation=wm.unique("k"), name="a")
    streams = {"a": a, "b": wm.stream(b, time="bt", window="1 hour", name="b")}
    meant = wm.join(a, streams["b"], on="k").df
    for select in ("v", "name", "v, name", "n"):
        for where in ("", " AND v > 1", " AND name <> 'soon'", " AND upper(name) = 'LATE' AND n > 0"):
            found = wm.sql(f"SELECT {select} FROM a, b WHERE a.k = b.k{where}", **streams).df
            want = (meant.where(where.removeprefix(" AND ")) if where else meant).selectExpr(*select.split(", "))
            assert Counter(found.collect()) == Counter(want.collect())
