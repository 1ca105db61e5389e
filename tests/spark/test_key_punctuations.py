"""Punctuations are about the columns that they name: used where these are the key, else refused or left unused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.spark.feeds import Feed, run
from lab.spark.refusals import refusal
from watersmeet.errors import ColumnError, QueryError
from watersmeet.spark.streams import Stream

pytestmark = pytest.mark.spark

SECOND = 1_000_000


def frame(spark: SparkSession, columns: str, rows: list[tuple[Any, ...]]) -> DataFrame:
    """Rows of whole numbers; of a time, so many seconds; of `over`, whether it is 1."""
    names = columns.split()
    df = spark.createDataFrame(rows, ", ".join(f"{name} long" for name in names))
    times = {name: F.timestamp_seconds(name) for name in names if name.endswith("at")}
    return df.withColumns(times | {name: F.col(name) == 1 for name in names if name.startswith("over")})


def keys_and_violations(joined: wm.Joined, *columns: str) -> tuple[list[tuple[Any, ...]], list[str]]:
    """Results, and the streams of rows that are violations."""
    rows = joined.tagged.toArrow().to_pylist()
    results = [tuple(r[c] for c in columns) for r in rows if r["kind"] == "result"]
    return sorted(results), sorted(r["stream"] for r in rows if r["kind"] == "violation")


def warnings(joined: wm.Joined) -> list[str]:
    return [text for text in joined.explain().to_dict()["warnings"] if "is not used" in text]


# ---------------------------------------------------------------- one operator


@pytest.fixture(scope="module")
def bids(spark: SparkSession) -> DataFrame:
    return frame(spark, "item seller bid_at over", [(1, 7, 1, 0), (1, 7, 2, 1), (7, 3, 3, 0)])


@pytest.fixture(scope="module")
def auctions(spark: SparkSession) -> Stream:
    return wm.stream(frame(spark, "item opened_at", [(7, 0), (1, 0)]), time="opened_at", window="1 hour", name="a")


def test_a_punctuation_about_another_column_than_the_key_is_refused(bids: DataFrame, auctions: Stream) -> None:
    def join(punctuation: Any, on: Any = "item") -> wm.Joined:
        b = wm.stream(bids, time="bid_at", window="1 hour", punctuation=punctuation, name="b")
        return wm.join(auctions, b, on=on)

    for source in (wm.when("over", on="seller"), wm.unique("seller"), wm.when("over", on="seller", low="seller")):
        assert refusal(ColumnError, lambda source=source: join(source)) == (
            "`punctuation` of stream `b` is about column `seller`, but the join is on item; only the join key's "
            'values can be closed.\nHint: join on "seller", or leave the punctuation out.'
        )
    assert refusal(ColumnError, lambda: join(wm.when("over", on=["item", "seller"]))).startswith(
        "`punctuation` of stream `b` is about columns `item`, `seller`, but the join is on item;"
    )
    found, wrong = keys_and_violations(join(wm.when("over", on="item")), "item", "seller")
    assert (found, wrong) == ([(1, 7), (7, 3)], [])


def test_the_value_of_a_key_may_stand_elsewhere(spark: SparkSession, bids: DataFrame, auctions: Stream) -> None:
    """`seller` holds the item that is closed: 7, of which a row comes afterwards."""
    closing = wm.when("over", on={"item": "seller"})
    b = wm.stream(bids, time="bid_at", window="1 hour", punctuation=closing, name="b")
    assert keys_and_violations(wm.join(auctions, b, on="item"), "item", "seller") == ([(1, 7)], ["b"])
    apart = frame(spark, "done bid_at", [(7, 2)])
    closing = wm.when("true", on={"item": "done"}, df=apart)
    b = wm.stream(bids.where("NOT over"), time="bid_at", window="1 hour", punctuation=closing, name="b")
    assert keys_and_violations(wm.join(auctions, b, on="item"), "item", "seller") == ([(1, 7)], ["b"])


def test_lists_and_ranges_name_their_column_or_mean_the_key(bids: DataFrame, auctions: Stream) -> None:
    for closing in (
        wm.when("over", values="array(7L)"),
        wm.when("over", on="item", values="array(7L)"),
        wm.when("over", on="ITEM", low=7),
    ):
        b = wm.stream(bids, time="bid_at", window="1 hour", punctuation=closing, name="b")
        assert keys_and_violations(wm.join(auctions, b, on="item"), "item", "seller") == ([(1, 7)], ["b"])


def test_a_key_of_several_columns_is_closed_in_any_order(spark: SparkSession) -> None:
    """(x 1, y 2) is closed at 5: the row that comes with it again is a violation, (2, 1) is none."""
    rows = [(1, 2, 5, 1), (2, 1, 6, 0), (1, 2, 6, 0)]
    for on in (["y", "x"], ["x", "y"]):
        b = frame(spark, "x y b_at over", rows)
        b = wm.stream(b, time="b_at", window="1 hour", punctuation=wm.when("over", on=on), name="b")
        a = wm.stream(frame(spark, "x y a_at", [(1, 2, 6), (2, 1, 6)]), time="a_at", window="1 hour", name="a")
        assert keys_and_violations(wm.join(a, b, on=["x", "y"]), "x", "y") == ([(2, 1)], ["b"])


def test_lists_of_keys_of_several_columns_are_refused(spark: SparkSession) -> None:
    a, b = frame(spark, "x y a_at", [(1, 2, 3)]), frame(spark, "x y b_at over", [(1, 2, 3, 0)])

    def join(punctuation: Any) -> wm.Joined:
        with_b = wm.stream(b, time="b_at", window="1 hour", punctuation=punctuation, name="b")
        return wm.join(wm.stream(a, time="a_at", window="1 hour", name="a"), with_b, on=["x", "y"])

    assert refusal(ColumnError, lambda: join(wm.when("over", values="array(x)"))) == (
        "`values` of `when` of stream `b` are values of one column, and the join is on x, y; no value closes a key of "
        'several columns.\nHint: close single keys: wm.when(…, on=["x", "y"]).'
    )
    assert "closes ranges of x, y" in refusal(ColumnError, lambda: join(wm.when("over", low="x")))
    for on in ("x", ["x", "y", "b_at"]):
        assert "but the join is on x, y" in refusal(ColumnError, lambda on=on: join(wm.when("over", on=on)))


def test_columns_are_called_as_users_like(spark: SparkSession) -> None:
    """The names of ours that do not begin as reserved ones; `tests/tws/test_names.py` has all of them."""
    names = ["kind", "row", "shard", "blob", "stream", "until", "upstream_shard", "closed at"]
    a = frame(spark, "time low over", [(1, 1, 0), (1, 2, 1), (2, 3, 0), (1, 4, 0)]).withColumn(
        "low", F.timestamp_seconds("low")
    )
    a = a.withColumns({name: F.lit(name) for name in names})
    b = frame(spark, "time high", [(1, 1), (2, 2)]).withColumn("high", F.timestamp_seconds("high"))
    punctuations = [wm.when("over", on="time"), wm.when("over", high=F.lit(0))]
    first = wm.stream(a, time="low", window="1 hour", punctuation=punctuations, name="a")
    for known in (wm.clustered("time"), wm.ordered("time"), wm.unique("time")):
        second = wm.stream(b, time="high", window="1 hour", punctuation=known, name="b")
        joined = wm.join(first, second, on="time")
        found = joined.df.select("time", *(f"`{name}`" for name in names)).collect()
        assert sorted(map(tuple, found)) == [(1, *names), (2, *names)], "of 1 the first row, before it was closed"
    assert "have one called `kind`" in refusal(ColumnError, lambda: joined.tagged)


# ---------------------------------------------------------------- several operators, several names


def tree(spark: SparkSession, closing: Any = None) -> tuple[Stream, ...]:
    """b says at 2 that no more of y 7 comes, and brings a row with x 7 at 3."""
    a = frame(spark, "x a_at", [(7, 1), (1, 1)])
    b = frame(spark, "x y b_at over", [(1, 7, 1, 0), (7, 7, 2, 1), (7, 5, 3, 0)])
    c = frame(spark, "y c_at", [(7, 4), (5, 4)])
    return tuple(
        wm.stream(df, time=f"{n}_at", window="1 hour", punctuation=closing if n == "b" else None, name=n)
        for n, df in (("a", a), ("b", b if closing is not None else b.where("NOT over")), ("c", c))
    )


ON = ["a.x = b.x", "b.y = c.y"]


@pytest.mark.parametrize("known", [False, True], ids=["when", "unique"])
def test_in_a_tree_a_punctuation_about_another_operators_key_is_not_used(spark: SparkSession, known: bool) -> None:
    punctuations = [wm.when("over", on="y"), *([wm.unique("y")] if known else [])]
    joined = wm.join(*tree(spark, punctuations), on=ON)
    assert (
        keys_and_violations(joined, "x", "y")
        == keys_and_violations(wm.join(*tree(spark), on=ON), "x", "y")
        == ([(1, 7), (7, 5)], [])
    )
    assert warnings(joined) == [
        f"`{word}` about y of `b` is not used: its operator joins `b` on x" for word in ("when", "unique")[: 1 + known]
    ]
    a, b, c = tree(spark, wm.when("over", on="y"))
    query = "SELECT a.x, b.y FROM a, b, c WHERE a.x = b.x AND b.y = c.y"
    by_sql = wm.sql(query, a=a, b=b, c=c)
    assert keys_and_violations(by_sql, "x", "y") == ([(1, 7), (7, 5)], [])  # type: ignore[arg-type]
    assert len(warnings(by_sql)) == 1  # type: ignore[arg-type]


def test_in_a_tree_a_punctuation_is_used_by_the_operator_whose_key_it_is_about(spark: SparkSession) -> None:
    joined = wm.join(*tree(spark, wm.when("over", on="x")), on=ON)
    assert keys_and_violations(joined, "x", "y") == ([(1, 7)], ["b"])
    assert not warnings(joined)


def test_in_a_tree_lists_and_ranges_name_their_column(spark: SparkSession) -> None:
    assert refusal(QueryError, lambda: wm.join(*tree(spark, wm.when("over", values="array(y)")), on=ON)) == (
        "`values` of `when` of stream `b` are values of one column, and it is compared by x, y; it is not clear "
        'which of them is meant.\nHint: name it: wm.when(…, on="x").'
    )
    joined = wm.join(*tree(spark, wm.when("over", on="y", high="y")), on=ON)
    assert keys_and_violations(joined, "x", "y") == ([(1, 7), (7, 5)], [])
    assert "but the join is on x" in refusal(
        ColumnError, lambda: wm.join(*tree(spark, wm.when("over", on="b_at")), on=ON)
    )


def test_a_stream_that_meets_itself_closes_the_column_that_it_names(spark: SparkSession) -> None:
    """Under X the stream is compared by k, under Y by v: no more of k 1 says nothing of v 1."""
    rows = [(1, 5, 1, 0), (1, 0, 2, 1), (2, 1, 3, 0), (3, 2, 4, 0)]
    s = wm.stream(frame(spark, "k v at over", rows), time="at", window="1 hour", punctuation=wm.when("over", on="k"))
    joined = wm.sql("SELECT X.v AS x, Y.k AS y FROM s X, s Y WHERE X.k = Y.v", s=s)
    assert keys_and_violations(joined, "x", "y") == ([(1, 3), (5, 2)], [])  # type: ignore[arg-type]
    assert warnings(joined) == ["`when` about k of `Y` is not used: its operator joins `Y` on X_k"]  # type: ignore[arg-type]
    unnamed = wm.stream(s.df, time="at", window="1 hour", punctuation=wm.when("over", values="array(k)"))
    assert "it is not clear which of them is meant" in refusal(
        QueryError, lambda: wm.sql("SELECT X.v AS x FROM s X, s Y WHERE X.k = Y.v", s=unnamed)
    )


# ---------------------------------------------------------------- outputs of joins


def nested(k: int) -> tuple[Any, ...]:
    return ({"a b": k, "c": [k / 3, float("nan") if k % 2 else float("inf"), None], "d": bytes([k, 255]), "e": k},)


#: Types of the key columns, how a further join orders them, and the k-th key of each.
KEYS: dict[str, tuple[dict[str, str], str, Callable[[int], tuple[Any, ...]]]] = {
    "two columns, turned": ({"x": "long", "y": "long"}, "yx", lambda k: (k, k + 1)),
    "an array": ({"x": "array<string>"}, "x", lambda k: ([f'"{k}', None],)),
    "a struct": ({"x": "struct<`a b`:timestamp,c:array<double>,d:binary,e:decimal(9,2)>"}, "x", nested),
    "an interval": ({"x": "interval day to second"}, "x", lambda k: (k * SECOND,)),
}


@pytest.mark.parametrize("kind", KEYS)
def test_finished_keys_of_a_join_close_them_in_a_further_one(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """In batch n, a and b bring keys 2n and 2n + 1 and close 2n - 2; c brings all six keys every time."""
    kinds, then, key = KEYS[kind]
    columns = {n: [*((c, kinds[c]) for c in (then if n == "c" else kinds)), (f"{n}_at", "timestamp")] for n in "abc"}
    columns |= {n: [*columns[n], (f"over_{n}", "boolean")] for n in "ab"}
    feeds = {n: Feed(spark, tmp_path / n, ", ".join(map(" ".join, columns[n]))) for n in "abc"}
    for batch in range(3):
        at = 10 * batch * SECOND
        for n in "ab":
            closed = [(*key(2 * batch - 2), at, True)] if batch else []
            feeds[n].add_rows([(*key(2 * batch + i), at, False) for i in (0, 1)] + closed)
        feeds["c"].add_rows([(*(dict(zip(kinds, key(k), strict=True))[c] for c in then), at) for k in range(6)])
    streams = {
        n: wm.stream(
            f.stream(),
            time=f"{n}_at",
            window="1 hour",
            punctuation=wm.when(f"over_{n}", on=list(kinds)) if n != "c" else None,
            name=n,
        )
        for n, f in feeds.items()
    }
    both = wm.join(streams["a"], streams["b"], on=list(kinds)).as_stream("ab", window="1 hour")
    found = run(wm.join(both, streams["c"], on=list(then)).tagged, tmp_path / "checkpoint")
    kinds_of_rows = [r["kind"] for r in found.table.to_pylist()]
    assert kinds_of_rows.count("result") == 18, "six pairs, each with a row of c from every batch"
    assert not {"late", "violation"} & set(kinds_of_rows)
    gone = 0 if kind == "an interval" else 6  # rows of c with keys 0 and 2; intervals are not read back from JSON
    assert found.metrics[-1]["stored"] == 6 + 18 - gone


def test_ranges_of_bytes_are_handed_on_as_they_are(spark: SparkSession, tmp_path: Path) -> None:
    """Keys ascend; base64 of a key would be a range of other keys."""
    feeds = {n: Feed(spark, tmp_path / n, f"k binary, {n}_at timestamp") for n in "abc"}
    for batch in range(3):
        for n, feed in feeds.items():
            keys = [bytes([60 + batch])] if n != "c" else [bytes([k]) for k in (30, 60, 61, 62, 90)]
            feed.add_rows([(k, 10 * batch * SECOND) for k in keys])
    a, b, c = (
        wm.stream(
            f.stream(),
            time=f"{n}_at",
            window="1 hour",
            punctuation=wm.ordered("k") if n != "c" else None,
            name=n,
        )
        for n, f in feeds.items()
    )
    both = wm.join(a, b, on="k").as_stream("ab", window="1 hour")
    found = run(wm.join(both, c, on="k").tagged, tmp_path / "checkpoint")
    kinds = [r["kind"] for r in found.table.to_pylist()]
    assert (kinds.count("result"), kinds.count("violation")) == (9, 0)
    # of c the rows with 62 and 90, of which more may come; and the pairs, whose keys c never closes
    assert found.metrics[-1]["stored"] == 3 + 6


def test_rows_that_violate_pass_through_a_query_over_a_join(spark: SparkSession) -> None:
    a = frame(spark, "x a_at over", [(1, 1, 1), (1, 2, 0), (2, 3, 0)])
    streams = (
        wm.stream(a, time="a_at", window="1 hour", punctuation=wm.when("over", on="x"), name="a"),
        wm.stream(frame(spark, "x b_at", [(1, 1), (2, 1)]), time="b_at", window="1 hour", name="b"),
    )
    both = wm.join(*streams, on="x").as_stream("ab", window="1 hour")
    c = wm.stream(frame(spark, "x c_at", [(2, 4)]), time="c_at", window="1 hour")
    joined = wm.sql("SELECT ab.x FROM ab, c WHERE ab.x = c.x AND ab.x > 0", ab=both, c=c)
    assert keys_and_violations(joined, "x") == ([(2,)], ["a"])  # type: ignore[arg-type]


# ---------------------------------------------------------------- against the definition


@pytest.mark.parametrize("seed", [1, 2])
def test_named_punctuations_change_no_result_of_a_tree(spark: SparkSession, seed: int) -> None:
    """a meets b on two columns, what they give meets c on one: every stream closes whatever of its columns it likes."""
    chance = Random(seed)
    keys = {"a": "x y", "b": "y x z", "c": "z"}
    about = {
        "a": ["x", "y"],
        "b": chance.choice([["x", "y"], ["y", "x"], ["z"]]),
        "c": ["z"],
    }
    rows: dict[str, list[tuple[Any, ...]]] = {}
    streams = []
    for n, names in keys.items():
        columns = names.split()
        closed: list[tuple[Any, ...]] = []
        made = []
        for at in range(60):
            key = tuple(chance.randint(0, 2) for _ in columns)
            value = tuple(key[columns.index(c)] for c in about[n])
            if value in closed:
                continue
            over = at > 20 and chance.random() < 0.15
            if over:
                closed.append(value)
            made.append((*key, at, int(over)))
        rows[n] = [dict(zip([*columns, "at"], r, strict=False)) for r in made if not r[-1]]  # type: ignore[misc]
        df = frame(spark, f"{names} {n}_at over_{n}", made)
        closing = wm.when(f"over_{n}", on=about[n])
        streams.append(wm.stream(df, time=f"{n}_at", window="9 seconds", punctuation=closing, name=n))
    joined = wm.join(*streams, on=["a.x = b.x", "a.y = b.y", "b.z = c.z"])
    want = []
    for a in rows["a"]:
        for b in rows["b"]:
            for c in rows["c"]:
                times = [r["at"] for r in (a, b, c)]  # type: ignore[call-overload]
                same = a["x"] == b["x"] and a["y"] == b["y"] and b["z"] == c["z"]  # type: ignore[call-overload]
                if same and max(times) - min(times) <= 9:
                    want.append(tuple(times))
    seconds = [F.unix_seconds(f"{n}_at") for n in "abc"]
    assert sorted(map(tuple, joined.df.select(*seconds).collect())) == sorted(want)
    assert len(want) > 20
    assert len(warnings(joined)) == (about["b"] == ["z"])
