"""Interval joins: bounds of all signs, open or closed, against the definition, the rules and DuckDB."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.configurations import Operator
from lab.joins.limits import LIMITS, small
from lab.joins.oracle import (
    Scenario,
    bag,
    duckdb_join,
    expected,
    expected_state,
    intervals,
    recut,
    scenarios,
    step,
    stored,
)
from lab.joins.scripts import WHERE, Comparison, Script, follow, scripts
from watersmeet.checkpoints.reopen import query_of
from watersmeet.errors import QueryError, StateMismatchError, WindowError
from watersmeet.joins import REGISTRY, plan
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import Punctuation, Value
from watersmeet.model.queries import HOW, JoinQuery
from watersmeet.model.windows import CLOSED, Interval, format_window
from watersmeet.state.durable import log

ON_A_KEY = {name: kind for name, kind in REGISTRY.items() if not kind.traits.theta and name != "asof"}
KNOWING = [name for name, kind in ON_A_KEY.items() if "interval" in kind.traits.windows]
OPERATORS = [Operator(name, {"buckets": 3} if name == "windowed_hash" else {}) for name in KNOWING]
EXACT = [operator for operator in OPERATORS if operator.name != "windowed_hash"]
few = settings(max_examples=max(10, settings().max_examples // 5))


def script(*batches: tuple[tuple[tuple[int, ...], ...], ...], how: str = "inner", between: Interval) -> Script:
    """Streams of (time, key), batch by batch; numbers count a stream's tuples."""
    numbers = iter(range(1 << 30))
    made = [tuple(Elements(tuple(Tuple(t, (k,), next(numbers)) for t, k in side)) for side in b) for b in batches]
    return Script("int64", how, (between, between.mirrored), (0, 0), ((), ()), tuple(made))


# ---------------------------------------------------------------- results and state


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@given(scenario=scenarios(), windows=intervals())
def test_results_are_those_of_the_definition(
    operator: Operator, scenario: Scenario, windows: tuple[Interval, Interval]
) -> None:
    scenario = scenario.with_windows(windows)
    join, wanted = operator.start(scenario), expected(scenario)
    states = [expected_state(scenario, i) for i in (0, 1)]
    for n in range(len(scenario)):
        assert bag(step(join, scenario.batches(n))) == bag(wanted[n])
        for i in (0, 1):
            if operator in EXACT:
                assert bag(stored(join, i)) == bag(states[i][n])


@few
@given(scenarios(), intervals())
def test_the_definition_is_duckdbs(scenario: Scenario, windows: tuple[Interval, Interval]) -> None:
    scenario = scenario.with_windows(windows)
    assert bag([row for batch in expected(scenario) for row in batch]) == bag(duckdb_join(scenario))


@pytest.mark.parametrize("operator", OPERATORS, ids=str)
@few
@given(both=recut(), windows=intervals())
def test_the_cut_into_batches_changes_nothing(
    operator: Operator, both: tuple[Scenario, Scenario], windows: tuple[Interval, Interval]
) -> None:
    one, other = ([r for batch in operator.run(s.with_windows(windows)) for r in batch] for s in both)
    assert bag(one) == bag(other)


@pytest.mark.parametrize("how", HOW)
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it(how: str, data: st.DataObject) -> None:
    follow(data.draw(scripts(how=st.just(how), windows_of_all=intervals())))


@pytest.mark.parametrize("name", LIMITS)
@few
@given(drawn=scripts(batches=7, rows=4, windows_of_all=intervals()), data=st.data())
def test_a_restart_between_batches_changes_nothing(name: str, drawn: Script, data: st.DataObject) -> None:
    with small(name):
        comparison, join = Comparison(drawn), PWJoin().start(drawn.query())
        store, header = log.MemoryStore(), log.begin(drawn.query())
        for n in range(len(drawn.batches)):
            comparison.step(join, n)
            header = log.commit(join, header, store)
            if data.draw(st.booleans(), label="restart"):
                join = PWJoin().start(drawn.query())
                log.rebuild(join, header, store)
                for i in (0, 1):
                    comparison.check_state(join, i)


# ---------------------------------------------------------------- by hand


def test_what_is_kept_follows_from_the_bounds() -> None:
    """b one to two hours after a: a is kept for two hours; b only while a may come more than an hour behind."""
    between = Interval.between(60, 120)
    join = plan(script(between=between).query(), "pwjoin").start()
    both = script((((0, 1), (50, 1)), ((0, 1), (70, 1), (120, 1))), between=between)
    results = step(join, [both.batch(0, i) for i in (0, 1)])
    assert sorted((row[1], row[3]) for row in results) == [(0, 70), (0, 120), (50, 120)]
    assert [row[0] for row in stored(join, 0)] == [0, 50]  # until b is past 120 and 170
    assert [row[0] for row in stored(join, 1)] == [120]  # a is at 50: what is older than 110 has no partner to come


def test_a_row_beyond_its_partners_is_probed_and_never_stored() -> None:
    """b is 10 to 20 before a: once b is past a's partners, a is joined, and no state is kept for it."""
    between = Interval.between(-20, -10)
    lives = script(((), ((80, 1), (100, 1))), (((95, 1), (105, 1)), ()), how="left", between=between)
    comparison, join = Comparison(lives), PWJoin().start(lives.query())
    comparison.step(join, 0)
    assert len(join.streams[1]) == 2
    comparison.step(join, 1)  # (95, 80) is a result, and the row at 105 unmatched at once: b is past 95
    assert (len(join.streams[0]), len(join.streams[1])) == (0, 1)
    assert join.counters.results == 2


@pytest.mark.parametrize("closed", CLOSED)
def test_each_end_is_open_or_closed(closed: str) -> None:
    between = Interval.between(5, 10, closed)
    one = script((((0, 1),), tuple((t, 1) for t in range(4, 12))), between=between)
    (found,) = [[row[3] for row in step(PWJoin().start(one.query()), [one.batch(0, i) for i in (0, 1)])]]
    first, last = 5 + (closed in ("right", "neither")), 10 - (closed in ("left", "neither"))
    assert sorted(found) == list(range(first, last + 1))


def test_a_punctuation_purges_before_the_bounds_do() -> None:
    between = Interval.between(60, 120)
    made = (
        (Elements((Tuple(0, (1,), 0), Tuple(1, (2,), 1))), Elements((Tuple(0, (3,), 0),))),
        (Elements(), Elements((), (Punctuation(Value((1,)), 1),))),
    )
    closing = Script("int64", "left", (between, between.mirrored), (0, 0), ((), ()), made)
    comparison, join = Comparison(closing), PWJoin().start(closing.query())
    comparison.step(join, 0)
    comparison.step(join, 1)
    assert [row[1] for row in stored(join, 0)] == [2]
    assert join.counters.purged == 1


@few
@given(drawn=scripts(st.just("int64"), windows_of_all=intervals()), where=st.sampled_from(sorted(WHERE)))
def test_a_condition_holds_as_well(drawn: Script, where: str) -> None:
    follow(replace(drawn, where=where))


# ---------------------------------------------------------------- the definition, and what is refused


def test_the_state_is_opened_without_its_program() -> None:
    between = Interval.between(-7, 9, "right")
    query = script(between=between).query()
    header = log.begin(query)
    assert query_of(header) == query
    other = script(between=Interval.between(-7, 9)).query()
    with pytest.raises(StateMismatchError, match=r"\[0\].interval.lower was -6 microseconds, is -7 micro"):
        header.check(other, 0, 1)


def test_algorithms_without_bounds_refuse_them_by_name() -> None:
    query = script(between=Interval(0, 1)).query()
    for name in ON_A_KEY:
        if name in KNOWING:
            continue
        options = {"every": "1 second"} if name == "lazy" else {}
        with pytest.raises(WindowError) as caught:
            plan(query, name, **options)
        assert str(caught.value) == (
            f"`{name}` does not know bounds between two streams (`between`).\n"
            'Hint: use algorithm="hash", "pwjoin" or "nested_loop".'
        )


def test_bounds_that_hold_nothing_are_refused() -> None:
    with pytest.raises(WindowError) as caught:
        Interval.between(2_000_000, -1_000_000)
    assert str(caught.value) == (
        "`between` is (2 seconds, -1 second); the lower bound is above the upper one, so no pair would be inside.\n"
        'Hint: between=("-1 second", "2 seconds").'
    )
    with pytest.raises(WindowError) as caught:
        Interval.between(0, 1, "neither")
    assert str(caught.value) == (
        '`between` is (0 seconds, 1 microsecond) and `closed` is "neither"; no time is inside.\n'
        'Hint: use closed="both", or bounds further apart.'
    )


def test_an_interval_is_of_two_streams() -> None:
    specs = script(between=Interval(0, 1)).query().streams
    schema = pa.schema([("c_ts", pa.int64()), ("l0", pa.int64())])
    third = replace(specs[1], name="c", schema=schema, time="c_ts", key=("l0",))
    with pytest.raises(QueryError) as caught:
        JoinQuery((*specs, third))
    assert str(caught.value) == (
        "`between` bounds the times of two streams; 3 given.\n"
        "Hint: join two of them first, and the result with the next (`as_stream`), or give the streams windows."
    )


def test_the_text_of_an_interval_has_both_signs() -> None:
    assert format_window(Interval(-3_600_000_000, 5_000_000)) == "partners from - 1 hour to + 5 seconds"
