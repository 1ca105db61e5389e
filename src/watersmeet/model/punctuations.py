"""Punctuations: promises of a stream about tuples that will not come any more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Value:
    """No more tuples with this key."""

    key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ValueList:
    """No more tuples with any of these keys."""

    keys: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Range:
    """No more tuples with a key between `low` and `high`; None leaves an end open for ever."""

    low: Any | None
    high: Any | None
    low_closed: bool = True
    high_closed: bool = True


@dataclass(frozen=True, slots=True)
class Any_:  # noqa: N801  # the pattern is called "any", and so is the type
    """No more tuples at all: the stream has ended."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """No more tuples with an event time before `until` (microseconds)."""

    until: int


@dataclass(frozen=True, slots=True)
class Empty:
    """Matches nothing; passes through."""


Pattern = Value | ValueList | Range | Any_ | Heartbeat | Empty


@dataclass(frozen=True, slots=True)
class Punctuation:
    """`pattern` holds for everything that stands after event time `time` in its stream."""

    pattern: Pattern
    time: int
