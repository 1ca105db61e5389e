"""Every query gives what the same SQL gives in batch on DuckDB, with the windows written out as predicates."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.query.duckdb_engine import bag, in_duckdb, run
from watersmeet.query.duckdb_query import batch_sql
from watersmeet.query.lowering import DeclaredStream, lower
from watersmeet.query.parser import read

few = settings(max_examples=max(10, settings().max_examples // 4))
START = datetime(2024, 5, 1)
#: Streams: name, columns beside the time, the time's column.
COLUMNS = {
    "a": {"k": pa.int64(), "x": pa.int32(), "s": pa.string(), "at": pa.timestamp("us"), "n": pa.int64()},
    "b": {"K": pa.int64(), "y": pa.int32(), "s": pa.string(), "at": pa.timestamp("us"), "n": pa.int64()},
    "c": {"k": pa.int64(), "z": pa.int32(), "ct": pa.timestamp("us"), "n": pa.int64()},
}
TIMES = {"a": "at", "b": "at", "c": "ct"}
SELECT = ["a.k", "a.x", "b.k AS bk", "b.y AS y", "a.at AS a_at", "b.at AS b_at", "a.x + b.y AS total"]
SELECT += ["coalesce(b.y, 7) AS known", "upper(a.s) AS up", "a.s || '-' || b.s AS names", "a.k IS NULL AS none"]
SELECT += ["CASE WHEN a.x > b.y THEN 'more' ELSE 'less' END AS which"]
#: Conditions that a join evaluates by itself, on one stream and across.
PLAIN = ["a.x > 0", "b.y <> 1", "a.x < b.y", "b.y IS NOT NULL", "a.s <> b.s OR a.x = 1", "a.x + b.y > 1 AND a.n >= b.n"]
PLAIN += ["a.s IN ('u', 'v')", "NOT b.y BETWEEN 1 AND 2"]
#: Any SQL.
ANY = [*PLAIN, "length(a.s || b.s) > 1", "coalesce(b.y, 0) = 0", "b.y IS NULL", "upper(a.s) = 'U'", "a.s = b.s"]
AGGREGATES = ["count(*) AS n", "sum(b.y) AS total", "min(a.x) AS low", "max(b.s) AS last_name", "avg(b.y * 2) AS mean"]
AGGREGATES += ["count(DISTINCT b.y) AS kinds", "sum(a.x) + count(*) AS mixed", "count(b.s) AS named"]


@dataclass(frozen=True)
class Case:
    """A query in both languages: ours, and DuckDB's with the windows as predicates."""

    cql: str
    sql: str


def window_of(alias: str, length: int | None, aliases: list[str]) -> tuple[str, list[str]]:
    if length is None:
        return "[UNBOUNDED]", []
    now = f"greatest({', '.join(f'{a}.{TIMES[a]}' for a in aliases)})"
    found = "[NOW]" if length == 0 else f"[RANGE {length} SECONDS]"
    return found, [f"{alias}.{TIMES[alias]} >= {now} - INTERVAL {length} SECOND"]


@st.composite
def joins(draw: Any, how: str) -> Case:
    lengths = st.one_of(st.none(), st.integers(0, 9))
    windows = [window_of(alias, draw(lengths), ["a", "b"]) for alias in "ab"]
    items = [item for item in SELECT if how not in ("semi", "anti") or "b." not in item]
    select = ", ".join(draw(st.lists(st.sampled_from(items), min_size=1, max_size=5, unique=True)))
    on = draw(st.lists(st.sampled_from(ANY if how == "inner" else PLAIN), max_size=2))
    where = draw(st.lists(st.sampled_from(ANY), max_size=2))
    where = [w for w in where if how not in ("semi", "anti") or "b." not in w]
    also = f" WHERE {' AND '.join(f'({w})' for w in where)}" if where else ""
    join = {"inner": "JOIN", "semi": "LEFT SEMI JOIN", "anti": "LEFT ANTI JOIN"}.get(how, f"{how.upper()} JOIN")
    meant = join.removeprefix("LEFT ") if how in ("semi", "anti") else join
    tie = " AND ".join(["a.k = b.k", *(f"({c})" for c in on)])
    within = " AND ".join([tie, *windows[0][1], *windows[1][1]])
    return Case(
        f"SELECT {select} FROM a {windows[0][0]} {join} b {windows[1][0]} ON {tie}{also}",
        f"SELECT {select} FROM a {meant} b ON {within}{also}",
    )


@st.composite
def groupings(draw: Any) -> Case:
    windows = [window_of(alias, draw(st.integers(0, 9)), ["a", "b"]) for alias in "ab"]
    found = draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3, unique=True))
    by = draw(st.sampled_from([["a.k"], ["b.s"], ["a.k", "b.y % 2"], ["a.k", "BUCKET(b.at, '4 seconds')"]]))
    having = draw(st.sampled_from(["", " HAVING count(*) > 1", " HAVING sum(b.y) > 1 OR min(a.x) = 0"]))
    where = ["a.k = b.k", *draw(st.lists(st.sampled_from(ANY), max_size=2))]
    select = ", ".join([*(f"{g} AS g{n}" for n, g in enumerate(by)), *found])
    cql = f"FROM a {windows[0][0]}, b {windows[1][0]} WHERE {' AND '.join(f'({w})' for w in where)}"
    sql = f"FROM a, b WHERE {' AND '.join(f'({w})' for w in [*where, *windows[0][1], *windows[1][1]])}"
    text, buckets = f"GROUP BY {', '.join(by)}{having}", "time_bucket(INTERVAL 4 SECOND, b.at, TIMESTAMP '1970-01-01')"
    whole = f"SELECT {select} {sql} {text}".replace("BUCKET(b.at, '4 seconds')", buckets)
    return Case(f"SELECT {select} {cql} {text}", whole)


@st.composite
def three(draw: Any) -> Case:
    windows = [window_of(alias, draw(st.one_of(st.none(), st.integers(0, 9))), ["a", "b", "c"]) for alias in "abc"]
    where = [
        "a.k = b.k",
        "c.k = b.k",
        *draw(st.lists(st.sampled_from([*ANY, "c.z > a.x"]).filter(lambda w: w != "a.s = b.s"), max_size=1)),
    ]
    inside = [p for _, predicates in windows for p in predicates]
    slide = draw(st.sampled_from(["", " SLIDE 3 SECONDS"]))
    first = windows[0][0].replace("]", f"{slide}]") if "RANGE" in windows[0][0] else windows[0][0]
    return Case(
        f"ISTREAM(SELECT a.k, x, y, c.z, a.n AS an FROM a {first}, b {windows[1][0]}, c {windows[2][0]} "
        f"WHERE {' AND '.join(f'({w})' for w in where)})",
        f"SELECT a.k, x, y, c.z, a.n AS an FROM a, b, c WHERE {' AND '.join(f'({w})' for w in where + inside)}",
    )


@st.composite
def tables(draw: Any) -> dict[str, pa.Table]:
    out = {}
    for name, columns in COLUMNS.items():
        values = {
            pa.int64(): st.sampled_from([1, 2, 3, None]),
            pa.int32(): st.sampled_from([0, 1, 2, 3, None]),
            pa.string(): st.sampled_from(["u", "v", "", None]),
            pa.timestamp("us"): st.one_of(st.integers(0, 12).map(lambda n: START + timedelta(seconds=n)), st.none()),
        }
        rows = draw(st.lists(st.tuples(*(values[kind] for kind in columns.values())), max_size=8))
        numbered = [(*row[:-1], n) for n, row in enumerate(rows)]
        made = [dict(zip(columns, row, strict=True)) for row in numbered]
        out[name] = pa.Table.from_pylist(made, schema=pa.schema(list(columns.items())))
    return out


def compare(case: Case, data: dict[str, pa.Table], cuts: int) -> None:
    timed = {name: rows.filter(rows[TIMES[name]].is_valid()) for name, rows in data.items()}
    want = bag(in_duckdb(case.sql, timed))
    query = read(case.cql, {name: list(columns) for name, columns in COLUMNS.items()})
    times = {i.name: TIMES[i.name] for i in query.inputs}
    assert bag(in_duckdb(batch_sql(query, times), data)) == want
    plan = lower(case.cql, query, {name: DeclaredStream(time) for name, time in times.items()})
    assert bag(run(plan, data, cuts)) == want


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
@few
@given(case=st.data(), data=tables(), cuts=st.integers(1, 3))
def test_joins(how: str, case: st.DataObject, data: dict[str, pa.Table], cuts: int) -> None:
    compare(case.draw(joins(how)), data, cuts)


@few
@given(case=groupings(), data=tables(), cuts=st.integers(1, 3))
def test_groups(case: Case, data: dict[str, pa.Table], cuts: int) -> None:
    compare(case, data, cuts)


@few
@given(case=three(), data=tables(), cuts=st.integers(1, 3))
def test_three_streams(case: Case, data: dict[str, pa.Table], cuts: int) -> None:
    compare(case, data, cuts)


@few
@given(
    data=tables(), rows=st.tuples(st.integers(1, 4), st.integers(1, 4)), per_key=st.booleans(), cuts=st.integers(1, 3)
)
def test_windows_of_rows(data: dict[str, pa.Table], rows: tuple[int, int], per_key: bool, cuts: int) -> None:
    """Conditions on a stream whose rows are counted are case behind the window."""
    first = f"PARTITION BY k ROWS {rows[0]}" if per_key else f"ROWS {rows[0]}"
    cql = f"SELECT a.n AS an, b.n AS bn FROM a [{first}] JOIN b [ROWS {rows[1]}] ON a.k = b.k AND a.x > 0"
    query = read(cql, {name: list(columns) for name, columns in COLUMNS.items()})
    times = {"a": "at", "b": "at"}
    want = bag(in_duckdb(batch_sql(query, times, {"a": "n", "b": "n"}), data))
    plan = lower(cql, query, {name: DeclaredStream("at", order_by="n") for name in "ab"})
    assert plan.sides[0].where is None
    assert bag(run(plan, data, cuts)) == want
    counted = _by_hand(data, rows, per_key)
    assert want == bag(pa.Table.from_pylist(counted, schema=pa.schema([("an", pa.int64()), ("bn", pa.int64())])))


def _by_hand(data: dict[str, pa.Table], rows: tuple[int, int], per_key: bool) -> list[dict[str, Any]]:
    a, b = ([r for r in data[name].to_pylist() if r["at"] is not None] for name in "ab")
    out = []
    for left in a:
        for right in b:
            now = max(left["at"], right["at"])
            ahead = sum(
                m["at"] <= now and (m["at"], m["n"]) > (left["at"], left["n"]) and (not per_key or m["k"] == left["k"])
                for m in a
            )
            behind = sum(m["at"] <= now and (m["at"], m["n"]) > (right["at"], right["n"]) for m in b)
            if (
                left["k"] is not None
                and left["k"] == right["K"]
                and (left["x"] or 0) > 0
                and ahead < rows[0]
                and behind < rows[1]
            ):
                out.append({"an": left["n"], "bn": right["n"]})
    return out
