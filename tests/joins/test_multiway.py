"""Joins of several streams against the rules: results, state and propagated punctuations after every batch."""

from __future__ import annotations

import tempfile
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.limits import LIMITS, limit_retention, small
from lab.joins.multiway_scripts import ALGORITHMS, EVERY, intervals, of, operator
from lab.joins.oracle import KEYS, all_windows, bag, step, stored
from lab.joins.scripts import Comparison, follow
from lab.joins.valid_streams import cuts, run, unpunctuated, valid_stream
from watersmeet.joins import multiway, plan
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.state import keys
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log

STREAMS = [2, 3, 4, 5]

few = settings(max_examples=max(10, settings().max_examples // 4))


@pytest.mark.parametrize("streams", STREAMS)
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it(streams: int, data: st.DataObject) -> None:
    script = data.draw(of(streams))
    follow(script, plan(script.query(), "general_lazy").start())


@pytest.mark.parametrize("streams", STREAMS)
@given(data=st.data(), every=st.sampled_from(EVERY))
def test_windows_of_rows_and_of_time_mix(streams: int, every: int | None, data: st.DataObject) -> None:
    script = data.draw(of(streams, window=all_windows()))
    follow(script, plan(script.query(), "general_lazy", every=every).start())


@pytest.mark.parametrize("streams", STREAMS)
@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data())
def test_all_algorithms_do_the_same(name: str, streams: int, data: st.DataObject) -> None:
    script = data.draw(of(streams, window=all_windows()))
    every = data.draw(intervals(name))
    follow(script, operator(name, script.query(), every=every).start())


@pytest.mark.parametrize("streams", [3, 4])
@pytest.mark.parametrize("name", ["general_lazy", "general_lazy-scan", "eager"])
@few
@given(data=st.data())
def test_neither_true_punctuations_nor_the_cut_into_batches_change_the_result(
    name: str, streams: int, data: st.DataObject
) -> None:
    kind, every = data.draw(st.sampled_from(sorted(KEYS))), data.draw(intervals(name))
    flat = [data.draw(valid_stream(kind, all_windows())) for _ in range(streams)]
    one, another = (data.draw(cuts(flat, "inner", kind)) for _ in range(2))
    results = run(one, operator(name, one.query(), every=every).start())
    assert results == run(another, operator(name, another.query(), every=every).start())
    mute = unpunctuated(one)
    assert results == run(mute, operator(name, mute.query(), every=every).start())


@few
@given(data=st.data(), every=st.sampled_from(EVERY))
def test_dropping_closed_keys_changes_no_result_and_brings_nothing_back(every: int | None, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KEYS)))
    window = st.integers(0, 12).map(TimeWindow) | st.builds(RowsWindow, st.integers(1, 3), st.booleans())
    script = data.draw(cuts([data.draw(valid_stream(kind, window)) for _ in range(3)], "inner", kind))
    with pytest.MonkeyPatch.context() as patch:
        limit_retention(patch, 1, 1)
        join, out = plan(script.query(), "general_lazy", every=every).start(), []
        store, header = log.MemoryStore(), log.begin(script.query())
        for n in range(len(script.batches)):
            out += step(join, [script.batch(n, i) for i in range(3)])
            header = log.commit(join, header, store)
            before = [bag(stored(join, i)) for i in range(len(join.streams))]
            join = plan(script.query(), "general_lazy", every=every).start()
            log.rebuild(join, header, store)
            assert [bag(stored(join, i)) for i in range(len(join.streams))] == before
    assert bag(out) == run(unpunctuated(script), plan(unpunctuated(script).query(), "general_lazy").start())


@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data())
def test_an_order_may_change_between_any_two_batches(name: str, data: st.DataObject) -> None:
    script = data.draw(st.integers(2, 4).flatmap(of))
    n = len(script.windows)
    orders = st.sampled_from(list(permutations(range(n))))
    others = st.tuples(*(st.permutations([j for j in range(n) if j != i]).map(tuple) for i in range(n)))
    each = others | st.tuples(*[orders] * n)  # without the stream itself, or with it anywhere
    comparison, join = Comparison(script), operator(name, script.query()).start()
    for at in range(len(script.batches)):
        join.order = data.draw(orders | each, label="order")
        comparison.step(join, at)


@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data(), chunk=st.integers(1, 3))
def test_results_may_come_in_small_pieces(name: str, chunk: int, data: st.DataObject) -> None:
    script = data.draw(st.integers(2, 4).flatmap(of))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multiway, "CHUNK", chunk)
        follow(script, operator(name, script.query()).start())


@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data())
def test_keys_that_collide_are_still_distinguished(name: str, data: st.DataObject) -> None:
    kinds = st.sampled_from(["string", "decimal38", "two columns", "struct", "list", "binary"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keys, "HASH_MASK", 0)
        script = data.draw(of(3, kind=kinds))
        follow(script, operator(name, script.query()).start())


# ---------------------------------------------------------------- lives of a state


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data())
def test_a_restart_between_batches_changes_nothing(name: str, limit: str, data: st.DataObject) -> None:
    with small(limit):
        script = data.draw(st.integers(2, 4).flatmap(lambda n: of(n, batches=7, rows=3, window=all_windows())))
        query = script.query()
        every = data.draw(intervals(name))
        comparison, join = Comparison(script, every or 0), operator(name, query, every=every).start()
        store, header = log.MemoryStore(), log.begin(query)
        for n in range(len(script.batches)):
            comparison.step(join, n)
            log.commit(join, header, store)
            assert store.header is not None
            header = log.Header.unpack(store.header)
            assert set(store.segments) == {entry.id for entry in header.segments}
            if data.draw(st.booleans(), label="restart"):
                join = operator(name, query, every=every).start()
                log.rebuild(join, header, store)
                for i in range(len(query.streams)):
                    comparison.check_state(join, i)


@pytest.mark.parametrize("limit", ["as it is", "all of it"])
@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data())
def test_a_copy_that_is_behind_catches_up(name: str, limit: str, data: st.DataObject) -> None:
    with small(limit):
        script = data.draw(st.integers(2, 4).flatmap(lambda n: of(n, batches=7, rows=3, window=all_windows())))
        query = script.query()
        every = data.draw(intervals(name))
        comparison, join = Comparison(script, every or 0), operator(name, query, every=every).start()
        store, header = log.MemoryStore(), log.begin(query)
        copy, token = operator(name, query, every=every).start(), ""
        for n in range(len(script.batches)):
            comparison.step(join, n)
            header = log.commit(join, header, store)
            if not token:
                log.rebuild(copy, header, store)
                token = header.token
            elif data.draw(st.booleans(), label="catch up") and log.catch_up(copy, token, header, store):
                for i in range(len(query.streams)):
                    comparison.check_state(copy, i)
                join, copy, token = copy, operator(name, query, every=every).start(), ""  # and goes on from here


@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(data=st.data())
def test_a_working_state_is_picked_up_by_the_next_process(name: str, data: st.DataObject) -> None:
    script = data.draw(of(3, batches=6, rows=3, window=all_windows()))
    query = script.query()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        store, header = log.MemoryStore(), log.begin(query)
        comparison, join = Comparison(script), operator(name, query).start(MappedArrays(folder))
        for n in range(len(script.batches)):
            comparison.step(join, n)
            header = log.commit(join, header, store)
            cache.save(join, folder)
            join = operator(name, query).start(MappedArrays(folder))
            assert cache.load(join, folder)
            for i in range(len(query.streams)):
                comparison.check_state(join, i)
