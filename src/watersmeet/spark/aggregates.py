"""Arguments of `agg` and `group_by`: aggregates, and buckets of time."""

from __future__ import annotations

from watersmeet.errors import WindowError
from watersmeet.model import durations
from watersmeet.model.durations import Duration
from watersmeet.model.grouping import Aggregate, Bucket
from watersmeet.spark.planning.arguments import require_text


def count(col: str | None = None) -> Aggregate:
    """How many results, also as `count("*")`; with `col`, how many in which it is not NULL.

    >>> count() == count("*")
    True
    """
    return Aggregate("count") if col is None or col == "*" else _of("count", col)


def sum(col: str) -> Aggregate:
    """Sum of the values, NULL of none; exact but for floats."""
    return _of("sum", col)


def min(col: str) -> Aggregate:
    """The smallest value, NULL of none."""
    return _of("min", col)


def max(col: str) -> Aggregate:
    """The largest value, NULL of none; NaN is larger than all others, as in Spark."""
    return _of("max", col)


def mean(col: str) -> Aggregate:
    """Mean of the values, NULL of none; of decimals a decimal with four digits more.

    >>> mean("price")
    Aggregate(kind='mean', column='price')
    """
    return _of("mean", col)


def avg(col: str) -> Aggregate:
    """`mean` by Spark's other name for it.

    >>> avg("price") == mean("price")
    True
    """
    return mean(col)


def first(col: str) -> Aggregate:
    """The value in the first result by event time, be it NULL; the bytes of the result decide ties.

    >>> first("bidder")
    Aggregate(kind='first', column='bidder')
    """
    return _of("first", col)


def last(col: str) -> Aggregate:
    """The value in the last result by event time, be it NULL; the bytes of the result decide ties.

    >>> last("bidder")
    Aggregate(kind='last', column='bidder')
    """
    return _of("last", col)


def collect_list(col: str) -> Aggregate:
    """All values but NULLs, in the order of `first` and `last`. The group holds them until it is final.

    >>> collect_list("price")
    Aggregate(kind='collect_list', column='price')
    """
    return _of("collect_list", col)


def count_distinct(col: str) -> Aggregate:
    """How many different values, NULL not counted. The group holds them until it is final.

    >>> count_distinct("bidder")
    Aggregate(kind='count_distinct', column='bidder')
    """
    return _of("count_distinct", col)


def bucket(col: str, duration: Duration, *, name: str | None = None) -> Bucket:
    """Group by the start of the interval of length `duration` in which the time in `col` lies.

    Intervals are counted from 1970-01-01 00:00 UTC. The column is called `name` (default: the name of `col`, then
    _bucket). On the time of a stream with a window, the groups of an interval end with it. In `on` of a join it is the
    interval in which rows of two streams meet.
    """
    require_text(col, "col")
    if name is not None:
        require_text(name, "name", "what the column is called")
    length = durations.parse(duration, "duration")
    if length <= 0:
        raise WindowError(
            f"`duration` of the bucket is {durations.formatted(length)}; a bucket holds at least a microsecond.",
            hint='e.g. wm.bucket("bid_at", "1 minute").',
        )
    return Bucket(col, length, name or f"{col}_bucket")


def _of(kind: str, col: str) -> Aggregate:
    require_text(col, "col")
    return Aggregate(kind, col)
