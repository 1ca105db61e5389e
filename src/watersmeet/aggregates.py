"""Aggregates of `agg`, by the names that Spark has for them: ``from watersmeet import aggregates as A``, then `A.max`.

>>> from watersmeet import aggregates as A
>>> A.max("price").kind
'max'
"""

from watersmeet.spark.aggregates import (
    avg,
    bucket,
    collect_list,
    count,
    count_distinct,
    first,
    last,
    max,
    mean,
    min,
    sum,
)

__all__ = [
    "avg",
    "bucket",
    "collect_list",
    "count",
    "count_distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "sum",
]
