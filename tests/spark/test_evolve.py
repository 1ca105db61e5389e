"""A query that is stopped, changed and continued from the evolved checkpoint; copies; refusals."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm
from lab.spark.feeds import partitions, rows, run
from lab.spark.three_streams import START, Three
from watersmeet.errors import QueryError, StateError, StateMismatchError

pytestmark = pytest.mark.spark


def contents(folder: Path) -> dict[str, bytes]:
    return {str(f.relative_to(folder)): f.read_bytes() for f in folder.rglob("*") if f.is_file()}


def join(three: Three, a: str, b: str, how: str = "inner", *, static: bool = False, **options: Any) -> wm.Joined:
    streams = [three.stream(n, window=w, static=static) for n, w in zip("ab", (a, b), strict=True)]
    return wm.join(*streams, on="k", how=how, **options)


def test_windows_kind_and_shards(spark: SparkSession, tmp_path: Path) -> None:
    """Two batches, changed, two more: from the given time on the results are those of the new query as a batch."""
    three = Three(spark, tmp_path, "ab")
    for n in range(2):
        three.add(n)
        run(join(three, "5 seconds", "5 seconds", "full").df, tmp_path / "c")
    before = contents(tmp_path / "c")
    with partitions(spark, 3):
        changed = join(three, "12 seconds", "2 seconds", "left")
        evolved = wm.evolve_state(tmp_path / "c", tmp_path / "new", changed)
        assert contents(tmp_path / "c") == before, "the old checkpoint is only read"
        assert evolved.changes == (
            "window of `a` 5 seconds → 12 seconds",
            "window of `b` 5 seconds → 2 seconds",
            "how full → left",
            "shards 2 → 3",
        )
        assert repr(evolved).startswith(f"<Evolved {tmp_path / 'new'}: window of `a` 5 seconds")
        assert "Rows of `a` before 2026-01-01 00:00:14.500000+00:00 had been evicted" in str(evolved)
        # the newest row is of 19.5 s, and 5 s of `a` were kept; 12 s are complete from 14.5 s + 12 s on
        assert evolved.exact_from == START + timedelta(seconds=26.5)
        assert not evolved.never_exact
        out = []
        for n in range(2, 4):
            three.add(n)
            out += run(changed.df, tmp_path / "new").table.to_pylist()
    names = changed.df.columns
    defined = join(three, "12 seconds", "2 seconds", "left", static=True).df.toArrow().to_pylist()
    # unmatched rows of the last seconds are still open in the stream
    limit = START + timedelta(seconds=25)

    def from_then_on(found: list[dict[str, Any]]) -> list[str]:
        times = [(r, max(t for t in (r["a_at"], r["b_at"]) if t is not None)) for r in found]
        exact = [r for r, t in times if t >= evolved.exact_from and (r["b_at"] is not None or r["a_at"] < limit)]
        return sorted(repr([r[c] for c in names]) for r in exact)

    assert from_then_on(out) == from_then_on(defined)
    assert from_then_on(out)


def test_columns_and_split_keys(spark: SparkSession, tmp_path: Path) -> None:
    """`a_over` is dropped, `twice` is added; then key 2 is split. All results go on exactly."""
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    run(three.window_join().df, tmp_path / "c")

    def changed(split_keys: list[int] | None = None) -> wm.Joined:
        a = wm.stream(
            three.feeds["a"].stream().drop("a_over").selectExpr("*", "concat(a, a) AS twice"),
            time="a_at",
            name="a",
            window="15 seconds",
        )
        return wm.join(a, three.stream("b", window="15 seconds"), on="k", split_keys=split_keys)

    evolved = wm.evolve_state(tmp_path / "c", tmp_path / "c1", changed())
    assert evolved.changes == ("column `twice` of `a` added", "column `a_over` of `a` dropped")
    assert evolved.exact_from is None
    assert evolved.cautions == ("Column `twice` of `a` is NULL in rows that came before the change.",)
    three.add(1)
    found = run(changed().df, tmp_path / "c1").table
    whole = [run(three.window_join().df, tmp_path / "c").table]
    names = [c for c in found.column_names if c != "twice"]
    assert rows(found, names) == rows(whole[0], names)
    assert {(r["twice"] == r["a"] * 2) for r in found.to_pylist() if r["a"].startswith("a1")} == {True}
    assert {r["twice"] for r in found.to_pylist() if r["a"].startswith("a0")} == {None}
    assert wm.evolve_state(tmp_path / "c1", tmp_path / "c2", changed([2])).changes == ("split_keys",)
    three.add(2)
    found = run(changed([2]).df, tmp_path / "c2").table
    whole = [run(three.window_join().df, tmp_path / "c").table]
    assert rows(found, names) == rows(whole[0], names)
    assert any(r["k"] == 2 for r in found.to_pylist())


def test_a_copy_and_groups_go_on(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")

    def groups(algorithm: str = "auto") -> wm.Grouped:
        joined = three.window_join(algorithm=algorithm)
        return joined.group_by("a", wm.bucket("b_at", "10 seconds")).agg(n=wm.count())

    three.add(0)
    run(groups().df, tmp_path / "c")
    copy = wm.evolve_state(tmp_path / "c", tmp_path / "copy", groups())
    assert str(copy) == "Nothing has changed: a copy.\nAll results to come are exact."
    other = wm.evolve_state(tmp_path / "c", tmp_path / "other", groups("pwjoin"))
    assert other.changes == ("algorithm hash → pwjoin",)
    for n in (1, 2):
        three.add(n)
    names = groups().df.columns
    alone, *found = (
        run(q.df, tmp_path / c).table for q, c in ((groups(), "c"), (groups(), "copy"), (groups("pwjoin"), "other"))
    )
    assert alone.num_rows
    assert all(rows(some, names) == rows(alone, names) for some in found)


def test_a_batch_that_was_begun_is_completed_by_the_query_that_began_it(spark: SparkSession, tmp_path: Path) -> None:
    """It may be in the sinks: another query would give it other rows. A copy runs the same batch."""
    three, fails = Three(spark, tmp_path, "ab"), [False, True]

    def sink(df: DataFrame, batch: int) -> None:
        df.collect()
        if fails.pop(0):
            raise RuntimeError("dies with the batch in the sink")

    def write(window: str = "5 seconds") -> None:
        joined = join(three, window, "5 seconds")
        wm.write(joined, checkpoint=tmp_path / "c", results=sink, trigger={"availableNow": True}).awaitTermination()

    three.add(0)
    write()
    three.add(1)
    with pytest.raises(Exception, match="dies with the batch"):
        write()
    with pytest.raises(StateMismatchError) as wrong:
        wm.evolve_state(tmp_path / "c", tmp_path / "new", join(three, "6 seconds", "5 seconds"))
    assert str(wrong.value) == (
        f"`joined` has changed (window of `a` 5 seconds → 6 seconds), and `checkpoint` {tmp_path / 'c'} has begun "
        "batch 1, whose rows may be in the sinks; the changed query would run it as another batch.\n"
        'Hint: run the unchanged query once, e.g. with trigger={"availableNow": True}: it completes that batch.'
    )
    assert not (tmp_path / "new").exists()
    assert wm.evolve_state(tmp_path / "c", tmp_path / "copy", join(three, "5 seconds", "5 seconds")).changes == ()
    fails.append(False)
    write()
    wm.evolve_state(tmp_path / "c", tmp_path / "new", join(three, "6 seconds", "5 seconds"))


def test_a_folder_takes_no_batches_of_the_old_checkpoint_after_those_of_the_new_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    three = Three(spark, tmp_path, "ab")

    def write(checkpoint: str) -> None:
        three.add(len(three.rows["a"]))
        joined, place = three.window_join(), tmp_path / checkpoint
        wm.write(joined, checkpoint=place, results=tmp_path / "out", trigger={"availableNow": True}).awaitTermination()

    write("c")
    for copy in ("one", "two"):
        wm.evolve_state(tmp_path / "c", tmp_path / copy, three.window_join())
    write("c")  # no copy has written yet
    write("one")
    for other in ("c", "two"):
        with pytest.raises(QueryError, match=f"`results` {tmp_path / 'out'} holds batches of another checkpoint that"):
            write(other)
    wm.evolve_state(tmp_path / "one", tmp_path / "three", three.window_join())
    write("three")
    with pytest.raises(QueryError, match="go on with that checkpoint, or give a folder that is not there yet"):
        write("one")


def test_refusals(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    run(three.window_join().df, tmp_path / "c")
    with pytest.raises(StateMismatchError, match=r"how was inner, is left; the state does not tell which rows of `a`"):
        wm.evolve_state(tmp_path / "c", tmp_path / "new", join(three, "5 seconds", "5 seconds", "left"))
    grouped = three.window_join().group_by("a", wm.bucket("b_at", "10 seconds")).agg(n=wm.count())
    with pytest.raises(StateMismatchError, match=r"`checkpoint` has the state of 1 operator, and the query has 2\."):
        wm.evolve_state(tmp_path / "c", tmp_path / "new", grouped)
    by_key = three.window_join().group_by("k", wm.bucket("b_at", "10 seconds")).agg(n=wm.count())
    with pytest.raises(StateMismatchError, match="group_by was none, is "):
        wm.evolve_state(tmp_path / "c", tmp_path / "new", by_key)
    with pytest.raises(QueryError, match=r"`joined` is of static DataFrames; a state is continued by a streaming"):
        wm.evolve_state(tmp_path / "c", tmp_path / "new", join(three, "5 seconds", "5 seconds", static=True))
    with pytest.raises(QueryError, match=r"`to` .* is there already, and not empty"):
        wm.evolve_state(tmp_path / "c", tmp_path / "a", three.window_join())
    with pytest.raises(QueryError, match="`evolve_state` takes a join or its groups; got a DataFrame"):
        wm.evolve_state(tmp_path / "c", tmp_path / "new", three.window_join().df)  # type: ignore[arg-type]  # the test
    with pytest.raises(StateError, match="nowhere does not exist"):
        wm.evolve_state(tmp_path / "nowhere", tmp_path / "new", three.window_join())
    assert not (tmp_path / "new").exists()
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")], "nothing is left behind"
