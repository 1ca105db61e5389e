"""Validation of a pipeline against its schema: unknown and missing keys, types and values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from watersmeet.errors import nearest, suggestion
from watersmeet.pipelines.diagnostics import Mistake, dotted
from watersmeet.pipelines.schema import ValueSpec
from watersmeet.pipelines.toml_positions import Path

_KINDS = {dict: "a table", list: "an array", str: "a string", bool: "true or false", int: "a number", float: "a number"}


def check(value: Any, spec: ValueSpec, path: Path = ()) -> Iterator[Mistake]:
    """All mistakes in a value and within it."""
    if not _fits(value, spec):
        message = f"`{dotted(path)}` is {_KINDS.get(type(value), 'a date or time')}; it is {spec.what}."
        yield Mistake(path, message, _example(path), value=True)
    elif isinstance(value, dict) and spec.items is not None and spec.names is None and dict in spec.kinds:
        yield from check(value, spec.items, path)
    elif isinstance(value, dict):
        yield from _table(value, spec, path)
    elif isinstance(value, list) and spec.items is not None:
        if not value:
            yield Mistake(path, f"`{dotted(path)}` is empty; it is {spec.what}.", _example(path), value=True)
        for n, item in enumerate(value):
            yield from check(item, spec.items, (*path, n))
    elif isinstance(value, str) and spec.among and value not in spec.among:
        message = f'`{dotted(path)}` is "{value}".'
        yield Mistake(path, message, suggestion(value, spec.among, "it is one of"), value=True)
    elif isinstance(value, str) and not value.strip():
        yield Mistake(path, f"`{dotted(path)}` is empty; it is {spec.what}.", _example(path), value=True)
    elif spec.complaint is not None:
        complaint = spec.complaint(value)
        if complaint is not None:
            yield Mistake(path, f"`{dotted(path)}`: {complaint[0]}", complaint[1], value=True)


def _fits(value: Any, spec: ValueSpec) -> bool:
    if isinstance(value, bool):  # a bool is an int in Python
        return bool in spec.kinds
    return isinstance(value, spec.kinds)


def _table(value: dict[str, Any], spec: ValueSpec, path: Path) -> Iterator[Mistake]:
    if spec.names is not None:
        for name, each in value.items():
            yield from check(each, spec.names, (*path, name))
        return
    keys = spec.keys or {}
    where = f"[{dotted(path)}]" if path else "the pipeline"
    meant: set[str | None] = set()
    for name, each in value.items():
        if name in keys:
            yield from check(each, keys[name], (*path, name))
        else:
            meant.add(nearest(name, keys))
            yield Mistake(
                (*path, name), f"unknown key `{name}` in {where}.", suggestion(name, list(keys), "its keys are")
            )
    for name, key_spec in keys.items():
        if key_spec.required and name not in value and name not in meant:
            yield Mistake(path, f"{where} has no `{name}`: {key_spec.what}.", _example((*path, name)))


def _example(path: Path) -> str:
    example = next((_EXAMPLES[part] for part in reversed(path) if part in _EXAMPLES), None)
    return f"write {example}." if example else "docs/pipelines.md has an example."


_EXAMPLES: dict[str | int, str] = {
    "checkpoint": 'checkpoint = "out/checkpoint", before the first table',
    "streams": "a table for each stream, [streams.bid]",
    "sinks": "[sinks.results] with a format and a path",
    "format": 'format = "csv"',
    "time": "the column with the event time, time = \"opened_at\"",
    "window": 'window = "10 minutes", or window = { rows = 1000 }',
    "rows": "window = { rows = 1000 }",
    "delay": 'delay = "5 seconds"',
    "on": 'on = "item_id"',
    "options": "options = { header = true }",
    "punctuation": 'punctuation = { when = "closed", on = "item_id" }',
    "shards": "shards = 4",
    "tasks": "tasks = 2",
    "headers": "headers = { kind = \"'result'\" }",
    "trigger": 'trigger = "10 seconds"',
    "query": "a string in three quotes",
}  # fmt: skip
