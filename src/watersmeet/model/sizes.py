"""Amounts of memory as people write them ("256 MB", "1.5 GB") in bytes, and bytes as text."""

from __future__ import annotations

import re

from watersmeet.errors import QueryError

BYTES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)


def parse(size: str | int, argument: str) -> int:
    """Bytes of a size; a kilobyte is 1024 of them, as in Spark's settings."""
    if type(size) is int:
        return size
    found = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if found is None:
        raise QueryError(
            f"`{argument}` is {size!r}; that is not an amount of memory.",
            hint='write it like "256 MB" or "2 GB", or give a number of bytes.',
        )
    return int(float(found[1]) * BYTES[found[2].lower()])


def in_units(count: int) -> str:
    """Bytes as `parse` reads them: a kilobyte is 1024 of them."""
    for unit, step in (("TB", 1 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("kB", 1 << 10)):
        if count >= step:
            return f"{count / step:.4g} {unit}"
    return f"{count} bytes"


def formatted(count: float) -> str:
    """Bytes as text, in the largest unit that they reach (a kilobyte is 1000 of them)."""
    for unit, step in (("PB", 1e15), ("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= step:
            return f"{count / step:,.1f} {unit}"
    return f"{count:,.0f} bytes"
