"""Watersmeet: exact stream joins on Spark Structured Streaming whose state stays small."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from watersmeet.errors import WatersmeetError

if TYPE_CHECKING:
    from watersmeet.joins import (
        AsofJoin,
        BandJoin,
        EagerJoin,
        GeneralLazyJoin,
        HashJoin,
        HybridJoin,
        LazyJoin,
        NaiveMultiwayJoin,
        NestedLoopJoin,
        PJoin,
        PWJoin,
        ThetaJoin,
        WindowedHashJoin,
        WOJoin,
    )
    from watersmeet.monitoring import monitor
    from watersmeet.spark.aggregates import avg, bucket, collect_list, count, count_distinct, first, last, mean
    from watersmeet.spark.aggregates import max as max
    from watersmeet.spark.aggregates import min as min
    from watersmeet.spark.aggregates import sum as sum
    from watersmeet.spark.bootstrap import bootstrap
    from watersmeet.spark.checkpoints.evolve_state import evolve_state
    from watersmeet.spark.checkpoints.rescale import rescale_state
    from watersmeet.spark.checkpoints.state_reader import State, read_state
    from watersmeet.spark.group_by import Grouped
    from watersmeet.spark.join import join
    from watersmeet.spark.join_asof import join_asof
    from watersmeet.spark.joined import Joined
    from watersmeet.spark.lake_tables import delta, iceberg
    from watersmeet.spark.progress.counters import counters
    from watersmeet.spark.punctuations import clustered, end, heartbeat, ordered, unique, when
    from watersmeet.spark.session import configure, session
    from watersmeet.spark.sql import sql
    from watersmeet.spark.streams import Stream, rows, stream
    from watersmeet.spark.write import write

__version__ = "0.2.0"
__all__ = [
    "AsofJoin",
    "BandJoin",
    "EagerJoin",
    "GeneralLazyJoin",
    "Grouped",
    "HashJoin",
    "HybridJoin",
    "Joined",
    "LazyJoin",
    "NaiveMultiwayJoin",
    "NestedLoopJoin",
    "PJoin",
    "PWJoin",
    "State",
    "Stream",
    "ThetaJoin",
    "WOJoin",
    "WatersmeetError",
    "WindowedHashJoin",
    "avg",
    "bootstrap",
    "bucket",
    "clustered",
    "collect_list",
    "configure",
    "count",
    "count_distinct",
    "counters",
    "delta",
    "end",
    "evolve_state",
    "first",
    "heartbeat",
    "iceberg",
    "join",
    "join_asof",
    "last",
    "mean",
    "monitor",
    "ordered",
    "read_state",
    "rescale_state",
    "rows",
    "session",
    "sql",
    "stream",
    "unique",
    "when",
    "write",
]

#: Aggregates that are called as builtins are: `wm.max("price")` works, and `from watersmeet import *` leaves them out.
_LIKE_BUILTINS = ("max", "min", "sum")
#: Public modules.
_SUBMODULES = ("aggregates", "testing")
#: Algorithms with their options, for `join`.
_ALGORITHMS = (
    *(
        "AsofJoin",
        "BandJoin",
        "EagerJoin",
        "GeneralLazyJoin",
        "HashJoin",
        "HybridJoin",
        "LazyJoin",
        "NaiveMultiwayJoin",
        "NestedLoopJoin",
    ),
    *("PJoin", "PWJoin", "ThetaJoin", "WindowedHashJoin", "WOJoin"),
)
#: Modules of names that are imported on first use: `import watersmeet` itself loads neither Spark nor Numba.
_MODULES = {
    "Grouped": "group_by",
    "counters": "progress.counters",
    "Joined": "joined",
    "join": "join",
    "join_asof": "join_asof",
    "monitor": ".monitoring",  # not below `spark`: it connects the listener with the live page
    "configure": "session",
    "session": "session",
    "State": "checkpoints.state_reader",
    "read_state": "checkpoints.state_reader",
    "bootstrap": "bootstrap",
    "evolve_state": "checkpoints.evolve_state",
    "rescale_state": "checkpoints.rescale",
    "sql": "sql",
    "Stream": "streams",
    "rows": "streams",
    "stream": "streams",
    "write": "write",
    **dict.fromkeys(("delta", "iceberg"), "lake_tables"),
    **dict.fromkeys(_ALGORITHMS, ".joins"),
    **dict.fromkeys(("bucket", "collect_list", "count", "count_distinct", "first", "last"), "aggregates"),
    **dict.fromkeys(("avg", "mean", *_LIKE_BUILTINS), "aggregates"),
    **dict.fromkeys(("clustered", "end", "heartbeat", "ordered", "unique", "when"), "punctuations"),
}


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return import_module(f".{name}", "watersmeet")
    if name not in _MODULES:
        raise AttributeError(f"module 'watersmeet' has no attribute {name!r}")
    return getattr(import_module(f".{_MODULES[name]}", "watersmeet.spark"), name)


def __dir__() -> list[str]:
    return [*globals(), *_MODULES, *_SUBMODULES]
