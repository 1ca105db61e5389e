"""What a schema reads a Parquet column as: Spark refuses what the check of a pipeline refuses, and nothing else."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from watersmeet.pipelines.file_schemas import READ_AS

pytestmark = [pytest.mark.spark, pytest.mark.more]
STORED = {
    "TINYINT": pa.array([1], pa.int8()),
    "SMALLINT": pa.array([1], pa.int16()),
    "INT": pa.array([1], pa.int32()),
    "BIGINT": pa.array([1], pa.int64()),
    "FLOAT": pa.array([1.5], pa.float32()),
    "DOUBLE": pa.array([1.5]),
    "BOOLEAN": pa.array([True]),
    "STRING": pa.array(["1"]),
    "DATE": pa.array([date(2026, 5, 1)]),
    "TIMESTAMP": pa.array([datetime(2026, 5, 1)], pa.timestamp("us")),
}
#: Without decimals: whether one is wide enough, Spark judges.
DECLARED = [*STORED, "BINARY", "TIMESTAMP_NTZ"]


@pytest.mark.parametrize("stored", READ_AS)
def test_spark_reads_a_column_as_what_the_check_allows(spark: SparkSession, tmp_path: Path, stored: str) -> None:
    parquet.write_table(pa.table({"x": STORED[stored]}), tmp_path / "1.parquet")

    def reads(kind: str) -> bool:
        try:
            spark.read.schema(f"x {kind}").parquet(str(tmp_path)).collect()
        except Exception:  # of Parquet's reader, in many classes
            return False
        return True

    assert {kind for kind in DECLARED if reads(kind)} == READ_AS[stored] - {"DECIMAL"}
