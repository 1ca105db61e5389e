"""Shards whose state is divided anew between batches go on as if nothing had happened; states that are read back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins import naive_groups
from lab.joins.ascending_keys import ascending, batch, cuts, factor, whole_join
from lab.joins.configurations import OPERATORS, Operator
from lab.joins.oracle import (
    all_windows,
    bag,
    expected,
    expected_state,
    lively,
    rows_of,
    scenarios,
    stored,
    windows,
)
from lab.joins.scripts import Script, asof_scripts, scripts
from lab.joins.sharded_join import Sharded
from lab.joins.window_oblivious import query as epochs
from watersmeet.checkpoints.reopen import kind_of, reopen
from watersmeet.errors import StateCorruptError, StateFormatError, StateMismatchError
from watersmeet.joins import Join, algorithm, plan
from watersmeet.joins.asof_join import AsofJoin
from watersmeet.joins.group_by.aggregates import Fold
from watersmeet.joins.group_by.operator import GroupedJoin, GroupsOf, Partials, RunningGroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.model.batches import Batch, no_rows
from watersmeet.model.grouping import Bucket
from watersmeet.model.punctuations import End
from watersmeet.model.queries import HOW, JoinQuery, StreamSpec
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded
from watersmeet.state import segments, stream_state
from watersmeet.state.durable import log, parts
from watersmeet.state.groups import keys_of
from watersmeet.state.punctuations import bounds
from watersmeet.state.shards import split

few = settings(max_examples=settings().max_examples // 4)


@contextmanager
def small_limits(data: st.DataObject) -> Iterator[None]:
    """Few rows are enough to merge ranges, to write marks anew, to cut segments."""
    with pytest.MonkeyPatch.context() as patch:
        if data.draw(st.booleans(), label="small limits"):
            patch.setattr(bounds, "MERGED_FROM", 0)
            patch.setattr(bounds, "LONG_RUN", 2)
            patch.setattr(parts, "MOST_PIECES", 2)
            patch.setattr(segments, "SEGMENT_BYTES", 64)
            patch.setattr(stream_state, "MAX_SMALL_SEGMENTS", 2)
        yield


def maybe_rescale(data: st.DataObject, sharded: Sharded) -> None:
    shards = data.draw(st.sampled_from([None, 1, 2, 3, 5]), label="shards from here on")
    if shards is not None:
        sharded.rescale(shards)


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@few
@given(data=st.data())
def test_windows(operator: Operator, data: st.DataObject) -> None:
    scenario = operator.fit(data.draw(scenarios() | lively()))
    with small_limits(data):
        sharded = Sharded(operator(scenario.query()), data.draw(st.integers(1, 3)))
        for n, results in enumerate(expected(scenario)):
            assert bag(sharded.step(sharded.part(scenario.batches(n)))) == bag(results)
            sharded.check_reading()
            maybe_rescale(data, sharded)
            for i in (0, 1) if operator.exact else ():
                assert bag(sharded.held(i)) == bag(expected_state(scenario, i)[n])


def beside_one(script: Script, join: algorithm.Operator, data: st.DataObject) -> None:
    """One join that nothing happens to, and shards: results, late rows, violations and state are the same."""
    alone, store, header = join.start(), log.MemoryStore(), log.begin(join.query)
    sharded = Sharded(join, data.draw(st.integers(1, 3)))
    for n in range(len(script.batches)):
        batches = [script.batch(n, i) for i in range(len(script.windows))]
        wanted = [row for table in alone.step(batches) for row in rows_of(table)]
        header = log.commit(alone, header, store)
        assert bag(sharded.step(sharded.part(batches))) == bag(wanted)
        for name in ("late", "violations"):
            for i, rows in enumerate(getattr(alone, name)):
                found = [row for running in sharded.running for row in rows_of(getattr(running, name)[i])]
                assert bag(found) == bag(rows_of(rows))
        sharded.check_reading()
        maybe_rescale(data, sharded)
        for i, spec in enumerate(s.spec for s in alone.streams):
            names = [c for c in spec.schema.names if c != "watersmeet position"]
            cut = len(names)
            assert bag([r[:cut] for r in sharded.held(i)]) == bag([r[:cut] for r in stored(alone, i)])
        assert all(running.watermarks == alone.watermarks for running in sharded.running)


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data())
def test_constraints(how: str, data: st.DataObject) -> None:
    window = st.just(Unbounded()) if data.draw(st.booleans()) else windows()
    script = data.draw(scripts(how=st.just(how), window=window))
    with small_limits(data):
        beside_one(script, Join(script.query(), PWJoin()), data)


@few
@given(data=st.data())
def test_as_of_joins_with_punctuations(data: st.DataObject) -> None:
    script = data.draw(asof_scripts())
    with small_limits(data):
        beside_one(script, Join(script.query(), AsofJoin()), data)


@pytest.mark.parametrize("streams", [2, 3])
@few
@given(data=st.data(), every=st.sampled_from([None, 4]))
def test_several_streams(streams: int, every: int | None, data: st.DataObject) -> None:
    per_key = all_windows().map(lambda w: replace(w, per_key=True) if isinstance(w, RowsWindow) else w)
    script = data.draw(scripts(how=st.just("inner"), window=per_key, streams=streams))
    with small_limits(data):
        beside_one(script, plan(script.query(), "general_lazy", every=every), data)


@few
@given(data=st.data())
def test_window_oblivious(data: st.DataObject) -> None:
    """With true factors nothing is lost, however often measuring begins again."""
    streams = [data.draw(ascending()) for _ in range(3)]
    join = Join(epochs(3), WOJoin("sound", [factor(keys) for keys in streams]))
    sharded, found, at = Sharded(join, data.draw(st.integers(1, 3))), [], [0, 0, 0]
    arrivals = [[batch(i, some, first=0) for i, some in enumerate(keys)] for keys in data.draw(cuts(streams))]
    for keys in arrivals:
        moved = []
        for i, b in enumerate(keys):
            n = b.rows.num_rows
            values = b.rows.column(1).to_pylist()
            moved.append(batch(i, values, first=at[i]))
            at[i] += n
        found += sharded.step(sharded.part(moved))
        maybe_rescale(data, sharded)
    found += sharded.step(sharded.part([batch(i, [], ended=True) for i in range(3)]))
    assert bag(found) == bag(whole_join(streams))


@pytest.mark.parametrize("by", naive_groups.BY)
@few
@given(
    feed=naive_groups.feeds(nulls=True),
    w=naive_groups.windows(),
    how=st.sampled_from(["inner", "left", "full"]),
    data=st.data(),
)
def test_groups(by: str, feed: naive_groups.Feed, w: Any, how: str, data: st.DataObject) -> None:
    """Ends are left out: where one stream has ended, a shard that holds nothing of it is through before the others."""
    punctuations = [[[p for p in some if p.pattern != End()] for some in stream] for stream in feed.punctuations]
    feed = replace(feed, punctuations=punctuations)
    q = naive_groups.query(naive_groups.BY[by], w, how, data.draw(st.sampled_from(["final", "update"])))
    join = GroupedJoin(Join(q.join, PWJoin()), q)
    with small_limits(data):
        alone, store, header = join.start(), log.MemoryStore(), log.begin(q)
        sharded = Sharded(join, data.draw(st.integers(1, 3)))
        for n in range(len(feed)):
            batches = feed.batches(n)
            wanted = [row for table in alone.step(batches) for row in rows_of(table)]
            header = log.commit(alone, header, store)
            assert bag(sharded.step(sharded.part(batches))) == bag(wanted)
            for running, head, mine in zip(sharded.running, sharded.headers, sharded.stores, strict=True):
                again = reopen(head, mine)
                assert isinstance(again, RunningGroupedJoin)
                assert naive_groups.bag(naive_groups.open_groups(again)) == naive_groups.bag(
                    naive_groups.open_groups(running)
                )
            maybe_rescale(data, sharded)
            opened = [g for running in sharded.running for g in naive_groups.open_groups(running)]
            assert naive_groups.bag(opened) == naive_groups.bag(naive_groups.open_groups(alone))


@few
@given(feed=naive_groups.feeds(nulls=True), w=naive_groups.windows(), data=st.data())
def test_groups_behind_a_shuffle(feed: naive_groups.Feed, w: Any, data: st.DataObject) -> None:
    q = naive_groups.query(("s", Bucket("b_ts", 7, "from")), w, "left")
    plain, fold = PWJoin().start(q.join), Fold(q)
    alone, store, header = GroupsOf(q, 1).start(), log.MemoryStore(), log.begin(q)
    sharded = Sharded(GroupsOf(q, 2), 2)
    for n in range(len(feed)):
        partials = [fold.partials(t) for t in plain.step(feed.batches(n))]
        rows = pa.concat_tables(partials).combine_chunks().to_batches() if partials else []
        rows = rows[0] if rows else no_rows(fold.schema)
        watermarks = tuple(plain.watermarks)
        wanted = [r for t in alone.step([Partials(rows, watermarks=((0, watermarks),))]) for r in rows_of(t)]
        header = log.commit(alone, header, store)
        parts = split(rows, lambda: keys_of([rows.column(c) for c in fold.by]).words, len(sharded.ids))  # noqa: B023
        found = tuple((id, watermarks) for id in sharded.ids)
        assert bag(sharded.step([[Partials(part, watermarks=found)] for part in parts])) == bag(wanted)
        shards = data.draw(st.sampled_from([1, 2, 3]))
        sharded.join = GroupsOf(q, shards)
        sharded.rescale(shards)
        assert all(kind_of(h) == "groups" for h in sharded.headers)
        opened = [g for running in sharded.running for g in naive_groups.open_groups(running)]
        assert naive_groups.bag(opened) == naive_groups.bag(naive_groups.open_groups(alone))


# ---------------------------------------------------------------- refusals


def two(window: Any) -> JoinQuery:
    schema = pa.schema([("k", pa.int64()), ("a_ts", pa.int64())])
    other = pa.schema([("k", pa.int64()), ("b_ts", pa.int64())])
    return JoinQuery((StreamSpec("a", schema, "a_ts", ("k",), window), StreamSpec("b", other, "b_ts", ("k",), window)))


def started(query: JoinQuery, shards: int = 2, algorithm: str = "general_lazy") -> Sharded:
    sharded = Sharded(plan(query, algorithm), shards)
    rows = [pa.record_batch([[1, 2, 3], [5, 6, 7]], schema=s.schema) for s in query.streams]
    sharded.step(sharded.part([Batch.of(r, s.time) for r, s in zip(rows, query.streams, strict=True)]))
    return sharded


def test_rows_of_a_whole_stream_are_counted_in_one_shard() -> None:
    sharded = started(two(RowsWindow(2)), 1)
    with pytest.raises(StateMismatchError, match="one shard only"):
        sharded.rescale(2)
    sharded.rescale(1)


def test_shards_of_different_batches_do_not_go_together() -> None:
    sharded = started(two(TimeWindow(10)))
    sharded.headers[1].watermarks = [0, 0]
    sharded.stores[1].write_header(sharded.headers[1].pack())
    with pytest.raises(StateCorruptError, match="not of one batch"):
        sharded.rescale(3)


def test_a_lost_segment_is_named() -> None:
    sharded = started(two(TimeWindow(10)))
    for store in sharded.stores:
        store.segments.clear()
    with pytest.raises(StateCorruptError, match="missing"):
        sharded.rescale(3)


def test_a_header_of_another_time_is_refused_by_name() -> None:
    sharded = started(two(TimeWindow(10)), algorithm="hash")
    header = sharded.headers[0]
    header.query = {"streams": [{"name": "a"}], "how": "inner"}
    with pytest.raises(StateFormatError, match="describes a query"):
        reopen(header, sharded.stores[0])


def test_tuples_held_back_are_not_divided() -> None:
    sharded = Sharded(Join(epochs(2), WOJoin("sound", [0, 0], strategy="msf")), 2)
    sharded.step(sharded.part([batch(0, [1, 2]), batch(1, [1])]))
    with pytest.raises(StateMismatchError, match=r'holds tuples back .strategy "msf"'):
        sharded.rescale(3)
