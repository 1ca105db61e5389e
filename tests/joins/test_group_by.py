"""Groups over a join: the same as a naive group-by over its results, final exactly when nothing can change them."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.naive_groups import (
    BY,
    Feed,
    NaiveGroups,
    Row,
    bag,
    feeds,
    groups_of,
    open_groups,
    query,
    rebuilt,
    rows_of,
    some_aggregates,
    windows,
)
from watersmeet.joins import Join
from watersmeet.joins.group_by.aggregates import Fold
from watersmeet.joins.group_by.operator import GroupedJoin, GroupsOf, Partials
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple, window_join
from watersmeet.model.batches import AFTER_ALL, Batch, no_rows
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.state import stream_state
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log, parts


@pytest.mark.parametrize("by", BY)
@settings(max_examples=settings().max_examples // 3)  # of each grouping
@given(feed=feeds(nulls=True), w=windows(), how=st.sampled_from(["inner", "left", "right", "full"]), data=st.data())
def test_groups_are_those_of_a_naive_group_by(by: str, feed: Feed, w: Any, how: str, data: st.DataObject) -> None:
    q = query(BY[by], w, how, data.draw(st.sampled_from(["final", "update"])), data.draw(some_aggregates()))
    join, plain, expected = GroupedJoin(Join(q.join, PWJoin()), q), PWJoin().start(q.join), NaiveGroups(q)
    running, store, header = join.start(), log.MemoryStore(), log.begin(q)
    results: list[Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "MOST_PIECES", data.draw(st.sampled_from([1, 2, 32])))
        patch.setattr(stream_state, "MAX_SMALL_SEGMENTS", data.draw(st.sampled_from([1, 64])))
        for n in range(len(feed)):
            arrivals = rows_of(list(plain.step(feed.batches(n))))
            results += arrivals
            ended = plain.output_watermark() >= AFTER_ALL
            out = groups_of(list(running.step(feed.batches(n))), q)
            assert bag(out) == bag(expected.step(arrivals, plain, plain.watermarks, ended))
            assert bag(open_groups(running)) == bag([expected.read(g) for g in expected.open])
            assert running.counters.open_groups == len(expected.open)
            behind, token = rebuilt(join, header, store), header.token
            header = log.commit(running, header, store)
            again = rebuilt(join, header, store)
            assert bag(open_groups(again)) == bag(open_groups(running))
            if log.catch_up(behind, token, header, store):
                assert bag(open_groups(behind)) == bag(open_groups(running))
                again = behind if data.draw(st.booleans(), label="go on from the one that caught up") else again
            running = again if data.draw(st.booleans(), label="restart") else running
    if how == "inner":
        assert bag(results) == bag(reference(feed, q))


def reference(feed: Feed, q: GroupedQuery) -> list[Row]:
    sides = [[Tuple(r[1], (r[0],), r) for batch in rows for r in batch] for rows in feed.rows]
    return [(*a.row, *b.row[1:]) for a, b in window_join(sides, [s.window for s in q.streams])]


@settings(max_examples=settings().max_examples // 4)  # files are slow
@given(feed=feeds(), w=windows())
def test_mapped_working_states_change_nothing(feed: Feed, w: Any) -> None:
    q = query(BY["key and bucket"], w)
    join, plain, expected = GroupedJoin(Join(q.join, PWJoin()), q), PWJoin().start(q.join), NaiveGroups(q)
    store, header = log.MemoryStore(), log.begin(q)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in range(len(feed)):
            running = join.start(MappedArrays(folder))
            if n:
                assert cache.complete(folder)
                assert cache.load(running, folder)
            out = groups_of(list(running.step(feed.batches(n))), q)
            arrivals = rows_of(list(plain.step(feed.batches(n))))
            ended = plain.output_watermark() >= AFTER_ALL
            assert bag(out) == bag(expected.step(arrivals, plain, plain.watermarks, ended))
            header = log.commit(running, header, store)
            cache.save(running, folder)


@settings(max_examples=settings().max_examples // 2)
@given(feed=feeds(nulls=True), w=windows(), data=st.data())
def test_groups_behind_a_shuffle(feed: Feed, w: Any, data: st.DataObject) -> None:
    """Results come from two shards of a join; the punctuations of both count."""
    emit = data.draw(st.sampled_from(["final", "update"]))
    q = query(
        data.draw(st.sampled_from([("s", Bucket("b_ts", 7, "from")), ("i", "s")])),
        w,
        "left",
        emit,
        data.draw(some_aggregates()),
    )
    plain, expected, fold = PWJoin().start(q.join), NaiveGroups(q), Fold(q)
    running, store, header = GroupsOf(q, 2).start(), log.MemoryStore(), log.begin(q)
    found: dict[int, Sequence[int]] = {}
    for n in range(len(feed)):
        tables = list(plain.step(feed.batches(n)))
        partials = [fold.partials(t) for t in tables]
        rows = pa.concat_tables(partials).combine_chunks().to_batches() if partials else []
        silent = data.draw(st.sampled_from([None, 0, 1]))
        spoke = {shard: tuple(plain.watermarks) for shard in (0, 1) if shard != silent}
        found |= spoke
        watermarks = [min(p) for p in zip(*found.values(), strict=True)] if len(found) == 2 else running.watermarks
        ended = min(watermarks) >= AFTER_ALL
        batch = Partials(rows[0] if rows else no_rows(fold.schema), watermarks=tuple(spoke.items()))
        out = groups_of(list(running.step([batch])), q)
        assert bag(out) == bag(expected.step(rows_of(tables), None, watermarks, ended))
        assert bag(open_groups(running)) == bag([expected.read(g) for g in expected.open])
        header = log.commit(running, header, store)
        if data.draw(st.booleans(), label="restart"):
            running = GroupsOf(q, 2).start()
            log.rebuild(running, header, store)


def test_an_event_time_that_is_the_key_may_have_another_name_in_each_stream() -> None:
    specs = [
        StreamSpec(s, pa.schema([(f"{s}_ts", pa.int64()), (s, pa.int64())]), f"{s}_ts", (f"{s}_ts",), TimeWindow(5))
        for s in "ab"
    ]
    aggregates = (("first", Aggregate("first", "b")), ("n", Aggregate("count")))
    query = GroupedQuery(tuple(specs), group_by=GroupBy((Bucket("a_ts", 10, "from"),), aggregates, "update"))
    join = GroupedJoin(Join(query.join, PWJoin()), query).start()
    rows = [pa.record_batch([[1, 2], [10 * n, 10 * n + 1]], schema=s.schema) for n, s in enumerate(specs)]
    found = pa.concat_tables(join.step([Batch.of(r, s.time) for r, s in zip(rows, specs, strict=True)]))
    assert found.to_pylist() == [{"from": 0, "first": 10, "n": 2}]
