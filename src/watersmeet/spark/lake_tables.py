"""`wm.delta`, `wm.iceberg`: tables as sinks of `wm.write`, to which a batch is added as one transaction.

A batch that is written again after a failure finds that it is in the table, and adds nothing. Delta Lake remembers the
last batch of a query itself (``txnAppId``, ``txnVersion``). Iceberg has no such memory: the number of the batch is a
property of the snapshot, written with the rows in one commit, and looked for before the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.errors import QueryError
from watersmeet.spark.checkpoints.result_folder import location
from watersmeet.spark.planning.arguments import kind_of

#: Properties of an Iceberg snapshot: the query's id and the sink's name, and the number of the batch.
WRITER, BATCH = "watersmeet-writer", "watersmeet-batch"


@dataclass(frozen=True)
class DeltaTable:
    """A Delta table in a folder."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def write(self, rows: DataFrame, batch: int, writer: str) -> None:
        """Add the rows, unless `writer` has added this batch before. An empty batch makes no version of the table."""
        if not rows.isEmpty():
            once = {"txnAppId": writer, "txnVersion": str(batch)}
            rows.write.format("delta").mode("append").options(**self.options).options(**once).save(self.path)


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table of a catalog. It is created by the first batch with rows, unless it exists."""

    path: str
    options: Mapping[str, str] = field(default_factory=dict)

    def write(self, rows: DataFrame, batch: int, writer: str) -> None:
        """Add the rows, unless `writer` has added this batch before. An empty batch makes no snapshot."""
        if rows.isEmpty():
            return
        spark = rows.sparkSession
        if not spark.catalog.tableExists(self.path):
            rows.where("false").writeTo(self.path).using("iceberg").create()
        if self._last(spark, writer) < batch:
            properties = {f"snapshot-property.{WRITER}": writer, f"snapshot-property.{BATCH}": str(batch)}
            rows.writeTo(self.path).options(**self.options).options(**properties).append()

    def _last(self, spark: SparkSession, writer: str) -> int:
        """The last batch of `writer` in the table; -1 if there is none."""
        mine = spark.table(f"{self.path}.snapshots").where(f"summary['{WRITER}'] = '{writer}'")
        last = mine.selectExpr(f"max(CAST(summary['{BATCH}'] AS bigint)) AS last").collect()[0]["last"]
        return -1 if last is None else int(last)


def delta(path: str | Path, **options: str) -> DeltaTable:
    """A Delta table as a sink of `wm.write`: each batch once, also if a driver is killed while it writes one.

    `path` is the folder of the table, on any file system; it is created unless it exists. `options` are those of
    Delta's writer (``mergeSchema="true"``). The session needs Delta Lake's package for its version of Spark.

    >>> delta("lake/results", mergeSchema="true")
    DeltaTable(path='lake/results', options={'mergeSchema': 'true'})
    """
    return DeltaTable(location(path, "path"), options)


def iceberg(table: str, **options: str) -> IcebergTable:
    """An Iceberg table as a sink of `wm.write`: each batch once, also if a driver is killed while it writes one.

    `table` is its name with that of the catalog, ``"lake.shop.results"``; it is created unless it exists. `options` are
    those of Iceberg's writer. The session needs Iceberg's runtime for its version of Spark, and the catalog's settings.
    Do not expire the table's last snapshots while the query is down: by them a batch is known to be in the table.

    >>> iceberg("lake.shop.results").path
    'lake.shop.results'
    """
    if not isinstance(table, str) or "." not in table or "/" in table:
        raise QueryError(
            f"`table` is {_shown(table)}; an Iceberg table is named with its catalog.",
            hint='wm.iceberg("lake.shop.results").',
        )
    return IcebergTable(table, options)


def _shown(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else kind_of(value)
