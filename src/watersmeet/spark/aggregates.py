"""What `agg` and `group_by` are told: aggregates, and buckets of time."""

from __future__ import annotations

from watersmeet.errors import WindowError
from watersmeet.model import durations
from watersmeet.model.grouping import Aggregate, Bucket


def count(col: str | None = None) -> Aggregate:
    """How many results; with `col`, how many in which it is not NULL."""
    return Aggregate("count", col)


def sum(col: str) -> Aggregate:
    """Sum of the values, NULL of none; exact but for floats."""
    return Aggregate("sum", col)


def min(col: str) -> Aggregate:
    """The smallest value, NULL of none."""
    return Aggregate("min", col)


def max(col: str) -> Aggregate:
    """The largest value, NULL of none; NaN is larger than all others, as in Spark."""
    return Aggregate("max", col)


def mean(col: str) -> Aggregate:
    """Mean of the values, NULL of none; of decimals a decimal with four digits more."""
    return Aggregate("mean", col)


def first(col: str) -> Aggregate:
    """The value in the first result by event time, be it NULL; ties are broken by the bytes of the result."""
    return Aggregate("first", col)


def last(col: str) -> Aggregate:
    """The value in the last result by event time, be it NULL; ties are broken by the bytes of the result."""
    return Aggregate("last", col)


def collect_list(col: str) -> Aggregate:
    """All values but NULLs, in the order of `first` and `last`. The group holds them until it is final."""
    return Aggregate("collect_list", col)


def count_distinct(col: str) -> Aggregate:
    """How many different values, NULL not counted. The group holds them until it is final."""
    return Aggregate("count_distinct", col)


def bucket(col: str, duration: str, *, name: str | None = None) -> Bucket:
    """Group by the start of the interval of length `duration` in which the time in `col` lies.

    Intervals are counted from 1970-01-01 00:00 UTC. The column is called `name` (default: the name of `col`, then
    _bucket). On the time of a stream with a window, the groups of an interval end with it.
    """
    length = durations.parse(duration, "duration")
    if length <= 0:
        raise WindowError(
            f'`duration` of the bucket is "{duration}"; a bucket holds at least a microsecond.',
            hint='e.g. wm.bucket("bid_at", "1 minute").',
        )
    return Bucket(col, length, name or f"{col}_bucket")
