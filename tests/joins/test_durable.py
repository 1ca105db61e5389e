"""A join whose state is written, read back and caught up between batches behaves as if nothing had happened."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.limits import LIMITS, limits
from lab.joins.oracle import Row, Scenario, Side, bag, expected, expected_state, lively, scenarios, step, stored
from watersmeet.joins.hash_join import HashJoin, RunningHashJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.batches import Batch
from watersmeet.model.windows import TimeWindow
from watersmeet.state import stream_state
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import log


class Shard:
    """A join with a store below it, as a worker runs it."""

    def __init__(self, scenario: Scenario) -> None:
        self.query = scenario.query()
        self.store = log.MemoryStore()
        self.header = log.begin(self.query)
        self.join = HashJoin().start(self.query)

    def step(self, batches: list[Batch]) -> list[Row]:
        results = step(self.join, batches)
        log.commit(self.join, self.header, self.store)
        self.header = self.read_header()
        self.check()
        return results

    def read_header(self) -> log.Header:
        data = self.store.read_header()
        assert data is not None
        header = log.Header.unpack(data)
        header.check(self.query, 0, 1)
        return header

    def rebuilt(self, arrays: MappedArrays | None = None) -> RunningHashJoin:
        join = HashJoin().start(self.query, arrays)
        log.rebuild(join, self.header, self.store)
        return join

    def check(self) -> None:
        """Store, header and working state hold the same segments."""
        listed = {entry.id for entry in self.header.segments}
        assert set(self.store.segments) == listed
        assert {s.id for stream in self.join.streams for s in stream.segments.parts.values()} == listed
        for stream in self.join.streams:
            assert sum(stream.segments.left[n] for n in stream.segments.parts) == len(stream)


def state(join: RunningHashJoin) -> tuple[Any, ...]:
    return (tuple(join.watermarks), bag(stored(join, 0)), bag(stored(join, 1)))


@pytest.mark.parametrize("name", LIMITS)
@given(scenario=scenarios(batches=8, rows=5) | lively(), data=st.data())
def test_a_restart_between_batches_changes_nothing(name: str, scenario: Scenario, data: st.DataObject) -> None:
    with limits(name):
        shard = Shard(scenario)
        for n, results in enumerate(expected(scenario)):
            if data.draw(st.booleans(), label="restart"):
                shard.join = shard.rebuilt()
            assert bag(shard.step(scenario.batches(n))) == bag(results)
            assert [bag(stored(shard.join, i)) for i in (0, 1)] == [bag(expected_state(scenario, i)[n]) for i in (0, 1)]
            assert state(shard.rebuilt()) == state(shard.join)


@pytest.mark.parametrize("name", LIMITS)
@given(scenario=scenarios(batches=8, rows=5) | lively(), data=st.data())
def test_a_copy_that_is_behind_catches_up(name: str, scenario: Scenario, data: st.DataObject) -> None:
    with limits(name):
        shard = Shard(scenario)
        copies: dict[str, RunningHashJoin] = {}
        for n, results in enumerate(expected(scenario)):
            assert bag(shard.step(scenario.batches(n))) == bag(results)
            copies[shard.header.token] = shard.rebuilt()
            behind = data.draw(st.sampled_from([None, *copies]), label="behind")
            if behind is None:
                continue  # copies of several versions wait
            copy, before = copies[behind], state(copies[behind])
            tokens = [v.token for v in shard.header.versions]
            missed = shard.header.versions[tokens.index(behind) + 1 :] if behind in tokens else None
            if log.catch_up(copy, behind, shard.header, shard.store):
                assert missed is not None
                assert not any(v.rewritten for v in missed)
                assert state(copy) == state(shard.join)
                del copies[behind]
                shard.join = copy  # and goes on from here
                shard.check()
            else:
                assert missed is None or any(v.rewritten for v in missed)
                assert state(copy) == before


@settings(max_examples=20)  # files are slow
@given(scenario=scenarios(batches=6) | lively(), data=st.data())
def test_mapped_arrays_change_nothing(scenario: Scenario, data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        shard = Shard(scenario)
        shard.join = HashJoin().start(shard.query, MappedArrays(Path(folder)))
        for n, results in enumerate(expected(scenario)):
            if data.draw(st.booleans(), label="restart"):
                place = Path(folder) / str(n)
                place.mkdir()
                shard.join = shard.rebuilt(MappedArrays(place))
            assert bag(shard.step(scenario.batches(n))) == bag(results)
            assert state(shard.rebuilt()) == state(shard.join)


# ---------------------------------------------------------------- versions, one by one


def steady(batches: int, rows: int = 4, window: int = 3) -> Scenario:
    """Every step brings `rows` tuples to each side; a tuple lives `window` steps longer."""
    tuples = tuple(tuple(Tuple(n, (k % 4,), n * rows + k) for k in range(rows)) for n in range(batches))
    return Scenario("int64", pa.int64(), (Side(TimeWindow(window), 0, tuples),) * 2)


def test_eight_versions_are_kept() -> None:
    scenario = steady(12)
    shard = Shard(scenario)
    copies = []
    for n in range(12):
        shard.step(scenario.batches(n))
        copies.append((shard.header.token, shard.rebuilt()))
    assert shard.header.batches == 12
    caught = [log.catch_up(copy, token, shard.header, shard.store) for token, copy in copies]
    assert caught == [False] * 4 + [True] * 8
    assert all(state(copy) == state(shard.join) for _, copy in copies[4:])


def test_nothing_can_be_caught_up_over_a_rewriting(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = steady(6, window=100)
    shard = Shard(scenario)
    copies = []
    for n in range(6):
        monkeypatch.setattr(stream_state, "MAX_SMALL_SEGMENTS", 1 if n == 3 else 64)
        shard.step(scenario.batches(n))
        copies.append((shard.header.token, shard.rebuilt()))
    assert [v.rewritten for v in shard.header.versions] == [False, False, False, True, False, False]
    assert [log.catch_up(copy, token, shard.header, shard.store) for token, copy in copies] == [False] * 3 + [True] * 3


def test_an_unknown_token_is_too_far_back() -> None:
    scenario = steady(1)
    shard = Shard(scenario)
    shard.step(scenario.batches(0))
    assert log.catch_up(shard.rebuilt(), "another", shard.header, shard.store) is False


def test_catching_up_reads_only_what_was_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = steady(6, window=100)
    shard = Shard(scenario)
    for n in range(4):
        shard.step(scenario.batches(n))
    token, copy = shard.header.token, shard.rebuilt()
    known = set(shard.store.segments)
    for n in (4, 5):
        shard.step(scenario.batches(n))
    read: list[int] = []
    monkeypatch.setattr(shard.store, "read_segment", lambda id: read.append(id) or shard.store.segments[id])
    assert log.catch_up(copy, token, shard.header, shard.store)
    assert set(read) == set(shard.store.segments) - known


def test_a_join_rebuilt_from_the_first_header_is_a_new_one() -> None:
    scenario = steady(1)
    shard = Shard(scenario)
    shard.join = shard.rebuilt()
    assert shard.join.watermarks == HashJoin().start(shard.query).watermarks
    assert len(shard.step(scenario.batches(0))) == 4


def test_a_state_that_dies_at_once_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments without a living row are dropped, not rewritten, however much of the state they are."""
    monkeypatch.setattr(stream_state, "SMALL_BYTES", 0)
    early = tuple(Tuple(n, (0,), n) for n in range(50))
    sides = (Side(TimeWindow(1), 0, (early, ())), Side(TimeWindow(1), 0, ((), (Tuple(1000, (1,), 0),))))
    scenario = Scenario("int64", pa.int64(), sides)
    shard = Shard(scenario)
    shard.step(scenario.batches(0))
    assert len(shard.store.segments) == 1
    shard.step(scenario.batches(1))
    assert [len(s) for s in shard.join.streams] == [0, 1]
    assert [e.stream for e in shard.header.segments] == [1]
    assert not shard.header.versions[-1].rewritten
