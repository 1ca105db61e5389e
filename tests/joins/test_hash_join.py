"""The hash join over value lists: every kind of key, and the numbers of its docstring. The rest is in the contract."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.oracle import (
    KEYS,
    Scenario,
    Side,
    bag,
    expected,
    scenarios,
    step,
    stored,
)
from watersmeet.errors import QueryError
from watersmeet.joins import Join
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.kernels import hashing
from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded


def run(scenario: Scenario) -> list[list[tuple[object, ...]]]:
    join = HashJoin().start(scenario.query())
    return [step(join, scenario.batches(n)) for n in range(len(scenario))]


def bags(results: list[list[tuple[object, ...]]]) -> list[object]:
    return [bag(rows) for rows in results]


# ---------------------------------------------------------------- results


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_every_batch_gives_the_results_of_the_definition(kind: str, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(st.just(kind)))
    assert bags(run(scenario)) == bags(expected(scenario))


def test_key_columns_may_have_one_name_and_hold_the_time() -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    a = StreamSpec("a", schema.append(pa.field("x", pa.string())), "ts", ("k", "ts"), TimeWindow(5))
    b = StreamSpec("b", schema, "ts", ("k", "ts"), TimeWindow(5))
    for streams, row in (((a, b), (1, 7, "x")), ((b, a), (1, 7, "x"))):
        join = HashJoin().start(JoinQuery(streams))
        rows = {
            "a": pa.RecordBatch.from_pylist([{"k": 1, "ts": 7, "x": "x"}, {"k": 1, "ts": 8, "x": "y"}], a.schema),
            "b": pa.RecordBatch.from_pylist([{"k": 1, "ts": 7}, {"k": 2, "ts": 8}], b.schema),
        }
        assert step(join, [Batch.of(rows[s.name], "ts") for s in streams]) == [row]


# ---------------------------------------------------------------- state


def test_eviction_by_the_numbers_of_the_docstring() -> None:
    def tuples(*times: int) -> tuple[Tuple, ...]:
        return tuple(Tuple(ts, (0,), n) for n, ts in enumerate(times))

    a = Side(TimeWindow(10), 0, (tuples(22, 23, 24, 25), ()))
    b = Side(TimeWindow(0), 2, ((), tuples(36)))
    scenario = Scenario("int64", pa.int64(), (a, b))
    join = HashJoin().start(scenario.query())
    assert step(join, scenario.batches(0)) == []
    assert [row[0] for row in stored(join, 0)] == [22, 23, 24, 25]
    assert step(join, scenario.batches(1)) == []
    assert join.watermarks == [25, 34]
    assert [row[0] for row in stored(join, 0)] == [24, 25]
    assert [row[0] for row in stored(join, 1)] == [36]
    assert (join.counters.inserted, join.counters.expired, join.counters.stored) == (1, 2, 3)


def test_the_end_of_a_stream_empties_the_other() -> None:
    side = Side(Unbounded(), 0, ((Tuple(1, (0,), 0),), ()))
    scenario = Scenario("int64", pa.int64(), (side, replace(side, ends_after=1)))
    join = HashJoin().start(scenario.query())
    assert len(step(join, scenario.batches(0))) == 1
    assert [len(s) for s in join.streams] == [1, 1]
    step(join, scenario.batches(1))
    assert [len(s) for s in join.streams] == [0, 1]


# ---------------------------------------------------------------- late rows and counters


def test_counters_have_names() -> None:
    scenario = Scenario("int64", pa.int64(), (Side(TimeWindow(0), 0, ((Tuple(1, (0,), 0),),)),) * 2)
    join = HashJoin().start(scenario.query())
    step(join, scenario.batches(0))
    happened = {name: n for name, n in join.counters.as_dict().items() if n}
    assert happened == {"rows_in": 2, "probed": 1, "results": 1, "inserted": 2, "stored": 2}


# ---------------------------------------------------------------- manners


def test_other_joins_are_refused() -> None:
    one, other = Scenario("int64", pa.int64(), (Side(TimeWindow(1), 0, ()),) * 2).query().streams
    with pytest.raises(
        QueryError, match=r'^"hash" computes inner joins of two streams; got "left" of 2\.\nHint: .*pwjoin'
    ):
        Join(JoinQuery((one, other), "left"), HashJoin())
    third = StreamSpec("c", pa.schema([("ts", pa.int64()), ("k", pa.int64())]), "ts", ("k",), TimeWindow(1))
    with pytest.raises(QueryError, match=r'got "inner" of 3\.\nHint: .*general_lazy'):
        Join(JoinQuery((one, other, third)), HashJoin())


@pytest.mark.parametrize("kind", KEYS)
def test_every_kernel_is_compiled_for_one_signature(kind: str) -> None:
    every = KEYS[kind][0][1]
    tuples = tuple(
        Tuple(n, (key, *(column[1][0] for column in KEYS[kind][1:])), n) for n, key in enumerate([*every, None])
    )
    side = Side(TimeWindow(1), 0, (tuples, tuples[:1], ()))
    scenario = Scenario(kind, pa.timestamp("us"), (side, side))
    assert bags(run(scenario)) == bags(expected(scenario))
    for function in (kernel.insert, kernel.probe, kernel.expire):
        assert len(function.signatures) == 1, function
    for function in (hashing.hash_rows, hashing.frame_column):
        assert len(function.signatures) <= 1, function
