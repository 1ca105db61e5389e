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


Window = TimeWindow | Unbounded
