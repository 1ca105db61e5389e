"""The table of hot keys by which a batch is routed: set on the driver, read by the packers in the workers.

It travels as a local property of the thread that runs the batch: Spark hands these to every task of its jobs.
"""

from __future__ import annotations

import json

from pyspark import TaskContext
from pyspark.sql import SparkSession

from watersmeet.state.hot_keys.phases import Table, as_json, from_json

PROPERTY = "watersmeet.hot_keys"


def text_of(table: Table) -> str:
    """A table as text, always the same one."""
    return json.dumps(as_json(table), separators=(",", ":"))


def table_of(text: str) -> Table:
    """The table of `text_of`."""
    return from_json(json.loads(text))


def put_in_force(spark: SparkSession, table: Table) -> None:
    """Have the jobs that this thread starts from now on route by the table."""
    spark.sparkContext.setLocalProperty(PROPERTY, text_of(table) if table else None)  # type: ignore[arg-type]


def in_force() -> Table:
    """The table of this task's job; empty if none was set."""
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(PROPERTY)
    return table_of(text) if text else {}
