"""`between=` of a join: bounds for the time between two rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from watersmeet.errors import QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.durations import Duration
from watersmeet.model.windows import Interval, RowsWindow, format_window
from watersmeet.spark.streams import Stream

#: The bounds of the second stream's time around the first one's.
Between = tuple[Duration, Duration]


def read(between: Any, closed: str) -> Interval | None:
    """The interval that `between` and `closed` define; None without `between`."""
    if between is None:
        return None
    if not isinstance(between, list | tuple) or len(between) != 2:
        raise WindowError(
            f"`between` is {between!r}; it is a pair of durations, the lower and the upper bound of the second "
            "stream's time after the first one's.",
            hint='between=("-10 minutes", "1 hour").',
        )
    lower, upper = (durations.parse(bound, "between") for bound in between)
    return Interval.between(lower, upper, closed)


def bounded(
    streams: Sequence[Stream], between: Interval, window: Duration | RowsWindow | None, algorithm: str
) -> tuple[Stream, ...]:
    """The two streams with the interval in place of windows."""
    if len(streams) != 2:
        raise QueryError(
            f"`between` bounds the times of two streams; {len(streams)} given.",
            hint="join two of them first, and the result with the next (`as_stream`), or give the streams windows.",
        )
    if window is not None:
        raise WindowError(
            "`window` and `between` are given; both say how far apart rows may be.", hint="leave one of them out."
        )
    if algorithm == "wo_join":
        raise QueryError(
            '`algorithm` is "wo_join" and `between` is given; that join goes by the order of keys, not by time.',
            hint='leave one of them out; algorithm="auto" takes a join that knows bounds.',
        )
    for s in streams:
        if s.window is not None:
            text = format_window(s.given_window) if s.given_window is not None else ""
            raise WindowError(
                f"stream `{s.name}` has a window ({text}), and the join has `between`; both say how far apart rows "
                "may be.",
                hint="leave one of them out.",
            )
    first, second = streams
    return replace(first, window=between), replace(second, window=between.mirrored)
