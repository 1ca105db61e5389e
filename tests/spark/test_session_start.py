"""What a session does beside the user's first lines: it loads what the first batch needs, and never fails by that."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pandas as pd
import pyarrow as pa
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from watersmeet.spark import session as sessions


@pytest.mark.spark
def test_the_state_store_is_loaded_into_the_jvm(spark: SparkSession, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "watersmeet")
    sessions._load_state_store()
    assert caplog.messages == []


def test_a_jvm_that_has_gone_is_no_error(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(SparkContext, "_jvm", None)
    caplog.set_level(logging.DEBUG, "watersmeet")
    sessions._load_state_store()
    assert [message.partition(":")[0] for message in caplog.messages] == ["the state store was not loaded"]


@pytest.mark.spark
def test_all_workers_have_one_parent(spark: SparkSession) -> None:
    """Each parent takes most of a second, and 200 MB, to load; the second one would do so within the first batch.

    The workers that a session warms up have it, too: those of a job without a plan.
    """

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert list(batches)
        yield pa.record_batch({"parent": pa.array([os.getppid()], pa.int64())})

    class Operator(StatefulProcessor):
        def init(self, handle: Any) -> None: ...

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            assert list(rows)
            yield pd.DataFrame({"parent": [os.getppid()]})

        def close(self) -> None: ...

    assert list(spark.streams.active) == []  # or the first static state operator fails: SPARK-58973
    one = spark.range(0, 1, 1, 1)
    packed = one.mapInArrow(pack, "parent bigint")
    joined = one.groupBy("id").transformWithStateInPandas(
        Operator(), outputStructType="parent bigint", outputMode="Append", timeMode="None"
    )
    warmed = spark.sparkContext.parallelize([0], 1).map(lambda number: os.getppid()).collect()
    assert packed.collect() == joined.collect() == [(parent,) for parent in warmed]


@pytest.mark.spark
def test_a_session_does_not_wait_for_the_format(spark: SparkSession) -> None:
    """To register it Spark would start a Python process."""
    assert sessions._finds_formats(spark)
    assert spark.read.format("watersmeet").options(workload="bids", seconds="1").load().count()


@pytest.mark.parametrize(
    ("driver", "python", "files", "found"),
    [
        (None, sys.executable, "", True),
        (sys.executable, "/another/python", "", True),
        ("jupyter", sys.executable, "", False),
        (None, None, "", False),  # `python3` of the path, whatever that is
        (None, sys.executable, "watersmeet.zip", False),  # it would not be on the path of that process
    ],
)
def test_spark_finds_what_the_python_of_its_environment_finds(
    monkeypatch: pytest.MonkeyPatch, driver: str | None, python: str | None, files: str, found: bool
) -> None:
    environment = {"PYSPARK_DRIVER_PYTHON": driver, "PYSPARK_PYTHON": python}
    jvm = Mock()
    jvm.java.lang.System.getenv = environment.get
    monkeypatch.setattr(SparkContext, "_jvm", jvm)
    assert sessions._finds_formats(Mock(conf={"spark.submit.pyFiles": files})) == found


def test_without_a_jvm_the_format_is_registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_jvm", None)
    assert not sessions._finds_formats(Mock())
