"""Groups on a real Spark, against DuckDB: final ones over restarts, a second operator, static inputs, refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, remove_working_states, run
from watersmeet.errors import QueryError
from watersmeet.spark.runtime.spark_versions import joins_static

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
AUCTIONS = "item_id bigint, opened_at timestamp, seller string, over boolean"
BIDS = "item_id bigint, bid_at timestamp, price decimal(10,2), closed boolean, done boolean"
GROUPS = """
    SELECT {by}, count(*) AS bids, sum(price)::DECIMAL(20, 2) AS total, max(price) AS best,
           list(price ORDER BY bid_at) FILTER (price IS NOT NULL) AS prices, arg_max_null(seller, bid_at) AS seller_last
    FROM auctions JOIN bids USING (item_id) GROUP BY ALL
"""


@dataclass
class House:
    """Auctions of a minute each, their bids, and closings of which some are lost. The last batch ends both streams."""

    spark: SparkSession
    folder: Path
    batches: int = 3

    def __post_init__(self) -> None:
        chance, number = Random(5), 0
        self.feeds = [Feed(self.spark, self.folder / "a", AUCTIONS), Feed(self.spark, self.folder / "b", BIDS)]
        self.rows: list[list[list[tuple[Any, ...]]]] = []
        for n in range(self.batches):
            start = START + timedelta(minutes=n)
            opened = [(10 * n + k, start + timedelta(seconds=k), chance.choice("xyz"), False) for k in range(8)]
            bids: list[tuple[Any, ...]] = []
            for item in [i for i in range(10 * max(0, n - 1), 10 * n + 8) if i % 10 < 8]:
                for _ in range(chance.randrange(4)):
                    number += 1
                    at = start + timedelta(seconds=20, microseconds=number)
                    price = None if chance.random() < 0.1 else Decimal(chance.randrange(10**6)) / 100
                    bids.append((item, at, price, False, False))
                if item < 10 * n and chance.random() < 0.7:
                    bids.append((item, start + timedelta(seconds=30), None, True, False))
            if n == self.batches - 1:
                opened.append((None, start + timedelta(seconds=40), None, True))
                bids.append((None, start + timedelta(seconds=40), None, False, True))
            self.rows.append([opened, bids])

    def add(self, n: int) -> None:
        for feed, rows in zip(self.feeds, self.rows[n], strict=True):
            feed.add_rows(rows)

    def joined(self, *, static: bool = False) -> wm.Joined:
        a, b = (feed.static() if static else feed.stream() for feed in self.feeds)
        ends = [wm.unique("item_id"), wm.end("over")]
        auctions = wm.stream(a, time="opened_at", window="1 hour", punctuation=ends, name="auctions")
        ends = [wm.when("closed", on="item_id"), wm.end("done")]
        bids = wm.stream(b, time="bid_at", window="1 hour", punctuation=ends, name="bids")
        return wm.join(auctions, bids, on="item_id")

    def answer(self, by: str) -> list[tuple[Any, ...]]:
        """DuckDB's."""
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        for name, i, names in (("auctions", 0, 3), ("bids", 1, 3)):
            rows = [r[:names] for batch in self.rows for r in batch[i] if not any(r[3:])]
            ddl = (AUCTIONS, BIDS)[i].replace("timestamp", "timestamptz").split(", ")[:names]
            connection.execute(f"CREATE TABLE {name} ({', '.join(ddl)})")
            connection.executemany(f"INSERT INTO {name} VALUES (?, ?, ?)", rows)
        return comparable(connection.execute(GROUPS.format(by=by)).fetchall())


def comparable(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows to be compared; DuckDB's list of nothing is NULL."""
    plain = [tuple(v.astimezone(UTC) if isinstance(v, datetime) else v or None for v in row) for row in rows]
    return sorted(plain, key=repr)


def aggregates() -> dict[str, Any]:
    prices = {"total": wm.sum("price"), "best": wm.max("price"), "prices": wm.collect_list("price")}
    return {"bids": wm.count(), **prices, "seller_last": wm.last("seller")}


def collected(df: DataFrame) -> list[tuple[Any, ...]]:
    return comparable([tuple(row.values()) for row in df.toArrow().to_pylist()])


def test_final_groups_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    house = House(spark, tmp_path)
    out, open_groups = [], []
    for n in range(house.batches):
        house.add(n)
        grouped = house.joined().group_by("item_id").agg(**aggregates())
        last = run(grouped.df, tmp_path / "checkpoint")
        out += [tuple(row.values()) for row in last.table.to_pylist()]
        open_groups.append(last.metrics[-1]["open_groups"])
        if n == 0:
            assert not out, "no item was closed yet"
            remove_working_states()
        elif n == 1:
            closed = {r[0] for r in house.rows[1][1] if r[3]}
            assert {row[0] for row in out} <= closed
    expected = house.answer("item_id")
    assert comparable(out) == expected
    assert open_groups[0] > 0
    assert open_groups[-1] == 0
    if joins_static(spark):
        static = house.joined(static=True).group_by("item_id").agg(**aggregates())
        assert collected(static.df) == expected


def test_groups_by_another_column_come_from_a_second_operator(spark: SparkSession, tmp_path: Path) -> None:
    house = House(spark, tmp_path)
    by = ("seller", wm.bucket("bid_at", "30 seconds", name="half"))
    out, kinds = [], set()
    for n in range(house.batches):
        house.add(n)
        grouped = house.joined().group_by(*by).agg(**aggregates())
        table = run(grouped.tagged, tmp_path / "checkpoint").table
        kinds |= set(table["kind"].to_pylist())
        names = grouped.query.schema.names
        out += [tuple(row[c] for c in names) for row in table.to_pylist() if row["kind"] == "result"]
    expected = house.answer("seller, time_bucket(INTERVAL '30 seconds', bid_at) AS half")
    assert comparable(out) == expected
    assert kinds == {"result", "punctuation"}
    if joins_static(spark):
        assert collected(house.joined(static=True).group_by(*by).agg(**aggregates()).df) == expected


def test_what_is_refused_and_what_is_explained(spark: SparkSession) -> None:
    a = spark.createDataFrame([], AUCTIONS)
    b = spark.createDataFrame([], BIDS)
    bids = wm.stream(b, time="bid_at", window="1 hour", name="bids")
    plain = wm.join(wm.stream(a, time="opened_at", window="1 hour", name="auctions"), bids, on="item_id")
    closing = wm.stream(a, time="opened_at", window="1 hour", name="auctions", punctuation=wm.unique("item_id"))
    joined = wm.join(closing, bids, on="item_id")
    with pytest.raises(QueryError, match=r"no punctuation ends values of item_id \(`auctions`, `bids`"):
        plain.group_by("item_id").agg(n=wm.count())
    with pytest.raises(QueryError, match=r"by seller, but punctuations end values of the join key \(item_id\) only"):
        joined.group_by("seller").agg(n=wm.count())
    with pytest.raises(QueryError, match="`n` is an int; `agg` takes aggregates"):
        joined.group_by("item_id").agg(n=1)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`group_by` takes names of columns and buckets; got an int"):
        joined.group_by(3)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`duration` of the bucket is 0 seconds"):
        wm.bucket("bid_at", "0 seconds")
    text = str(joined.group_by("item_id").agg(n=wm.count()).explain())
    assert "groups by item_id, in the join's own operator" in text
    assert "a group comes out once, when punctuations have ended its item_id, or when all streams have ended" in text
    text = str(plain.group_by("seller", wm.bucket("bid_at", "1 minute")).agg(n=wm.count()).explain())
    assert "in a second operator" in text
    assert "when bids is past the end of its 1 minute of bid_at and auctions is past that + 1 hour" in text
    text = str(plain.group_by("seller").agg(n=wm.count(), emit="update").explain())
    assert "a group comes out in every batch that changes it" in text


class Lots:
    """Two streams that close ranges of lots behind them; the second may end before the first."""

    A = "lot bigint, a_at timestamp, a_n bigint, below bigint, over boolean"
    B = "lot bigint, b_at timestamp, b_n bigint, b_below bigint, done boolean"

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feeds = [Feed(spark, folder / "a", self.A), Feed(spark, folder / "b", self.B)]
        self.rows: list[list[tuple[Any, ...]]] = [[], []]
        self.chance = Random(8)

    def add(self, n: int, *, b_ends: bool = False, b_silent: bool = False) -> None:
        """Lots from 5 n on, what is below 5 n being closed by both."""
        for i, feed in enumerate(self.feeds):
            at = START + timedelta(minutes=n)
            rows: list[tuple[Any, ...]] = []
            if not (i and b_silent):
                for _ in range(12):
                    lot = None if self.chance.random() < 0.1 else 5 * n + self.chance.randrange(8)
                    second = timedelta(seconds=self.chance.randrange(50))
                    rows.append((lot, at + second, len(self.rows[i]) + len(rows), None, False))
                self.rows[i] += rows
                rows.append((None, at + timedelta(seconds=55), None, 5 * n, False))
            if i and b_ends:
                rows.append((None, at + timedelta(seconds=55), None, None, True))
            feed.add_rows(rows)

    def joined(self, how: str) -> wm.Joined:
        a, b = (feed.stream() for feed in self.feeds)
        ends = [wm.when("below IS NOT NULL", high="below", closed="left"), wm.end("over")]
        left = wm.stream(a, time="a_at", window="2 minutes", punctuation=ends, name="a")
        ends = [wm.when("b_below IS NOT NULL", high="b_below", closed="left"), wm.end("done")]
        right = wm.stream(b, time="b_at", window="2 minutes", punctuation=ends, name="b")
        return wm.join(left, right, on="lot", how=how)

    def answer(self, how: str) -> dict[Any, tuple[int, int, int]]:
        """Of each lot the number of results, of rows of b in them, and the sum of a's numbers."""
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        for n, rows in zip("ab", self.rows, strict=True):
            connection.execute(f"CREATE TABLE {n} (lot BIGINT, {n}_at TIMESTAMPTZ, {n}_n BIGINT)")
            connection.executemany(f"INSERT INTO {n} VALUES (?, ?, ?)", [r[:3] for r in rows])
        on = "a.lot = b.lot AND abs(epoch(a_at) - epoch(b_at)) <= 120"
        rows = f"SELECT coalesce(a.lot, b.lot) AS lot, a_n, b_n FROM a {how} JOIN b ON {on}"
        found = connection.execute(f"SELECT lot, count(*), count(b_n), sum(a_n) FROM ({rows}) GROUP BY lot").fetchall()
        return {lot: tuple(rest) for lot, *rest in found}


def lot_aggregates() -> dict[str, Any]:
    return {"n": wm.count(), "bs": wm.count("b_n"), "total": wm.sum("a_n")}


@pytest.mark.parametrize(("how", "emit"), [("full", "final"), ("left", "update"), ("inner", "final")])
def test_groups_end_with_ranges_of_outer_joins_over_restarts(
    spark: SparkSession, tmp_path: Path, how: str, emit: str
) -> None:
    lots, latest, came, open_groups = Lots(spark, tmp_path), {}, [], []
    for n in range(4):
        lots.add(n)
        grouped = lots.joined(how).group_by("lot").agg(emit=emit, **lot_aggregates())
        output = run(grouped.df, tmp_path / "checkpoint")
        rows = [tuple(row.values()) for row in output.table.to_pylist()]
        came += [row[0] for row in rows]
        latest |= {row[0]: row[1:] for row in rows}
        open_groups.append(output.metrics[-1]["open_groups"])
        if n == 1:
            remove_working_states()
    closed = {lot: rest for lot, rest in lots.answer(how).items() if lot is not None and lot < 15}
    assert len(closed) > 8
    assert {lot: rest for lot, rest in latest.items() if lot is not None and lot < 15} == closed
    if emit == "final":
        assert all(lot is not None and lot < 15 for lot in came), "the others may still grow"
        assert len(came) == len(set(came)), "once"
    else:
        assert len(came) > len(set(came)), "with every change"
    assert max(open_groups) <= 14, "what was closed is forgotten"


def test_groups_go_to_a_sink_and_all_come_when_one_stream_has_ended(spark: SparkSession, tmp_path: Path) -> None:
    lots, batches = Lots(spark, tmp_path), []
    for n in range(6):
        lots.add(n, b_ends=n == 2, b_silent=n > 2)
    grouped = lots.joined("inner").group_by("lot").agg(**lot_aggregates())

    def keep(df: DataFrame, _: int) -> None:
        batches.append([tuple(row) for row in df.collect()])

    found = tmp_path / "punctuations"
    query = wm.write(
        grouped, checkpoint=tmp_path / "c", results=keep, punctuations=found, trigger={"availableNow": True}
    )
    query.awaitTermination()
    assert query.exception() is None
    came = [row for rows in batches for row in rows]
    assert {row[0]: row[1:] for row in came} == lots.answer("inner")
    assert len(came) == len(lots.answer("inner"))
    open_groups = [wm.counters(p)["open_groups"] for p in query.recentProgress]
    assert open_groups[-1] == 0, "b has ended, and its rows have left their window"
    assert open_groups[2] > 0
    propagated = spark.read.parquet(str(found)).select("row").distinct().collect()
    assert '{"end":true}' in {row["row"] for row in propagated}, "though a has not ended"
