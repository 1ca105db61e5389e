"""Settings of a Spark session that hold results of a streaming join back, or slow it down."""

from __future__ import annotations

from pyspark.sql import SparkSession

from watersmeet.spark.session import ADVISED, BATCH_BYTES, NO_LIMIT, shards_and_tasks

#: Setting, the value that holds nothing back, and the effect of any other value.
HOLDING = (
    (
        "spark.sql.streaming.noDataMicroBatches.enabled",
        "true",
        "rows that one of Spark's own operators before the join holds until its watermark moves reach the join only "
        "with the next new rows; results that wait for them come out no earlier",
    ),
)


def cautions(spark: SparkSession, shards: int) -> list[str]:
    """Cautions about the settings of a session, for a streaming join with so many shards."""
    lines = []
    for name, good, effect in HOLDING:
        have = (spark.conf.get(name, good) or good).lower()
        if have != good:
            lines.append(f"{name} is {have}: {effect}")
    for name, good in (ADVISED | {BATCH_BYTES: NO_LIMIT}).items():
        have = spark.conf.get(name, None) or ""
        if have.lower() != good.lower():
            lines.append(f"{name} is {have or 'not set'}; batches are faster with {good}")
    partitions = shards_and_tasks(spark)[1]
    if partitions > shards:
        have = "has" if shards == 1 else "have"
        lines.append(
            f"{shards} of {partitions} shuffle partitions {have} a shard; the other tasks of a batch do nothing"
        )
    elif shards == 1:
        lines.append("one shard: a single task joins all keys, however many cores there are")
    return lines
