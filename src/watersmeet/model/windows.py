"""Windows: how much older than the newest tuple of a combination a tuple may be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.errors import WindowError
from watersmeet.model import durations

#: Longer than the distance of any two timestamps of the years 0001 to 9999, and safe to add to any of them.
FOREVER = 1 << 61


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A tuple t is in the window at `now` iff ``t.ts >= now - length`` (``>`` when not closed).

    Lengths are microseconds. Kernels see only `reach`, in which the two conventions are one:
    ``t.ts >= now - reach``.

    >>> TimeWindow(10).reach, TimeWindow(10, closed=False).reach
    (10, 9)
    """

    length: int
    closed: bool = True
    kind: ClassVar[str] = "time"

    def __post_init__(self) -> None:
        if self.length < 0:
            raise WindowError(
                f"`window` is {durations.formatted(self.length)}; a window reaches back in time, so it cannot be "
                "negative.",
                hint='give a duration such as "10 seconds", or None to keep tuples until a punctuation.',
            )
        if not self.closed and self.length == 0:
            raise WindowError(
                "`window` is zero and half-open; not even a tuple of the same instant would be inside.",
                hint='use closed="both", or a longer window.',
            )

    @property
    def reach(self) -> int:
        """The largest distance, in microseconds, between `now` and a tuple that is still inside."""
        return min(self.length if self.closed else self.length - 1, FOREVER)


@dataclass(frozen=True, slots=True)
class Unbounded:
    """No window: a tuple stays until punctuations exclude any further match."""

    kind: ClassVar[str] = "none"

    @property
    def reach(self) -> int:
        return FOREVER


@dataclass(frozen=True, slots=True)
class RowsWindow:
    """A tuple is in the window at `now` iff it is one of the last `rows` of its stream with ``ts <= now``.

    With `per_key` they are counted among the tuples of its key. Ties of times are broken by the stream's `order_by`
    column, then by the bytes of the row.
    """

    rows: int
    per_key: bool = False
    kind: ClassVar[str] = "rows"

    def __post_init__(self) -> None:
        if type(self.rows) is not int or self.rows < 1:
            raise WindowError(
                f"`rows` is {self.rows!r}; a window of rows holds at least the newest one, so it is a whole number "
                "from 1 on.",
                hint="give how many of the last rows count, or a duration for a window by time.",
            )

    @property
    def reach(self) -> int:
        """Unbounded: time alone never evicts a tuple."""
        return FOREVER


#: Which ends of an interval belong to it.
CLOSED = ("both", "left", "right", "neither")


def closed_ends(closed: str | bool) -> str:
    """Which ends belong to an interval, one of `CLOSED`; True is "both", False "right": all but the lower end."""
    ends = {True: "both", False: "right"}[closed] if isinstance(closed, bool) else closed
    if ends not in CLOSED:
        raise WindowError(
            f"`closed` is {closed!r}; it names the ends that belong to an interval: {', '.join(CLOSED)}.",
            hint='closed="both" includes both ends, closed="right" the upper one alone.',
        )
    return ends


@dataclass(frozen=True, slots=True)
class Interval:
    """One side of an interval join: a tuple t meets tuples u of the other stream with
    ``t.ts + lower <= u.ts <= t.ts + upper``, in microseconds of any sign. The other stream has the mirror image.
    """

    lower: int
    upper: int
    kind: ClassVar[str] = "interval"

    @classmethod
    def between(cls, lower: int, upper: int, closed: str = "both") -> Interval:
        """The interval of these bounds; an open end is the next microsecond inside it."""
        if lower > upper:
            raise WindowError(
                f"`between` is ({durations.formatted(lower)}, {durations.formatted(upper)}); the lower bound is above "
                "the upper one, so no pair would be inside.",
                hint=f'between=("{durations.formatted(upper)}", "{durations.formatted(lower)}").',
            )
        first = lower + (closed not in ("both", "left"))
        last = upper - (closed not in ("both", "right"))
        if first > last:
            raise WindowError(
                f"`between` is ({durations.formatted(lower)}, {durations.formatted(upper)}) and `closed` is "
                f'"{closed}"; no time is inside.',
                hint='use closed="both", or bounds further apart.',
            )
        return cls(max(first, -FOREVER), min(last, FOREVER))

    @property
    def reach(self) -> int:
        """How far after a tuple its last partner may be; negative: all its partners are older."""
        return self.upper

    @property
    def mirrored(self) -> Interval:
        """The same interval, from the other stream."""
        return Interval(-self.upper, -self.lower)


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Times in pieces of `length` microseconds from 1970-01-01 on: a tuple matches tuples of its own piece.

    The start of the piece is a part of the key, so tuples of other pieces have other keys.
    """

    length: int
    kind: ClassVar[str] = "tumbling"

    @property
    def reach(self) -> int:
        """The largest distance between two times of one piece."""
        return self.length - 1


Window = TimeWindow | Unbounded | RowsWindow | Interval | Tumbling
#: Kinds of windows, as `Traits.windows` of an algorithm names them.
KINDS = ("time", "interval", "tumbling", "rows", "none")


def alive_from(window: Window, watermark: int) -> int:
    """Tuples with an event time before this match nothing whose event time is `watermark` or later."""
    return watermark - (watermark % window.length if isinstance(window, Tumbling) else window.reach)


def format_length(micros: int | None) -> str:
    """A stored length as text: None is none, and `FOREVER` is endless."""
    return "none" if micros is None else "endless" if micros >= FOREVER else durations.formatted(micros)


def format_window(window: Window) -> str:
    """A window as text."""
    if isinstance(window, TimeWindow):
        return format_length(window.length)
    if isinstance(window, Interval):
        return f"partners from {durations.signed(window.lower)} to {durations.signed(window.upper)}"
    if isinstance(window, Tumbling):
        return f"the same {durations.formatted(window.length)}"
    if isinstance(window, RowsWindow):
        return f"{window.rows:,} row{'s' if window.rows != 1 else ''}{' of a key' if window.per_key else ''}"
    return "unbounded"
