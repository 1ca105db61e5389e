"""The hash join: results, state, late rows and counters after every batch, against the definition."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.oracle import (
    KEYS,
    Scenario,
    Side,
    bag,
    expected,
    expected_state,
    key_names,
    recut,
    row_of,
    rows_of,
    scenarios,
    step,
    stored,
)
from watersmeet.errors import QueryError
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.reference import Tuple
from watersmeet.kernels import hashing
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.state import keys, value_lists
from watersmeet.state.keys import encode


def run(scenario: Scenario) -> list[list[tuple[object, ...]]]:
    join = HashJoin(scenario.query()).start()
    return [step(join, scenario.batches(n)) for n in range(len(scenario))]


def bags(results: list[list[tuple[object, ...]]]) -> list[object]:
    return [bag(rows) for rows in results]


# ---------------------------------------------------------------- results


@pytest.mark.parametrize("kind", KEYS)
@given(data=st.data())
def test_every_batch_gives_the_results_of_the_definition(kind: str, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(st.just(kind)))
    assert bags(run(scenario)) == bags(expected(scenario))


@given(recut())
def test_the_cut_into_batches_does_not_matter(cuts: tuple[Scenario, Scenario]) -> None:
    one, another = (bag([row for rows in run(cut) for row in rows]) for cut in cuts)
    assert one == another


@given(scenarios())
def test_the_sides_mirror(scenario: Scenario) -> None:
    n = len(KEYS[scenario.kind])
    swapped = [[(*r[:n], *r[n + 2 :], *r[n : n + 2]) for r in rows] for rows in run(scenario.mirrored())]
    assert bags(swapped) == bags(run(scenario))


@given(scenarios(), st.integers(1, 5))
def test_the_number_of_shards_does_not_matter(scenario: Scenario, shards: int) -> None:
    joins = [HashJoin(scenario.query()).start() for _ in range(shards)]
    for n, whole in enumerate(expected(scenario)):
        batches = scenario.batches(n)
        parts = [split(batch, key_names(scenario.kind, i), shards) for i, batch in enumerate(batches)]
        found = [row for s, join in enumerate(joins) for row in step(join, [part[s] for part in parts])]
        assert bag(found) == bag(whole)
        for i in (0, 1):
            held = [row for join in joins for row in stored(join, i)]
            assert bag(held) == bag(expected_state(scenario, i)[n])


def split(batch: Batch, key: tuple[str, ...], shards: int) -> list[Batch]:
    """The batch divided by key; every shard knows the progress of the whole stream."""
    order, starts = np.empty(batch.rows.num_rows, np.int64), np.zeros(shards + 1, np.int64)
    hashing.split_rows(encode([batch.rows.column(k) for k in key]).words, shards, order, starts)
    rows = batch.rows.take(pa.array(order))
    edges = zip(starts.tolist(), starts[1:].tolist(), strict=False)
    return [replace(batch, rows=rows.slice(a, b - a)) for a, b in edges]


@pytest.mark.parametrize("chunk", [1, 2, 3])
@given(scenario=scenarios())
def test_results_may_come_in_small_pieces(chunk: int, scenario: Scenario) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_lists, "CHUNK", chunk)
        join = HashJoin(scenario.query()).start()
        for n, rows in enumerate(expected(scenario)):
            tables = list(join.step(scenario.batches(n)))
            assert all(0 < table.num_rows <= chunk for table in tables)
            assert bag([row for table in tables for row in rows_of(table)]) == bag(rows)


@given(scenarios(st.sampled_from(["string", "decimal38", "two columns", "two texts", "struct", "list"])))
def test_keys_that_collide_are_still_told_apart(scenario: Scenario) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "HASH_MASK", 0)
        assert bags(run(scenario)) == bags(expected(scenario))


def test_key_columns_may_have_one_name_and_hold_the_time() -> None:
    schema = pa.schema([("k", pa.int64()), ("ts", pa.int64())])
    a = StreamSpec("a", schema.append(pa.field("x", pa.string())), "ts", ("k", "ts"), TimeWindow(5))
    b = StreamSpec("b", schema, "ts", ("k", "ts"), TimeWindow(5))
    for streams, row in (((a, b), (1, 7, "x")), ((b, a), (1, 7, "x"))):
        join = HashJoin(JoinQuery(streams)).start()
        rows = {
            "a": pa.RecordBatch.from_pylist([{"k": 1, "ts": 7, "x": "x"}, {"k": 1, "ts": 8, "x": "y"}], a.schema),
            "b": pa.RecordBatch.from_pylist([{"k": 1, "ts": 7}, {"k": 2, "ts": 8}], b.schema),
        }
        assert step(join, [Batch.of(rows[s.name], "ts") for s in streams]) == [row]


# ---------------------------------------------------------------- state


@given(scenarios())
def test_the_state_is_what_may_still_match_after_every_batch(scenario: Scenario) -> None:
    join = HashJoin(scenario.query()).start()
    left, right = expected_state(scenario, 0), expected_state(scenario, 1)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
        assert join.progress == [side.progress()[n] for side in scenario.sides]
        assert bag(stored(join, 0)) == bag(left[n])
        assert bag(stored(join, 1)) == bag(right[n])


def test_forgetting_by_the_numbers_of_the_docstring() -> None:
    def tuples(*times: int) -> tuple[Tuple, ...]:
        return tuple(Tuple(ts, (0,), n) for n, ts in enumerate(times))

    a = Side(TimeWindow(10), 0, (tuples(22, 23, 24, 25), ()))
    b = Side(TimeWindow(0), 2, ((), tuples(36)))
    scenario = Scenario("int64", pa.int64(), (a, b))
    join = HashJoin(scenario.query()).start()
    assert step(join, scenario.batches(0)) == []
    assert [row[0] for row in stored(join, 0)] == [22, 23, 24, 25]
    assert step(join, scenario.batches(1)) == []
    assert join.progress == [25, 34]
    assert [row[0] for row in stored(join, 0)] == [24, 25]
    assert [row[0] for row in stored(join, 1)] == [36]
    assert (join.counters.inserted, join.counters.invalidated, join.counters.stored) == (1, 2, 3)


def test_the_end_of_a_stream_empties_the_other() -> None:
    side = Side(Unbounded(), 0, ((Tuple(1, (0,), 0),), ()))
    scenario = Scenario("int64", pa.int64(), (side, replace(side, ends_after=1)))
    join = HashJoin(scenario.query()).start()
    assert len(step(join, scenario.batches(0))) == 1
    assert [len(s) for s in join.streams] == [1, 1]
    step(join, scenario.batches(1))
    assert [len(s) for s in join.streams] == [0, 1]


# ---------------------------------------------------------------- late rows and counters


@given(scenarios())
def test_late_rows_are_those_behind_the_progress_before_their_batch(scenario: Scenario) -> None:
    join = HashJoin(scenario.query()).start()
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
        for i, side in enumerate(scenario.sides):
            before = side.progress()[n - 1] if n else BEFORE_ALL
            late = [t for t in side.batches[n] if t.ts is None or t.ts < before]
            assert bag(rows_of(join.late[i])) == bag([row_of(scenario, t) for t in late])
        assert join.counters.late == sum(rows.num_rows for rows in join.late)


@given(scenarios())
def test_the_counters_add_up(scenario: Scenario) -> None:
    join = HashJoin(scenario.query()).start()
    held = 0
    for n, results in enumerate(expected(scenario)):
        step(join, scenario.batches(n))
        c = join.counters
        admitted = [t for side in scenario.sides for t in side.admitted()[n]]
        assert c.rows_in == sum(len(side.batches[n]) for side in scenario.sides)
        assert c.late == c.rows_in - len(admitted)
        assert c.null_keys == sum(None in t.key for t in admitted)
        assert c.results == len(results) <= c.probed
        assert c.inserted <= len(admitted) - c.null_keys
        assert c.stored == sum(len(s) for s in join.streams) == held + c.inserted - c.invalidated
        held = c.stored


def test_counters_have_names() -> None:
    scenario = Scenario("int64", pa.int64(), (Side(TimeWindow(0), 0, ((Tuple(1, (0,), 0),),)),) * 2)
    join = HashJoin(scenario.query()).start()
    step(join, scenario.batches(0))
    happened = {name: n for name, n in join.counters.as_dict().items() if n}
    assert happened == {"rows_in": 2, "probed": 1, "results": 1, "inserted": 2, "stored": 2}


# ---------------------------------------------------------------- manners


@given(scenarios())
def test_what_comes_in_is_not_changed(scenario: Scenario) -> None:
    join = HashJoin(scenario.query()).start()
    for n in range(len(scenario)):
        batches = scenario.batches(n)
        before = [batch.rows.serialize().to_pybytes() for batch in batches]
        step(join, batches)
        assert [batch.rows.serialize().to_pybytes() for batch in batches] == before


@given(scenarios())
def test_batches_may_be_slices_of_larger_ones(scenario: Scenario) -> None:
    whole = [scenario.rows(i, [t for batch in side.batches for t in batch]) for i, side in enumerate(scenario.sides)]
    join = HashJoin(scenario.query()).start()
    at = [0, 0]
    for n, results in enumerate(expected(scenario)):
        batches = scenario.batches(n)
        sizes = [batch.rows.num_rows for batch in batches]
        sliced = [replace(b, rows=w.slice(a, k)) for b, w, a, k in zip(batches, whole, at, sizes, strict=True)]
        assert bag(step(join, sliced)) == bag(results)
        at = [a + k for a, k in zip(at, sizes, strict=True)]


def test_the_definition_is_a_value() -> None:
    query = Scenario(
        "two columns", pa.int64(), (Side(TimeWindow(3, closed=False), 1, ()), Side(Unbounded(), 2, ()))
    ).query()
    assert pickle.loads(pickle.dumps(HashJoin(query))) == HashJoin(query)


def test_other_joins_are_refused() -> None:
    one, other = Scenario("int64", pa.int64(), (Side(TimeWindow(1), 0, ()),) * 2).query().streams
    with pytest.raises(
        QueryError, match=r'^the hash join computes inner joins of two streams; asked for "left" of 2\.$'
    ):
        HashJoin(JoinQuery((one, other), "left"))
    third = StreamSpec("c", pa.schema([("ts", pa.int64()), ("k", pa.int64())]), "ts", ("k",), TimeWindow(1))
    with pytest.raises(QueryError, match=r'asked for "inner" of 3\.$'):
        HashJoin(JoinQuery((one, other, third)))


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
