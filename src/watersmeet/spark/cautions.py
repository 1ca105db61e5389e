"""Settings of a Spark session that hold results of a streaming join back, or slow it down."""

from __future__ import annotations

from pyspark.sql import SparkSession

from watersmeet.spark.session import ADVISED

#: Setting, the value with which nothing is held back, and what another one does.
HOLDING = (
    (
        "spark.sql.streaming.noDataMicroBatches.enabled",
        "true",
        "rows that an operator of Spark's own before the join holds until its watermark moves reach the join only with "
        "the next new rows, and what waits for them comes out no earlier",
    ),
)


def cautions(spark: SparkSession, shards: int) -> list[str]:
    """What the settings of a session do to a streaming join with so many shards."""
    said = []
    for name, good, what in HOLDING:
        have = (spark.conf.get(name, good) or good).lower()
        if have != good:
            said.append(f"{name} is {have}: {what}")
    for name, good in ADVISED.items():
        have = spark.conf.get(name, "") or ""
        if have.lower() != good.lower():
            said.append(f"{name} is {have or 'not set'}; batches are faster with {good}")
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or 1)
    if partitions > shards:
        said.append(f"{shards} of {partitions} shuffle partitions have a shard; the other tasks of a batch do nothing")
    return said
