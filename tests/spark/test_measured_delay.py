"""delay="auto" on files: what Spark does with them is not taken for disorder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm

pytestmark = pytest.mark.spark


def stream(spark: SparkSession, folder: Path, n: str) -> DataFrame:
    """Three files of one batch, each larger than the one before, ten minutes each, in which rows come 2 s behind."""
    folder.mkdir()
    for file in range(3):
        times = [600 * file + second - 3 * (second % 5 == 0) for second in range(600)]
        lines = [
            json.dumps({"k": second % 7, "at": time, "note": "x" * 40 * file}) for second, time in enumerate(times)
        ]
        (folder / f"{file}.json").write_text("\n".join(lines))
    read = spark.readStream.schema("k long, at long, note string").json(str(folder))
    return read.where("k >= 0").selectExpr("k", f"timestamp_seconds(at) AS {n}_at")


def test_several_files_in_one_batch_have_the_disorder_of_each(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    a = wm.stream(stream(spark, tmp_path / "a", "a"), time="a_at", window="5 seconds", delay="auto", name="a")
    other = stream(spark, tmp_path / "b", "b")
    b = wm.stream(other.union(other.where("false")), time="b_at", window="5 seconds", delay="auto", name="b")
    query = wm.join(a, b, on="k").df.writeStream.foreachBatch(lambda batch, _: batch.count())
    run = query.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    run.awaitTermination()
    (progress,) = [p for p in run.recentProgress if p["numInputRows"]]
    measured = wm.counters(progress)["shards"][0]["delays"]
    assert 2_000_000 <= measured[0] < 3_000_000
    assert measured[1] > 500_000_000, "through a union files are not seen any more"
    assert "_metadata" not in capfd.readouterr().err, "that they are not is no error"
