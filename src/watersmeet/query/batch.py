"""The same query over tables that are all there, in DuckDB's SQL, with the windows written out as predicates.

This is the oracle: what a stream of results amounts to in the end. Rows without an event time take no part, as in a
stream, where they are late.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from sqlglot import exp

from watersmeet.model import durations
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.query.queries import Column, Input, Query

_JOIN = {"left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "semi": "SEMI JOIN", "anti": "ANTI JOIN"}
#: The number of a row in the order of its stream; windows of rows count by it.
_NUMBER = "row number"


def batch_sql(query: Query, times: Mapping[str, str], order_by: Mapping[str, str] | None = None) -> str:
    """SQL over tables called as the streams are outside. `times` are time columns by the inputs' names in the query.

    An input without a window is unbounded, and so is [AUTO], whose result is that of no window. `order_by` has columns
    that break ties of times, for windows of rows. `first`, `last` and `collect_list` take values in any order here.
    """
    ties = order_by or {}
    rows = {i.name: _rows(i, times[i.name], ties.get(i.name)) for i in query.inputs}
    tables = [_table(i, rows[i.name]) for i in query.inputs]
    across = [f"({_spell(c)})" for c in query.across]
    on = " AND ".join([*_equalities(query), *_windows(query, times, rows), *across])
    lines = [f"SELECT {', '.join(f'{_spell(e)} AS {_name(n)}' for n, e in query.outputs)}"]
    if query.how == "inner":
        lines += [f"FROM {', '.join(tables)}", f"WHERE {on}"]
    else:
        lines += [f"FROM {tables[0]}", f"{_JOIN[query.how]} {tables[1]}", f"ON {on}"]
        lines += [f"WHERE {' AND '.join(f'({_spell(c)})' for c in query.after)}"] if query.after else []
    if query.groups:
        lines.append(f"GROUP BY {', '.join(map(_spell, query.groups))}")
    if query.having is not None:
        lines.append(f"HAVING {_spell(query.having)}")
    return "\n".join(lines)


def _table(one: Input, rows: str) -> str:
    """An input's rows, without those that its own conditions leave out."""
    where = f" WHERE {' AND '.join(f'({_spell(f)})' for f in one.filters)}" if one.filters else ""
    return f"(SELECT * FROM {rows} AS {_name(one.name)}{where}) AS {_name(one.name)}"


def _rows(one: Input, time: str, tie: str | None) -> str:
    """The rows of a stream that have a time; numbered in their order, where rows are counted."""
    order = _name(time) + (f", {_name(tie)} NULLS FIRST" if tie else "")
    number = f", row_number() OVER (ORDER BY {order}) AS {_name(_NUMBER)}" if one.counted else ""
    return f"(SELECT *{number} FROM {_name(one.stream)} WHERE {_name(time)} IS NOT NULL)"


def _equalities(query: Query) -> list[str]:
    return [f"{_spelled(a)} = {_spelled(b)}" for group in query.equal for a, b in pairwise(group)]


def _windows(query: Query, times: Mapping[str, str], rows: Mapping[str, str]) -> list[str]:
    """Each tuple is in its window at the time of the newest."""
    now = f"greatest({', '.join(_spelled(Column(i.name, times[i.name])) for i in query.inputs)})"
    out = []
    for one in query.inputs:
        time, window = times[one.name], one.window
        if isinstance(window, TimeWindow):
            sign = ">=" if window.closed else ">"
            out.append(f"{_spelled(Column(one.name, time))} {sign} {now} - to_microseconds({window.length})")
        elif isinstance(window, RowsWindow):
            newer = [f"x.{_name(time)} <= {now}", f"x.{_name(_NUMBER)} > {_spelled(Column(one.name, _NUMBER))}"]
            keys = [column for group in query.equal for column in group if column.stream == one.name]
            newer += [f"x.{_name(k.name)} = {_spelled(k)}" for k in keys] if window.per_key else []
            count = f"(SELECT count(*) FROM {rows[one.name]} AS x WHERE {' AND '.join(newer)})"
            out.append(f"{count} < {window.rows}")
    return out


def _spell(expression: exp.Expr) -> str:
    def one(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and node.name.upper() == "BUCKET":
            time, length = node.expressions
            size = exp.func("to_microseconds", exp.Literal.number(durations.parse(length.name, "BUCKET")))
            return exp.func("time_bucket", size, time, exp.cast(exp.Literal.string("1970-01-01"), "timestamp"))
        return node

    return expression.transform(one).sql("duckdb")


def _spelled(column: Column) -> str:
    return f"{_name(column.stream)}.{_name(column.name)}"


def _name(name: str) -> str:
    return exp.to_identifier(name, quoted=True).sql("duckdb")
