"""What every join in the registry must do, whatever its algorithm and configuration."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.configurations import OPERATORS, Operator
from lab.joins.limits import LIMITS, limits
from lab.joins.oracle import (
    KEYS,
    Row,
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
from watersmeet.joins import multiway, plan
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.baselines import tuple_at_a_time
from watersmeet.joins.reference.definition import Tuple
from watersmeet.kernels import hashing
from watersmeet.model.batches import BEFORE_ALL, Batch, no_rows
from watersmeet.model.windows import TimeWindow
from watersmeet.state import keys, value_lists
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log
from watersmeet.state.durable.memory_bound import MemoryBound
from watersmeet.state.keys import encode

Check = Callable[[Operator, st.DataObject], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


def bags(results: list[list[Row]]) -> list[object]:
    return [bag(rows) for rows in results]


# ---------------------------------------------------------------- results


@check
def every_batch_gives_the_results_of_the_definition(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    assert bags(operator.run(scenario)) == bags(expected(scenario))


@check
def the_cut_into_batches_does_not_matter(operator: Operator, data: st.DataObject) -> None:
    one, another = (
        bag([row for rows in operator.run(operator.fit(cut)) for row in rows]) for cut in data.draw(recut())
    )
    assert one == another


@check
def the_sides_mirror(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    if scenario.asof is not None:
        return  # its sides have different parts
    n = len(KEYS[scenario.kind])
    swapped = [[(*r[:n], *r[n + 2 :], *r[n : n + 2]) for r in rows] for rows in operator.run(scenario.mirrored())]
    assert bags(swapped) == bags(operator.run(scenario))


@check
def the_number_of_shards_does_not_matter(operator: Operator, data: st.DataObject) -> None:
    scenario, shards = operator.draw(data, scenarios()), data.draw(st.integers(1, 5))
    joins = [operator.start(scenario) for _ in range(shards)]
    for n, whole in enumerate(expected(scenario)):
        batches = scenario.batches(n)
        parts = [split(batch, key_names(scenario.kind, i), shards) for i, batch in enumerate(batches)]
        found = [row for s, join in enumerate(joins) for row in step(join, [part[s] for part in parts])]
        assert bag(found) == bag(whole)
        for i in (0, 1):
            held = bag([row for join in joins for row in stored(join, i)])
            needed = bag(expected_state(scenario, i)[n])
            assert held == needed if operator.exact else held >= needed


def split(batch: Batch, key: tuple[str, ...], shards: int) -> list[Batch]:
    """The batch divided by key; every shard knows the watermark of the whole stream."""
    order, starts = np.empty(batch.rows.num_rows, np.int64), np.zeros(shards + 1, np.int64)
    hashing.split_rows(encode([batch.rows.column(k) for k in key]).words, shards, order, starts)
    rows = batch.rows.take(pa.array(order))
    edges = zip(starts.tolist(), starts[1:].tolist(), strict=False)
    return [replace(batch, rows=rows.slice(a, b - a)) for a, b in edges]


@check
def results_may_come_in_small_pieces(operator: Operator, data: st.DataObject) -> None:
    scenario, chunk = operator.draw(data, scenarios()), data.draw(st.integers(1, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_lists, "CHUNK", chunk)
        patch.setattr(tuple_at_a_time, "CHUNK", chunk)
        patch.setattr(multiway, "CHUNK", chunk)
        join = operator.start(scenario)
        for n, rows in enumerate(expected(scenario)):
            tables = list(join.step(scenario.batches(n)))
            assert all(0 < table.num_rows <= chunk for table in tables)
            assert bag([row for table in tables for row in rows_of(table)]) == bag(rows)


@check
def keys_that_collide_are_still_told_apart(operator: Operator, data: st.DataObject) -> None:
    kinds = st.sampled_from(["string", "decimal38", "two columns", "two texts", "struct", "list"])
    scenario = operator.draw(data, scenarios(kinds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "HASH_MASK", 0)
        assert bags(operator.run(scenario)) == bags(expected(scenario))


# ---------------------------------------------------------------- state


@check
def the_state_is_what_may_still_match(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
        assert join.watermarks == [side.watermarks()[n] for side in scenario.sides]
        check_state(operator, join, scenario, n)
        assert join.counters.stored == sum(map(len, join.streams))


def check_state(operator: Operator, join: RunningJoin[Any], scenario: Scenario, n: int) -> None:
    """All that may still match is stored; what else is stored is stale, counted, and not there if the join is exact."""
    stale = 0
    for i in (0, 1):
        held, needed = bag(stored(join, i)), bag(expected_state(scenario, i)[n])
        assert held >= needed
        assert all(row[0] < join.alive_from(i) for row in held - needed)
        stale += (held - needed).total()
    assert not (operator.exact and stale)
    assert join.counters.stale == stale


@check
def the_end_of_both_streams_leaves_nothing(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
    last = step(join, [Batch(no_rows(s.schema), None, ended=True) for s in join.query.streams])
    assert last == [] or scenario.asof is not None
    assert [len(s) for s in join.streams] == [0, 0]
    assert [s.lists.bytes for s in join.streams] == [0, 0]
    assert all(len(s.segments.empty()) == len(s.segments.parts) for s in join.streams)


@check
def the_counters_add_up(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    join = operator.start(scenario)
    held = 0
    for n, results in enumerate(expected(scenario)):
        step(join, scenario.batches(n))
        c = join.counters
        admitted = [t for side in scenario.sides for t in side.admitted()[n]]
        assert c.rows_in == sum(len(side.batches[n]) for side in scenario.sides)
        assert c.late == c.rows_in - len(admitted) == sum(rows.num_rows for rows in join.late)
        assert c.null_keys == sum(None in t.key for t in admitted)
        assert c.results == len(results) <= c.probed
        assert c.inserted <= len(admitted) - c.null_keys
        assert c.stored == held + c.inserted - c.expired - c.purged
        held = c.stored


@check
def late_rows_are_those_behind_the_watermark_before_their_batch(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
        for i, side in enumerate(scenario.sides):
            before = side.watermarks()[n - 1] if n else BEFORE_ALL
            late = [t for t in side.batches[n] if t.ts is None or t.ts < before]
            assert bag(rows_of(join.late[i])) == bag([row_of(scenario, t) for t in late])


# ---------------------------------------------------------------- the durable form


@check
def a_restart_between_batches_changes_nothing(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios(batches=8, rows=5))
    with limits(data.draw(st.sampled_from(sorted(LIMITS)))):
        store, header, join = log.MemoryStore(), log.begin(scenario.query()), operator.start(scenario)
        for n, results in enumerate(expected(scenario)):
            if data.draw(st.booleans(), label="restart"):
                join = operator.start(scenario)
                log.rebuild(join, header, store)
            assert bag(step(join, scenario.batches(n))) == bag(results)
            header = log.commit(join, header, store)
            check_state(operator, join, scenario, n)
            check_store(join, header, store)


@check
def a_copy_that_is_behind_catches_up(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios(batches=8, rows=5))
    store, header, join = log.MemoryStore(), log.begin(scenario.query()), operator.start(scenario)
    copy, token = operator.start(scenario), ""
    for n, results in enumerate(expected(scenario)):
        assert bag(step(join, scenario.batches(n))) == bag(results)
        header = log.commit(join, header, store)
        if not token:
            log.rebuild(copy, header, store)
            token = header.token
        elif data.draw(st.booleans(), label="catch up") and log.catch_up(copy, token, header, store):
            check_store(copy, header, store)
            for i in (0, 1):
                assert bag(stored(copy, i)) == bag(expected_state(scenario, i)[n])
            join, copy, token = copy, operator.start(scenario), ""  # and goes on from here


@check
def batches_may_be_longer_than_windows(operator: Operator, data: st.DataObject) -> None:
    """Many rows, few keys, disorder: tuples come, match and go within one batch, and their slots are used again."""
    chance = np.random.default_rng(data.draw(st.integers(0, 10_000), label="seed"))
    scenario = operator.fit(Scenario("int64", pa.int64(), (dense(chance), dense(chance))))
    store, header, join = log.MemoryStore(), log.begin(scenario.query()), operator.start(scenario)
    for n, results in enumerate(expected(scenario)):
        assert bag(step(join, scenario.batches(n))) == bag(results)
        check_state(operator, join, scenario, n)
        header = log.commit(join, header, store)
        check_store(join, header, store)
        rebuilt = operator.start(scenario)
        log.rebuild(rebuilt, header, store)
        for i in (0, 1):
            assert bag(stored(rebuilt, i)) == bag(expected_state(scenario, i)[n])
        join = rebuilt if n % 2 else join


def dense(chance: np.random.Generator, batches: int = 4, rows: int = 30) -> Side:
    """Rows of `batches` times 20 instants, each at most the delay behind its time, one in ten without a key."""
    delay = int(chance.integers(0, 10))
    times = np.sort(chance.integers(0, 20 * batches, rows * batches))
    arrived = times[np.argsort(times + chance.integers(0, delay + 1, times.size), kind="stable")].tolist()
    keys = [None if chance.random() < 0.1 else int(k) for k in chance.integers(0, 3, times.size)]
    tuples = [Tuple(ts, (key,), number) for number, (ts, key) in enumerate(zip(arrived, keys, strict=True))]
    cuts = [tuple(tuples[i * rows : (i + 1) * rows]) for i in range(batches)]
    return Side(TimeWindow(int(chance.integers(0, 8))), delay, tuple(cuts))


def check_store(join: RunningJoin[Any], header: log.Header, store: log.MemoryStore) -> None:
    """Store, header and working state hold the same segments, with as many living rows as there are tuples."""
    assert set(store.segments) == {entry.id for entry in header.segments}
    listed = {entry.id for entry in header.segments if entry.kind == "rows"}
    assert {s.id for stream in join.streams for s in stream.segments.parts.values()} == listed
    for stream in join.streams:
        assert sum(stream.segments.left[n] for n in stream.segments.parts) == len(stream)


@check
def a_working_state_is_picked_up_by_the_next_process(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios(batches=3, rows=4))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = log.MemoryStore()
        header, join = log.begin(scenario.query()), operator(scenario.query()).start(MappedArrays(folder))
        for n, results in enumerate(expected(scenario)):
            assert bag(step(join, scenario.batches(n))) == bag(results)
            header = log.commit(join, header, store)
            cache.save(join, folder)
            before = [bag(stored(join, i)) for i in (0, 1)]
            join = operator(scenario.query()).start(MappedArrays(folder))
            assert cache.load(join, folder)
            assert [bag(stored(join, i)) for i in (0, 1)] == before
        another = "hash" if operator.name in ("nested_loop", "windowed_hash") else "nested_loop"
        foreign = plan(replace(scenario.query(), asof=None), another).start(MappedArrays(folder))
        assert cache.load(foreign, folder) is not any(map(len, join.streams))


@check
def with_rows_spilled_all_is_the_same(operator: Operator, data: st.DataObject) -> None:
    """Results, late rows and state, over batches, working states picked up and restarts."""
    scenario = operator.draw(data, scenarios(batches=4, rows=5))
    room = data.draw(st.sampled_from([0, 100, 300]), label="bytes for rows")
    stores, headers = [log.MemoryStore(), log.MemoryStore()], [log.begin(scenario.query())] * 2
    plain = operator(scenario.query()).start()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "working")
        for n, results in enumerate(expected(scenario)):
            restarted = n == 0 or data.draw(st.booleans(), label="restart")
            if restarted:
                cache.remove(folder)
                folder.mkdir()
            join = operator(scenario.query()).start(arrays := MappedArrays(folder))
            of_streams = [stream.segments for stream in join.streams]
            bound = MemoryBound(arrays.bytes + room, arrays, of_streams, folder, Path(name, "disk"))
            if not restarted:
                assert cache.load(join, folder)
            elif n:
                plain = operator(scenario.query()).start()
                for one, header, store in zip((join, plain), headers, stores, strict=True):
                    log.rebuild(one, header, store)
            found = [bag(step(one, scenario.batches(n))) for one in (join, plain)]
            assert found == [bag(results)] * 2
            assert [bag(rows_of(late)) for late in join.late] == [bag(rows_of(late)) for late in plain.late]
            headers = [log.commit(*of) for of in zip((join, plain), headers, stores, strict=True)]
            bound.fit()
            assert bound.used_bytes <= bound.limit or not any(segments.in_memory for segments in of_streams)
            assert [bag(stored(join, i)) for i in (0, 1)] == [bag(stored(plain, i)) for i in (0, 1)]
            check_store(join, headers[0], stores[0])
            cache.save(join, folder)
        cache.remove(folder)
        assert not list(Path(name).glob("disk/*"))


# ---------------------------------------------------------------- manners


@check
def what_comes_in_is_not_changed(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        batches = scenario.batches(n)
        before = [batch.rows.serialize().to_pybytes() for batch in batches]
        step(join, batches)
        assert [batch.rows.serialize().to_pybytes() for batch in batches] == before


@check
def batches_may_be_slices_of_larger_ones(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.draw(data, scenarios())
    whole = [scenario.rows(i, [t for batch in side.batches for t in batch]) for i, side in enumerate(scenario.sides)]
    join = operator.start(scenario)
    at = np.zeros(2, int)
    for n, results in enumerate(expected(scenario)):
        batches = scenario.batches(n)
        sizes = [batch.rows.num_rows for batch in batches]
        sliced = [replace(b, rows=w.slice(a, k)) for b, w, a, k in zip(batches, whole, at.tolist(), sizes, strict=True)]
        assert bag(step(join, sliced)) == bag(results)
        at += sizes


@check
def the_definition_is_a_value(operator: Operator, data: st.DataObject) -> None:
    definition = operator(operator.draw(data, scenarios()).query())
    assert pickle.loads(pickle.dumps(definition)) == definition


# ---------------------------------------------------------------- the suite


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@settings(max_examples=settings().max_examples // 6)
@given(data=st.data())
def test_contract(operator: Operator, check: Check, data: st.DataObject) -> None:
    check(operator, data)
