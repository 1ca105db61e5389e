"""`wm.join_asof` on a real Spark: restarts, static inputs, SQL, groups; against all rows and Spark's own batch join."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.spark.feeds import Feed, remove_working_states, rows, run
from watersmeet.errors import ColumnError, QueryError
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000
TRADES, QUOTES = "symbol string, traded_at timestamp, trade long", "symbol string, quoted_at timestamp, bid long"
COLUMNS = ("symbol", "trade", "bid")


class Market:
    """Trades and quotes of three symbols in batches, up to two seconds out of order; a last quote passes all trades."""

    def __init__(self, spark: SparkSession, folder: Path, batches: int = 4) -> None:
        chance = Random(7)
        self.feeds = [Feed(spark, folder / name, ddl) for name, ddl in (("trades", TRADES), ("quotes", QUOTES))]
        self.checkpoint = folder / "checkpoint"
        self.batches: list[list[list[tuple[Any, ...]]]] = []
        for n in range(batches):
            both = []
            for _ in range(2):
                times = [10 * n + chance.randrange(10) - chance.randrange(2) * 2 for _ in range(25)]
                keys = [chance.choice(["x", "y", "z", None]) for _ in times]
                both.append(
                    [(k, max(0, t) * SECOND, 100 * n + m) for m, (k, t) in enumerate(zip(keys, times, strict=True))]
                )
            both[1] += [("last", 1000 * SECOND, -1)] if n == batches - 1 else []
            self.batches.append(both)

    def add(self, n: int) -> None:
        for feed, some in zip(self.feeds, self.batches[n], strict=True):
            feed.add_rows(some)

    def streams(self, *, static: bool = False) -> tuple[Stream, Stream]:
        read = Feed.static if static else Feed.stream
        trades, quotes = (read(feed) for feed in self.feeds)
        return (
            wm.stream(trades, time="traded_at", delay="12 seconds", name="trades"),
            wm.stream(quotes, time="quoted_at", delay="12 seconds", name="quotes"),
        )

    def wanted(self, far: int = 1 << 40, *, keyed: bool = True) -> list[tuple[Any, ...]]:
        """Each trade with the last quote before it, by a look at all of them."""
        trades, quotes = ([row for batch in self.batches for row in batch[i]] for i in range(2))
        out = []
        for symbol, at, trade in trades:
            known = [
                (t, n) for k, t, n in quotes if ((k == symbol and k is not None) or not keyed) and 0 <= at - t <= far
            ]
            last = max((t for t, _ in known), default=0)
            out.append((symbol, trade, max((n for t, n in known if t == last), default=None)))
        return out


def ordered(found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(found, key=repr)


def collected(df: DataFrame) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in df.select(*COLUMNS).collect()]


def test_a_query_that_starts_again_after_every_batch(spark: SparkSession, tmp_path: Path) -> None:
    market = Market(spark, tmp_path)
    joined = wm.join_asof(*market.streams(), on="symbol", order_by="bid")
    found: list[tuple[Any, ...]] = []
    for n in range(len(market.batches)):
        market.add(n)
        output = run(joined.tagged, market.checkpoint)
        for table in output.tables:
            found += [tuple(r[c] for c in COLUMNS) for r in table.to_pylist() if r["kind"] == "result"]
        if n == 1:
            remove_working_states()
    assert ordered(found) == ordered(market.wanted())
    assert 4 <= output.metrics[-1]["stored"] < 60, "versions that trades to come may have, of 101 quotes"


def test_static_inputs_give_the_same_and_so_does_sql(spark: SparkSession, tmp_path: Path) -> None:
    market = Market(spark, tmp_path, batches=2)
    for n in range(2):
        market.add(n)
    trades, quotes = market.streams(static=True)
    near = wm.join_asof(trades, quotes, on="symbol", tolerance="3 seconds", order_by=["bid"], shards=3)
    assert ordered(collected(near.df)) == ordered(market.wanted(3 * SECOND))
    query = "SELECT t.symbol, t.trade, q.bid FROM t ASOF LEFT JOIN q [RANGE 3 SECONDS] ON t.symbol = q.symbol "
    quotes = wm.stream(quotes.df, time="quoted_at", name="quotes", order_by="bid")
    sql = wm.sql(f"{query} AND t.traded_at >= q.quoted_at WHERE t.trade > 50", t=trades, q=quotes)
    assert ordered(collected(sql.df)) == ordered([r for r in market.wanted(3 * SECOND) if r[1] > 50])


def test_without_a_key_all_rows_meet(spark: SparkSession, tmp_path: Path) -> None:
    market = Market(spark, tmp_path, batches=1)
    market.add(0)
    trades, quotes = market.streams(static=True)
    quotes = wm.stream(quotes.df.withColumnRenamed("symbol", "other"), time="quoted_at", order_by="bid", name="quotes")
    joined = wm.join_asof(trades, quotes)
    assert joined.df.columns == ["symbol", "traded_at", "trade", "other", "quoted_at", "bid"]
    assert ordered(collected(joined.df)) == ordered(market.wanted(keyed=False))
    assert str(joined.explain()).startswith("asof (left) of trades, quotes without equality\n")
    with pytest.raises(QueryError, match=r"`shards` is 2, and there is no `on`; without a key all rows meet"):
        wm.join_asof(trades, quotes, shards=2)


@pytest.mark.parametrize("direction", ["backward", "forward", "nearest"])
def test_the_same_as_sparks_own_batch_join(spark: SparkSession, tmp_path: Path, direction: str) -> None:
    market = Market(spark, tmp_path, batches=2)
    for n in range(2):
        market.add(n)
    trades, quotes = market.streams(static=True)
    if not hasattr(trades.df, "_joinAsOf"):
        pytest.skip("this session has no as-of join of its own")
    # one quote of each symbol and instant, on odd instants: Spark leaves open which of two equally near rows it takes
    alone = quotes.df.where("symbol IS NOT NULL").groupBy("symbol", "quoted_at").agg(F.max("bid").alias("bid"))
    even = trades.df.where("symbol IS NOT NULL AND second(traded_at) % 2 = 0")
    alone = alone.where("second(quoted_at) % 2 = 1" if direction != "nearest" else "second(quoted_at) % 4 = 1")
    even = even if direction != "nearest" else even.where("second(traded_at) % 4 = 2")
    own = even._joinAsOf(alone, "traded_at", "quoted_at", on="symbol", how="left", direction=direction)
    sides = wm.stream(even, time="traded_at", name="a"), wm.stream(alone, time="quoted_at", name="b")
    ours = wm.join_asof(*sides, on="symbol", direction=direction)
    wanted = [tuple(row) for row in own.select("trade", "bid").collect()]
    assert ordered([found[1:] for found in collected(ours.df)]) == ordered(wanted)


def test_groups_and_a_further_join_go_by_the_time_of_the_left_row(spark: SparkSession, tmp_path: Path) -> None:
    market = Market(spark, tmp_path, batches=3)
    for n in range(3):
        market.add(n)
    joined = wm.join_asof(*market.streams(), on="symbol")
    groups = joined.group_by(wm.bucket("traded_at", "10 seconds")).agg(n=wm.count())
    counted = rows(run(groups.df, market.checkpoint).table, ["n"])
    static = wm.join_asof(*market.streams(static=True), on="symbol")
    whole = [(r["n"],) for r in static.group_by(wm.bucket("traded_at", "10 seconds")).agg(n=wm.count()).df.collect()]
    assert counted, "buckets that the trades have passed are final"
    assert len(counted) < len(whole)
    with pytest.raises(QueryError, match="such a group may grow for ever"):
        joined.group_by(wm.bucket("quoted_at", "10 seconds")).agg(n=wm.count())
    stream = joined.as_stream("priced")
    assert stream.time == "event_time"
    at = F.col("traded_at") == F.col("event_time")
    assert static.as_stream("priced").df.where("trade IS NOT NULL").select(F.every(at)).first()[0]


def test_a_run_that_ends_answers_what_waits(spark: SparkSession, tmp_path: Path) -> None:
    market = Market(spark, tmp_path, batches=1)
    market.batches[0][1].pop()  # no quote passes all trades
    market.add(0)
    joined = wm.join_asof(*market.streams(), on="symbol", order_by="bid", shards=2)
    found: list[tuple[Any, ...]] = []
    sink = lambda df, batch: found.extend(collected(df))  # noqa: E731
    wm.write(joined, checkpoint=market.checkpoint, results=sink, ends=True).awaitTermination()
    assert ordered(found) == ordered(market.wanted())


def test_what_is_kept_is_explained(spark: SparkSession, tmp_path: Path) -> None:
    trades, quotes = Market(spark, tmp_path).streams()
    text = str(wm.join_asof(trades, quotes, on="symbol").explain())
    assert "one version of quotes per symbol stays for ever (a table)" in text
    assert "trades: a row is kept until quotes is past its traded_at" in text
    assert "quotes: a row is kept until trades is past a later row of its symbol" in text
    known = wm.join_asof(trades, quotes, on="symbol").explain(
        statistics={"trades": {"rate": 10, "keys": 700}, "quotes": {"rate": 50, "keys": 700}}
    )
    assert "(a table of about 700 keys)" in str(known)
    near = wm.join_asof(trades, quotes, on="symbol", tolerance="1 minute", direction="nearest").explain()
    assert "the nearest row of quotes, on equal distance the earlier one, at most 1 minute away" in str(near)
    assert json.dumps(near.to_dict())
    assert "<svg" in near.to_svg()


def test_kinds_and_keys_are_written_as_in_join(spark: SparkSession, tmp_path: Path) -> None:
    trades, quotes = Market(spark, tmp_path).streams()
    for how, kind in (("left_outer", "left"), ("LEFT", "left"), ("Inner", "inner")):
        assert wm.join_asof(trades, quotes, on="symbol", how=how).query.how == kind
    for on in (
        trades.df.symbol == quotes.df.symbol,
        [F.col("trades.symbol") == F.col("quotes.symbol")],
        F.expr("trades.symbol = quotes.symbol"),
    ):
        assert [s.key for s in wm.join_asof(trades, quotes, on=on).query.streams] == [("symbol",), ("symbol",)]
    with pytest.raises(QueryError, match=r"`on` is a Column, symbol; it is an equality of two columns"):
        wm.join_asof(trades, quotes, on=F.col("symbol"))
    with pytest.raises(QueryError, match=r"`on` joins NULLs of `symbol`; in an as-of join a row without a key has no"):
        wm.join_asof(trades, quotes, on=trades.df.symbol.eqNullSafe(quotes.df.symbol))


def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    trades, quotes = Market(spark, tmp_path).streams()
    with pytest.raises(ColumnError, match=r"`order_by` names column `ask`, which stream `quotes` does not have"):
        wm.join_asof(trades, quotes, on="symbol", order_by="ask")
    with pytest.raises(QueryError, match=r"`tolerance` is 5; a duration has a unit"):
        wm.join_asof(trades, quotes, on="symbol", tolerance=5)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"`allow_exact` is 1; it is True or False"):
        wm.join_asof(trades, quotes, on="symbol", allow_exact=1)  # type: ignore[arg-type]
    with pytest.raises(QueryError, match=r"`on` joins NULLs of `symbol`; in an as-of join a row without a key has no"):
        wm.join_asof(trades, quotes, on="trades.symbol <=> quotes.symbol")
    for how in ("semi", "full_outer", "RIGHT"):
        kind = {"full_outer": "full", "RIGHT": "right"}.get(how, how)
        with pytest.raises(QueryError, match=rf'`how` is "{kind}"; an as-of join is "left" or "inner"'):
            wm.join_asof(trades, quotes, on="symbol", how=how)
    with pytest.raises(QueryError, match=r'`how` is "lefft"; a join is one of inner, left'):
        wm.join_asof(trades, quotes, on="symbol", how="lefft")
    with pytest.raises(QueryError, match=r"two streams are called `trades`"):
        wm.join_asof(trades, trades, on="symbol")
    with pytest.raises(QueryError, match=r"it gives each row one partner, the nearest in time"):
        wm.join(trades, quotes, on="symbol", algorithm="asof", allow_unbounded=True)
    for on, message in (
        ("t.symbol = q.symbol", "ASOF JOIN without a comparison of the event times"),
        ("t.symbol = q.symbol AND t.trade >= q.bid", "ON of an ASOF JOIN has equalities and one comparison"),
    ):
        with pytest.raises(QueryError, match=message):
            wm.sql(f"SELECT t.trade FROM t ASOF JOIN q ON {on}", t=trades, q=quotes)
    on = "t.symbol = q.symbol AND t.traded_at >= q.quoted_at"
    with pytest.raises(QueryError, match="`t` has a window that an ASOF JOIN does not know"):
        wm.sql(f"SELECT t.trade FROM t [ROWS 5] ASOF JOIN q ON {on}", t=trades, q=quotes)
