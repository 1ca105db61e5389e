"""As-of joins against the oracle: results, state and propagated keys after every batch."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.limits import LIMITS, small
from lab.joins.oracle import KEYS, Row, bag, rows_of, step, stored
from lab.joins.scripts import Comparison, Script, asof_scripts, engine_batch, follow
from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.joins import HashJoin, Join, plan
from watersmeet.joins.asof_join import AsofJoin, RunningAsofJoin
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.asof import DIRECTIONS, AsOf
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.punctuations import Punctuation, Range, Value
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.state import keys
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log

few = settings(max_examples=max(10, settings().max_examples // 5))
some = settings(max_examples=max(20, settings().max_examples // 3))


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize("direction", DIRECTIONS)
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it(direction: str, how: str, data: st.DataObject) -> None:
    follow(data.draw(asof_scripts(direction, how=st.just(how))))


@pytest.mark.parametrize("direction", DIRECTIONS)
@given(data=st.data())
def test_without_punctuations(direction: str, data: st.DataObject) -> None:
    kind = st.sampled_from(["bool", "int64"])
    follow(data.draw(asof_scripts(direction, kind=kind, punctuated=False, batches=6, rows=8)))


@pytest.mark.parametrize("kind", KEYS)
@few
@given(data=st.data())
def test_keys_of_every_kind(kind: str, data: st.DataObject) -> None:
    follow(data.draw(asof_scripts(kind=st.just(kind))))


@few
@given(asof_scripts(kind=st.sampled_from(["string", "decimal38", "two columns", "struct", "list", "binary"])))
def test_keys_that_collide_are_still_distinguished(script: Script) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "HASH_MASK", 0)
        follow(script)


@pytest.mark.parametrize("name", LIMITS)
@some
@given(script=asof_scripts(batches=7, rows=4), data=st.data())
def test_a_restart_between_batches_changes_nothing(name: str, script: Script, data: st.DataObject) -> None:
    with small(name):
        query = script.query()
        comparison = Comparison(script)
        store, header, join = log.MemoryStore(), log.begin(query), AsofJoin().start(query)
        for n in range(len(script.batches)):
            if data.draw(st.booleans(), label="restart"):
                join = AsofJoin().start(query)
                log.rebuild(join, header, store)
                for i in (0, 1):
                    if n:
                        comparison.check_state(join, i)
            comparison.step(join, n)
            header = log.commit(join, header, store)


@some
@given(script=asof_scripts(batches=8, rows=4), data=st.data())
def test_a_copy_that_is_behind_catches_up(script: Script, data: st.DataObject) -> None:
    query = script.query()
    comparison = Comparison(script)
    store, header, join = log.MemoryStore(), log.begin(query), AsofJoin().start(query)
    copy: RunningAsofJoin = AsofJoin().start(query)
    token = ""
    for n in range(len(script.batches)):
        comparison.step(join, n)
        header = log.commit(join, header, store)
        if not token:
            log.rebuild(copy, header, store)
            token = header.token
        elif data.draw(st.booleans(), label="catch up") and log.catch_up(copy, token, header, store):
            for i in (0, 1):
                comparison.check_state(copy, i)
            join, copy, token = copy, AsofJoin().start(query), ""


@few
@given(script=asof_scripts(batches=4, rows=4))
def test_a_working_state_is_picked_up_by_the_next_process(script: Script) -> None:
    query = script.query()
    comparison, store, header = Comparison(script), log.MemoryStore(), log.begin(query)
    with tempfile.TemporaryDirectory() as folder:
        join = AsofJoin().start(query, MappedArrays(Path(folder)))
        for n in range(len(script.batches)):
            comparison.step(join, n)
            header = log.commit(join, header, store)
            cache.save(join, Path(folder))
            join = AsofJoin().start(query, MappedArrays(Path(folder)))
            assert cache.load(join, Path(folder))


# ---------------------------------------------------------------- the state, step by step


def spec(name: str, delay: int = 0, **more: Any) -> StreamSpec:
    schema = pa.schema([("k", pa.int64()), (f"{name}_ts", pa.int64()), (f"{name}_n", pa.int64())])
    return StreamSpec(name, schema, f"{name}_ts", ("k",), Unbounded(), delay, **more)


def asof_query(asof: AsOf | None = None, how: str = "left", **right: Any) -> JoinQuery:
    return JoinQuery((spec("a"), spec("b", **right)), how, asof=asof or AsOf())


class Steps:
    """Batches of (k, ts) rows, numbered from 0 on in each stream."""

    def __init__(self, query: JoinQuery) -> None:
        self.join, self.numbers = AsofJoin().start(query), [0, 0]

    def __call__(self, a: list[tuple[int, int]] = [], b: list[tuple[int, int]] = []) -> list[Row]:  # noqa: B006  # read only
        return sorted(step(self.join, [self.batch(0, a), self.batch(1, b)]), key=repr)

    def batch(self, i: int, rows: list[tuple[int, int]]) -> Batch:
        stream = self.join.query.streams[i]
        numbers = range(self.numbers[i], self.numbers[i] + len(rows))
        self.numbers[i] += len(rows)
        columns = [[k for k, _ in rows], [ts for _, ts in rows], list(numbers)]
        return Batch.of(pa.record_batch([pa.array(c, pa.int64()) for c in columns], schema=stream.schema), stream.time)

    def times(self, i: int) -> list[int]:
        return sorted(row[1] for row in stored(self.join, i))


def test_the_newest_version_before_the_left_watermark_stays_and_all_newer_ones() -> None:
    run = Steps(asof_query())
    assert run(b=[(1, 3), (1, 8), (1, 12), (2, 5)]) == []
    assert run.times(1) == [3, 5, 8, 12]
    assert run(a=[(1, 9)]) == [(1, 9, 0, 8, 1)], "the right watermark has passed it"
    assert run.times(1) == [5, 8, 12], "3 goes; 5 is the only version of its key"
    assert run(a=[(1, 12)]) == []
    assert (run.times(0), run.times(1)) == ([12], [5, 12]), "another row at 12 could come"
    assert run(b=[(1, 13)]) == [(1, 12, 1, 12, 2)]
    assert (run.times(0), run.times(1)) == ([], [5, 12, 13])


def test_a_version_stays_while_a_left_tuple_waits_for_it() -> None:
    run = Steps(asof_query(delay=10))
    run(b=[(1, 1), (1, 3), (1, 50), (1, 60)])
    run(a=[(1, 52), (1, 100)])
    assert (run.times(0), run.times(1)) == ([52, 100], [50, 60]), "the best of 52, and of 100 and all to come"
    run(b=[(1, 51)])
    assert run.times(1) == [51, 60], "51 is better for 52"
    assert run(b=[(2, 63)]) == [(1, 52, 0, 51, 4)]
    assert (run.times(0), run.times(1)) == ([100], [60, 63])


def test_beyond_the_tolerance_nothing_stays() -> None:
    run = Steps(asof_query(AsOf(tolerance=5)))
    run(b=[(1, 10), (2, 12)])
    run(a=[(3, 15)])
    assert run.times(1) == [10, 12]
    run(a=[(3, 16)])
    assert run.times(1) == [12], "10 + 5 < 16"
    assert run(a=[(2, 18)], b=[(3, 30)]) == [(2, 18, 2, None, None), (3, 15, 0, None, None), (3, 16, 1, None, None)]
    assert run.times(1) == [30]


def test_forward_rows_wait_for_the_first_candidate() -> None:
    run = Steps(asof_query(AsOf("forward")))
    assert run(a=[(1, 5), (1, 7), (2, 6)]) == []
    assert run(b=[(1, 6)]) == []
    assert (run.times(0), run.times(1)) == ([5, 6, 7], [6]), "another row at 6 could come; no later row wants it"
    assert run(b=[(2, 8)]) == [(1, 5, 0, 6, 0)]
    assert (run.times(0), run.times(1)) == ([6, 7], [8])


def test_of_equal_distance_the_earlier_row() -> None:
    run = Steps(asof_query(AsOf("nearest")))
    run(a=[(1, 5), (1, 6)], b=[(1, 3), (1, 7)])
    assert run(b=[(1, 8)]) == [(1, 5, 0, 3, 0), (1, 6, 1, 7, 1)]


def closing(query: JoinQuery, i: int, punctuation: Punctuation) -> list[Batch]:
    empty = [Batch(no_rows(s.schema)) for s in query.streams]
    empty[i] = engine_batch(query.streams[i], Elements((), (punctuation,)))
    return empty


@pytest.mark.parametrize("pattern", [Value((1,)), Range(0, 1)])
def test_a_punctuation_of_the_right_stream_makes_rows_final(pattern: Any) -> None:
    run = Steps(asof_query())
    run(a=[(1, 9), (2, 9)], b=[(1, 3)])
    assert run.times(0) == [9, 9]
    batches = closing(run.join.query, 1, Punctuation(pattern, 4))
    assert step(run.join, batches) == [(1, 9, 0, 3, 0)]
    assert run.times(0) == [9]
    assert run.join.counters.purged == 1
    assert run(a=[(1, 20)]) == [(1, 20, 2, 3, 0)], "at once: no other version can come"


@pytest.mark.parametrize("pattern", [Value((1,)), Range(0, 1)])
def test_a_punctuation_of_the_left_stream_purges(pattern: Any) -> None:
    run = Steps(asof_query())
    run(a=[(1, 9)], b=[(1, 3), (1, 5), (2, 5)])
    assert step(run.join, closing(run.join.query, 0, Punctuation(pattern, 9))) == []
    assert run.times(1) == [5, 5], "1 at 5 is held by the stored row"
    assert not run.join.propagated
    run(b=[(2, 12)])
    assert [rows_of(rows) for rows in run.join.propagated] == [[(1,)]]
    assert run.times(1) == [5, 12]
    run(b=[(1, 13)])
    assert run.times(1) == [5, 12], "nothing to come wants it"


# ---------------------------------------------------------------- ties


def test_of_one_time_the_last_by_order_by_then_by_bytes() -> None:
    rows = pa.record_batch([pa.array([1] * 4), pa.array([5] * 4), pa.array([7, 9, 9, 3])], schema=spec("b").schema)
    left = pa.record_batch([pa.array([1]), pa.array([6]), pa.array([0])], schema=spec("a").schema)
    for order_by, wanted in (((), 9), (("b_n",), 9)):
        join = AsofJoin().start(asof_query(AsOf(order_by=order_by)))
        batches = [Batch.of(left, "a_ts", ended=True), Batch.of(rows, "b_ts", ended=True)]
        assert step(join, batches) == [(1, 6, 0, 5, wanted)]
    signed = rows.set_column(2, "b_n", pa.array([-1, -2, None, -3], pa.int64()))
    join = AsofJoin().start(asof_query(order_by="b_n"))
    batches = [Batch.of(left, "a_ts", ended=True), Batch.of(signed, "b_ts", ended=True)]
    assert step(join, batches) == [(1, 6, 0, 5, -1)], "the stream's own order_by: NULLs first"


@given(rows=st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(-3, 3)), max_size=12), data=st.data())
def test_ties_do_not_depend_on_the_batches(rows: list[tuple[int, int, int]], data: st.DataObject) -> None:
    query = asof_query(AsOf(order_by=("b_n",)), delay=9)
    cut = data.draw(st.integers(0, len(rows)))
    join, other = AsofJoin().start(query), query.streams[1]
    store, header = log.MemoryStore(), log.begin(query)
    lefts = pa.record_batch([pa.array([0, 1]), pa.array([2, 9]), pa.array([0, 1])], schema=query.streams[0].schema)
    found = []
    for n, (some, left) in enumerate(((rows[:cut], lefts), (rows[cut:], no_rows(lefts.schema)))):
        columns = [pa.array([r[c] for r in some], pa.int64()) for c in range(3)]
        right = pa.record_batch(columns, schema=other.schema)
        found += step(join, [Batch.of(left, "a_ts", ended=n == 1), Batch.of(right, "b_ts", ended=n == 1)])
        header = log.commit(join, header, store)
        join = AsofJoin().start(query)
        log.rebuild(join, header, store)
    wanted = []
    for n, (k, ts) in enumerate(((0, 2), (1, 9))):
        before = [(t, m) for key, t, m in rows if key == k and t <= ts]
        wanted.append((k, ts, n, *(max(before) if before else (None, None))))
    assert bag(found) == bag(wanted)


# ---------------------------------------------------------------- DuckDB

COMPARED = {("backward", True): ">=", ("backward", False): ">", ("forward", True): "<=", ("forward", False): "<"}


@pytest.mark.parametrize("how", ["left", "inner"])
@pytest.mark.parametrize(("direction", "exact"), COMPARED)
def test_the_same_as_duckdb(direction: str, exact: bool, how: str) -> None:
    chance = np.random.default_rng(3)
    query = asof_query(AsOf(direction, None, exact, ("b_n",)), how)

    def rows(name: str, count: int) -> pa.RecordBatch:
        columns = [chance.integers(0, 9, count), chance.integers(0, 300, count), chance.permutation(count)]
        return pa.record_batch([pa.array(c, pa.int64()) for c in columns], schema=spec(name).schema)

    a, b = rows("a", 400), rows("b", 900)  # several rows of one key and time
    found = step(AsofJoin().start(query), [Batch.of(a, "a_ts", ended=True), Batch.of(b, "b_ts", ended=True)])
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("a", pa.Table.from_batches([a]))
        database.register("b", pa.Table.from_batches([b]))
        last = "SELECT * FROM b QUALIFY row_number() OVER (PARTITION BY k, b_ts ORDER BY b_n DESC) = 1"
        wanted = database.execute(
            f"SELECT a.k, a_ts, a_n, b_ts, b_n FROM a ASOF {how} JOIN ({last}) b "
            f"ON a.k = b.k AND a_ts {COMPARED[direction, exact]} b_ts"
        ).fetchall()
    assert bag(found) == bag(wanted)
    assert len(found) > 300


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("kind", "message", "make"),
    [
        (QueryError, '`direction` is "up"; it is one of backward, forward, nearest.', lambda: AsOf("up")),
        (WindowError, "`tolerance` is -1 microsecond; a distance in time", lambda: AsOf(tolerance=-1)),
        (WindowError, "`tolerance` is zero and `allow_exact` is False", lambda: AsOf(tolerance=0, allow_exact=False)),
        (QueryError, '`how` is "full"; an as-of join is "left" or "inner"', lambda: asof_query(how="full")),
        (ColumnError, "`order_by` of stream `b` names column `x`", lambda: asof_query(AsOf(order_by=("x",)))),
        (QueryError, "an as-of join is one of two streams; 3 given.", lambda: three()),
        (WindowError, "stream `b` has a window; in an as-of join `tolerance` bounds", lambda: windowed()),
        (QueryError, '"hash" computes no as-of joins.', lambda: Join(asof_query(), HashJoin())),
        (QueryError, '`algorithm` is "asof"; it gives each row one partner', lambda: plan(plain(), "asof")),
    ],
)
def test_refusals(kind: type[QueryError], message: str, make: Any) -> None:
    with pytest.raises(kind) as refused:
        make()
    assert message in str(refused.value)


def plain() -> JoinQuery:
    return replace(asof_query(), asof=None)


def three() -> JoinQuery:
    return JoinQuery((spec("a"), spec("b"), spec("c")), asof=AsOf())


def windowed() -> JoinQuery:
    return JoinQuery((spec("a"), replace(spec("b"), window=TimeWindow(3))), asof=AsOf())


def test_another_direction_is_another_query() -> None:
    assert asof_query().digest() != asof_query(AsOf("forward")).digest() != plain().digest()
