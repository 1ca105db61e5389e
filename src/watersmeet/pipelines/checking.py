"""Whether the words of a pipeline are known and their values what they should be."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from watersmeet.pipelines.mistakes import Mistake, dotted
from watersmeet.pipelines.places import Path
from watersmeet.pipelines.words import Word
from watersmeet.query.names import near

_KINDS = {dict: "a table", list: "an array", str: "a text", bool: "true or false", int: "a number", float: "a number"}


def check(value: Any, word: Word, path: Path = ()) -> Iterator[Mistake]:
    """All mistakes in a value and within it."""
    if not _fits(value, word):
        said = f"`{dotted(path)}` is {_KINDS.get(type(value), 'a date or time')}; it is {word.what}."
        yield Mistake(path, said, _example(path), value=True)
    elif isinstance(value, dict) and word.items is not None and dict in word.kinds:
        yield from check(value, word.items, path)
    elif isinstance(value, dict):
        yield from _table(value, word, path)
    elif isinstance(value, list) and word.items is not None:
        if not value:
            yield Mistake(path, f"`{dotted(path)}` is empty; it is {word.what}.", _example(path), value=True)
        for n, item in enumerate(value):
            yield from check(item, word.items, (*path, n))
    elif isinstance(value, str) and word.among and value not in word.among:
        said = f'`{dotted(path)}` is "{value}".'
        yield Mistake(path, said, near(value, word.among, "it is one of"), value=True)
    elif isinstance(value, str) and not value.strip():
        yield Mistake(path, f"`{dotted(path)}` is empty; it is {word.what}.", _example(path), value=True)
    elif word.complaint is not None:
        complaint = word.complaint(value)
        if complaint is not None:
            yield Mistake(path, f"`{dotted(path)}`: {complaint[0]}", complaint[1], value=True)


def _fits(value: Any, word: Word) -> bool:
    if isinstance(value, bool):  # which Python takes for a number
        return bool in word.kinds
    return isinstance(value, word.kinds)


def _table(value: dict[str, Any], word: Word, path: Path) -> Iterator[Mistake]:
    if word.names is not None:
        for name, each in value.items():
            yield from check(each, word.names, (*path, name))
        return
    words = word.words or {}
    where = f"[{dotted(path)}]" if path else "the pipeline"
    meant: set[str] = set()
    for name, each in value.items():
        if name in words:
            yield from check(each, words[name], (*path, name))
        else:
            meant |= set(get_close_matches(name, words, 1))
            yield Mistake((*path, name), f"`{name}` is no word of {where}.", near(name, list(words), "its words are"))
    for name, each_word in words.items():
        if each_word.required and name not in value and name not in meant:
            yield Mistake(path, f"{where} has no `{name}`: {each_word.what}.", _example((*path, name)))


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
    "headers": "headers = { kind = \"'result'\" }",
    "trigger": 'trigger = "10 seconds"',
    "query": "a text in three quotes",
}  # fmt: skip
