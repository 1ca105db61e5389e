"""Runs of queries over `watersmeet.testing.Feed`: their counters, their failures, and their working states."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
from pyspark import SparkFiles
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.session import SHARDS
from watersmeet.testing import Feed, QueryOutput, run

__all__ = [
    "Feed",
    "QueryOutput",
    "divided",
    "failure",
    "metrics_of",
    "partitions",
    "remove_working_states",
    "rows",
    "run",
]


@contextmanager
def partitions(spark: SparkSession, n: int) -> Iterator[None]:
    """Set the number of shuffle partitions for a while."""
    before = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    spark.conf.set("spark.sql.shuffle.partitions", str(n))
    try:
        yield
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", before)


@contextmanager
def divided(spark: SparkSession, shards: int, tasks: int) -> Iterator[None]:
    """Have joins of so many shards, in so many tasks, for a while."""
    with partitions(spark, tasks):
        spark.conf.set(SHARDS, str(shards))
        try:
            yield
        finally:
            spark.conf.unset(SHARDS)


def metrics_of(query: StreamingQuery) -> list[dict[str, Any]]:
    """Counters of each batch."""
    return [wm.counters(progress) for progress in query.recentProgress]


def remove_working_states() -> None:
    """Remove the working states, as on a machine that has never run the query."""
    root = worker_cache.folder(os.path.abspath(SparkFiles.getRootDirectory()))
    assert list((root / "states").iterdir()), "there are working states to remove"
    worker_cache.remove(root)


def failure(start: Callable[[], Any]) -> str:
    """The text with which a query ends."""
    from pyspark.errors import StreamingQueryException

    try:
        start()
    except StreamingQueryException as error:
        return str(error)
    raise AssertionError("the query did not fail")


def rows(table: pa.Table, names: Sequence[str]) -> list[tuple[Any, ...]]:
    """Rows of these columns, in order."""
    return sorted(tuple(row.values()) for row in table.select(names).to_pylist())
