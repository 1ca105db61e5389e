"""A query without its streams: the columns it names, and what it asks for, in words."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from watersmeet.model import durations
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.grammar import CQL, parse
from watersmeet.query.lowering import Plan
from watersmeet.query.queries import Query


def named_columns(text: str) -> dict[str, list[str]]:
    """The columns that a query names of each stream, and `time`; one that says no stream may be any one's."""
    tree = parse(text)
    tables = {table.alias_or_name: table.name for table in tree.find_all(exp.Table)}
    columns: dict[str, list[str]] = {name: ["time"] for name in tables.values()}
    for column in tree.find_all(exp.Column):
        if isinstance(column.this, exp.Star):
            continue
        owners = [tables[column.table]] if column.table in tables else list(columns) if not column.table else []
        for owner in owners:
            if column.name not in columns[owner]:
                columns[owner].append(column.name)
    for join in tree.find_all(exp.Join):
        for column in join.args.get("using") or ():
            for names in columns.values():
                names += [] if column.name in names else [column.name]
    return columns


def spelled(query: Query, plan: Plan) -> dict[str, Any]:
    """What a query asks for, as data: streams with windows and filters, the key, groups, outputs."""
    return {
        "how": plan.how,
        "on": list(plan.on),
        "streams": [
            {
                "name": side.name,
                "stream": side.stream,
                "window": _window(side.window),
                "columns": [name for name, _ in side.columns],
                "where": _text(side.where),
            }
            for side in plan.sides
        ],
        "where": _text(plan.where) or _text(plan.after),
        "groups": [by if isinstance(by, str) else f"{durations.spell(by.length)} of {by.column}" for by in plan.by],
        "outputs": [name for name, _ in query.outputs],
        "updates": query.updates,
    }


def _window(window: Window | None) -> str:
    if isinstance(window, TimeWindow):
        return f"window of {durations.spell(window.length)}"
    if isinstance(window, RowsWindow):
        return f"window of {window.rows} rows" + (" per key" if window.per_key else "")
    return "unbounded" if isinstance(window, Unbounded) else "window as the stream has it"


def _text(e: exp.Expr | None) -> str | None:
    return None if e is None else e.sql(CQL).replace("`", "")
