"""Keys of a side without a row are NULL, whatever column they are; USING and * have the key of either side."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from lab.query.duckdb_engine import bag, in_duckdb, run
from watersmeet.query.duckdb_query import batch_sql
from watersmeet.query.lowering import DeclaredStream, lower
from watersmeet.query.parser import read

START = datetime(2024, 5, 1)


def _table(rows: list[tuple[int | None, int, int]]) -> pa.Table:
    made = [{"k": k, "at": START + timedelta(seconds=s), "v": v} for k, s, v in rows]
    return pa.Table.from_pylist(made, pa.schema([("k", pa.int64()), ("at", pa.timestamp("us")), ("v", pa.int64())]))


TABLES = {
    "a": _table([(1, 0, 10), (2, 1, 11), (None, 2, 12), (4, 3, 13), (4, 9, 14)]),
    "b": _table([(1, 0, 20), (4, 1, 21), (4, 3, 22), (5, 4, 23), (None, 5, 24)]),
}


def answers(query: str) -> tuple[object, object]:
    """What the engine says, and what DuckDB says of the same query written out by us."""
    parsed = read(query, {name: table.schema.names for name, table in TABLES.items()})
    times = dict.fromkeys("ab", "at")
    plan = lower(query, parsed, {name: DeclaredStream(time) for name, time in times.items()})
    return bag(run(plan, TABLES, 2)), bag(in_duckdb(batch_sql(parsed, times), TABLES))


ON = ["a.at = b.at", "a.k = b.k", "a.k = b.k AND a.at = b.at", "a.at = b.at AND a.v < b.v"]


@pytest.mark.parametrize("join", ["LEFT", "RIGHT", "FULL"])
@pytest.mark.parametrize("on", ON)
def test_every_key_of_a_side_without_a_row_is_null(join: str, on: str) -> None:
    select = "SELECT a.k AS ak, b.k AS bk, a.at AS a_at, b.at AS b_at, a.v AS av, b.v AS bv"
    plain = f"{select} FROM a {join} JOIN b ON {on}"
    for where in ("", " WHERE b.at IS NULL", " WHERE a.at IS NULL", " WHERE a.k IS NULL OR b.k IS NULL"):
        found, batch = answers(plain + where)
        want = bag(in_duckdb(plain + where, TABLES))
        assert found == want
        assert batch == want


@pytest.mark.parametrize("join", ["", "LEFT", "RIGHT", "FULL"])
def test_a_column_in_using_is_that_of_whichever_side_is_there(join: str) -> None:
    for select in ("k, a.k AS ak, b.k AS bk, b.v AS bv", "k + 1 AS more, a.v AS av"):
        query = f"SELECT {select} FROM a {join} JOIN b USING (k) WHERE k > 1 OR k IS NULL"
        found, batch = answers(query)
        assert found == batch == bag(in_duckdb(query, TABLES))


@pytest.mark.parametrize("join", ["", "LEFT", "RIGHT", "FULL"])
def test_star_has_the_key_of_whichever_side_is_there(join: str) -> None:
    found, batch = answers(f"SELECT * FROM a {join} JOIN b USING (k)")
    meant = "SELECT k, a.at AS a_at, a.v AS a_v, b.at AS b_at, b.v AS b_v"
    assert found == batch == bag(in_duckdb(f"{meant} FROM a {join} JOIN b USING (k)", TABLES))
    query = f"SELECT b.* FROM a {join} JOIN b USING (k)"
    assert answers(query)[0] == bag(in_duckdb(f"SELECT b.k, b.at, b.v FROM a {join} JOIN b ON a.k = b.k", TABLES))


@pytest.mark.parametrize("join", ["LEFT", "RIGHT", "FULL"])
@pytest.mark.parametrize(
    "selected", ["count(b.k) AS n", "count(a.k) AS n, sum(b.k) AS m", "count(DISTINCT b.k) AS n", "mean(b.v) AS m"]
)
def test_aggregates_of_a_key_leave_out_results_without_its_side(join: str, selected: str) -> None:
    query = f"SELECT k, {selected} FROM a {join} JOIN b USING (k) GROUP BY k"
    assert answers(query)[0] == bag(in_duckdb(query, TABLES))


def test_using_finds_its_column_in_any_stream_before() -> None:
    streams = {"a": ["x", "at"], "b": ["x", "y", "bt"], "c": ["y", "x", "ct"]}
    query = read("SELECT x, y FROM a JOIN b USING (x) JOIN c USING (y, x)", streams)
    assert [[c.stream for c in group] for group in query.equal] == [["b", "c"], ["a", "b", "c"]]
    assert [e.sql().replace('"', "") for _, e in query.outputs] == ["a.x", "b.y"]
