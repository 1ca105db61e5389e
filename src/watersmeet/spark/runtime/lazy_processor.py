"""The processor that Spark gets: it stays pickled until its first rows come.

Before the first batch Spark starts a Python process on the driver, only to read which state variables there are. A
pickled processor declares them without loading Arrow, pandas and the kernels.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, LongType, StructField, StructType

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, MapState, TimerValues, ValueState

    from watersmeet.spark.runtime.processor import ShardProcessor


#: Types of the state. Texts would be sent to the JVM to be parsed, six times in every task.
_DATA = StructType([StructField("data", BinaryType())])
_ID = StructType([StructField("id", LongType())])


def declare(handle: StatefulProcessorHandle) -> tuple[ValueState, MapState]:
    """The state of a shard: one header, and segments by their ids."""
    return handle.getValueState("header", _DATA), handle.getMapState("segments", _ID, _DATA)


class LazyProcessor(StatefulProcessor):
    """Declares the state; everything else is done by the `ShardProcessor` inside."""

    def __init__(self, processor: ShardProcessor) -> None:
        self.pickled = pickle.dumps(processor)

    @cached_property
    def processor(self) -> ShardProcessor:
        loaded: ShardProcessor = pickle.loads(self.pickled)
        loaded.handle, loaded.header, loaded.segments = self.handle, self.header, self.segments
        return loaded

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.header, self.segments = declare(handle)

    def handleInputRows(  # type: ignore[override]  # Spark's name; frames only: `run` uses the pandas variant
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        return self.processor.handleInputRows(key, rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        return self.processor.handleExpiredTimer(key, timerValues, expiredTimerInfo)

    def close(self) -> None:
        return
