"""Checks of the columns that a pipeline names, against the streams' schemas or the columns of their files."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.errors import suggestion
from watersmeet.pipelines.diagnostics import Mistake
from watersmeet.pipelines.toml_positions import Path
from watersmeet.query.expressions import (
    Expression,
    aliased_column,
    column_names,
    output_name,
    parse_expression,
    schema_fields,
)

TYPES = (
    *("BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE"),
    *("DECIMAL", "DEC", "NUMERIC", "STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY", "DATE", "TIME", "INTERVAL"),
    *("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "ARRAY", "MAP", "STRUCT", "VARIANT", "VOID"),
)
TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")

#: Types by column; None if the type is unknown.
Columns = dict[str, str | None]


def is_avro(stream: dict[str, Any]) -> bool:
    return stream.get("format") == "kafka" and stream.get("value") == "avro"


def check(streams: dict[str, dict[str, Any]], known: dict[str, Columns]) -> Iterator[Mistake]:
    """Mistakes in the columns of streams. `known` has the columns of files; this adds schemas and `select`."""
    for name, stream in streams.items():
        path: Path = ("streams", name)
        columns: Columns | None = known.pop(name, None)
        if "schema" in stream and not is_avro(stream):
            columns = {}
            yield from _schema((*path, "schema"), stream["schema"], columns)
        elif stream["format"] == "kafka" and stream.get("value") == "text":
            columns = {"value": "STRING"}
        if "select" in stream:
            texts = [stream["select"]] if isinstance(stream["select"], str) else stream["select"]
            selected: Columns = {}
            unknown = False
            for n, text in enumerate(texts):
                at = (*path, "select") if isinstance(stream["select"], str) else (*path, "select", n)
                if text.strip() == "*":
                    unknown |= columns is None
                    selected |= columns or {}
                else:
                    yield from _selected(at, text, columns, selected)
            columns = None if unknown else selected
        if columns is not None:
            known[name] = columns
            yield from _named(path, stream, columns)


def _schema(path: Path, text: str, columns: Columns) -> Iterator[Mistake]:
    fields = schema_fields(text)
    if fields is None:
        hint = 'write it like "item_id BIGINT, opened_at TIMESTAMP".'
        yield Mistake(path, "the schema cannot be read as columns and types.", hint, value=True)
        return
    for field in fields:
        tokens = [token for token in field if token != ":"]
        if len(tokens) < 2:
            message = f"`{' '.join(field)}` in the schema is not a column and its type."
            yield Mistake(path, message, 'write it like "item_id BIGINT, opened_at TIMESTAMP".', value=True)
        elif tokens[1].upper() not in TYPES:
            message = f"`{tokens[0]}` in the schema is of a type `{tokens[1]}`, which there is not."
            yield Mistake(path, message, suggestion(tokens[1].upper(), TYPES, "types are"), value=True, part=tokens[1])
        if tokens and tokens[0] in columns:
            message = f"the schema has two columns called `{tokens[0]}`."
            yield Mistake(path, message, "leave one out, or call it otherwise.", value=True)
        elif tokens and ("." in tokens[0] or "`" in tokens[0]):
            message = (
                f"column `{tokens[0]}` has a dot or a backtick in its name, which PySpark does not hand to Python."
            )
            yield Mistake(path, message, "call it otherwise in the schema.", value=True, part=tokens[0])
        if tokens:
            columns[tokens[0]] = tokens[1].upper() if len(tokens) > 1 else None


def _selected(path: Path, text: str, columns: Columns | None, selected: Columns) -> Iterator[Mistake]:
    tree = parse_expression(text)
    if tree is None:
        yield Mistake(
            path, f"`{text}` is not an expression.", 'write it in Spark SQL: "price * 2 AS twice".', True, text
        )
        return
    name = output_name(tree)
    if not name:
        yield Mistake(path, f"`{text}` has no name.", f"give it one: {text} AS name.", True, text)
        return
    source = aliased_column(tree)
    selected[name] = columns.get(source) if columns and source is not None else None
    if columns is not None:
        yield from unknown_columns(path, tree, columns)


def _named(path: Path, stream: dict[str, Any], columns: Columns) -> Iterator[Mistake]:
    """Mistakes in the columns that the keys of a stream name."""
    for key in ("time", "order_by"):
        if key in stream:
            yield from _one((*path, key), stream[key], columns)
    kind = columns.get(stream["time"])
    if kind is not None and kind in TYPES and kind not in TIMES:
        message = f"`{stream['time']}` is {kind}; an event time is a TIMESTAMP."
        hint = f'write TIMESTAMP in the schema, or select = ["*", "timestamp_millis({stream["time"]}) AS …"].'
        yield Mistake((*path, "time"), message, hint, value=True)
    rules = stream.get("punctuation", [])
    for n, rule in enumerate(rules if isinstance(rules, list) else [rules]):
        at = (*path, "punctuation", n) if isinstance(rules, list) else (*path, "punctuation")
        for key in ("unique", "clustered", "ordered"):
            if key in rule:
                yield from _one((*at, key), rule[key], columns)
        for name in _texts(rule.get("on")) or rule.get("on", ()):
            yield from _one((*at, "on"), _as_called(name, columns), columns)
        for key in ("when", "heartbeat", "end", "on", "values", "low", "high"):
            for text in _texts(rule.get(key)) if key != "on" else _computed(rule.get("on")):
                tree = parse_expression(text)
                if tree is None:
                    yield Mistake((*at, key), f"`{text}` is not an expression.", "write it in Spark SQL.", True, text)
                else:
                    yield from unknown_columns((*at, key), tree, columns)


def _as_called(name: str, columns: Columns) -> str:
    """The column's name in the stream's own case; Spark ignores case."""
    bare = name.strip("`")
    return next((column for column in columns if column.lower() == bare.lower()), bare)


def _computed(on: Any) -> list[str]:
    """The expressions of a table of columns and expressions."""
    return list(on.values()) if isinstance(on, dict) else []


def _texts(value: Any) -> list[str]:
    return (
        [value]
        if isinstance(value, str)
        else [v for v in value if isinstance(v, str)]
        if isinstance(value, list)
        else []
    )


def unknown_columns(path: Path, tree: Expression, columns: Columns) -> Iterator[Mistake]:
    """Unknown columns of an expression. `kafka` is the struct with a message's key, headers and position."""
    names = {name.lower() for name in columns} | {"kafka"}
    for first in column_names(tree):
        if first.lower() not in names:
            hint = suggestion(first, list(columns), "the columns are")
            yield Mistake(path, f"there is no column `{first}`.", hint, value=True, part=first)


def _one(path: Path, name: str, columns: Columns) -> Iterator[Mistake]:
    if name not in columns:
        hint = suggestion(name, list(columns), "the columns are")
        yield Mistake(path, f"there is no column `{name}`.", hint, value=True)
