"""What becomes of the results of several streams: a predicate evaluated for each, groups that come out when final."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.multiway_scripts import ALGORITHMS, operator
from lab.joins.oracle import Row, all_windows, bag, step
from lab.joins.scripts import Script, scripts
from watersmeet.errors import StateMismatchError
from watersmeet.joins import plan
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.queries import JoinQuery, columns_of
from watersmeet.model.windows import RowsWindow, TimeWindow
from watersmeet.query.predicate_parser import parse
from watersmeet.state.durable import log

few = settings(max_examples=max(10, settings().max_examples // 4))


def three() -> st.SearchStrategy[Script]:
    return scripts(st.just("int64"), st.just("inner"), batches=5, rows=4, window=all_windows(), streams=3)


def results(join: object, script: Script, n: int) -> list[Row]:
    return step(join, [script.batch(n, i) for i in range(len(script.windows))])  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ALGORITHMS)
@few
@given(script=three())
def test_a_predicate_is_evaluated_for_every_combination(name: str, script: Script) -> None:
    query = script.query()
    join_query = JoinQuery(query.streams, where=parse("(a_n + b_n + c_n) % 2 = 0", columns_of(query.streams)))
    plain, strict = operator(name, query).start(), operator(name, join_query).start()
    for n in range(len(script.batches)):
        whole = results(plain, script, n)
        fitting = results(strict, script, n)
        assert bag(fitting) == bag([row for row in whole if (row[2] + row[4] + row[6]) % 2 == 0])
        assert strict.counters.results == len(fitting)


@pytest.mark.parametrize("every", [None, 4])
@settings(max_examples=max(30, settings().max_examples // 2))
@given(script=three(), restart=st.booleans())
def test_a_group_comes_out_once_and_nothing_changes_it_later(every: int | None, script: Script, restart: bool) -> None:
    """Also where results wait for rows to be counted, or for the next multiple of `every`."""
    query = script.query()
    times = [s.time for s in query.streams if isinstance(s.window, TimeWindow)]
    by = (Bucket(times[0], 3, "bucket"),) if times else ("k0",)
    grouped = GroupedQuery(query.streams, group_by=GroupBy(by, (("n", Aggregate("count")),)))
    plain = plan(query, "general_lazy", every=every).start()
    definition = GroupedJoin(plan(query, "general_lazy", every=every), grouped)
    join, store, header = definition.start(), log.MemoryStore(), log.begin(grouped)
    found: list[Row] = []
    out: list[Row] = []
    for n in range(len(script.batches)):
        found += results(plain, script, n)
        batches = [script.batch(n, i) for i in range(3)]
        out += [
            row for table in join.step(batches) for row in zip(*(c.to_pylist() for c in table.columns), strict=True)
        ]
        header = log.commit(join, header, store)
        if restart:
            join = definition.start()
            log.rebuild(join, header, store)
    place = query.schema.names.index(times[0]) if times else 0
    whole = Counter(row[place] // 3 * 3 if times else row[place] for row in found)
    assert len({key for key, _ in out}) == len(out), "each once"
    assert all(whole[key] == count for key, count in out), "final"


def test_a_bucket_of_a_counted_stream_does_not_end_groups() -> None:
    """Time alone never takes a tuple out of a window of rows."""
    script = Script("int64", "inner", (RowsWindow(2), TimeWindow(5), TimeWindow(5)), (0,) * 3, ((),) * 3, ())
    streams = script.query().streams
    counts = (("n", Aggregate("count")),)
    assert GroupedQuery(streams, group_by=GroupBy((Bucket("a_ts", 3, "x"),), counts)).final_bucket() is None
    assert GroupedQuery(streams, group_by=GroupBy((Bucket("b_ts", 3, "x"),), counts)).final_bucket() == (0, 1)


def test_a_group_waits_for_results_that_wait() -> None:
    """Buckets of 12, windows of 5, results every 10: at watermark 17 no tuple can join a's bucket [0, 12) any more, but
    the result of time 12 comes at 20."""

    def at(*times: int | None) -> tuple[Elements, ...]:
        return tuple(Elements((Tuple(t, (1,), n),) if t is not None else ()) for n, t in enumerate(times))

    batches = (at(9, 9, 9), at(None, None, 12), at(17, 17, 17), at(20, 20, 20))
    script = Script("int64", "inner", (TimeWindow(5),) * 3, (0,) * 3, ((),) * 3, batches)
    query = script.query()
    by_bucket = GroupBy((Bucket("a_ts", 12, "bucket"),), (("n", Aggregate("count")),))
    join = GroupedJoin(plan(query, "general_lazy", every=10), GroupedQuery(query.streams, group_by=by_bucket)).start()
    out, store, header = [], log.MemoryStore(), log.begin(query)
    for n in range(len(batches)):
        tables = list(join.step([script.batch(n, i) for i in range(3)]))
        header = log.commit(join, header, store)
        out.append([row for table in tables for row in table.to_pylist()])
    assert out == [[], [], [], [{"bucket": 0, "n": 2}]]


@pytest.mark.parametrize(("before", "after"), [(10, None), (None, 10), (10, 20)])
def test_how_long_results_wait_is_fixed_for_the_life_of_a_state(before: int | None, after: int | None) -> None:
    arrivals = tuple(Elements((Tuple(9, (1,), n),)) for n in range(3))
    script = Script("int64", "inner", (TimeWindow(5),) * 3, (0,) * 3, ((),) * 3, (arrivals,))
    query, store = script.query(), log.MemoryStore()
    join = plan(query, "lazy", every=before).start()
    results(join, script, 0)
    header = log.commit(join, log.begin(query), store)
    same = plan(query, "lazy", every=before).start()
    log.rebuild(same, header, store)
    assert len(same.pending[0]) == 1 if before else not same.pending
    was, now = (f"{every} microseconds" if every else "none" for every in (before, after))
    with pytest.raises(StateMismatchError, match=f"`every` = {was}, this one has {now}"):
        log.rebuild(plan(query, "lazy", every=after).start(), header, store)
