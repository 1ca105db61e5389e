"""Hot keys that `wm.write` finds and splits: the results are DuckDB's, over restarts in every phase."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, failure
from watersmeet.spark.progress import hot_key_tables
from watersmeet.state.hot_keys.rule import Rule

pytestmark = pytest.mark.spark

SECOND = 1_000_000
HOT = 7
HEAT = 8  # batches in which the key is hot


class Skewed:
    """Two streams; of the first half of the rows have one key for some batches. Times go on by ten seconds a batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.checkpoint, self.results, self.late = (
            spark,
            folder / "checkpoint",
            folder / "results",
            folder / "late",
        )
        self.feeds = [Feed(spark, folder / n, f"k bigint, {n}_ts timestamp, {n} bigint") for n in "ab"]
        self.batches: list[list[pa.Table]] = [[], []]
        self.tables: dict[int, list[Any]] = {}

    def add(self, batches: int) -> None:
        for _ in range(batches):
            for i, feed in enumerate(self.feeds):
                made = self._made(i, len(self.batches[i]))
                self.batches[i].append(made)
                feed.add(made)

    def _made(self, i: int, n: int) -> pa.Table:
        name, rng = "ab"[i], np.random.default_rng((i, n))
        keys = rng.integers(20, 60, 80)
        if i == 0 and n < HEAT:
            keys[::2] = HOT
        keys[0] = HOT
        times = n * 10 * SECOND + rng.integers(0, 10 * SECOND, 80)
        times[:3] -= 100 * SECOND if n else 0  # hopelessly late
        stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
        return pa.table({"k": keys, f"{name}_ts": stamps, name: np.arange(100 * n, 100 * n + 80)})

    def joined(self) -> wm.Joined:
        streams = (
            wm.stream(feed.stream(), time=f"{n}_ts", window="6 seconds", delay="10 seconds", name=n)
            for feed, n in zip(self.feeds, "ab", strict=True)
        )
        return wm.join(*streams, on="k")

    def run(self, **options: Any) -> list[str | None]:
        """Run the batches that are there; the phase of the hot key in each."""
        options = {"results": str(self.results), "late": str(self.late)} | options
        query = wm.write(self.joined(), checkpoint=str(self.checkpoint), trigger={"availableNow": True}, **options)
        query.awaitTermination()
        phases = []
        for progress in query.recentProgress:
            shards = wm.counters(progress)["shards"]
            tables = [shard["hot_keys"]["table"] for shard in shards]
            assert tables == [tables[0]] * 2
            phases.append(next((entry[3] for entry in tables[0] if entry[0] == HOT), None))
        return phases

    def check(self) -> None:
        a, b = (pa.concat_tables([t.slice(3 if n else 0) for n, t in enumerate(of)]) for of in self.batches)
        near = "a.k = b.k AND abs(epoch_us(a_ts) - epoch_us(b_ts)) <= 6000000"
        wanted = duckdb.sql(f"SELECT a.k, a, b FROM a JOIN b ON {near}").fetchall()
        assert len(wanted) > 100
        assert any(k == HOT for k, _, _ in wanted)
        assert a.num_rows
        assert b.num_rows
        found = pq.read_table(self.results).select(["k", "a", "b"]).to_pylist()
        assert sorted(tuple(row.values()) for row in found) == sorted(wanted)
        late = pq.read_table(self.late).to_pylist()
        assert len(late) == 6 * (len(self.batches[0]) - 1), "each late row once, copies among them"


@pytest.fixture
def house(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Skewed:
    monkeypatch.setattr(hot_key_tables, "RULE", Rule(rows=10, hot_batches=1, cool_batches=1))
    return Skewed(spark, tmp_path)


def test_a_hot_key_is_split_and_merged_over_restarts(house: Skewed) -> None:
    house.add(2)
    assert house.run() == [None, "copying"]
    house.add(2)
    assert house.run()[0] == "copying", "the state's table goes on"
    house.add(3)
    phases = house.run()
    assert phases[-1] == "spread"
    house.add(1)
    assert house.run() == ["spread"]
    house.check()
    house.add(5)
    phases += house.run()
    assert "cooling" in phases
    house.add(8)
    phases += house.run()
    assert list(dict.fromkeys(phases))[-2:] == ["expiring", None]
    house.check()


def test_one_folder_and_no_split(house: Skewed) -> None:
    """A single folder is written without a cache; and with split_hot_keys=False nothing is split, or all is merged."""
    house.add(6)
    assert house.run(late=None)[-1] == "spread"
    found = pq.read_table(house.results).num_rows
    house.add(1)
    text = failure(lambda: plain(house))
    assert "rows of key 7 were sent as not split, and the state has the key as spread" in text
    assert "run the query with wm.write" in text
    assert house.run(late=None, split_hot_keys=False) == ["spread"]
    assert pq.read_table(house.results).num_rows > found
    house.add(1)
    house.run(late=None, split_hot_keys=False)
    house.add(7)
    assert house.run(late=None, split_hot_keys=False)[-1] is None


def plain(house: Skewed) -> None:
    """The same query without wm.write."""
    writer = house.joined().tagged.writeStream.format("noop").option("checkpointLocation", str(house.checkpoint))
    writer.trigger(availableNow=True).start().awaitTermination()


def test_reading_and_rescaling_a_split_state(house: Skewed, tmp_path: Path) -> None:
    house.add(6)
    assert house.run()[-1] == "spread"
    spark = house.spark
    state = wm.read_state(spark, house.checkpoint)
    assert {row.stream for row in state.summary} == {"a", "b"}
    new = tmp_path / "new"
    wm.rescale_state(spark, str(house.checkpoint), str(new), shards=2)
    house.checkpoint = new
    house.add(2)
    assert house.run()[0] is None
    house.check()
