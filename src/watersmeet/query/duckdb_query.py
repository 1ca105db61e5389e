"""A query as a batch query in DuckDB's SQL over finite tables; windows become predicates.

Its result is the oracle for the results of the streaming query. Rows without an event time are left out: in a stream
they are late.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from sqlglot import exp

from watersmeet.model import durations
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.query.parsed_query import Column, Input, Query

_JOIN = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
}
#: The number of a row in the order of its stream; windows of rows count by it.
_NUMBER = "row number"


def batch_sql(query: Query, times: Mapping[str, str], order_by: Mapping[str, str] | None = None) -> str:
    """SQL over tables named like the streams. `times` has the time columns by the inputs' names in the query.

    An input without a window is unbounded, and so is one with [AUTO]. `order_by` has the columns that break ties of
    times, for windows of rows. `first`, `last` and `collect_list` take values in any order here. In an ASOF JOIN a
    window, which is a tolerance there, is not written.
    """
    ties = order_by or {}
    rows = {i.name: _rows(i, times[i.name], ties.get(i.name)) for i in query.inputs}
    tables = [_table(i, rows[i.name]) for i in query.inputs]
    across = [f"({_sql(c)})" for c in query.across]
    windows = [] if query.asof else _windows(query, times, rows)
    on = " AND ".join([*_equalities(query), *windows, *across])
    lines = [f"SELECT {', '.join(f'{_sql(e)} AS {_name(n)}' for n, e in query.outputs)}"]
    if query.how == "inner" and not query.asof:
        lines += [f"FROM {', '.join(tables)}", f"WHERE {on}"]
    else:
        asof = "ASOF " if query.asof else ""
        lines += [f"FROM {tables[0]}", f"{asof}{_JOIN[query.how]} {tables[1]}", f"ON {on}"]
        lines += [f"WHERE {' AND '.join(f'({_sql(c)})' for c in query.after)}"] if query.after else []
    if query.groups:
        lines.append(f"GROUP BY {', '.join(map(_sql, query.groups))}")
    if query.having is not None:
        lines.append(f"HAVING {_sql(query.having)}")
    return "\n".join(lines)


def _table(one: Input, rows: str) -> str:
    """The rows of an input that pass its own filters."""
    where = f" WHERE {' AND '.join(f'({_sql(f)})' for f in one.filters)}" if one.filters else ""
    return f"(SELECT * FROM {rows} AS {_name(one.name)}{where}) AS {_name(one.name)}"


def _rows(one: Input, time: str, tie: str | None) -> str:
    """The rows of a stream that have a time; with row numbers if the window counts rows."""
    order = _name(time) + (f", {_name(tie)} NULLS FIRST" if tie else "")
    number = f", row_number() OVER (ORDER BY {order}) AS {_name(_NUMBER)}" if one.counted else ""
    return f"(SELECT *{number} FROM {_name(one.stream)} WHERE {_name(time)} IS NOT NULL)"


def _equalities(query: Query) -> list[str]:
    pairs = [pair for group in query.equal for pair in pairwise(group)]
    compare = {True: "IS NOT DISTINCT FROM", False: "="}
    return [f"{_column_sql(a)} {compare[a in query.null_safe]} {_column_sql(b)}" for a, b in pairs]


def _windows(query: Query, times: Mapping[str, str], rows: Mapping[str, str]) -> list[str]:
    """Predicates: each tuple is in its window at the time of the newest tuple of the combination."""
    now = f"greatest({', '.join(_column_sql(Column(i.name, times[i.name])) for i in query.inputs)})"
    out = []
    for one in query.inputs:
        time, window = times[one.name], one.window
        if isinstance(window, TimeWindow):
            compare = ">=" if window.closed else ">"
            out.append(f"{_column_sql(Column(one.name, time))} {compare} {now} - to_microseconds({window.length})")
        elif isinstance(window, RowsWindow):
            newer = [f"x.{_name(time)} <= {now}", f"x.{_name(_NUMBER)} > {_column_sql(Column(one.name, _NUMBER))}"]
            keys = [column for group in query.equal for column in group if column.stream == one.name]
            newer += [f"x.{_name(k.name)} = {_column_sql(k)}" for k in keys] if window.per_key else []
            count = f"(SELECT count(*) FROM {rows[one.name]} AS x WHERE {' AND '.join(newer)})"
            out.append(f"{count} < {window.rows}")
    return out


def _sql(expression: exp.Expr) -> str:
    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and node.name.upper() == "BUCKET":
            time, length = node.expressions
            size = exp.func("to_microseconds", exp.Literal.number(durations.parse(length.name, "BUCKET")))
            return exp.func("time_bucket", size, time, exp.cast(exp.Literal.string("1970-01-01"), "timestamp"))
        return node

    return expression.transform(one).sql("duckdb")


def _column_sql(column: Column) -> str:
    return f"{_name(column.stream)}.{_name(column.name)}"


def _name(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")
