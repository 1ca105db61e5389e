"""Joins with a predicate across the streams: only pairs that fulfil it count, for every kind of join."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.joins.operators import OPERATORS, Operator
from tests.joins.scripts import WHERE, Comparison, Script, scripts
from tests.joins.test_pwjoin import follow
from tests.oracle import Row, bag, canonical, step
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference_rules import News
from watersmeet.model.queries import HOW
from watersmeet.model.windows import TimeWindow
from watersmeet.state import log

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
    comparison, join = Comparison(script), PWJoin(script.query()).start()
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(len(script.batches)):
        comparison.step(join, n)
        header = log.commit(join, header, store)
        join = PWJoin(script.query()).start()
        log.rebuild(join, header, store)
        for i in (0, 1):
            comparison.check_state(join, i)


@pytest.mark.parametrize("operator", [o for o in OPERATORS if o.name not in ("pjoin", "wo_join")], ids=str)
@few
@given(script=scripts(st.just("int64"), st.just("inner"), promising=False), where=st.sampled_from(sorted(WHERE)))
def test_every_operator_asks_the_predicate(operator: Operator, script: Script, where: str) -> None:
    quiet = tuple((replace(a, said=(), ended=False), replace(b, said=(), ended=False)) for a, b in script.batches)
    script = replace(script, batches=quiet, where=where)
    comparison, join = Comparison(script), operator(script.query()).start()
    for n, news in enumerate(quiet):
        found = step(join, [script.batch(n, i) for i in (0, 1)])  # type: ignore[arg-type]  # a join of any kind
        assert bag(found) == bag([comparison.combination(c) for c in comparison.rules.step(news).pairs])
        assert join.counters.results == len(found)


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data(), where=st.sampled_from(sorted(WHERE)))
def test_a_batch_join_in_sql_gives_the_same(how: str, data: st.DataObject, where: str) -> None:
    windows = st.integers(0, 12).map(TimeWindow)
    made = data.draw(scripts(st.just("int64"), st.just(how), window=windows, promising=False))
    whole = tuple(News(tuple(t for pair in made.batches for t in pair[i].tuples if t.ts is not None)) for i in (0, 1))
    script = replace(made, batches=((replace(whole[0], ended=True), replace(whole[1], ended=True)),), where=where)
    found = step(PWJoin(script.query()).start(), [script.batch(0, i) for i in (0, 1)])
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
