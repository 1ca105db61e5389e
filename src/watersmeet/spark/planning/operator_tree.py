"""A join on different attributes: a tree of operators, each joining the output of the one before with further streams.

A tree of window joins finds more than the join of all streams at once: the time of a pair is that of its newer part,
and no later operator checks the older part again. A pair of which every part is in its window at `now` is itself no
older than the shortest of these windows, so that is its window. Behind the last operator a filter checks all parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, TimestampNTZType

from watersmeet.errors import QueryError, WindowError
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.spark.as_stream import as_stream
from watersmeet.spark.joined import Joined, JoinRequest, one_operator
from watersmeet.spark.planning.equalities import Equal, Step
from watersmeet.spark.runtime import output_columns as operators
from watersmeet.spark.streams import Stream


def tree(streams: Sequence[Stream], steps: Sequence[Step], equal: Sequence[Equal], request: JoinRequest) -> Joined:
    """The last operator, with those before it inside."""
    _refuse(streams, request)
    if request.memory is not None:
        request = replace(request, memory=max(1, request.memory // len(steps)))
    streams = [replace(s, compared=(*s.compared, *(e[s.name] for e in equal if s.name in e))) for s in streams]
    by_name = {s.name: s for s in streams}
    current, inside, parts = streams[0], [], [streams[0]]
    for n, step in enumerate(steps):
        last = n == len(steps) - 1
        members = [by_name[name] for name in step.others]
        joined = one_operator((current, *members), step.keys, request if last else replace(request, where=None))
        if n:
            joined = replace(joined, hidden=(current.time,))
        parts += members
        if not last:
            inside.append(joined)
            name = "_".join(s.name for s in parts)
            lengths = [s.window for s in parts if isinstance(s.window, int)]
            current = as_stream(joined, name, min(lengths, default=None), f"event time of {name}")
    times = {s.name: _called(s, parts, equal) for s in streams}
    fits = _in_windows(streams, times, request)
    conditions = [c for c in (fits, joined.condition) if c is not None]
    condition = reduce(Column.__and__, conditions) if conditions else None
    return replace(joined, condition=condition, inner=tuple(inside))


def _refuse(streams: Sequence[Stream], request: JoinRequest) -> None:
    if request.how != "inner":
        raise QueryError(
            f'`how` is "{request.how}" and there are {len(streams)} streams; which rows are unmatched is defined for '
            "two.",
            hint='take how="inner", or join two of them first and the result with the next (`as_stream`).',
        )
    if "order" in request.options:
        raise QueryError(
            "`order` is given, and the streams have no key common to all of them; they are joined as they stand.",
            hint="give the streams in the order in which they shall be joined.",
        )
    for s in streams:
        if isinstance(s.window, RowsWindow):
            raise WindowError(
                f"stream `{s.name}` has a window of rows, and the streams have no key common to all of them; whether a "
                "row was one of the last when the newest came cannot be checked behind a tree of joins.",
                hint="give it a duration, or join in steps of your own: wm.join(…).as_stream(…).",
            )


def _called(s: Stream, parts: Sequence[Stream], equal: Sequence[Equal]) -> str:
    """The name that the time of a stream has in the result: its own, unless it is a key."""
    for e in equal:
        if e.get(s.name) == s.time:
            return next(e[p.name] for p in parts if p.name in e)
    return s.time


def _in_windows(streams: Sequence[Stream], times: dict[str, str], request: JoinRequest) -> Column | None:
    """Whether every tuple is in its window at the time of the newest."""
    newest = F.greatest(*(operators.quoted(time) for time in times.values()))
    fits = []
    for s in streams:
        if isinstance(s.window, int):
            reach = TimeWindow(s.window, request.closed == "both").reach
            fits.append(_within(operators.quoted(times[s.name]), newest, reach, s.time_type))
    return reduce(Column.__and__, fits) if fits else None


def _within(time: Column, newest: Column, reach: int, kind: DataType) -> Column:
    """Whether `newest` is at most `reach` microseconds after `time`, independent of the session's time zone."""
    if isinstance(kind, TimestampNTZType):  # a local time; a difference of two needs no time zone
        return newest - time <= F.lit(timedelta(microseconds=reach))
    return F.unix_micros(newest) - F.unix_micros(time) <= reach
