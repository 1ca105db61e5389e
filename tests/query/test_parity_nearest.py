"""Joins without equality and as-of joins in SQL give what DuckDB gives in batch, windows written out as predicates."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.query.duckdb_engine import bag, in_duckdb, run
from watersmeet.errors import QueryError
from watersmeet.query.duckdb_query import batch_sql
from watersmeet.query.lowering import DeclaredStream, LoweredQuery, lower
from watersmeet.query.parsed_query import Query
from watersmeet.query.parser import read

few = settings(max_examples=max(10, settings().max_examples // 4))
START = datetime(2024, 5, 1)
SCHEMA = {
    "a": pa.schema([("k", pa.int64()), ("x", pa.int32()), ("at", pa.timestamp("us")), ("n", pa.int64())]),
    "b": pa.schema([("k", pa.int64()), ("y", pa.int32()), ("bt", pa.timestamp("us")), ("n", pa.int64())]),
}
TIMES = {"a": "at", "b": "bt"}
#: Conditions that tie the streams, and conditions beside them.
TIES = ["abs(a.x - b.y) <= 1", "a.x < b.y", "a.x <= b.y AND b.y < a.x + 2", "a.x * 2 >= b.y + 1", "a.n % 2 = b.n % 2"]
BESIDE = ["a.x > 0", "b.y <> 1", "a.k <> b.k", "b.y IS NOT NULL", "a.x + b.y > 2 OR a.n = b.n"]


def parsed(cql: str) -> tuple[Query, LoweredQuery]:
    query = read(cql, {name: schema.names for name, schema in SCHEMA.items()})
    return query, lower(cql, query, {name: DeclaredStream(time) for name, time in TIMES.items()})


@st.composite
def tables(draw: Any, *, apart: bool = False) -> dict[str, pa.Table]:
    """Rows of both streams; `apart`: those of b with one key have different times, so that one is the nearest."""
    out = {}
    for name, schema in SCHEMA.items():
        row = st.tuples(
            st.sampled_from([1, 2, None]),
            st.sampled_from([0, 1, 2, 3, None]),
            st.integers(0, 12).map(lambda n: START + timedelta(seconds=n)),
        )
        key = (lambda r: (r[0], r[2])) if apart and name == "b" else None
        rows = draw(st.lists(row, max_size=8, unique_by=key) if key else st.lists(row, max_size=8))
        made = [dict(zip(schema.names, (*one, n), strict=True)) for n, one in enumerate(rows)]
        out[name] = pa.Table.from_pylist(made, schema=schema)
    return out


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
@few
@given(drawn=st.data(), data=tables(), cuts=st.integers(1, 3))
def test_joins_without_equality(how: str, drawn: st.DataObject, data: dict[str, pa.Table], cuts: int) -> None:
    lengths = [drawn.draw(st.integers(0, 9)) for _ in "ab"]
    on = " AND ".join(
        f"({c})"
        for c in [drawn.draw(st.sampled_from(TIES)), *drawn.draw(st.lists(st.sampled_from(BESIDE), max_size=2))]
    )
    select = "a.n AS an, a.x AS x" + (", b.n AS bn, coalesce(b.y, 7) AS y" if how in ("inner", "left") else "")
    join = {"inner": "JOIN", "left": "LEFT JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}[how]
    first, second = (f"[RANGE {length} SECONDS]" for length in lengths)
    query, plan = parsed(f"SELECT {select} FROM a {first} {join} b {second} ON {on}")
    now = "greatest(a.at, b.bt)"
    near = f"a.at >= {now} - INTERVAL {lengths[0]} SECOND AND b.bt >= {now} - INTERVAL {lengths[1]} SECOND"
    meant = join.replace("LEFT SEMI", "SEMI").replace("LEFT ANTI", "ANTI")
    want = bag(in_duckdb(f"SELECT {select} FROM a {meant} b ON {on} AND {near}", data))
    assert not plan.equal
    assert bag(in_duckdb(batch_sql(query, TIMES), data)) == want
    assert bag(run(plan, data, cuts)) == want


@pytest.mark.parametrize("how", ["inner", "left"])
@few
@given(drawn=st.data(), data=tables(apart=True), cuts=st.integers(1, 3))
def test_as_of_joins(how: str, drawn: st.DataObject, data: dict[str, pa.Table], cuts: int) -> None:
    compared = drawn.draw(
        st.sampled_from(["a.at >= b.bt", "a.at > b.bt", "a.at <= b.bt", "b.bt > a.at", "b.bt <= a.at"])
    )
    far = drawn.draw(st.one_of(st.none(), st.integers(1, 6)))
    where = drawn.draw(st.sampled_from(["", " WHERE a.x > 0", " WHERE a.x > 0 AND a.n < 5"]))
    spark = drawn.draw(st.booleans(), label="as Spark writes it")
    window = "" if far is None else f" [RANGE {far} SECONDS]"
    if spark:
        join = f"{'LEFT OUTER ' if how == 'left' else ''}ASOF JOIN b{window} MATCH_CONDITION ({compared}) ON a.k = b.k"
    else:
        join = f"ASOF {'LEFT ' if how == 'left' else ''}JOIN b{window} ON a.k = b.k AND {compared}"
    query, plan = parsed(f"SELECT a.n AS an, a.x AS x, b.n AS bn FROM a {join}{where}")
    near = "true" if far is None else f"abs(epoch_us(a.at) - epoch_us(b.bt)) <= {far * 1_000_000}"
    # the nearest row decides, then how far away it is
    best = f"SELECT a.n AS an, a.x AS x, CASE WHEN {near} THEN b.n END AS bn FROM a ASOF LEFT JOIN b ON a.k = b.k"
    kept = "" if how == "left" else " WHERE bn IS NOT NULL"
    want = bag(in_duckdb(f"SELECT * FROM ({best} AND {compared}{where}){kept}", data))
    assert bag(run(plan, data, cuts)) == want
    if far is None:
        assert bag(in_duckdb(batch_sql(query, TIMES), data)) == want


def test_a_match_condition_is_that_of_an_as_of_join() -> None:
    with pytest.raises(QueryError, match="MATCH_CONDITION is that of an ASOF JOIN, and this is none"):
        parsed("SELECT a.n FROM a JOIN b MATCH_CONDITION (a.at >= b.bt) ON a.k = b.k")
    with pytest.raises(QueryError, match="ON of an ASOF JOIN has equalities and one comparison of the event times"):
        parsed("SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION (a.at >= b.bt) ON a.k = b.k AND a.at <= b.bt")
    with pytest.raises(QueryError, match="ASOF JOIN among 3 streams"):
        read(
            "SELECT a.n FROM a ASOF JOIN b MATCH_CONDITION (a.at >= b.bt) JOIN c ON a.k = c.k",
            {n: ["k"] for n in "abc"},
        )
    columns = {"a": ["k", "at", "match_condition"], "b": ["k", "bt"]}
    assert read("SELECT match_condition FROM a JOIN b ON a.k = b.k", columns).outputs[0][0] == "match_condition"


def test_without_a_key_the_nearest_of_all_rows() -> None:
    _, plan = parsed("SELECT a.n AS an, b.n AS bn FROM a LEFT ASOF JOIN b MATCH_CONDITION (a.at >= b.bt)")
    assert plan.asof is not None
    assert not plan.equal
