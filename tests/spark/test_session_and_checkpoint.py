"""A session without a required setting and a checkpoint of another query are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, failure, run
from lab.spark.refusals import refusal
from watersmeet.errors import SettingError
from watersmeet.spark.session import PROVIDER, REQUIRED

pytestmark = pytest.mark.spark

#: Spark's own defaults for the required settings.
WRONG = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
    "spark.sql.streaming.stateStore.checkpointFormatVersion": "1",
}


def test_every_required_setting_has_a_wrong_value_here() -> None:
    assert set(WRONG) == set(REQUIRED)


@pytest.mark.parametrize("setting", REQUIRED)
def test_a_session_without_a_required_setting_is_refused(spark: SparkSession, setting: str) -> None:
    other = spark.newSession()
    other.conf.set(setting, WRONG[setting])
    rate = other.readStream.format("rate").load()
    streams = (
        wm.stream(rate.selectExpr("value AS k", f"timestamp AS {n}_ts"), time=f"{n}_ts", window="1 hour") for n in "ab"
    )
    have, (value, why) = WRONG[setting], REQUIRED[setting]
    text = f"the Spark session has `{setting}` = {have}, but a streaming join needs {value}: {why}."
    hint = f'Hint: spark.conf.set("{setting}", "{value}"), or make the session with wm.session() / wm.configure().'
    assert refusal(SettingError, lambda: wm.join(*streams, on="k")) == f"{text}\n{hint}"


@pytest.mark.parametrize("name", ["com.vendor.streaming.state.RocksDBStateStoreProvider", "com.vendor.FastStateStore"])
def test_the_state_store_of_a_vendor_is_accepted(spark: SparkSession, name: str) -> None:
    other = spark.newSession()
    other.conf.set(PROVIDER, name)
    rate = other.readStream.format("rate").load()
    streams = (
        wm.stream(rate.selectExpr("value AS k", f"timestamp AS {n}_ts"), time=f"{n}_ts", window="1 hour") for n in "ab"
    )
    assert wm.join(*streams, on="k").streaming


class Checkpoint:
    """A query that has run for one batch, and a second batch to come."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.feeds = [Feed(spark, folder / n, f"k bigint, j bigint, {n}_ts timestamp") for n in "ab"]
        self.folder = folder / "checkpoint"
        self.add()
        run(self.query(), self.folder)
        self.add()

    def add(self) -> None:
        times = pa.array([0, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
        for feed, n in zip(self.feeds, "ab", strict=True):
            feed.add(pa.table({"k": [1, 2], "j": [1, 2], f"{n}_ts": times}))

    def query(self, *, window: str = "10 seconds", on: str = "k", **options: Any) -> DataFrame:
        a, b = (feed.stream() for feed in self.feeds)
        other = "j" if on == "k" else "k"
        streams = (
            wm.stream(a.drop(other), time="a_ts", window=window, name="a"),
            wm.stream(b.drop(other), time="b_ts", window="10 seconds", name="b"),
        )
        return wm.join(*streams, on=on, **options).df


@pytest.fixture(scope="module")
def checkpoint(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return Checkpoint(spark, tmp_path_factory.mktemp("checkpoint"))


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"window": "11 seconds"}, ["StateMismatchError", "streams[0].window was 10 seconds, is 11 seconds"]),
        ({"on": "j"}, ["StateMismatchError", "streams[0].key[0] was 'k', is 'j'", "streams[1].key[0] was 'k', is 'j'"]),
        ({"shards": 3}, ["StateMismatchError", "the checkpoint was written with 2 shards", "the query now has 3"]),
        ({"shards": 1}, ["StateMismatchError", "the checkpoint was written with 2 shards", "the query now has 1"]),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_checkpoint_of_another_query_is_refused(
    checkpoint: Checkpoint, change: dict[str, Any], parts: list[str]
) -> None:
    text = failure(lambda: run(checkpoint.query(**change), checkpoint.folder))
    assert [part for part in parts if part not in text] == []


def test_a_refused_checkpoint_is_as_it_was(checkpoint: Checkpoint) -> None:
    """Runs after the refusals above."""
    output = run(checkpoint.query(), checkpoint.folder)
    assert output.table.num_rows == 6
    assert output.metrics[0]["stored"] == 8
