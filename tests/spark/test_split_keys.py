"""`split_keys`: a hot key over all shards gives the same results, late rows once, and work for every shard."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, failure, rows, run
from watersmeet.errors import QueryError
from watersmeet.spark.planning.hot_keys import parts_of
from watersmeet.state.keys import encode
from watersmeet.state.shards import ShardKeys

pytestmark = pytest.mark.spark

SECOND = 1_000_000
HOT = ("hot", "warm")


class Skewed:
    """Two streams of which two in three rows have the first hot key; some come late; a few have no partner at all."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint"
        self.feeds = [Feed(spark, folder / n, f"k string, {n}_ts timestamp, {n} bigint") for n in "ab"]
        self.batches = [[self._made(i, n) for n in range(3)] for i in (0, 1)]

    def _made(self, i: int, n: int) -> pa.Table:
        name, rng = "ab"[i], np.random.default_rng((i, n))
        keys = rng.choice([*HOT, "x", "y", f"only {name}"], 60, p=[0.66, 0.12, 0.1, 0.1, 0.02])
        times = n * 10 * SECOND + rng.integers(0, 10 * SECOND, 60)
        times[:3] -= 40 * SECOND if n else 0  # hopelessly late
        stamps = pa.array(times).cast(pa.timestamp("us", "UTC"))
        return pa.table({"k": keys.tolist(), f"{name}_ts": stamps, name: list(range(100 * n, 100 * n + 60))})

    def add(self, n: int) -> None:
        for feed, batches in zip(self.feeds, self.batches, strict=True):
            feed.add(batches[n])

    def joined(self, how: str = "inner", split_keys: Any = HOT) -> wm.Joined:
        streams = (
            wm.stream(feed.stream(), time=f"{n}_ts", window="6 seconds", delay="10 seconds", name=n)
            for feed, n in zip(self.feeds, "ab", strict=True)
        )
        return wm.join(*streams, on="k", how=how, split_keys=split_keys)

    def static(self, spark: SparkSession) -> list[wm.Stream]:
        """Both streams without their late rows, as DataFrames that have an end."""
        return [
            wm.stream(spark.createDataFrame(table), time=f"{n}_ts", window="6 seconds", name=n)
            for n, table in zip("ab", self._on_time(), strict=True)
        ]

    def _on_time(self) -> list[pa.Table]:
        return [pa.concat_tables([t.slice(3 if n else 0) for n, t in enumerate(batches)]) for batches in self.batches]

    def answer(self, how: str, columns: Sequence[str] = ("k", "a", "b")) -> list[tuple[Any, ...]]:
        a, b = self._on_time()
        near = "a.k = b.k AND abs(epoch_us(a_ts) - epoch_us(b_ts)) <= 6000000"
        requested = ", ".join("a.k" if c == "k" else c for c in columns)
        found = duckdb.sql(f"SELECT {requested} FROM a {how} JOIN b ON {near}").fetchall()
        assert len(found) > (500 if "b" in columns else 0)
        assert a.num_rows
        assert b.num_rows
        return sorted(found, key=repr)


@pytest.mark.parametrize("how", ["inner", "left"])
def test_the_same_results_over_restarts(spark: SparkSession, tmp_path: Path, how: str) -> None:
    house = Skewed(spark, tmp_path)
    found: list[tuple[Any, ...]] = []
    late: list[dict[str, Any]] = []
    for n in range(3):
        house.add(n)
        output = run(house.joined(how).tagged, house.checkpoint)
        table = output.table
        assert not [name for name in table.schema.names if "part" in name]
        found += (
            rows(table.filter(pa.compute.equal(table["kind"], "result")), ["k", "a", "b"])
            if how == "inner"
            else [(r["k"], r["a"], r["b"]) for r in table.to_pylist() if r["kind"] == "result"]
        )
        late += [r for r in table.to_pylist() if r["kind"] == "late"]
        shards = output.metrics[0]["shards"]
        assert len(shards) == 2
        assert min(s["rows_in"] for s in shards) > 0.6 * max(s["rows_in"] for s in shards), "both have work"
    if how == "left":  # rows without a match that are still kept are not out yet
        waiting = Counter(house.answer(how)) - Counter(found)
        assert {b for _, _, b in waiting} <= {None}
        assert Counter(found) <= Counter(house.answer(how))
    else:
        assert sorted(found, key=repr) == house.answer(how)
    assert Counter(r["stream"] for r in late) == {"a": 6, "b": 6}, "a copy is not counted"
    assert all(set(json.loads(r["row"])) == {"k", f"{r['stream']}_ts", r["stream"]} for r in late)


@pytest.mark.parametrize("how", ["inner", "left", "semi", "anti"])
def test_the_same_results_of_every_kind(spark: SparkSession, tmp_path: Path, how: str) -> None:
    """Of static streams, which have an end: so nothing waits for a partner when it is over."""
    house = Skewed(spark, tmp_path)
    joined = wm.join(*house.static(spark), on="k", how=how, split_keys=HOT)
    columns = ["k", "a", "b"] if how in ("inner", "left") else ["k", "a"]
    found = [tuple(row) for row in joined.df.select(*columns).collect()]
    assert sorted(found, key=repr) == house.answer(how, columns)


def test_groups_of_a_split_key_are_whole(spark: SparkSession, tmp_path: Path) -> None:
    house = Skewed(spark, tmp_path)
    static = house.static(spark)
    counted = wm.join(*static, on="k", split_keys=HOT).group_by("k", wm.bucket("a_ts", "10 seconds")).agg(n=wm.count())
    sums: Counter[str] = Counter()
    found = counted.df.collect()
    for row in found:
        sums[row["k"]] += row["n"]
    assert sums == Counter(k for k, _, _ in house.answer("inner"))
    assert len(found) == len({tuple(row)[:2] for row in found}), "a group is in one piece"


def test_other_keys_do_not_fit_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    house = Skewed(spark, tmp_path)
    house.add(0)
    run(house.joined().tagged, house.checkpoint)
    house.add(1)
    assert "StateMismatchError" in failure(lambda: run(house.joined(split_keys=("hot",)).tagged, house.checkpoint))


@pytest.mark.parametrize("shards", [1, 2, 7])
def test_every_shard_has_one_part(shards: int) -> None:
    for value in ("hot", "", "ü"):
        parts = parts_of(pa.array([value]), shards)
        words = encode([pa.array([value] * shards), pa.array(parts, pa.int32())]).words
        assert parts[0] == 0
        assert [int(ShardKeys(shard, shards)(words).sum()) for shard in range(shards)] == [1] * shards


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"how": "full"}, "every copy of a row"),
        ({"split_keys": []}, "1 to 100 values"),
        ({"split_keys": "hot"}, "`split_keys` is a str; it is a list"),
        ({"split_keys": [None]}, "1 to 100 values"),
    ],
)
def test_what_is_refused(spark: SparkSession, tmp_path: Path, about: dict[str, Any], message: str) -> None:
    house = Skewed(spark, tmp_path)
    with pytest.raises(QueryError, match=message):
        house.joined(**about)
