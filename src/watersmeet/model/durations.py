"""Durations as users of Spark write them ("12 hours", "INTERVAL 10 SECONDS", `timedelta`) in microseconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from watersmeet.errors import WindowError

#: A duration as an argument.
Duration = str | timedelta

MICROS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
#: Abbreviations of units; a plural `s` may follow. `m` is none: it could be a minute or a month.
SHORT = {
    **dict.fromkeys(("us", "usec", "micro"), "microsecond"),
    **dict.fromkeys(("ms", "msec", "milli"), "millisecond"),
    **dict.fromkeys(("s", "sec"), "second"),
    "min": "minute",
    **dict.fromkeys(("h", "hr"), "hour"),
    "d": "day",
    "w": "week",
}
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([a-zA-Z]+)\s*,?")
_INTERVAL = re.compile(r"(?:interval\s+)?(?:'([^']*)'(.*)|(.*))", re.DOTALL)
_EXAMPLES = '"10 seconds", "1 hour 30 minutes" or timedelta(seconds=10)'


class Micros(int):
    """Microseconds of a duration that was written with its unit, unlike a bare number."""


def parse(given: Duration, argument: str) -> Micros:
    """Microseconds of a duration; `argument` is the name of the caller's parameter.

    >>> parse("1 minute 30 seconds", "window"), parse("INTERVAL 10 SECONDS", "delay")
    (90000000, 10000000)
    """
    if isinstance(given, timedelta):
        return Micros(given // timedelta(microseconds=1))
    if not isinstance(given, str):
        raise bare(given, argument)
    quoted, behind, plain = _INTERVAL.fullmatch(given.strip().lower()).groups()  # type: ignore[union-attr]  # any text
    rest, total = plain if quoted is None else quoted + behind, 0
    if not rest:
        raise WindowError(f"`{argument}` is empty; it is a duration.", hint=f"write it like {_EXAMPLES}.")
    while rest:
        found = _PART.match(rest)
        unit = unit_of(found[2]) if found else None
        if found is None or unit is None:
            raise WindowError(f'`{argument}` is "{given}"; that is not a duration of fixed length.', hint=_hint(given))
        total += round(float(found[1]) * MICROS[unit]) if "." in found[1] else int(found[1]) * MICROS[unit]
        rest = rest[found.end() :].lstrip()
    return Micros(total)


def unit_of(name: str) -> str | None:
    """The unit of time of this name, in the singular; None if it has no fixed length or is unknown."""
    name = name.lower()
    for one in (name, name.removesuffix("s")):
        if one in MICROS or one in SHORT:
            return SHORT.get(one, one)
    return None


def bare(given: Any, argument: str) -> WindowError:
    """The refusal of a duration that is no text: most often a number, which has no unit."""
    if given is not None and not isinstance(given, int | float):
        kind = type(given).__name__
        return WindowError(
            f"`{argument}` is {'an' if kind[0] in 'aeiou' else 'a'} {kind}; a duration is a text with its unit, or a "
            "timedelta.",
            hint=f'write it like {_EXAMPLES}; an interval of Spark\'s as its text, "INTERVAL 10 SECONDS".',
        )
    number = given if type(given) in (int, float) else 10
    return WindowError(
        f"`{argument}` is {given!r}; a duration has a unit, and a number alone could be seconds or milliseconds.",
        hint=f'write it like "{number} seconds", or timedelta(seconds={number}).',
    )


def _hint(text: str) -> str:
    if re.fullmatch(r"\s*\d+(\.\d+)?\s*", text):
        return f'a number has a unit: "{text.strip()} seconds".'
    if re.search(r"\b(month|year)s?\b", text.lower()):
        return 'months and years differ in length; count days, e.g. "30 days".'
    return f"write it like {_EXAMPLES}; units are {', '.join(MICROS)}."


#: From this number on a duration is written in several units: 3600 seconds are an hour, 3601 are 1 hour 1 second.
_MANY = 120


def formatted(micros: int) -> str:
    """A duration as text: in the largest unit that divides it, or in several units where that is a large number."""
    if micros < 0:
        return f"-{formatted(-micros)}"
    units = list(reversed(MICROS.items()))
    name, size = next(((n, s) for n, s in units if micros and micros % s == 0), ("second", MICROS["second"]))
    if micros // size < _MANY:
        return _counted(micros // size, name)
    parts = []
    for name, size in units[1:]:  # from days on: weeks are not used here
        count, micros = divmod(micros, size)
        parts += [_counted(count, name)] if count else []
    return " ".join(parts)


def signed(micros: int) -> str:
    """A distance in time with its sign: "+ 1 hour", "- 5 minutes"."""
    return f"{'-' if micros < 0 else '+'} {formatted(abs(micros))}"


def _counted(count: int, unit: str) -> str:
    return f"{count:,} {unit}{'s' if count != 1 else ''}"
