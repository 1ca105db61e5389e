"""A query that is stopped, rescaled 2 → 3 → 1 and started again gives what it would have given, and keeps as much."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

import watersmeet as wm
from lab.spark.feeds import partitions, run
from lab.spark.feeds import rows as rows_of_table
from lab.spark.three_streams import Three
from watersmeet.errors import QueryError, StateError

pytestmark = pytest.mark.spark

#: Number of shards by batch.
SHARDS = [2, 3, 1]


Query = Callable[[Three], Any]

QUERIES: dict[str, Query] = {
    "window join": lambda three: three.window_join(),
    "pwjoin with closings": lambda three: three.punctuated(),
    "outer join": lambda three: three.punctuated("full"),
    "semi join": lambda three: three.punctuated("semi"),
    "groups by key": lambda three: three.punctuated().group_by("k").agg(n=wm.count(), last=wm.max("b")),
    "groups in a second operator": lambda three: (
        three.window_join().group_by("a", wm.bucket("b_at", "10 seconds")).agg(n=wm.count())
    ),
}


#: The others are of the longer tests.
SHORT = ("window join", "outer join")


@pytest.mark.parametrize("name", [pytest.param(q, marks=[] if q in SHORT else pytest.mark.more) for q in QUERIES])
def test_results_and_state_go_on(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """Beside a query that nothing happens to, over the same files."""
    three, checkpoint = Three(spark, tmp_path, "ab"), tmp_path / "c0"
    for n, shards in enumerate(SHARDS):
        three.add(n)
        if n and shards != SHARDS[n - 1]:
            new = tmp_path / f"c{n}"
            state = wm.rescale_state(spark, checkpoint, new, shards=shards)
            before = wm.read_state(spark, checkpoint)
            assert state.batch == before.batch == n - 1
            assert {o.sample.shards for o in state.operators} == {shards}
            for stream in before.streams:
                assert sum(h.tuples for h in state.summary if h.stream == stream) == sum(
                    h.tuples for h in before.summary if h.stream == stream
                )
            checkpoint = new
        with partitions(spark, shards):
            output = run(QUERIES[name](three).tagged, checkpoint)
        alone = run(QUERIES[name](three).tagged, tmp_path / "alone")
        assert len(output.tables) == len(alone.tables) == 1
        assert seen(output) == seen(alone)
        assert [output.metrics[0][c] for c in ("stored", "late")] == [alone.metrics[0][c] for c in ("stored", "late")]
    state, other = (wm.read_state(spark, place) for place in (checkpoint, tmp_path / "alone"))
    assert state.batch == other.batch == len(SHARDS) - 1
    for stream in state.streams:
        a, b = (s.rows(stream).drop("watersmeet shard").toArrow() for s in (state, other))
        assert rows_of_table(a, a.column_names) == rows_of_table(b, b.column_names)


def seen(given: Any) -> list[Any]:
    """Results and late rows; a punctuation comes from every shard that has something to say."""
    rows = [r for r in given.table.to_pylist() if r["kind"] != "punctuation"]
    return sorted(repr({k: v for k, v in row.items() if k not in ("shard", "shards")}) for row in rows)


def test_an_interrupted_batch_is_taken_up_again(spark: SparkSession, tmp_path: Path) -> None:
    """Its offsets were written, its commit was not."""
    three = Three(spark, tmp_path, "ab")
    for n in range(2):
        three.add(n)
        output = run(three.window_join().df, tmp_path / "c")
    for file in (tmp_path / "c" / "commits").glob("*1*"):
        file.unlink()
    wm.rescale_state(spark, tmp_path / "c", tmp_path / "new", shards=3)
    with partitions(spark, 3):
        again = run(three.window_join().df, tmp_path / "new")
    names = output.table.column_names
    assert len(again.tables) == 1
    assert rows_of_table(again.table, names) == rows_of_table(output.table, names)


def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    run(three.window_join().df, tmp_path / "c")
    with pytest.raises(QueryError, match="`shards` is 0"):
        wm.rescale_state(spark, tmp_path / "c", tmp_path / "new", shards=0)
    with pytest.raises(QueryError, match="already, and not empty"):
        wm.rescale_state(spark, tmp_path / "c", tmp_path / "a", shards=3)
    unreachable = r"session is one of Spark Connect" if is_remote() else r"Spark has no file system for abc://b/c: No "
    with pytest.raises(QueryError, match=unreachable):
        wm.rescale_state(spark, "abc://b/c", tmp_path / "new", shards=3)
    with pytest.raises(StateError, match=r"`checkpoint` .*nowhere does not exist\.\nHint: give the folder"):
        wm.rescale_state(spark, tmp_path / "nowhere", tmp_path / "new", shards=3)
    assert not (tmp_path / "new").exists()
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")], "nothing is left behind"
