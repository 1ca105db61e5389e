"""The file that a row comes from, where Spark has it: rows of one file are in the order in which they were written.

Spark packs small files into one partition, the largest first, so that the rows of a partition are in no order of
arrival from one file to the next.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

#: Column with a number for each file.
ORIGIN = "watersmeet origin"


def with_origin(df: DataFrame) -> DataFrame:
    """The same rows with the file of each; unchanged if Spark does not know the files (after a union, for example)."""
    try:
        with _quiet():
            out = df.select("*", F.xxhash64("_metadata.file_path").alias(ORIGIN))
            out.schema  # noqa: B018 (over Spark Connect this analyses the plan)
    except AnalysisException:
        return df
    return out


@contextmanager
def _quiet() -> Iterator[None]:
    """PySpark logs a page about every column that it does not find."""
    logger = logging.getLogger("DataFrameQueryContextLogger")
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
