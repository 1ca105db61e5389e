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
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from tests.spark.feeds import Feed, forget_working_states, run
from watersmeet.errors import QueryError

pytestmark = pytest.mark.spark

START = datetime(2024, 1, 1, tzinfo=UTC)
AUCTIONS = "item_id bigint, opened_at timestamp, seller string, over boolean"
BIDS = "item_id bigint, bid_at timestamp, price decimal(10,2), closed boolean, done boolean"
STAMP = pa.timestamp("us", "UTC")
KINDS = (
    [pa.int64(), STAMP, pa.string(), pa.bool_()],
    [pa.int64(), STAMP, pa.decimal128(10, 2), pa.bool_(), pa.bool_()],
)
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
        for feed, rows, kinds, ddl in zip(self.feeds, self.rows[n], KINDS, (AUCTIONS, BIDS), strict=True):
            names = [column.split()[0] for column in ddl.split(", ")]
            feed.add(pa.table([pa.array(c, k) for c, k in zip(zip(*rows, strict=True), kinds, strict=True)], names))

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
        return told(connection.execute(GROUPS.format(by=by)).fetchall())


def told(rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows to be compared; DuckDB's list of nothing is NULL."""
    plain = [tuple(v.astimezone(UTC) if isinstance(v, datetime) else v or None for v in row) for row in rows]
    return sorted(plain, key=repr)


def aggregates() -> dict[str, Any]:
    prices = {"total": wm.sum("price"), "best": wm.max("price"), "prices": wm.collect_list("price")}
    return {"bids": wm.count(), **prices, "seller_last": wm.last("seller")}


def collected(df: DataFrame) -> list[tuple[Any, ...]]:
    return told([tuple(row.values()) for row in df.toArrow().to_pylist()])


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
            forget_working_states()
        elif n == 1:
            closed = {r[0] for r in house.rows[1][1] if r[3]}
            assert {row[0] for row in out} <= closed
    expected = house.answer("item_id")
    assert told(out) == expected
    assert open_groups[0] > 0
    assert open_groups[-1] == 0
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
    assert told(out) == expected
    assert kinds == {"result", "punctuation"}
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
    with pytest.raises(QueryError, match="`n` is a int; `agg` takes aggregates"):
        joined.group_by("item_id").agg(n=1)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="`group_by` takes names of columns and buckets; got int"):
        joined.group_by(3)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match='`duration` of the bucket is "0 seconds"'):
        wm.bucket("bid_at", "0 seconds")
    text = str(joined.group_by("item_id").agg(n=wm.count()).explain())
    assert "groups by item_id, in the join's own operator" in text
    assert "a group comes out once, when punctuations have ended its item_id, or when all streams have ended" in text
    text = str(plain.group_by("seller", wm.bucket("bid_at", "1 minute")).agg(n=wm.count()).explain())
    assert "in a second operator" in text
    assert "when bids is past the end of its 1 minute of bid_at and auctions is past that + 1 hour" in text
    text = str(plain.group_by("seller").agg(n=wm.count(), emit="update").explain())
    assert "a group comes out in every batch that changes it" in text
