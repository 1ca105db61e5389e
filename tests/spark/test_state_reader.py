"""What `wm.read_state` says of a checkpoint is what the query counted, for every kind of operator, while it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.spark.feeds import Feed, run
from lab.spark.three_streams import Three
from watersmeet.errors import QueryError, StateCorruptError, StateError, StateFormatError, StateMismatchError
from watersmeet.model import sizes
from watersmeet.spark.checkpoints.shard_contents import SHARD
from watersmeet.spark.checkpoints.state_reader import Operator, State
from watersmeet.state.durable.log import Header

pytestmark = pytest.mark.spark


def held(state: State, stream: str) -> int:
    return sum(h.tuples for h in state.summary if h.stream == stream)


def test_a_window_join_read_while_it_runs(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")
    writer = (
        three.window_join().df.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    )
    three.add(0)
    query = writer.start()
    try:
        query.processAllAvailable()
        first = wm.read_state(spark, tmp_path / "checkpoint")
        three.add(1)
        three.add(2)
        query.processAllAvailable()
        counted = wm.counters(query.lastProgress)
        state = wm.read_state(spark, tmp_path / "checkpoint")
    finally:
        query.stop()
    assert first.batch < state.batch
    assert state.streams == ("a", "b")
    assert sum(h.tuples for h in state.summary) == counted["stored"]
    assert sum(h.bytes for h in state.summary) == pytest.approx(counted["state_bytes"], rel=0.1)  # read back, not grown
    assert [(h.stream, h.shard) for h in state.summary] == [("a", 0), ("a", 1), ("b", 0), ("b", 1)]
    assert {k.shard for k in state.keys(20)} == {r[SHARD] for r in state.rows("a").collect()} == {0, 1}
    for n, other in ("ab", "ba"):
        newest = max(row[1] for rows in three.rows[other] for row in rows)
        alive = {row[2]: row for rows in three.rows[n] for row in rows if row[1] >= newest - timedelta(seconds=15)}
        rows = state.rows(n).toArrow().to_pylist()
        assert {r[n]: (r["k"], r[f"{n}_at"], r[n], r[f"{n}_over"]) for r in rows} == alive
        mine = [h for h in state.summary if h.stream == n]
        assert min(h.oldest for h in mine if h.oldest) == min(row[1] for row in alive.values())
        assert max(h.newest for h in mine if h.newest) == max(row[1] for row in alive.values())
        assert {h.watermark for h in mine} == {max(row[1] for rows in three.rows[n] for row in rows)}
        assert {(h.kind, h.closed_keys, h.format, h.ended) for h in mine} == {("hash", 0, 2, False)}
        counts: dict[int, int] = {}
        for row in alive.values():
            counts[row[0]] = counts.get(row[0], 0) + 1
        top = state.keys(3, stream=n)
        assert [k.tuples for k in top] == sorted(counts.values(), reverse=True)[:3]
        assert all(counts[json.loads(k.key)["k"]] == k.tuples for k in top)

    changes = {c.stream: c for c in state.difference(first.batch)}
    for n in "ab":
        then, now = ({r[n] for r in s.rows(n).toArrow().to_pylist()} for s in (first, state))
        assert (changes[n].came, changes[n].left) == (len(now - then), len(then - now))
        assert (changes[n].tuples_then, changes[n].tuples_now) == (len(then), len(now))
        found = state.changes(first.batch, n).toArrow().to_pylist()
        assert {(r["change"], r[n]) for r in found} == {("came", x) for x in now - then} | {
            ("left", x) for x in then - now
        }
    text = str(state)
    assert text.splitlines()[0].startswith(f"batch {state.batch} of ")
    assert "0 hash" in text
    assert repr(state) == (
        f"<State after batch {state.batch} of {tmp_path / 'checkpoint'}: <Operator 0: hash of a, b, 2 shards>>"
    )
    one = state.summary[0]
    assert repr(one) == f"<Held a, shard 0 of operator 0 (hash): {one.tuples} tuples, {sizes.formatted(one.bytes)}>"
    change = changes["a"]
    assert repr(change) == (
        f"<Change a, operator 0: {change.tuples_then} tuples then, {change.tuples_now} now, {change.came} came, "
        f"{change.left} left>"
    )


@pytest.mark.parametrize("how", ["inner", "full", "semi"])
def test_punctuations(spark: SparkSession, tmp_path: Path, how: str) -> None:
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    three.add(1)
    output = run(three.punctuated(how).tagged, tmp_path / "checkpoint")
    state = wm.read_state(spark, tmp_path / "checkpoint")
    assert sum(h.tuples for h in state.summary) == output.metrics[-1]["stored"] > 0
    assert {h.kind for h in state.summary} == {"pwjoin"}
    for n in "ab":
        closed = {row[0] for rows in three.rows[n] for row in rows if row[3]}
        assert sum(h.closed_keys for h in state.summary if h.stream == n) == len(closed) > 0


def test_several_streams_some_of_which_wait(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path)
    for n in range(3):
        three.add(n)
    streams = [three.stream(n, window=wm.rows(3, per_key=True) if n == "a" else "15 seconds") for n in "abc"]
    output = run(wm.join(*streams, on="k").df, tmp_path / "checkpoint")
    state = wm.read_state(spark, tmp_path / "checkpoint")
    assert sum(h.tuples for h in state.summary) == output.metrics[-1]["stored"]
    assert state.streams == ("a", "b", "c", "a (deferred)", "b (deferred)", "c (deferred)")
    assert held(state, "b (deferred)") == state.rows("b (deferred)").count() > 0


def test_window_oblivious(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    joined = wm.join(
        *(three.stream(n) for n in "ab"), on="k", algorithm=wm.WOJoin(scrambling=(50, 50)), allow_unbounded=True
    )
    output = run(joined.df, tmp_path / "checkpoint")
    state = wm.read_state(spark, tmp_path / "checkpoint")
    assert sum(h.tuples for h in state.summary) == output.metrics[-1]["stored"] == 40
    assert {h.kind for h in state.summary} == {"wo_join"}


def test_groups_of_both_kinds(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    three.add(1)
    by_key = three.punctuated().group_by("k").agg(n=wm.count(), last=wm.max("b"))
    output = run(by_key.df, tmp_path / "by-key")
    state = wm.read_state(spark, tmp_path / "by-key")
    assert state.streams == ("a", "b", "groups")
    assert held(state, "groups") == output.metrics[-1]["open_groups"] > 0
    rows = state.rows("groups").toArrow().to_pylist()
    assert len(rows) == held(state, "groups")
    assert all(r["n"] > 0 and r["last"].startswith("b") for r in rows)

    other = three.window_join().group_by("a", wm.bucket("b_at", "1 minute")).agg(n=wm.count())
    run(other.df, tmp_path / "other")
    state = wm.read_state(spark, tmp_path / "other")
    assert [o.id for o in state.operators] == [0, 1]
    assert sorted(state.streams) == ["a", "b", "groups"]
    assert {h.kind for h in state.summary} == {"hash", "groups"}
    assert sum(r["n"] for r in state.rows("groups").toArrow().to_pylist()) > 0
    assert {h.kind: h.operator for h in state.summary if h.tuples}.keys() == {"hash", "groups"}


def test_a_tree_has_several_operators(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path)
    three.add(0)
    a, b, c = (three.stream(n, window="15 seconds") for n in "abc")
    tree = wm.join(a, b, c.with_df(c.df.drop("k")), on=["a.k = b.k", "b.b = c.c"])
    run(tree.df, tmp_path / "checkpoint")
    state = wm.read_state(spark, tmp_path / "checkpoint")
    assert len(state.operators) == 2
    assert sorted(state.streams) == ["a", "a_b", "b", "c"]
    assert state.rows("a").count() == held(state, "a") == 20
    assert held(state, "a_b") > 0


def test_what_is_no_state_of_ours_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place, wrong in (("nowhere", "does not exist"), ("empty", "is an empty folder")):
        with pytest.raises(StateError, match=f"`checkpoint` .*{place} {wrong}"):
            wm.read_state(spark, tmp_path / place)
    feed = Feed(spark, tmp_path / "in", "k bigint")
    feed.add_rows([(1,), (2,)])
    run(feed.stream().dropDuplicates(["k"]), tmp_path / "foreign")
    with pytest.raises(StateMismatchError, match="holds no state of ours; its stateful operators are: dedupe"):
        wm.read_state(spark, tmp_path / "foreign")

    three = Three(spark, tmp_path, "ab")
    three.add(0)
    run(three.window_join().df, tmp_path / "checkpoint")
    with pytest.raises(
        StateError, match=r"holds a checkpoint, and is none itself\.\nHint: give .*(checkpoint|foreign)"
    ):
        wm.read_state(spark, tmp_path)
    with pytest.raises(StateError, match="holds rows that a query has written, and no checkpoint"):
        wm.read_state(spark, tmp_path / "a")  # where the files of the feed are
    with pytest.raises(StateError, match=r"`batch` is 7; the last complete batch of .* is 0"):
        wm.read_state(spark, tmp_path / "checkpoint", batch=7)
    state = wm.read_state(spark, tmp_path / "checkpoint")
    with pytest.raises(QueryError, match=r"no stream `z`(.|\n)*it has a, b"):
        state.rows("z")

    shard, data = next(iter(state.operators[0].headers.items()))
    newer = data.replace(b"watersmeet-state 2", b"watersmeet-state 9")
    broken = data.replace(b'"watermarks"', b'"watermorks"')
    for bad, error, text in (
        (newer, StateFormatError, "format 9"),
        (broken, StateCorruptError, "checksum"),
        (b"PK", StateCorruptError, "does not begin"),
    ):
        with pytest.raises(error, match=text):
            Header.unpack(bad)
    for change, text in (
        (lambda entries: [replace(e, checksum=e.checksum ^ 1) for e in entries], "not what was written"),
        (lambda entries: [*entries, replace(entries[0], id=99)], "segment 99 of the state is missing"),
    ):
        header = Header.unpack(data)
        header.segments = change(header.segments)
        operator = Operator(0, {**state.operators[0].headers, shard: header.pack()})
        with pytest.raises(StateCorruptError, match=text):
            State(spark, state.checkpoint, state.batch, (operator,)).summary  # noqa: B018  # asking is the test
