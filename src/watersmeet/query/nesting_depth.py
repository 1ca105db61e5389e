"""Texts that are nested more deeply than Python's stack goes are refused by name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.errors import QueryError


@contextmanager
def nested(argument: str) -> Iterator[None]:
    """Read a text, the value of this argument: around it, or as the decorator of what reads it."""
    try:
        yield
    except RecursionError:
        raise QueryError(
            f"`{argument}` is nested too deeply to be read.",
            hint="leave out parentheses, or compute parts of it as columns of the streams.",
        ) from None
