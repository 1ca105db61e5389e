"""Durations as Spark writes them ("12 hours", "1 minute 30 seconds", "5 minutes") in microseconds."""

from __future__ import annotations

import re

from watersmeet.errors import WindowError

MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*,?")


def parse(text: str, argument: str) -> int:
    """Microseconds of a duration; `argument` is what the caller's parameter is called."""
    rest, total = text.strip().lower().removeprefix("interval "), 0
    while rest:
        found = _PART.match(rest)
        unit = found[2].removesuffix("s") if found else ""
        if found is None or unit not in MICROS:
            raise WindowError(
                f'`{argument}` is "{text}"; that is not a duration of fixed length.',
                hint=f'write it like "10 seconds" or "1 hour 30 minutes"; units are {", ".join(MICROS)}.',
            )
        total += round(float(found[1]) * MICROS[unit]) if "." in found[1] else int(found[1]) * MICROS[unit]
        rest = rest[found.end() :]
    if not text.strip():
        raise WindowError(f"`{argument}` is empty.", hint='write it like "10 seconds".')
    return total


def spell(micros: int) -> str:
    """A duration in words, in the largest unit that divides it."""
    for unit, size in reversed(MICROS.items()):
        if micros and micros % size == 0:
            return f"{micros // size} {unit}{'s' if micros // size != 1 else ''}"
    return "0 seconds"
