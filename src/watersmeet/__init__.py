"""Watersmeet: exact stream joins on Spark Structured Streaming whose state stays small."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.monitoring import monitor
    from watersmeet.spark.aggregates import (
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
    from watersmeet.spark.counters import counters
    from watersmeet.spark.grouping import Grouped
    from watersmeet.spark.joining import join
    from watersmeet.spark.pipeline import Joined
    from watersmeet.spark.punctuations import clustered, end, heartbeat, ordered, unique, when
    from watersmeet.spark.rescale import rescale_state
    from watersmeet.spark.session import configure, session
    from watersmeet.spark.sql import sql
    from watersmeet.spark.state_reader import State, read_state
    from watersmeet.spark.streams import Stream, rows, stream
    from watersmeet.spark.write import write

__version__ = "0.1.0"
__all__ = [
    "Grouped",
    "Joined",
    "State",
    "Stream",
    "WatersmeetError",
    "bucket",
    "clustered",
    "collect_list",
    "configure",
    "count",
    "count_distinct",
    "counters",
    "end",
    "first",
    "heartbeat",
    "join",
    "last",
    "max",
    "mean",
    "min",
    "monitor",
    "ordered",
    "read_state",
    "rescale_state",
    "rows",
    "session",
    "sql",
    "stream",
    "sum",
    "unique",
    "when",
    "write",
]

#: Names that need Spark are found when first asked for: `import watersmeet` itself loads neither Spark nor Numba.
_ROOMS = {
    "Grouped": "grouping",
    "counters": "counters",
    "Joined": "pipeline",
    "join": "joining",
    "monitor": ".monitoring",  # one room up: it puts the listener and the live page together
    "configure": "session",
    "session": "session",
    "State": "state_reader",
    "read_state": "state_reader",
    "rescale_state": "rescale",
    "sql": "sql",
    "Stream": "streams",
    "rows": "streams",
    "stream": "streams",
    "write": "write",
    **dict.fromkeys(("bucket", "collect_list", "count", "count_distinct", "first", "last"), "aggregates"),
    **dict.fromkeys(("max", "mean", "min", "sum"), "aggregates"),
    **dict.fromkeys(("clustered", "end", "heartbeat", "ordered", "unique", "when"), "punctuations"),
}


def __getattr__(name: str) -> Any:
    if name not in _ROOMS:
        raise AttributeError(f"module 'watersmeet' has no attribute {name!r}")
    return getattr(import_module(f".{_ROOMS[name]}", "watersmeet.spark"), name)


def __dir__() -> list[str]:
    return [*globals(), *_ROOMS]
