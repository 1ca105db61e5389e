"""What Spark is handed: a processor that stays folded until it meets its first rows.

Before the first batch Spark starts a Python process on the driver, only to ask which state variables there are. Folded,
the processor answers without loading Arrow, pandas and the kernels.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql.streaming.stateful_processor import MapState, TimerValues, ValueState

    from watersmeet.spark.processor import ShardProcessor


def declare(handle: StatefulProcessorHandle) -> tuple[ValueState, MapState]:
    """The state of a shard: one header, and segments by their ids."""
    return handle.getValueState("header", "data binary"), handle.getMapState("segments", "id bigint", "data binary")


class FoldedProcessor(StatefulProcessor):
    """Declares the state; everything else is the `ShardProcessor`'s inside."""

    def __init__(self, processor: ShardProcessor) -> None:
        self.folded = pickle.dumps(processor)

    @cached_property
    def processor(self) -> ShardProcessor:
        unfolded: ShardProcessor = pickle.loads(self.folded)
        unfolded.header, unfolded.segments = self.header, self.segments
        return unfolded

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.header, self.segments = declare(handle)

    def handleInputRows(  # type: ignore[override]  # Spark's name; frames only, as asked for in pipeline
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        return self.processor.handleInputRows(key, rows, timerValues)

    def close(self) -> None:
        return
