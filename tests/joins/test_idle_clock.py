"""Streams that follow the clock when they are silent, against the rules, and over restarts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.scripts import Comparison, Script, asof_scripts, follow, scripts
from lab.joins.theta_scripts import CONDITIONS, INDEXABLE, ThetaComparison, ThetaScript, started, theta_scripts
from watersmeet.errors import WindowError
from watersmeet.joins import plan
from watersmeet.joins.asof_join import AsofJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.asof import DIRECTIONS, AsOf
from watersmeet.model.queries import HOW
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.state.durable import log

some = settings(max_examples=max(20, settings().max_examples // 3))
QUIET = Elements()


def scene(*batches: tuple[Elements, Elements], clocks: tuple[int, ...], delay: int = 0) -> Script:
    """A left join with windows of 5; the right stream follows the clock after 10."""
    windows = (TimeWindow(5), TimeWindow(5))
    about = {"idle_clock": (None, 10), "clocks": clocks}
    return Script("int64", "left", windows, (0, delay), ((), ()), batches, **about)


@pytest.mark.parametrize("how", HOW)
@some
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it(how: str, data: st.DataObject) -> None:
    follow(data.draw(scripts(how=st.just(how), clocked=True)))


@some
@given(script=scripts(how=st.just("inner"), streams=3, clocked=True))
def test_several_streams_follow_the_clock(script: Script) -> None:
    follow(script, plan(script.query(), "general_lazy").start())


@some
@given(script=scripts(batches=7, rows=3, clocked=True), data=st.data())
def test_a_restart_between_batches_changes_nothing(script: Script, data: st.DataObject) -> None:
    comparison, join = Comparison(script), PWJoin().start(script.query())
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(len(script.batches)):
        comparison.step(join, n)
        log.commit(join, header, store)
        assert store.header is not None
        header = log.Header.unpack(store.header)
        if data.draw(st.booleans(), label="restart"):
            join = PWJoin().start(script.query())
            log.rebuild(join, header, store)


@pytest.mark.parametrize("direction", DIRECTIONS)
@some
@given(data=st.data())
def test_as_of_answers_follow_the_clock(direction: str, data: st.DataObject) -> None:
    follow(data.draw(asof_scripts(direction, clocked=True)))


@some
@given(script=asof_scripts(batches=7, rows=3, clocked=True), data=st.data())
def test_a_restart_of_an_as_of_join_changes_nothing(script: Script, data: st.DataObject) -> None:
    comparison, join = Comparison(script), AsofJoin().start(script.query())
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(len(script.batches)):
        comparison.step(join, n)
        header = log.commit(join, header, store)
        if data.draw(st.booleans(), label="restart"):
            join = AsofJoin().start(script.query())
            log.rebuild(join, header, store)


@pytest.mark.parametrize(("algorithm", "conditions"), [("theta", CONDITIONS), ("band", INDEXABLE)])
@some
@given(data=st.data())
def test_joins_without_equality_follow_the_clock_in_all_shards(
    algorithm: str, conditions: list[Any], data: st.DataObject
) -> None:
    script: ThetaScript = data.draw(theta_scripts(conditions, clocked=True))
    shards = data.draw(st.integers(1, 4))
    joins = [started(script, algorithm, shard, shards) for shard in range(shards)]
    stores, headers = [log.MemoryStore() for _ in joins], [log.begin(script.query()) for _ in joins]
    comparison = ThetaComparison(script)
    for n in range(len(script.batches)):
        outcome = comparison.step(joins, n)
        headers = [log.commit(*both) for both in zip(joins, headers, stores, strict=True)]
        if data.draw(st.booleans(), label="restart"):
            joins = [started(script, algorithm, shard, shards) for shard in range(shards)]
            for join, header, store in zip(joins, headers, stores, strict=True):
                log.rebuild(join, header, store)
            comparison.check_state(joins, outcome)


def test_an_answer_comes_when_the_clock_has_passed_its_row() -> None:
    asks, tells = Elements((Tuple(100, (1,), 0),)), Elements((Tuple(99, (1,), 0),))
    batches = ((asks, tells), *[(QUIET, QUIET)] * 3)
    windows = (Unbounded(), Unbounded())
    about = {"idle_clock": (None, 10), "clocks": (100, 109, 110, 111), "asof": AsOf()}
    script = Script("int64", "left", windows, (0, 0), ((), ()), batches, **about)
    join, out, watermarks = AsofJoin().start(script.query()), [], []
    for n in range(4):
        out.append(sum(t.num_rows for t in join.step([script.batch(n, i) for i in (0, 1)])))
        watermarks.append(join.watermarks[1])
        join.arrivals = []
    assert watermarks == [99, 99, 100, 101], "silent since 100: the clock of 110 less 10"
    assert out == [0, 0, 0, 1], "at 110 a later version of the same instant may still come"


def test_an_unmatched_row_leaves_when_the_clock_has_passed_its_window() -> None:
    row = Elements((Tuple(100, (1,), 0),))
    beside = Elements((Tuple(100, (2,), 0),))
    # silent since 100: at 110 the watermark is 100, at 115 it is 105, at 116 it is past 100 + 5
    script = scene((row, beside), (QUIET, QUIET), (QUIET, QUIET), (QUIET, QUIET), clocks=(100, 110, 115, 116))
    join = PWJoin().start(script.query())
    watermarks, held, out = [], [], []
    for n in range(4):
        tables = list(join.step([script.batch(n, i) for i in (0, 1)]))
        out.append(sum(t.num_rows for t in tables))
        watermarks.append(join.watermarks[1])
        held.append(len(join.streams[0]))
        join.arrivals = []
    assert watermarks == [100, 100, 105, 106]
    assert held == [1, 1, 1, 0]
    assert out == [0, 0, 0, 1], "the null-padded row"


def test_a_row_within_the_time_stops_the_clock() -> None:
    beside = Elements((Tuple(100, (2,), 0),))
    later = Elements((Tuple(101, (2,), 1),))
    script = scene((QUIET, beside), (QUIET, later), (QUIET, QUIET), clocks=(100, 109, 118), delay=3)
    join = PWJoin().start(script.query())
    for n in range(3):
        list(join.step([script.batch(n, i) for i in (0, 1)]))
        join.arrivals = []
    assert join.watermarks[1] == 101 - 3, "something came at 109, so at 118 the stream is not silent yet"
    quiet = [replace(script.batch(2, i), clock=119) for i in (0, 1)]
    list(join.step(quiet))
    assert join.watermarks[1] == 119 - 10 - 3
    assert join.counters.idle == 1


def test_a_clock_that_stands_still_is_refused() -> None:
    spec = scene((QUIET, QUIET), clocks=(0,)).spec(1)
    with pytest.raises(WindowError) as wrong:
        replace(spec, idle_clock=0)
    assert str(wrong.value) == (
        "`idle_clock` of stream `b` is 0 seconds; every stream is silent for a moment.\n"
        "Hint: give a time in which the stream would certainly have shown something, or leave it out."
    )
