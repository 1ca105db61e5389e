"""What differs between the supported versions of PySpark, 4.0.2 to 4.3. No other module looks at a version.

What PySpark's Python can do is found out by looking, because vendors carry changes back. What only the JVM can do goes
by the version that the session reports. `docs/versions.md` has the same differences as a table.
"""

from __future__ import annotations

import re
from inspect import signature
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrameReader, SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.pandas import types as arrow_types
from pyspark.sql.types import DataType, StructType

from watersmeet.errors import SettingError, StateError

__all__ = [
    "CHECKPOINT_PACKAGE",
    "STATE_SERVERS",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxRows",
    "SupportsTriggerAvailableNow",
    "arrow_schema",
    "arrow_type",
    "joins_static",
    "reads_states",
    "require_state_operator",
    "require_state_reader",
    "require_static_joins",
    "state_source",
    "stream_reader",
    "version",
]

# ---------------------------------------------------------------- sources that limit their batches: 4.2

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    LIMITS_BATCHES = True
except ImportError:
    LIMITS_BATCHES = False
    if not TYPE_CHECKING:
        from dataclasses import dataclass

        class ReadLimit:
            """How much a batch may take."""

        @dataclass
        class ReadAllAvailable(ReadLimit):
            """All that there is."""

        @dataclass
        class ReadMaxRows(ReadLimit):
            """So many rows."""

            max_rows: int

        class SupportsTriggerAvailableNow:
            """A source that knows of the trigger availableNow; before 4.2 there is none."""


class UnlimitedReader(DataSourceStreamReader):
    """A source that limits its batches, for a Spark that neither asks for limits nor names the start of a batch.

    The start is the end of the batch before. After a restart Spark asks first for the partitions of an empty batch, at
    the offset that it has reached. Trigger availableNow is one batch there, and no source knows of it.
    """

    def __init__(self, reader: Any) -> None:
        self.reader = reader
        self._reached: dict[str, Any] = reader.initialOffset()

    def initialOffset(self) -> dict[str, Any]:
        start: dict[str, Any] = self.reader.initialOffset()
        return start

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # before 4.2 it takes no arguments
        latest: dict[str, Any] = self.reader.latestOffset(self._reached, self.reader.getDefaultReadLimit())
        return latest

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self._reached = end
        return self.reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Any:
        return self.reader.read(partition)


def stream_reader(reader: DataSourceStreamReader) -> DataSourceStreamReader:
    """The reader as this PySpark calls it."""
    return reader if LIMITS_BATCHES else UnlimitedReader(reader)


# ---------------------------------------------------------------- Arrow types: `timezone` is new in 4.2

#: Before 4.2 timestamps are in UTC by default.
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(arrow_types.to_arrow_type).parameters else {}


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a column; timestamps are in UTC. Raises PySparkTypeError for types without one."""
    return arrow_types.to_arrow_type(kind, **_IN_UTC)


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema of a DataFrame; timestamps are in UTC."""
    return arrow_types.to_arrow_schema(schema, **_IN_UTC)


# ---------------------------------------------------------------- 4.0


def version(text: str) -> tuple[int, ...]:
    """The numbers of a version.

    >>> version("4.1.0-preview3"), version("4.0.0-amzn-1")
    ((4, 1, 0), (4, 0, 0))
    """
    return tuple(map(int, re.findall(r"\d+", text.partition("-")[0])[:3]))


#: Where the JVM's managers of checkpoint files are.
_STREAMING = "org.apache.spark.sql.execution.streaming"
CHECKPOINT_PACKAGE = _STREAMING if version(pyspark.__version__) < (4, 1) else f"{_STREAMING}.checkpointing"

#: The JVM's class of the state server: in 4.0, and later.
STATE_SERVERS = tuple(
    f"org.apache.spark.sql.execution.python.streaming.TransformWithStateIn{kind}StateServer"
    for kind in ("Pandas", "PySpark")
)


def require_state_operator(spark: SparkSession) -> None:
    """Refuse a session of Spark Connect whose client has no state operator, as that of 4.0."""
    if not type(spark).__module__.startswith("pyspark.sql.connect"):
        return
    from pyspark.sql.connect.group import GroupedData

    if not hasattr(GroupedData, "transformWithStateInPandas"):
        raise SettingError(
            f"Spark Connect of PySpark {pyspark.__version__} has no state operator, and a streaming join needs one; "
            "4.1 is the first that has it.",
            hint="use Spark 4.1 or newer for client and server, or a session without Connect: wm.session(master=…).",
        )


_CHECKPOINT_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"


def joins_static(spark: SparkSession) -> bool:
    """Whether static inputs can be joined: 4.0's state operator fails in a batch query if checkpoints have format 2."""
    return version(spark.version) >= (4, 1) or spark.conf.get(_CHECKPOINT_FORMAT, None) != "2"


def require_static_joins(spark: SparkSession) -> None:
    """Refuse static inputs where they cannot be joined."""
    if not joins_static(spark):
        raise SettingError(
            f"Spark {spark.version} cannot join static DataFrames in a session with `{_CHECKPOINT_FORMAT}` = 2, "
            "which streaming joins need; 4.1 is the first that can.",
            hint="use Spark 4.1 or newer, or join static DataFrames with Spark's own df.join.",
        )
    _make_coordinator(spark)


def reads_states(spark: SparkSession) -> bool:
    """Whether Spark's state data source reads checkpoints of format 2, in which states are stored."""
    return version(spark.version) >= (4, 1)


def require_state_reader(spark: SparkSession) -> None:
    """Refuse to read a state with a Spark that cannot."""
    if not reads_states(spark):
        raise StateError(
            f"Spark {spark.version} cannot read a state in a checkpoint of format 2; 4.1 is the first that can.",
            hint="queries run and restart here; to look into their state, read it from a session of Spark 4.1.",
        )


# ---------------------------------------------------------------- states before a query has run: seen in 4.1 and 4.2.1


def _make_coordinator(spark: SparkSession) -> None:
    """Have the coordinator of states, without which the first static join or read of a state fails: SPARK-58973.

    Spark makes it when a session's queries are listed.
    """
    list(spark.streams.active)


def state_source(spark: SparkSession) -> DataFrameReader:
    """Spark's state data source."""
    _make_coordinator(spark)
    return spark.read.format("statestore")
