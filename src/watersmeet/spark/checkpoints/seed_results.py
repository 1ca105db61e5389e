"""The results of a seed among itself, kept in the checkpoint until `wm.write` has delivered them as batch 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from watersmeet.spark.checkpoints.file_system import FilePath, reached, url

#: The folder in a checkpoint; in it, the rows and the mark that they are delivered.
SEED = "seed"
ROWS, DELIVERED = "rows", "delivered"


def is_undelivered(checkpoint: FilePath) -> bool:
    """Whether a checkpoint has results of its seed that no sink has got."""
    return (checkpoint / SEED / ROWS).is_dir() and not (checkpoint / SEED / DELIVERED).exists()


def deliver_seed(spark: SparkSession, checkpoint: str, deliver: Callable[[DataFrame, int], Any]) -> None:
    """Hand the results of a seed to `deliver` as batch 0, unless that was done. If it fails, the next run does it."""
    folder = reached(spark, checkpoint)
    if folder is None or not is_undelivered(folder):
        return
    deliver(spark.read.parquet(url(folder / SEED / ROWS)), 0)
    (folder / SEED / DELIVERED).write_text("")
