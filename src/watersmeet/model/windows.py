"""Windows: how far back a tuple may stand behind the newest tuple of a combination."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import WindowError

#: Farther than any two timestamps of the years 0001 to 9999 stand apart, and safe to add to any of them.
FOREVER = 1 << 61


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """A tuple t is in the window at `now` iff ``t.ts >= now - length`` (``>`` when not closed).

    Lengths are microseconds. Kernels see only `reach`, in which the two conventions are one:
    ``t.ts >= now - reach``.
    """

    length: int
    closed: bool = True

    def __post_init__(self) -> None:
        if self.length < 0:
            raise WindowError(
                f"`window` is {self.length} µs; a window reaches back in time, so it cannot be negative.",
                hint='give a duration such as "10 seconds", or None to keep tuples until a punctuation.',
            )
        if not self.closed and self.length == 0:
            raise WindowError(
                "`window` is zero and half-open; not even a tuple of the same instant would be inside.",
                hint="use closed=True, or a longer window.",
            )

    @property
    def reach(self) -> int:
        """The largest distance, in microseconds, between `now` and a tuple that is still inside."""
        return min(self.length if self.closed else self.length - 1, FOREVER)


@dataclass(frozen=True, slots=True)
class Unbounded:
    """No window: a tuple stays until a punctuation says that nothing can match it any more."""

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

    def __post_init__(self) -> None:
        if type(self.rows) is not int or self.rows < 1:
            raise WindowError(
                f"`rows` is {self.rows!r}; a window of rows holds at least the newest one, so it is a whole number "
                "from 1 on.",
                hint="give how many of the last rows count, or a duration for a window by time.",
            )

    @property
    def reach(self) -> int:
        """Time alone never ends it."""
        return FOREVER


Window = TimeWindow | Unbounded | RowsWindow
