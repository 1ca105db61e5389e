"""`wm.bucket` in `on=` of a join: rows meet in the same piece of time, whose start is a part of the key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.model.durations import Duration
from watersmeet.model.grouping import Bucket
from watersmeet.model.windows import RowsWindow, Tumbling
from watersmeet.spark.runtime.output_columns import quoted
from watersmeet.spark.streams import Stream


def without_bucket(on: Any) -> tuple[Any, Bucket | None]:
    """The columns of `on` with the name of the bucket for the bucket itself, and the bucket, if there is one."""
    texts = [on] if isinstance(on, Bucket) else on
    if not isinstance(texts, list | tuple) or not any(isinstance(one, Bucket) for one in texts):
        return on, None
    first, *others = [one for one in texts if isinstance(one, Bucket)]
    if others:
        raise QueryError(
            "`on` has two buckets; rows that share the smaller one share the larger one, or none.",
            hint="leave one of them out.",
        )
    return [one.name if isinstance(one, Bucket) else one for one in texts], first


def bucketed(streams: Sequence[Stream], bucket: Bucket, bounded_by: str | None) -> tuple[Stream, ...]:
    """The streams with the start of the bucket as a column; they have it for a window. `bounded_by`: an argument."""
    if bucket.column not in [s.time for s in streams]:
        raise ColumnError(
            f"`on` has a bucket of `{bucket.column}`, which is the time of no stream; rows meet in the same piece of "
            "their event times.",
            hint=f'wm.bucket("{streams[0].time}", …) for the event times of all streams.',
        )
    if len(streams) != 2:
        raise QueryError(
            f"`on` has a bucket, and {len(streams)} streams are joined; it is for two.",
            hint="join two of them first, and the result with the next (`as_stream`).",
        )
    windowed = next((f"stream `{s.name}` has a window" for s in streams if s.window is not None), None)
    if bounded_by is not None or windowed is not None:
        raise WindowError(
            f"`on` has a bucket, and {windowed or f'`{bounded_by}` is given'}; both say how far apart rows may be.",
            hint="leave one of them out.",
        )
    for s in streams:
        if bucket.name in s.df.columns:
            raise ColumnError(
                f"the bucket in `on` is called `{bucket.name}`, as a column of stream `{s.name}` is.",
                hint=f'wm.bucket("{bucket.column}", …, name="…").',
            )
    window = Tumbling(bucket.length)
    return tuple(replace(s.with_df(s.df.withColumn(bucket.name, _start(s, bucket))), window=window) for s in streams)


def given(window: Duration | RowsWindow | None, between: object, algorithm: str) -> str | None:
    """The argument of a join that would bound it beside the bucket."""
    if algorithm == "wo_join":
        return "algorithm"
    return "window" if window is not None else "between" if between is not None else None


def _start(s: Stream, bucket: Bucket) -> Column:
    """The start of the piece in which a row's event time lies, as Spark's `window` counts it; NULL without a time."""
    time = quoted(s.time)
    some = F.coalesce(time, F.lit("1970-01-01").cast(s.time_type))  # `window` would drop rows without a time
    return F.when(time.isNotNull(), F.window(some, f"{bucket.length} microseconds").start)
