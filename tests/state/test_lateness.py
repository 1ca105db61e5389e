"""Measured delays against the definition: lags row by row, and the share of rows that comes late."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.plain_pairs import arrivals, tolerant
from watersmeet.checkpoints.redistribute import redistribute
from watersmeet.checkpoints.reopen import reopen
from watersmeet.errors import WindowError
from watersmeet.joins import plan
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.model.lags import LONGEST, Lags
from watersmeet.state.durable import log
from watersmeet.state.durable.parts import load_metadata, metadata_of
from watersmeet.state.statistics.lateness import ENOUGH, MeasuredDelay

TIMES = st.lists(st.integers(-(10**6), 10**6), max_size=80)


def slow_lags(times: list[int], newest: int) -> list[int]:
    out = []
    for time in times:
        newest = max(newest, time)
        out.append(newest - time)
    return out


@given(TIMES, st.one_of(st.just(BEFORE_ALL), st.integers(-(10**6), 2 * 10**6)))
def test_lags_are_never_measured_too_small(times: list[int], newest: int) -> None:
    """... and by little too large where the largest time has settled."""
    lags = Lags.of(np.array(times, np.int64))
    assert lags.count.sum() == len(times)
    found = lags.since(newest) if newest > BEFORE_ALL else lags.behind
    found = np.sort(np.repeat(found, lags.count))
    true = np.sort(np.array(slow_lags(times, newest), np.int64))
    assert (found >= true).all()
    if times and newest <= times[0]:
        assert (found <= true + true // 32 + 1).all()


def test_lags_of_partitions_are_reported_together_and_absurd_ones_are_bounded() -> None:
    a, b = Lags.of(np.array([5, 3])), Lags.of(np.array([-(1 << 57) * 2, 1]))
    both = Lags.together([a, b])
    assert both.count.sum() == 4
    assert both.since(1)[-2:].max() >= (1 << 57)
    assert Lags.of(np.array([0, -(1 << 60)])).behind.max() >= LONGEST


def test_rows_of_one_file_are_not_behind_those_of_another() -> None:
    """Three files in one partition, the newest first, each with a disorder of 3."""
    one = np.array([0, 5, 2, 9, 6, 12])
    times, origins = np.concatenate([one + 2400, one, one + 1200]), np.repeat([7, -3, 5], one.size)
    lags = Lags.of_files(times, origins)
    assert (lags.behind.max(), lags.count.sum()) == (3, times.size)
    assert lags.since(2500).max() >= 2500, "an earlier batch was there first"
    assert Lags.of(times).behind.max() >= 2400
    assert Lags.of_files(np.array([], np.int64), np.array([], np.int64)).count.size == 0


def test_nothing_is_late_before_something_is_known() -> None:
    measured = MeasuredDelay(0.01)
    measured.observe(Lags.of(np.arange(ENOUGH - 1)), ENOUGH - 2)
    assert measured.delay is None
    measured.observe(Lags.of(np.arange(ENOUGH, ENOUGH + 9)), ENOUGH + 8)  # older ones weigh a little less than one
    assert measured.delay == 0
    again = MeasuredDelay(0.01)
    again.load_metadata(json.loads(json.dumps(measured.metadata())))
    assert (again.delay, again.newest) == (0, ENOUGH + 8)


@pytest.mark.parametrize("algorithm", ["hash", "pwjoin", "general_lazy"])
@pytest.mark.parametrize("size", [50, 700])
def test_about_the_share_requested_is_late_and_accounted_for(algorithm: str, size: int) -> None:
    """Disorder that doubles half-way: the delay follows. A restart every few batches changes nothing."""
    share = 0.01
    straight = plan(tolerant(share), algorithm).start()
    times = [np.concatenate([(first := arrivals(s, 0.5)), first.max() + arrivals(s + 9, 1.0)]) for s in (1, 2)]
    late = rows = 0
    for n, at in enumerate(range(0, 60_000, size)):
        if n % 7 == 3:
            again = plan(tolerant(share), algorithm).start()
            load_metadata(again.parts(), json.loads(json.dumps(metadata_of(straight.parts()))))
            assert [d and d.delay for d in again.delays] == straight.measured()["delays"]
        before = list(straight.watermarks)
        new_elements = []
        for i, spec in enumerate(straight.query.streams):
            some = times[i][at : at + size]
            new_elements.append(Batch.of(pa.record_batch([some % 50, some], schema=spec.schema), spec.time))
        for _ in straight.step(new_elements):
            pass
        straight.arrivals = []
        true = sum(int((b.rows.column(1).to_numpy() < p).sum()) for b, p in zip(new_elements, before, strict=True))
        assert straight.counters.late == sum(r.num_rows for r in straight.late) == true
        late, rows = late + true, rows + straight.counters.rows_in
        if at + size == 28_000:
            steady = straight.measured()["delays"]
    assert late / rows <= 1.5 * share
    true_delay = np.quantile(slow_lags(times[0][:28_000].tolist(), 0), 1 - share)
    assert 0.8 * true_delay <= steady[0] <= 1.25 * true_delay
    assert straight.measured()["delays"][0] > 1.5 * steady[0]
    assert straight.counters.stored < 2_000


def test_what_was_measured_is_known_to_other_shards() -> None:
    """A state divided anew goes on with the delays of the old one."""
    definition, stores = plan(tolerant(0.01), "hash"), [log.MemoryStore() for _ in range(3)]
    join, times = definition.start(), arrivals(1, 0.5, 2000)
    new_elements = [Batch.of(pa.record_batch([times % 9, times], schema=s.schema), s.time) for s in join.query.streams]
    for _ in join.step(new_elements):
        pass
    log.commit(join, log.begin(join.query, ids=(0,)), stores[0])
    redistribute(stores[:1], stores[1:], (0, 1))
    delays = join.measured()["delays"]
    assert delays[0] > 0
    for n, store in enumerate(stores[1:]):
        assert store.header is not None
        header = log.Header.unpack(store.header)
        header.check(join.query, n, 2, (0, 1))
        again = reopen(header, store)
        assert again.measured()["delays"] == delays
        assert again.watermarks == join.watermarks


def test_errors() -> None:
    with pytest.raises(WindowError, match=r"(?s)`late_share` of stream `a` is 1.5; .*Hint: use a small number"):
        tolerant(1.5)
