"""What Spark's analysed plan of a streaming DataFrame tells: its sources, and the operators in it that keep state.

The plan is read in the driver's JVM, which a client of Spark Connect has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

#: Nodes that keep state where their input is a stream, beside those with "State" in their names.
_STATEFUL = ("Aggregate", "Distinct", "Deduplicate", "DeduplicateWithinWatermark", "GlobalLimit")


def count_sources(df: DataFrame) -> int:
    """The number of sources, each as often as the plan reads it: so many lines has an entry of the offset log."""
    return sum(not _children(node) and bool(node.isStreaming()) for node in _nodes(df))


def stateful_node(df: DataFrame) -> str | None:
    """The name of a node that keeps state in a streaming query; None if there is none."""
    for node in _nodes(df):
        name = str(node.nodeName())
        of_streams = [child for child in _children(node) if child.isStreaming()]
        if of_streams and (name in _STATEFUL or "State" in name or (name == "Join" and len(of_streams) > 1)):
            return name
    return None


def _nodes(df: DataFrame) -> Iterator[Any]:
    waiting = [df._jdf.queryExecution().analyzed()]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += _children(node)


def _children(node: Any) -> list[Any]:
    children = node.children()
    return [children.apply(n) for n in range(children.size())]
