"""Columns that a pipeline tells of, as far as its text says which there are: of streams with a `schema`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from watersmeet.model.spark_sql import SparkSQL
from watersmeet.pipelines.mistakes import Mistake
from watersmeet.pipelines.places import Path
from watersmeet.query.names import near

TYPES = (
    *("BOOLEAN", "TINYINT", "BYTE", "SMALLINT", "SHORT", "INT", "INTEGER", "BIGINT", "LONG", "FLOAT", "REAL", "DOUBLE"),
    *("DECIMAL", "DEC", "NUMERIC", "STRING", "CHAR", "CHARACTER", "VARCHAR", "BINARY", "DATE", "TIME", "INTERVAL"),
    *("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ", "ARRAY", "MAP", "STRUCT", "VARIANT", "VOID"),
)
TIMES = ("TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ")

#: Types by column; None where the text does not say.
Columns = dict[str, str | None]


def is_avro(stream: dict[str, Any]) -> bool:
    return stream.get("format") == "kafka" and stream.get("value") == "avro"


def check(streams: dict[str, dict[str, Any]], known: dict[str, Columns]) -> Iterator[Mistake]:
    """Mistakes about the columns of streams; what they are goes to `known`."""
    for name, stream in streams.items():
        path: Path = ("streams", name)
        columns: Columns | None = None
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
    try:
        tokens = SparkSQL().tokenize(text)
    except SqlglotError:
        hint = 'write it like "item_id BIGINT, opened_at TIMESTAMP".'
        yield Mistake(path, "the schema cannot be read as columns and types.", hint, value=True)
        return
    depth, field = 0, []
    for token in [*tokens, None]:
        if token is not None and (depth or token.text != ","):
            depth += sum(token.text.count(c) for c in "<(") - sum(token.text.count(c) for c in ">)")
            field.append(token.text)
            continue
        words = [w for w in field if w != ":"]
        if len(words) < 2:
            said = f"`{' '.join(field)}` in the schema is not a column and its type."
            yield Mistake(path, said, 'write it like "item_id BIGINT, opened_at TIMESTAMP".', value=True)
        elif words[1].upper() not in TYPES:
            said = f"`{words[0]}` in the schema is of a type `{words[1]}`, which there is not."
            yield Mistake(path, said, near(words[1].upper(), TYPES, "types are"), value=True, part=words[1])
        if words:
            columns[words[0]] = words[1].upper() if len(words) > 1 else None
        field = []


def _selected(path: Path, text: str, columns: Columns | None, selected: Columns) -> Iterator[Mistake]:
    tree = parsed(text)
    if tree is None:
        yield Mistake(
            path, f"`{text}` is not an expression.", 'write it in Spark SQL: "price * 2 AS twice".', True, text
        )
        return
    name = tree.alias or (tree.name if isinstance(tree, exp.Column) else "")
    if not name:
        yield Mistake(path, f"`{text}` has no name.", f"give it one: {text} AS name.", True, text)
        return
    kind = columns.get(tree.name) if columns and isinstance(tree.unalias(), exp.Column) else None
    selected[name] = kind
    if columns is not None:
        yield from unknown_columns(path, tree, columns)


def _named(path: Path, stream: dict[str, Any], columns: Columns) -> Iterator[Mistake]:
    """Columns that the words of a stream name."""
    for word in ("time", "order_by"):
        if word in stream:
            yield from _one((*path, word), stream[word], columns)
    kind = columns.get(stream["time"])
    if kind is not None and kind in TYPES and kind not in TIMES:
        said = f"`{stream['time']}` is {kind}; an event time is a TIMESTAMP."
        hint = f'write TIMESTAMP in the schema, or select = ["*", "timestamp_millis({stream["time"]}) AS …"].'
        yield Mistake((*path, "time"), said, hint, value=True)
    signs = stream.get("punctuation", [])
    for n, sign in enumerate(signs if isinstance(signs, list) else [signs]):
        at = (*path, "punctuation", n) if isinstance(signs, list) else (*path, "punctuation")
        for word in ("unique", "clustered", "ordered"):
            if word in sign:
                yield from _one((*at, word), sign[word], columns)
        for word in ("when", "heartbeat", "end", "on", "values", "low", "high"):
            for text in _texts(sign.get(word)):
                tree = parsed(text)
                if tree is None:
                    yield Mistake((*at, word), f"`{text}` is not an expression.", "write it in Spark SQL.", True, text)
                else:
                    yield from unknown_columns((*at, word), tree, columns)


def _texts(value: Any) -> list[str]:
    return (
        [value]
        if isinstance(value, str)
        else [v for v in value if isinstance(v, str)]
        if isinstance(value, list)
        else []
    )


def parsed(text: str) -> exp.Expr | None:
    """The tree of an expression, if it is one."""
    try:
        select = parse_one(f"SELECT {text}", dialect=SparkSQL)
    except SqlglotError:
        return None
    return select.expressions[0] if len(select.expressions) == 1 else None


def unknown_columns(path: Path, tree: exp.Expr, columns: Columns) -> Iterator[Mistake]:
    """Columns of an expression that there are not. `kafka` is what a message has beside its value."""
    names = {name.lower() for name in columns} | {"kafka"}
    for column in tree.find_all(exp.Column):
        first = column.parts[0].name
        if first.lower() not in names and not isinstance(column.this, exp.Star):
            hint = near(first, list(columns), "the columns are")
            yield Mistake(path, f"there is no column `{first}`.", hint, value=True, part=first)


def _one(path: Path, name: str, columns: Columns) -> Iterator[Mistake]:
    if name not in columns:
        hint = near(name, list(columns), "the columns are")
        yield Mistake(path, f"there is no column `{name}`.", hint, value=True)
