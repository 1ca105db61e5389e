"""What every join in the registry must do, whatever its algorithm and configuration."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.joins.test_durable import LIMITS, limits
from tests.oracle import (
    KEYS,
    Row,
    Scenario,
    bag,
    expected,
    expected_state,
    recut,
    row_of,
    rows_of,
    scenarios,
    step,
    stored,
)
from watersmeet.joins import JOINS, Join, plan, tuple_at_a_time
from watersmeet.joins.running import RunningJoin
from watersmeet.model.batches import BEFORE_ALL, Batch, no_rows
from watersmeet.model.queries import JoinQuery
from watersmeet.state import cache, keys, log, value_lists
from watersmeet.state.arrays import MappedArrays

STRATEGIES = tuple(tuple_at_a_time.INVALIDATION)


@dataclass(frozen=True)
class Operator:
    """A join by its name in the registry, with its options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join(map(str, (self.name, *self.options.values())))

    def __call__(self, query: JoinQuery) -> Join:
        return plan(query, self.name, **self.options)

    def start(self, scenario: Scenario) -> RunningJoin[Any]:
        return self(scenario.query()).start()

    def run(self, scenario: Scenario) -> list[list[Row]]:
        join = self.start(scenario)
        return [step(join, scenario.batches(n)) for n in range(len(scenario))]

    @property
    def exact(self) -> bool:
        """Whether after a batch nothing is stored but what may still match."""
        return self.options.get("invalidation", "all") == "all"


OPERATORS = [Operator(name) for name in JOINS if name != "windowed_hash"]
OPERATORS += [
    Operator("windowed_hash", {"buckets": b, "invalidation": s}) for b in (1, 3, 100) for s in STRATEGIES
]  # fmt: skip

Check = Callable[[Operator, st.DataObject], None]
CHECKS: list[Check] = []


def check(function: Check) -> Check:
    CHECKS.append(function)
    return function


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@pytest.mark.parametrize("check", CHECKS, ids=lambda c: c.__name__)
@settings(max_examples=max(8, settings().max_examples // 6))
@given(data=st.data())
def test_contract(operator: Operator, check: Check, data: st.DataObject) -> None:
    check(operator, data)


def test_every_join_is_held_to_it() -> None:
    assert {operator.name for operator in OPERATORS} == set(JOINS)


def bags(results: list[list[Row]]) -> list[object]:
    return [bag(rows) for rows in results]


# ---------------------------------------------------------------- results


@check
def every_batch_gives_the_results_of_the_definition(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
    assert bags(operator.run(scenario)) == bags(expected(scenario))


@check
def the_cut_into_batches_does_not_matter(operator: Operator, data: st.DataObject) -> None:
    one, another = (bag([row for rows in operator.run(cut) for row in rows]) for cut in data.draw(recut()))
    assert one == another


@check
def the_sides_mirror(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
    n = len(KEYS[scenario.kind])
    swapped = [[(*r[:n], *r[n + 2 :], *r[n : n + 2]) for r in rows] for rows in operator.run(scenario.mirrored())]
    assert bags(swapped) == bags(operator.run(scenario))


@check
def results_may_come_in_small_pieces(operator: Operator, data: st.DataObject) -> None:
    scenario, chunk = data.draw(scenarios()), data.draw(st.integers(1, 3))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_lists, "CHUNK", chunk)
        patch.setattr(tuple_at_a_time, "CHUNK", chunk)
        join = operator.start(scenario)
        for n, rows in enumerate(expected(scenario)):
            tables = list(join.step(scenario.batches(n)))
            assert all(0 < table.num_rows <= chunk for table in tables)
            assert bag([row for table in tables for row in rows_of(table)]) == bag(rows)


@check
def keys_that_collide_are_still_told_apart(operator: Operator, data: st.DataObject) -> None:
    kinds = st.sampled_from(["string", "decimal38", "two columns", "two texts", "struct", "list"])
    scenario = data.draw(scenarios(kinds))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "HASH_MASK", 0)
        assert bags(operator.run(scenario)) == bags(expected(scenario))


# ---------------------------------------------------------------- state


@check
def the_state_is_what_may_still_match(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
        assert join.progress == [side.progress()[n] for side in scenario.sides]
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
    scenario = data.draw(scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
    assert step(join, [Batch(no_rows(s.schema), None, ended=True) for s in join.query.streams]) == []
    assert [len(s) for s in join.streams] == [0, 0]
    assert [s.lists.bytes for s in join.streams] == [0, 0]
    assert all(len(s.segments.empty()) == len(s.segments.parts) for s in join.streams)


@check
def the_counters_add_up(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
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
        assert c.stored == held + c.inserted - c.invalidated
        held = c.stored


@check
def late_rows_are_those_behind_the_progress_before_their_batch(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        step(join, scenario.batches(n))
        for i, side in enumerate(scenario.sides):
            before = side.progress()[n - 1] if n else BEFORE_ALL
            late = [t for t in side.batches[n] if t.ts is None or t.ts < before]
            assert bag(rows_of(join.late[i])) == bag([row_of(scenario, t) for t in late])


# ---------------------------------------------------------------- the durable form


@check
def a_restart_between_batches_changes_nothing(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(batches=8, rows=5))
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
    scenario = data.draw(scenarios(batches=8, rows=5))
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


def check_store(join: RunningJoin[Any], header: log.Header, store: log.MemoryStore) -> None:
    """Store, header and working state hold the same segments, with as many living rows as there are tuples."""
    listed = {entry.id for entry in header.segments}
    assert set(store.segments) == listed
    assert {s.id for stream in join.streams for s in stream.segments.parts.values()} == listed
    for stream in join.streams:
        assert sum(stream.segments.left[n] for n in stream.segments.parts) == len(stream)


@check
def a_working_state_is_picked_up_by_the_next_process(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios(batches=4))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        store = cache.KeepingStore(log.MemoryStore(), folder)
        header, join = log.begin(scenario.query()), operator(scenario.query()).start(MappedArrays(folder))
        for n, results in enumerate(expected(scenario)):
            assert bag(step(join, scenario.batches(n))) == bag(results)
            header = log.commit(join, header, store)
            cache.save(join, folder)
            before = [bag(stored(join, i)) for i in (0, 1)]
            join = operator(scenario.query()).start(MappedArrays(folder))
            assert cache.load(join, folder)
            assert [bag(stored(join, i)) for i in (0, 1)] == before
        another = "nested_loop" if operator.name == "hash" else "hash"
        foreign = plan(scenario.query(), another).start(MappedArrays(folder))
        assert cache.load(foreign, folder) is not any(map(len, join.streams))


# ---------------------------------------------------------------- manners


@check
def what_comes_in_is_not_changed(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
    join = operator.start(scenario)
    for n in range(len(scenario)):
        batches = scenario.batches(n)
        before = [batch.rows.serialize().to_pybytes() for batch in batches]
        step(join, batches)
        assert [batch.rows.serialize().to_pybytes() for batch in batches] == before


@check
def batches_may_be_slices_of_larger_ones(operator: Operator, data: st.DataObject) -> None:
    scenario = data.draw(scenarios())
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
    definition = operator(data.draw(scenarios()).query())
    assert pickle.loads(pickle.dumps(definition)) == definition
