"""Positions of values in a TOML text.

`tomllib` returns values without positions. So ever longer prefixes of the text are parsed, line by line: a value that
is new in a prefix is on the lines since the last prefix that could be parsed. This parses the text once per line; it
is done only for a file with a mistake.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any, NamedTuple

#: Path to a value: names of tables and keys, indices in arrays.
Path = tuple[str | int, ...]

_VALUE = r"""("[^"]*"|'[^']*'|\[[^\]]*\]|\{[^}]*\}|[^\s,}\]#]+)"""


class Span(NamedTuple):
    """First and last line, counted from 1."""

    first: int
    last: int


class Position(NamedTuple):
    """A line, counted from 1, its text, and the start and end of the part to underline."""

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
            continue  # inside a value of several lines
        for path in _paths(known):
            found.setdefault(path, Span(first, last))
        first = last + 1
    return found


def position(text: str, path: Path, *, value: bool = False) -> Position:
    """Position of the key that a path ends in, or of its value; of the enclosing table if the key is missing."""
    known = spans(text)
    there = next((n for n in range(len(path), 0, -1) if path[:n] in known), 0)
    if there == 0:
        return Position(1, text.splitlines()[0] if text else "", 0, 0)
    names = [part for part in path[:there] if isinstance(part, str)]
    key = re.escape(names[-1])
    pattern = re.compile(rf"""(?<![\w-])(["']?{key}["']?)(?![\w-])(?:\s*=\s*{_VALUE})?""")
    span, lines = known[path[:there]], text.splitlines()
    for number in range(span.first, span.last + 1):
        found = pattern.search(lines[number - 1])
        if found is not None:
            part = 2 if value and there == len(path) and found[2] else 1
            return Position(number, lines[number - 1], *found.span(part))
    return Position(span.first, lines[span.first - 1], 0, len(lines[span.first - 1]))


def _paths(value: Any, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from _paths(each, (*path, name))
