"""What differs between versions of Spark, on whichever of them the tests run."""

from __future__ import annotations

import re
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab import ROOT
from lab.spark.core_tests import CORE, STATIC_JOINS
from lab.spark.feeds import run
from lab.spark.three_streams import Three
from watersmeet.errors import SettingError, StateError
from watersmeet.spark.runtime import spark_versions
from watersmeet.spark.runtime.spark_versions import UnlimitedReader, version
from watersmeet.spark.workload_source import Interval, SourceOptions, StreamReader
from watersmeet.workload import SECOND, STREAMS


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("4.3.0", (4, 3, 0)), ("4.1.0-preview3", (4, 1, 0)), ("4.0.1-amzn-1", (4, 0, 1)), ("4.2.1.dev0", (4, 2, 1))],
)
def test_vendors_add_to_the_version(text: str, numbers: tuple[int, ...]) -> None:
    assert version(text) == numbers


def test_every_core_test_exists() -> None:
    for file, names in CORE.items():
        text = (ROOT / "tests" / file).read_text("utf-8")
        assert [name for name in names if f"def {name}(" not in text] == [], file
    assert {name for names in CORE.values() for name in names} >= STATIC_JOINS


def test_a_reader_without_limits_goes_on_where_the_batch_before_ended() -> None:
    options = SourceOptions.read({"workload": "left", "rate": "100", "batch_seconds": "1", "speed": "inf"})
    reader = UnlimitedReader(StreamReader(options))
    assert reader.initialOffset() == {"micros": 0}
    assert reader.latestOffset() == {"micros": SECOND}
    assert reader.latestOffset() == {"micros": SECOND}, "no batch was made of it"
    assert reader.partitions({"micros": 0}, {"micros": SECOND}) == [
        Interval(0, SECOND // 2),
        Interval(SECOND // 2, SECOND),
    ]
    assert reader.latestOffset() == {"micros": 2 * SECOND}

    restarted = UnlimitedReader(StreamReader(options))
    assert restarted.partitions({"micros": 7 * SECOND}, {"micros": 7 * SECOND}) == []
    assert restarted.latestOffset() == {"micros": 8 * SECOND}
    rows = list(restarted.read(Interval(7 * SECOND, 8 * SECOND)))
    assert (
        sum(batch.num_rows for batch in rows) == STREAMS["left"]({"rate": "100"}).table(7 * SECOND, 8 * SECOND).num_rows
    )


class Remote:
    """Stands in for a session of Spark Connect."""


Remote.__module__ = "pyspark.sql.connect.session"


def test_connect_without_a_state_operator_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    group = pytest.importorskip("pyspark.sql.connect.group")
    if hasattr(group.GroupedData, "transformWithStateInPandas"):
        spark_versions.require_state_operator(Remote())
        monkeypatch.delattr(group.GroupedData, "transformWithStateInPandas")
    text = rf"Spark Connect of PySpark {re.escape(pyspark.__version__)} has no state operator, and a streaming join"
    with pytest.raises(SettingError, match=f"{text} needs one; 4.1 is the first that has it.\nHint: use Spark 4.1 or"):
        spark_versions.require_state_operator(Remote())


class Session:
    """Stands in for a session of some version, with checkpoints of some format."""

    def __init__(self, version: str, checkpoints: str | None) -> None:
        self.version, self.conf, self.streams = version, self, self
        self.checkpoints = checkpoints
        self.listed = False

    @property
    def active(self) -> list[object]:
        self.listed = True
        return []

    def get(self, name: str, default: object) -> object:
        return self.checkpoints


def test_static_inputs_are_refused_on_4_0() -> None:
    for fits in (Session("4.1.0", "2"), Session("4.0.5", "1"), Session("4.0.5", None)):
        spark_versions.require_static_joins(fits)
        assert fits.listed, "which makes the coordinator of states"
    text = r"Spark 4\.0\.5 cannot join static DataFrames in a session with `spark\S+` = 2, which streaming joins need"
    with pytest.raises(SettingError, match=rf"{text}; 4\.1 is the first that can\.\nHint: use Spark 4\.1 or newer"):
        spark_versions.require_static_joins(Session("4.0.5", "2"))


@pytest.mark.spark
def test_the_state_can_be_read_or_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    run(three.window_join().df, tmp_path / "checkpoint")
    if version(spark.version) >= (4, 1):
        assert sum(held.tuples for held in wm.read_state(spark, tmp_path / "checkpoint").summary) > 0
        return
    with pytest.raises(StateError, match=r"Spark 4\.0\S* cannot read a state .* of format 2; .*\nHint: .*Spark 4\.1"):
        wm.read_state(spark, tmp_path / "checkpoint")


@pytest.mark.spark
def test_a_limited_source(spark: SparkSession, tmp_path: Path) -> None:
    """A query that is stopped and started again reads each row once, in batches of the length that it was given."""
    about = {"workload": "left", "rate": "100", "seconds": "3", "batch_seconds": "1", "speed": "inf"}
    checkpoint, rows = str(tmp_path / "checkpoint"), str(tmp_path / "rows")
    batches = []
    for _ in range(2):
        stream = spark.readStream.format("watersmeet").options(**about).load()
        writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start(rows)
        try:
            query.processAllAvailable()
        finally:
            query.stop()
        batches += [p.numInputRows for p in query.recentProgress if p.numInputRows]
        about["seconds"] = "5"
    expected = STREAMS["left"]({"rate": "100"})
    assert batches == [expected.table(s * SECOND, (s + 1) * SECOND).num_rows for s in range(5)]
    assert spark.read.parquet(rows).count() == expected.table(0, 5 * SECOND).num_rows
