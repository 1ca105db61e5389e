"""Description of a query without its streams: the columns it names, and its parts as data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlglot import exp

from watersmeet.model import durations
from watersmeet.model.windows import Interval, RowsWindow, TimeWindow, Unbounded, Window, format_window
from watersmeet.query.grammar import CQL, parse
from watersmeet.query.lowering import LoweredQuery
from watersmeet.query.parsed_query import Query


def named_columns(text: str) -> dict[str, list[str]]:
    """The columns that a query names, by stream, and `time`. A column without a stream's name is listed for all."""
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


def described(query: Query, plan: LoweredQuery) -> dict[str, Any]:
    """The parts of a query as JSON values: streams with windows and filters, the key, groups, outputs."""
    windows = [side.window for side in plan.sides]
    if plan.between is not None:
        windows = [plan.between, plan.between.mirrored]
    return {
        "how": plan.how,
        "on": [text for equal in plan.equal for text in _equality(equal, len(plan.sides))],
        "streams": [
            {
                "name": side.name,
                "stream": side.stream,
                "window": _window(window),
                "columns": [name for name, _ in side.columns],
                "where": _text(side.where),
            }
            for side, window in zip(plan.sides, windows, strict=True)
        ],
        "where": _text(plan.where) or _text(plan.after),
        "groups": [by if isinstance(by, str) else f"{durations.formatted(by.length)} of {by.column}" for by in plan.by],
        "outputs": [name for name, _ in query.outputs],
        "updates": query.updates,
    }


def _equality(equal: Mapping[str, str], streams: int) -> list[str]:
    """The column's name if all streams have it, else an equality of each with the first."""
    (first, name), *others = equal.items()
    return [name] if len(equal) == streams else [f"{first}.{name} = {stream}.{column}" for stream, column in others]


def _window(window: Window | None) -> str:
    if isinstance(window, TimeWindow):
        return f"window of {durations.formatted(window.length)}"
    if isinstance(window, Interval):
        return format_window(window)
    if isinstance(window, RowsWindow):
        return f"window of {window.rows} rows" + (" per key" if window.per_key else "")
    return "unbounded" if isinstance(window, Unbounded) else "window as the stream has it"


def _text(e: exp.Expr | None) -> str | None:
    return None if e is None else e.sql(CQL).replace("`", "")
