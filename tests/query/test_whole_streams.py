"""Conditions and selected columns never decide which rows are violations, or are counted, or come first."""

from __future__ import annotations

import random
from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from lab.query.duckdb_engine import bag, run
from lab.query.query_mistakes import STREAMS, TIMES
from watersmeet.model.grouping import Aggregate, Bucket
from watersmeet.query.lowering import DeclaredStream, LoweredQuery, lower
from watersmeet.query.parser import read

SECOND = 1_000_000
ON = "FROM auction A, bid B WHERE A.item_id = B.item_id"


def spelled(e: object) -> str:
    return "" if e is None else e.sql("spark").replace("`", "")  # type: ignore[attr-defined]


def brought(plan: LoweredQuery) -> list[list[str]]:
    return [[name for name, _ in side.columns] for side in plan.sides]


def constrained(query: str, *, unique: bool = True) -> LoweredQuery:
    """The plan where the auctions have constraints."""
    parsed = read(query, STREAMS, constrained={"auction"})
    known = {i.name: DeclaredStream(TIMES[i.stream], unique=unique and i.stream == "auction") for i in parsed.inputs}
    return lower(query, parsed, known)


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
def test_no_row_of_a_stream_with_constraints_is_left_out_below_the_join(join: str) -> None:
    on = "A.item_id = B.item_id AND reserve > 1 AND upper(seller) = 'X' AND length(bidder) > 1"
    found = constrained(f"SELECT seller FROM auction A {join} bid B ON {on} WHERE seller <> 'y'")
    assert found.sides[0].where is None
    where, columns = spelled(found.where), dict(found.sides[0].columns)
    assert where.split(" AND ")[0] == "A_computed_0", "the join evaluates a column, however that is computed"
    own = "reserve > 1 AND UPPER(seller) = 'X'" + (" AND seller <> 'y'" if join == "JOIN" else "")
    assert spelled(columns["A_computed_0"]) == f"({own}) AND TRUE"
    assert spelled(found.after) == ("" if join == "JOIN" else "seller <> 'y'")


def test_groups_by_a_key_stay_in_the_join_whatever_is_requested_of_a_stream_with_constraints() -> None:
    found = constrained(
        "SELECT A.item_id, count(*) AS n FROM auction A LEFT JOIN bid B USING (item_id) WHERE A.reserve > 1 "
        "GROUP BY A.item_id HAVING count(*) > 2"
    )
    assert found.after is None, "else Spark would filter results between the join and the groups"
    assert found.by == ("item_id", "A_computed_0")
    assert spelled(found.having) == "agg_0 > 2 AND A_computed_0"


def test_all_columns_are_brought_where_the_bytes_of_a_row_break_ties() -> None:
    names = list(STREAMS["auction"]), list(STREAMS["bid"])
    assert brought(constrained(f"SELECT price {ON}")) == [names[0], ["item_id", "price", "bid_at"]]
    assert brought(constrained(f"SELECT price {ON}", unique=False))[0] == ["item_id", "opened_at"]
    assert brought(constrained(f"SELECT seller {ON.replace('bid B', 'bid [ROWS 3] B')}"))[1] == names[1]
    for aggregate in ("first(price)", "last(price)", "collect_list(price)", "first_value(price)"):
        plan = constrained(f"SELECT A.item_id, {aggregate} AS p {ON} GROUP BY A.item_id", unique=False)
        assert brought(plan) == list(names)


def test_no_column_of_a_stream_is_called_as_what_is_computed() -> None:
    streams = {"a": ["k", "a_computed_0", "agg_0", "at_bucket", "at"], "b": ["k", "bt"]}
    text = (
        "SELECT max(a.a_computed_0 + 1) AS m, a.agg_0 FROM a, b WHERE a.k = b.k GROUP BY agg_0, BUCKET(at, '1 second')"
    )
    found = lower(text, read(text, streams), {"a": DeclaredStream("at"), "b": DeclaredStream("bt")})
    assert found.by == ("agg_0", Bucket("at", SECOND, "at_bucket_2"))
    assert found.aggregates == (("agg_0_2", Aggregate("max", "a_computed_0_2")),)


@pytest.mark.parametrize("window", ["[ROWS 1]", "[PARTITION BY k ROWS 1]"])
def test_what_is_selected_does_not_decide_which_of_two_rows_of_one_instant_is_the_last(window: str) -> None:
    dice, at = random.Random(3), datetime(2024, 5, 1)
    rows = [
        {"k": k, "x": dice.randrange(9), "s": dice.choice("uvw"), "at": at + timedelta(seconds=n // 3)}
        for n, k in enumerate([1, 1, 1, 2, 2, 1, 2, 1, 1] * 5)
    ]
    other = [{"k": k, "n": n, "bt": at + timedelta(seconds=n)} for n in range(16) for k in (1, 2)]
    tables = {"a": pa.Table.from_pylist(rows), "b": pa.Table.from_pylist(other)}
    found = {}
    for select in ("x", "s", "x, s", "s, x", "a.at"):
        text = f"SELECT b.n AS n, b.k AS k, {select} FROM a {window}, b [NOW] WHERE a.k = b.k"
        parsed = read(text, {name: table.schema.names for name, table in tables.items()})
        plan = lower(text, parsed, {"a": DeclaredStream("at"), "b": DeclaredStream("bt")})
        found[select] = bag(run(plan, tables, 2))
    both = found["x, s"]
    assert sum(both.values()) > 5
    assert found["x"] == bag_of(both, (0, 1, 2))
    assert found["s"] == bag_of(both, (0, 1, 3))
    assert found["s, x"] == bag_of(both, (0, 1, 3, 2))


def bag_of(rows: object, places: tuple[int, ...]) -> object:
    out: dict[tuple[object, ...], int] = {}
    for row, times in rows.items():  # type: ignore[attr-defined]
        chosen = tuple(row[p] for p in places)
        out[chosen] = out.get(chosen, 0) + times
    return out
