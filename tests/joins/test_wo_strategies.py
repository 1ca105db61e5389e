"""Holding tuples back saves memory, never results: sorting first, parking on disk, both; and what if nothing fits."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.ascending_keys import ascending, batch, cuts, factor, held, whole_join
from lab.joins.oracle import bag, rows_of
from lab.joins.window_oblivious import possible, query
from watersmeet.errors import MemoryLimitError, QueryError, StateMismatchError
from watersmeet.joins import Join
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.wo_join.key_ranks import STRATEGIES, key_ranks
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import BatchPunctuations, Unique
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import FOREVER
from watersmeet.state import spill
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log
from watersmeet.workload.scrambled import Scrambled, cut

HOLDING = [s for s in STRATEGIES if s != "none"]


def budget(strategy: str) -> int | None:
    """Little enough for `auto` to have something to do."""
    return 24_000 if strategy == "auto" else None


def steps_of(data: st.DataObject, n: int) -> tuple[list[list[int]], list[list[Batch]]]:
    """Streams, and their batches; with the last one they end."""
    streams = [data.draw(ascending()) for _ in range(n)]
    out, at = [], [0] * n
    for keys in data.draw(cuts(streams)):
        out.append([batch(i, some, first=at[i]) for i, some in enumerate(keys)])
        at = [a + len(some) for a, some in zip(at, keys, strict=True)]
    return streams, [*out, [batch(i, [], ended=True) for i in range(n)]]


def step(join: RunningMultiway, batches: list[Batch]) -> list[tuple[object, ...]]:
    rows = [row for table in join.step(batches) for row in rows_of(table)]
    return rows


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(2, 3), st.sampled_from(HOLDING))
def test_results_are_those_without_a_strategy(data: st.DataObject, n: int, strategy: str) -> None:
    streams, batches = steps_of(data, n)
    factors = [factor(keys) for keys in streams]
    plain, join = (
        WOJoin(scrambling=factors, strategy=s, memory=memory, shed=False).start(query(n))
        for s, memory in (("none", None), (strategy, budget(strategy)))
    )
    found, last = [], -1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "PIECE", data.draw(st.sampled_from([1, 3, 1 << 16])))
        for arrivals in batches:
            one, other = step(plain, arrivals), step(join, arrivals)
            plain.arrivals = join.arrivals = []
            if strategy == "dbf":  # not even later
                assert bag(other) == bag(one)
                assert join.counters.stored <= plain.counters.stored
            elif other and strategy != "auto":  # in order, batch by batch
                assert min(row[0] for row in other) > last
                last = max(row[0] for row in other)
            assert join.counters.deferred == 0 or strategy != "dbf"
            assert join.counters.spilled == 0 or strategy != "msf"
            found += other
    assert bag(found) == bag(whole_join(streams))
    assert [len(s) for s in join.own] == [0] * n
    assert (join.counters.deferred, join.counters.spilled) == (0, 0)


def test_a_leader_waits_on_disk() -> None:
    join = WOJoin(scrambling=(0, 0), strategy="dbf").start(query(2))
    assert step(join, [batch(0, list(range(100))), batch(1, [0, 1])])
    assert (held(join, 0), join.counters.spilled) == ([], 98)
    assert len(step(join, [batch(0, [], first=100), batch(1, list(range(2, 40)), first=2)])) == 38
    assert join.counters.spilled == 0  # they were put aside as one piece
    assert held(join, 0) == list(range(40, 100))


def test_sorted_first_means_waiting_for_as_many_as_may_be_ahead() -> None:
    join = WOJoin(scrambling=(2, 2), strategy="msf").start(query(2))
    assert step(join, [batch(0, [1, 3, 2]), batch(1, [1, 2, 3])]) == [(1, 0, 0.0, 0, 0.0)]
    assert join.counters.deferred == 4
    more = step(join, [batch(0, [4, 6, 5], first=3), batch(1, [4, 5, 6], first=3)])
    assert [row[0] for row in more] == [2, 3, 4]


def test_hybrid_keeps_least_in_memory() -> None:
    """A stream that leads by hundreds of tuples, and streams out of order."""
    made = [Scrambled(60), Scrambled(60, lag=800)]
    rows = [s.rows(60, seed=3, stream=i) for i, s in enumerate(made)]
    most, results = {}, {}
    for strategy in STRATEGIES[:-1]:
        join = WOJoin(scrambling=(60, 60), strategy=strategy).start(query(2))
        in_memory, results[strategy] = [], 0
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(spill, "PIECE", 32)
            for parts in cut(rows, 60, 1.0):
                arrivals = [
                    Batch.of(r.rename_columns(s.schema.names), s.time)
                    for r, s in zip(parts, join.query.streams, strict=True)
                ]
                results[strategy] += len(step(join, arrivals))
                in_memory.append(join.counters.stored + join.counters.deferred)
            results[strategy] += len(step(join, [batch(i, [], ended=True) for i in range(2)]))
        most[strategy] = max(in_memory)
    assert set(results.values()) == {possible(rows)}
    assert most["hybrid"] <= most["dbf"] < 0.5 * most["msf"]
    assert most["dbf"] < 0.5 * most["none"]


@settings(max_examples=25, deadline=None)
@given(st.data(), st.sampled_from(HOLDING), st.booleans())
def test_a_restart_changes_nothing(data: st.DataObject, strategy: str, mapped: bool) -> None:
    """From the log, or from the working state that another process left."""
    streams, batches = steps_of(data, 3)
    definition = Join(
        query(3), WOJoin(scrambling=[factor(keys) for keys in streams], strategy=strategy, memory=budget(strategy))
    )
    straight = definition.start()
    store, header = log.MemoryStore(), log.begin(query(3))
    with tempfile.TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "PIECE", data.draw(st.sampled_from([1, 3, 1 << 16])))
        join = definition.start(MappedArrays(Path(name)) if mapped else None)
        for arrivals in batches:
            assert bag(step(straight, arrivals)) == bag(step(join, arrivals))
            straight.arrivals = []
            header = log.commit(join, header, store)
            assert set(store.segments) == {e.id for e in header.segments}
            assert key_ranks(straight).low_rank == key_ranks(join).low_rank
            assert [held(straight, i) for i in range(3)] == [held(join, i) for i in range(3)]
            assert straight.counters.spilled == join.counters.spilled
            assert straight.counters.deferred == join.counters.deferred
            if mapped and data.draw(st.booleans(), label="next process"):
                cache.save(join, Path(name))
                join = definition.start(MappedArrays(Path(name)))
                assert cache.load(join, Path(name))
            elif not mapped and data.draw(st.booleans(), label="restart"):
                join = definition.start()
                log.rebuild(join, header, store)


def test_what_does_not_fit_is_an_error_or_shed_and_counted() -> None:
    keys = list(range(2000))
    strict = WOJoin(scrambling=(5, 5), memory=20_000).start(query(2))
    with pytest.raises(
        MemoryLimitError, match=r"(?s)`memory` is 20000 bytes .*2000 tuples of s0.*Hint: give more memory"
    ):
        step(strict, [batch(0, keys), batch(1, [])])
    spilling = WOJoin(scrambling=(5, 5), memory=20_000, strategy="dbf").start(query(2))
    step(spilling, [batch(0, keys), batch(1, [])])
    assert spilling.counters.spilled == 2000
    shedding = WOJoin(scrambling=(5, 5), memory=20_000, shed=True).start(query(2))
    step(shedding, [batch(0, keys), batch(1, [])])
    left = held(shedding, 0)
    assert shedding.counters.shed == 2000 - len(left) > 0
    assert left == keys[-len(left) :]  # the smallest go first
    assert sum(s.bytes for s in shedding.own) <= 20_000
    shedding.arrivals = []
    assert len(step(shedding, [batch(0, []), batch(1, keys[-10:])])) == 10
    step(shedding, [batch(0, []), batch(1, [3], first=10)])
    assert shedding.counters.too_late == 1


@pytest.mark.parametrize("strategy", HOLDING)
def test_punctuations_do_not_wait_for_deferred_tuples(strategy: str) -> None:
    """a has closed 7 and its tuple of 7 is on disk, or waits: b's 7 still finds it."""
    memory = 100 if strategy == "auto" else None
    join = WOJoin(scrambling=(0, 0), strategy=strategy, memory=memory, shed=memory is not None).start(query(2))
    punctuations = BatchPunctuations(pa.record_batch([pa.array([7])], names=["epoch"]), np.array([2]))
    leader = batch(0, [1, 5, 7])
    assert step(join, [Batch(leader.rows, FOREVER + 20, punctuations=punctuations), batch(1, [1])])
    join.arrivals = []
    found = step(join, [batch(0, [9], first=30), batch(1, [7, 9], first=1)])
    assert sorted(row[0] for row in found) == [7, 9]


def test_auto_does_as_little_as_it_may() -> None:
    """A leader grows: first nothing is held back, then it is parked; when the other has caught up, nothing again."""
    join = WOJoin(scrambling=(0, 0), strategy="auto", memory=200_000).start(query(2))
    chosen, results = [], 0
    for n in range(20):
        results += len(step(join, [batch(0, list(range(n * 100, n * 100 + 100)), first=n * 100), batch(1, [])]))
        join.arrivals = []
        chosen.append(key_ranks(join).strategy)
    results += len(step(join, [batch(0, []), batch(1, list(range(2000)))]))
    join.arrivals = []
    for _ in range(3):
        step(join, [batch(0, []), batch(1, [])])
        join.arrivals = []
        chosen.append(key_ranks(join).strategy)
    assert results == 2000
    assert chosen[0] == chosen[-1] == "none"
    assert "dbf" in chosen


@settings(max_examples=60, deadline=None)
@given(st.data(), st.integers(2, 3), st.sampled_from(["msf", "dbf", "hybrid", "changing"]))
def test_streams_that_end_one_by_one_and_strategies_that_change(data: st.DataObject, n: int, strategy: str) -> None:
    """A tuple that took part waits for those that are held back, though all other streams are past it, or over."""
    streams, (*batches, _) = steps_of(data, n)
    ends = data.draw(st.permutations(range(n)), label="ends")
    batches += [[batch(i, [], ended=i == end) for i in range(n)] for end in ends]
    changing = strategy == "changing"
    how = {"strategy": "auto", "memory": 1 << 30} if changing else {"strategy": strategy}
    join = WOJoin(scrambling=[factor(s) for s in streams], **how).start(query(n))
    key_ranks(join)._choose = lambda coming: None  # type: ignore[method-assign]
    found = []
    for arrivals in batches:
        if changing:
            key_ranks(join).strategy = data.draw(st.sampled_from(["none", "dbf", "hybrid"]), label="strategy")
        found += step(join, arrivals)
        join.arrivals = []
    assert bag(found) == bag(whole_join(streams))
    assert [len(s) for s in join.own] == [0] * n
    assert (join.counters.deferred, join.counters.spilled) == (0, 0)


def test_errors() -> None:
    with pytest.raises(QueryError, match=r"(?s)`strategy` is \"auto\" and `memory` is not given; .*Hint: give memory="):
        Join(query(2), WOJoin(strategy="auto"))
    with pytest.raises(QueryError, match=r"(?s)`strategy` is 'swap'; .*none, msf, dbf, hybrid, auto.*Hint"):
        Join(query(2), WOJoin(strategy="swap"))
    with pytest.raises(QueryError, match=r"(?s)`memory` is 0; it is a number of bytes.*Hint: leave it out"):
        Join(query(2), WOJoin(memory=0))
    unique = JoinQuery(tuple(replace(s, constraints=(Unique(),)) for s in query(2).streams))
    with pytest.raises(
        QueryError, match=r"(?s)`strategy` is \"dbf\" and stream `s0` has a constraint .*Hint: leave the"
    ):
        Join(unique, WOJoin(strategy="dbf"))
    store, join = log.MemoryStore(), WOJoin(strategy="msf").start(query(2))
    step(join, [batch(0, [1]), batch(1, [1])])
    header = log.commit(join, log.begin(query(2)), store)
    with pytest.raises(StateMismatchError, match=r'(?s)written with strategy="msf".*Hint: run with strategy="msf"'):
        log.rebuild(WOJoin().start(query(2)), header, store)


LEADER = """
import resource, sys
from lab.joins.ascending_keys import batch
from lab.joins.window_oblivious import query
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.state.durable import log

strategy, rows = sys.argv[1], 50_000
memory = 16 << 20 if strategy != "none" else None
join = WOJoin(scrambling=(0, 0), strategy=strategy, memory=memory).start(query(2))
store, header = log.MemoryStore(), log.begin(query(2))
store.write_segment = lambda id, data: None  # what is durable is not in memory, but for this
store.remove_segment = lambda id: None
for n in range(80):
    list(join.step([batch(0, range(n * rows, (n + 1) * rows), first=n * rows), batch(1, [n], first=n)]))
    header = log.commit(join, header, store)
    if n == 4:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def test_memory_is_kept_by_the_process() -> None:
    """Measured from outside: a stream that leads by four million rows, and the most that the process has ever taken."""
    grown = {}
    for strategy in ("dbf", "none"):
        command = [sys.executable, "-c", LEADER, strategy]
        done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2])
        grown[strategy] = int(done.stdout.split()[-1]) << 10
    assert grown["none"] > 150 << 20, "without a bound it would not have fitted"
    assert grown["dbf"] < 16 << 20, "with one it does"
