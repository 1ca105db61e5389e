"""Streams of one join are of one kind: all streaming or all static, all in instants or all in local times."""

from __future__ import annotations

from collections.abc import Sequence

from watersmeet.errors import ColumnError, QueryError
from watersmeet.spark.streams import Stream


def refuse_two_kinds_of_time(streams: Sequence[Stream]) -> None:
    """Refuse instants beside local times, which only a time zone could compare."""
    kinds = {s.time_type.simpleString() for s in streams}
    if len(kinds) > 1:
        each = ", ".join(f"{s.time_type.simpleString()} in `{s.name}` (`{s.time}`)" for s in streams)
        other = next(s for s in streams if s.time_type != streams[0].time_type)
        first = streams[0].time_type.simpleString()
        raise ColumnError(
            f"`time` is {each}; an instant and a local time are compared by way of a time zone, and no stream names "
            "one.",
            hint=f'cast one side where you know its zone, e.g. df.withColumn("{other.time}", '
            f'F.col("{other.time}").cast("{first}")), which takes the session\'s.',
        )


def same_kind(streams: tuple[Stream, ...]) -> bool:
    """True if all are streaming, False if all are static; a mixture is refused."""
    for s in streams:
        for rule in s.rules:
            if rule.df is not None and rule.df.isStreaming != s.df.isStreaming:
                own, other = ("streaming", "static") if s.df.isStreaming else ("static", "streaming")
                raise QueryError(
                    f"`df` of `{rule.function}`, the punctuations of stream `{s.name}`, is a {other} DataFrame and the "
                    f"stream is {own}; both are read in the same batches.",
                    hint="read the punctuations as the stream is read, with spark.readStream or with spark.read.",
                )
    kinds = {s.df.isStreaming for s in streams}
    if len(kinds) > 1:
        static = ", ".join(f"`{s.name}`" for s in streams if not s.df.isStreaming)
        raise QueryError(
            f"{static} is a static DataFrame and others are streaming; a static side has no watermark.",
            hint='a table needs no state: stream_df.join(table, "…", "left") is Spark\'s own; or read it as a stream.',
        )
    return kinds.pop()
