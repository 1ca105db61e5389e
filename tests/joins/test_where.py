"""Joins with a predicate across the streams: only pairs that fulfil it count, for every kind of join."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.configurations import OPERATORS, Operator
from lab.joins.oracle import Row, bag, canonical, step
from lab.joins.scripts import WHERE, Comparison, Script, follow, scripts
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.queries import HOW, columns_of
from watersmeet.model.windows import TimeWindow
from watersmeet.query.predicate_parser import parse
from watersmeet.state.durable import log

few = settings(max_examples=max(10, settings().max_examples // 5))
SQL = {
    "inner": "SELECT a.k0, a_ts, a_n, b_ts, b_n FROM a JOIN b ON {on}",
    "left": "SELECT a.k0, a_ts, a_n, b_ts, b_n FROM a LEFT JOIN b ON {on}",
    "right": "SELECT b.j0, a_ts, a_n, b_ts, b_n FROM a RIGHT JOIN b ON {on}",
    "full": "SELECT coalesce(a.k0, b.j0), a_ts, a_n, b_ts, b_n FROM a FULL JOIN b ON {on}",
    "semi": "SELECT k0, a_ts, a_n FROM a WHERE EXISTS (SELECT 1 FROM b WHERE {on})",
    "anti": "SELECT k0, a_ts, a_n FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {on})",
}


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data(), where=st.sampled_from(sorted(WHERE)))
def test_every_batch_is_what_the_rules_make_of_it(how: str, data: st.DataObject, where: str) -> None:
    follow(replace(data.draw(scripts(how=st.just(how))), where=where))


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data(), where=st.sampled_from(sorted(WHERE)))
def test_a_restart_between_all_batches_changes_nothing(how: str, data: st.DataObject, where: str) -> None:
    script = replace(data.draw(scripts(how=st.just(how), batches=6, rows=4)), where=where)
    comparison, join = Comparison(script), PWJoin().start(script.query())
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(len(script.batches)):
        comparison.step(join, n)
        header = log.commit(join, header, store)
        join = PWJoin().start(script.query())
        log.rebuild(join, header, store)
        for i in (0, 1):
            comparison.check_state(join, i)


@pytest.mark.parametrize("operator", [o for o in OPERATORS if o.name not in ("pjoin", "wo_join", "asof")], ids=str)
@few
@given(script=scripts(st.just("int64"), st.just("inner"), punctuated=False), where=st.sampled_from(sorted(WHERE)))
def test_every_operator_asks_the_predicate(operator: Operator, script: Script, where: str) -> None:
    quiet = tuple(
        (replace(a, punctuations=(), ended=False), replace(b, punctuations=(), ended=False)) for a, b in script.batches
    )
    script = replace(script, batches=quiet, where=where)
    comparison, join = Comparison(script), operator(script.query()).start()
    for n, arrivals in enumerate(quiet):
        found = step(join, [script.batch(n, i) for i in (0, 1)])  # type: ignore[arg-type]  # a join of any kind
        assert bag(found) == bag([comparison.combination(c) for c in comparison.rules.step(arrivals).pairs])
        assert join.counters.results == len(found)


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data(), where=st.sampled_from(sorted(WHERE)))
def test_a_batch_join_in_sql_gives_the_same(how: str, data: st.DataObject, where: str) -> None:
    windows = st.integers(0, 12).map(TimeWindow)
    made = data.draw(scripts(st.just("int64"), st.just(how), window=windows, punctuated=False))
    whole = tuple(
        Elements(tuple(t for pair in made.batches for t in pair[i].tuples if t.ts is not None)) for i in (0, 1)
    )
    script = replace(made, batches=((replace(whole[0], ended=True), replace(whole[1], ended=True)),), where=where)
    found = step(PWJoin().start(script.query()), [script.batch(0, i) for i in (0, 1)])
    assert bag(found) == in_sql(script)


def in_sql(script: Script) -> Counter[Row]:
    a, b = (w.length for w in script.windows if isinstance(w, TimeWindow))
    on = f"a.k0 = b.j0 AND a_ts >= b_ts - {a} AND b_ts >= a_ts - {b} AND ({script.where})"
    with duckdb.connect(config={"threads": 1}) as database:
        for i in (0, 1):
            database.register("ab"[i], script.batch(0, i).rows)
        rows = database.execute(SQL[script.how].format(on=on)).fetchall()
    return bag([tuple(map(canonical, row)) for row in rows])


def test_a_state_belongs_to_its_predicate() -> None:
    script = Script("int64", "left", (TimeWindow(1), TimeWindow(1)), (0, 0), ((), ()), (), where="b_n > 4")
    queries = [replace(script, where=where).query() for where in (None, "b_n > 4", "b_n  >4", "b_n > 5")]
    digests = [q.digest() for q in queries]
    assert digests[1] == digests[2], "spaces mean nothing"
    assert len(set(digests)) == 3


def test_a_condition_on_one_stream_is_decided_on_arrival() -> None:
    """A row that fails its own condition is unmatched at once, and neither it nor a failing partner is stored."""
    tuples = [tuple(Tuple(10, (k,), n) for n, k in enumerate((0, 1, 0, 1))) for _ in "ab"]
    made = ((Elements(tuples[0]), Elements(tuples[1])),)
    where = "a_n % 2 = 0 AND b_n > 4 AND a_n < b_n"
    script = Script("int64", "full", (TimeWindow(100), TimeWindow(100)), (0, 0), ((), ()), made, where)
    join = PWJoin().start(script.query())
    results = step(join, [script.batch(0, i) for i in (0, 1)])
    assert sorted(row[2] for row in results if row[4] is None) == [1, 3]
    assert sorted(row[4] for row in results if row[2] is None) == [0, 1, 2, 3]
    assert [len(s) for s in join.streams] == [2, 0]


def test_a_row_without_a_partner_may_have_no_value() -> None:
    """b_n is 0 in a row that meets nothing: no error, and the row waits for a partner like any other."""
    made = ((Elements((Tuple(10, (0,), 3),)), Elements((Tuple(10, (1,), 0), Tuple(10, (0,), 2)))),)
    script = Script("int64", "inner", (TimeWindow(100), TimeWindow(100)), (0, 0), ((), ()), made)
    where = parse("6 / b_n > 2", columns_of(script.query().streams))
    join = PWJoin().start(replace(script.query(), where=where))
    assert [row[4] for row in step(join, [script.batch(0, i) for i in (0, 1)])] == [2]
    assert [len(s) for s in join.streams] == [1, 2]
