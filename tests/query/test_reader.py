"""Queries as data: what is read, what goes below the join, and the messages of mistakes."""

from __future__ import annotations

import pytest
from sqlglot import exp

from lab.query.query_mistakes import MESSAGES, STREAMS, TIMES, all_messages
from watersmeet.model.grouping import Aggregate, Bucket
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.lowering import DeclaredStream, LoweredQuery, lower
from watersmeet.query.parsed_query import Auto, Column
from watersmeet.query.parser import read

SECOND = 1_000_000
ON = "FROM auction A, bid B WHERE A.item_id = B.item_id"


def plan(query: str) -> LoweredQuery:
    parsed = read(query, STREAMS)
    return lower(query, parsed, {i.name: DeclaredStream(TIMES[i.stream]) for i in parsed.inputs})


def spelled(e: exp.Expr | None) -> str:
    return "" if e is None else e.sql("spark").replace("`", "")


def test_every_mistake_has_its_recorded_message() -> None:
    assert all_messages() == MESSAGES.read_text()


@pytest.mark.parametrize(
    ("bracket", "window"),
    [
        ("[RANGE 12 HOURS]", TimeWindow(12 * 3600 * SECOND)),
        ("[range 1 hour 30 minutes]", TimeWindow(5400 * SECOND)),
        ("[RANGE INTERVAL 2 SECONDS]", TimeWindow(2 * SECOND)),
        ("[RANGE 12 HOURS SLIDE 5 MINUTES]", TimeWindow(12 * 3600 * SECOND)),
        ("[RANGE UNBOUNDED]", Unbounded()),
        ("[UNBOUNDED]", Unbounded()),
        ("[NOW]", TimeWindow(0)),
        ("[AUTO]", Auto()),
        ("[ROWS 1000]", RowsWindow(1000)),
        ("[PARTITION BY item_id ROWS 5]", RowsWindow(5, per_key=True)),
        ("", None),
    ],
)
def test_windows(bracket: str, window: Window | Auto | None) -> None:
    query = read(f"SELECT price FROM auction {bracket} AS A JOIN bid B ON A.item_id = B.item_id", STREAMS)
    assert [i.window for i in query.inputs] == [window, None]
    assert query.slide == (300 * SECOND if "SLIDE" in bracket else None)


def test_a_bracket_elsewhere_is_sql() -> None:
    outputs = plan(f"SELECT array(price, reserve)[0] AS first_of_two {ON}").outputs
    assert [spelled(e) for _, e in outputs] == ["ARRAY(price, reserve)[0]"]


@pytest.mark.parametrize(
    ("join", "where", "below", "across", "after"),
    [
        ("JOIN", "A.reserve > 1 AND B.price > 2", ("reserve > 1", "price < 9 AND price > 2"), "", ""),
        ("LEFT JOIN", "A.reserve > 1 AND B.price > 2", ("reserve > 1", "price < 9"), "", "price > 2"),
        ("RIGHT JOIN", "A.reserve > 1 AND B.price > 2", ("", "price > 2"), "B_computed_0", "reserve > 1"),
        ("FULL JOIN", "A.reserve > 1 AND B.price > 2", ("", ""), "B_computed_0", "reserve > 1 AND price > 2"),
        ("LEFT SEMI JOIN", "A.reserve > 1", ("reserve > 1", "price < 9"), "", ""),
        ("LEFT ANTI JOIN", "A.reserve > 1", ("reserve > 1", "price < 9"), "", ""),
    ],
)
def test_where_conditions_are_evaluated(join: str, where: str, below: tuple[str, str], across: str, after: str) -> None:
    query = f"SELECT A.seller FROM auction A {join} bid B ON A.item_id = B.item_id AND B.price < 9 WHERE {where}"
    found = plan(query)
    assert tuple(spelled(side.where) for side in found.sides) == below
    assert (spelled(found.where), spelled(found.after)) == (across, after)


def test_windows_of_rows_are_filled_before_conditions_are_evaluated() -> None:
    text = f"SELECT A.seller {ON} AND A.reserve > 1 AND price > 2"
    query = read(text, STREAMS, {"auction": RowsWindow(3)})
    assert [i.window for i in query.inputs] == [RowsWindow(3), None]
    assert [[spelled(f) for f in i.filters] for i in query.inputs] == [[], ["B.price > 2"]]
    assert list(map(spelled, query.across)) == ["A.reserve > 1"]
    query = read(text.replace("auction A", "auction [RANGE 1 HOUR] A"), STREAMS, {"auction": RowsWindow(3)})
    assert not query.across, "the query's window replaces the stream's"


def test_only_columns_that_something_names_are_brought() -> None:
    found = plan(f"SELECT A.item_id, price * 2 AS twice {ON} AND seller = 'x'")
    assert [[name for name, _ in side.columns] for side in found.sides] == [
        ["item_id", "opened_at"],
        ["item_id", "price", "bid_at"],
    ]
    assert spelled(found.sides[0].where) == "seller = 'x'"


def test_keys_of_other_names_are_one_above_the_join() -> None:
    streams = {"a": ["x", "at"], "b": ["y", "x", "at"]}
    text = "SELECT a.x, b.x AS bx FROM a, b WHERE a.x = b.y"
    query = read(text, streams)
    assert query.equal == ((Column("a", "x"), Column("b", "y")),)
    found = lower(text, query, {"a": DeclaredStream("at"), "b": DeclaredStream("at")})
    assert found.equal == ({"a": "a_x", "b": "a_x"},), "b has another column called x"
    assert [(n, spelled(e)) for n, e in found.sides[1].columns] == [("a_x", "y"), ("x", "x"), ("b_at", "at")]
    assert [spelled(e) for _, e in found.outputs] == ["a_x", "x"]


def test_the_key_of_a_stream_without_a_tuple_is_null() -> None:
    found = plan("SELECT A.item_id AS a, B.item_id AS b FROM auction A LEFT JOIN bid B USING (item_id)")
    assert [spelled(e) for _, e in found.outputs] == ["item_id", "CASE WHEN NOT bid_at IS NULL THEN item_id END"]


def test_groups_and_aggregates() -> None:
    found = plan(
        "SELECT seller AS who, BUCKET(bid_at, '1 minute') AS minute, COUNT(*) AS bids, MAX(price * 2) + COUNT(1) AS m "
        f"{ON} GROUP BY who, minute HAVING bids > 2 AND COUNT(DISTINCT bidder) > 1"
    )
    assert found.by == ("seller", Bucket("bid_at", 60 * SECOND, "bid_at_bucket"))
    assert dict(found.aggregates) == {
        "agg_0": Aggregate("count"),
        "agg_1": Aggregate("max", "B_computed_0"),
        "agg_2": Aggregate("count_distinct", "bidder"),
    }
    assert [spelled(e) for _, e in found.outputs] == ["seller", "bid_at_bucket", "agg_0", "agg_1 + agg_0"]
    assert spelled(found.having) == "agg_0 > 2 AND agg_2 > 1"
    assert [name for name, _ in found.sides[1].columns] == ["item_id", "bid_at", "bidder", "B_computed_0"]


def test_no_column_is_taken_for_one_that_the_query_computes() -> None:
    streams = {"a": ["k", "at", "agg_0"], "b": ["k", "b_at", "b_computed_0", "AT_bucket"]}
    text = (
        "SELECT agg_0, AT_bucket, BUCKET(at, '1 minute') AS m, MAX(b_at + b_computed_0) AS x FROM a, b WHERE a.k = b.k "
        "GROUP BY agg_0, AT_bucket, m"
    )
    found = lower(text, read(text, streams), {"a": DeclaredStream("at"), "b": DeclaredStream("b_at")})
    assert found.by == ("agg_0", "AT_bucket", Bucket("at", 60 * SECOND, "at_bucket_2"))
    assert dict(found.aggregates) == {"agg_0_2": Aggregate("max", "b_computed_0_2")}
    assert [spelled(e) for _, e in found.outputs] == ["agg_0", "AT_bucket", "at_bucket_2", "agg_0_2"]
    assert [(n, spelled(e)) for n, e in found.sides[1].columns][-1] == ("b_computed_0_2", "b_at + b_computed_0")
    text = "SELECT agg_0 FROM a, b WHERE a.k = b.k GROUP BY agg_0"
    found = lower(text, read(text, streams), {"a": DeclaredStream("at"), "b": DeclaredStream("b_at")})
    assert found.aggregates[0][0] == "agg_0_2"


def test_star_has_equal_columns_once_and_says_whose_the_others_are() -> None:
    streams = {"s1": ["epoch", "val"], "s2": ["epoch", "val"]}
    query = read("SELECT * FROM s1, s2 WHERE s1.epoch = s2.epoch", streams)
    assert [name for name, _ in query.outputs] == ["epoch", "s1_val", "s2_val"]
    query = read("SELECT s2.*, s1.val AS other FROM s1, s2 WHERE s1.epoch = s2.epoch", streams)
    assert [name for name, _ in query.outputs] == ["epoch", "val", "other"]


def test_fields_of_structs_and_a_column_called_as_its_stream() -> None:
    streams = {"a": ["k", "a", "at"], "b": ["k", "place", "bt"]}
    text = "SELECT a, place.town AS town, b.place.x.y AS y FROM a, b WHERE a.k = b.k AND b.place.x.y > 1"
    found = lower(text, read(text, streams), {"a": DeclaredStream("at"), "b": DeclaredStream("bt")})
    assert [spelled(e) for _, e in found.outputs] == ["a", "place.town", "place.x.y"]
    assert spelled(found.sides[1].where) == "place.x.y > 1"


def test_three_streams_without_a_common_key() -> None:
    streams = {"a": ["x", "at"], "b": ["x", "y", "bt"], "c": ["y", "ct"]}
    text = "SELECT a.x, c.y FROM a, b, c WHERE a.x = b.x AND b.y = c.y"
    found = lower(
        text, read(text, streams), {"a": DeclaredStream("at"), "b": DeclaredStream("bt"), "c": DeclaredStream("ct")}
    )
    assert found.equal == ({"a": "x", "b": "x"}, {"b": "y", "c": "y"})


def test_names_are_found_as_spark_finds_them() -> None:
    assert read(f"select PRICE as p {ON.replace('auction', 'Auction').replace('A.item_id', 'a.ITEM_ID')}", STREAMS)
    with pytest.raises(ValueError, match="no stream of the query has a column `PRICE`"):
        read(f"SELECT PRICE AS p {ON}", STREAMS, case_sensitive=True)
