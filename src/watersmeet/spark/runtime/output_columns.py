"""A stateful operator over packed rows, and the columns of its output: kind, detail, and those of a result."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, ByteType, StringType, StructField, StructType

from watersmeet.errors import ColumnError
from watersmeet.spark.progress.counters import observed
from watersmeet.spark.runtime.lazy_processor import LazyProcessor
from watersmeet.spark.runtime.output_rows import OutputUnpacker
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, LATE, PUNCTUATION, RESULT, STATS, VIOLATION

#: Columns of `tagged` beside those of a result.
TAGS = ("kind", "stream", "row", "shard", "shards")


def run(packed: DataFrame, processor: ShardProcessor, columns: Sequence[StructField], metrics: str) -> DataFrame:
    """The operator's whole output, one row each. Statistics are observed (see `counters`), and stay in the rows."""
    head = [StructField(KIND, ByteType(), nullable=False), StructField(DETAIL, StringType())]
    schema = StructType([*head, *columns])
    is_packed = processor.output_rows.packed
    out = packed.groupBy("shard").transformWithStateInPandas(
        LazyProcessor(processor),
        outputStructType=StructType([*head, StructField("blob", BinaryType())]) if is_packed else schema,
        outputMode="Append",
        timeMode="ProcessingTime" if processor.follows_clock else "None",
    )
    if is_packed:
        out = out.mapInArrow(OutputUnpacker(processor.query.schema), schema)
    return out.observe(metrics, observed(KIND, STATS, DETAIL, len(processor.ids)))


def results(rows: DataFrame, names: Sequence[str]) -> DataFrame:
    """The results alone."""
    return rows.where(F.col(KIND) == RESULT).select(*map(quoted, names))


def tagged(rows: DataFrame, names: Sequence[str], shards: int) -> DataFrame:
    """All but the statistics: `kind`, `stream`, the result's columns, `row` (JSON), `shard`, `shards`."""
    for name in names:
        if name.lower() in TAGS:
            raise ColumnError(
                f"`tagged` has columns {', '.join(TAGS)} of its own, and the results have one called `{name}`, too.",
                hint=f'rename it before the join: df.withColumnRenamed("{name}", "…"), or use `df` or `wm.write`.',
            )
    kind = F.when(F.col(KIND) == RESULT, "result")
    for number, name in ((LATE, "late"), (VIOLATION, "violation"), (PUNCTUATION, "punctuation")):
        kind = kind.when(F.col(KIND) == number, name)
    stream, row, shard = about()
    columns = [kind.alias("kind"), stream, *map(quoted, names), row, shard, F.lit(shards).alias("shards")]
    return rows.where(F.col(KIND) != STATS).select(*columns)


def about() -> tuple[Column, Column, Column]:
    """Columns of a row that is no result: `stream`, `row` (JSON), `shard`."""
    shard = F.get_json_object(DETAIL, "$.shard").cast("int").alias("shard")
    return F.get_json_object(DETAIL, "$.stream").alias("stream"), F.get_json_object(DETAIL, "$.row").alias("row"), shard


def quoted(name: str) -> Column:
    return F.col("`" + name.replace("`", "``") + "`")
