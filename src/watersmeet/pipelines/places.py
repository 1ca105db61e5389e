"""Where the values of a TOML text stand.

`tomllib` reads values and forgets their places. But a value stands where a beginning of the text first has it: so
beginnings are read, each a line longer, and what is new in one stands on the lines since the last that could be read.
That reads the text as often as it has lines, which only a file with a mistake asks for.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

#: The way to a value: names of tables and keys, numbers within arrays.
Path = tuple[str | int, ...]

_VALUE = r"""("[^"]*"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^\s,}\]#]+)"""


class Span(NamedTuple):
    """First and last line, counted from 1."""

    first: int
    last: int


class Place(NamedTuple):
    """A line, counted from 1, its text, and the part that is meant."""

    line: int
    text: str
    start: int
    end: int


def spans(text: str) -> dict[Path, Span]:
    """The lines on which each value begins and ends, by its path."""
    lines = text.splitlines(keepends=True)
    found: dict[Path, Span] = {}
    first = 1
    for last in range(1, len(lines) + 1):
        try:
            known = tomllib.loads("".join(lines[:last]))
        except tomllib.TOMLDecodeError:
            continue  # within a value of several lines
        for path in _paths(known):
            found.setdefault(path, Span(first, last))
        first = last + 1
    return found


def place(text: str, path: Path, *, value: bool = False) -> Place:
    """Where the word stands that a path ends in, or its value; if it is not there, where the table around it begins."""
    known = spans(text)
    there = next((n for n in range(len(path), 0, -1) if path[:n] in known), 0)
    if there == 0:
        return Place(1, text.splitlines()[0] if text else "", 0, 0)
    names = [part for part in path[:there] if isinstance(part, str)]
    word = re.escape(names[-1])
    pattern = re.compile(rf"""(?<![\w-])(["']?{word}["']?)(?![\w-])(?:\s*=\s*{_VALUE})?""")
    span, lines = known[path[:there]], text.splitlines()
    for number in range(span.first, span.last + 1):
        found = pattern.search(lines[number - 1])
        if found is not None:
            part = 2 if value and there == len(path) and found[2] else 1
            return Place(number, lines[number - 1], *found.span(part))
    return Place(span.first, lines[span.first - 1], 0, len(lines[span.first - 1]))


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from _paths(each, (*path, name))
