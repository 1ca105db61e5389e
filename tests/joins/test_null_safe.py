"""Null-safe keys: a NULL equals a NULL, alone and among several key columns, with punctuations of the NULL key."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import KEYS, bag, step, stored
from lab.joins.scripts import Comparison, Script, follow, scripts
from watersmeet.checkpoints.reopen import query_of
from watersmeet.errors import QueryError
from watersmeet.joins.general_lazy import GeneralLazyJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import Clustered, Ordered, Punctuation, Range, Unique, Value
from watersmeet.model.queries import HOW
from watersmeet.model.windows import TimeWindow
from watersmeet.state.durable import log
from watersmeet.state.keys import encode_key

few = settings(max_examples=max(10, settings().max_examples // 5))


@st.composite
def drawn(draw: Any, how: str | None = None, **options: Any) -> Script:
    """A script with null-safe key columns, and without what an order of keys needs."""
    kind = draw(st.sampled_from(["int64", "string", "float64", "two columns", "struct"]))
    chosen = st.sampled_from(sorted(HOW)) if how is None else st.just(how)
    script: Script = draw(scripts(st.just(kind), how=chosen, **options))
    count = len(KEYS[kind])
    safe = draw(st.lists(st.booleans(), min_size=count, max_size=count).filter(any))
    constraints = tuple(tuple(c for c in each if isinstance(c, Unique)) for each in script.constraints)

    def plain(e: Elements) -> Elements:
        kept = tuple(p for p in e.punctuations if not isinstance(p.pattern, Range))
        return replace(e, punctuations=kept)

    batches = tuple(tuple(map(plain, batch)) for batch in script.batches)
    return replace(script, null_safe=tuple(safe), constraints=constraints, batches=batches)


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it(how: str, data: st.DataObject) -> None:
    follow(data.draw(drawn(how)))


@few
@given(drawn("inner", punctuated=False))
def test_the_multi_way_join_does_the_same(script: Script) -> None:
    follow(script, GeneralLazyJoin().start(script.query()))


@few
@given(script=drawn(batches=6, rows=4), data=st.data())
def test_a_restart_between_batches_changes_nothing(script: Script, data: st.DataObject) -> None:
    comparison, join = Comparison(script), PWJoin().start(script.query())
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(len(script.batches)):
        comparison.step(join, n)
        header = log.commit(join, header, store)
        if data.draw(st.booleans(), label="restart"):
            join = PWJoin().start(script.query())
            log.rebuild(join, header, store)
            for i in (0, 1):
                comparison.check_state(join, i)


def one(how: str = "inner", *batches: Any, safe: bool = True) -> Script:
    window = TimeWindow(100)
    return Script("int64", how, (window, window), (0, 0), ((), ()), batches, null_safe=(True,) if safe else ())


def test_null_meets_null_and_a_punctuation_of_it_purges() -> None:
    a = Elements((Tuple(0, (None,), 0), Tuple(0, (0,), 1)))
    script = one(
        "left", (a, Elements((Tuple(1, (None,), 0),))), (Elements(), Elements((), (Punctuation(Value((None,)), 2),)))
    )
    comparison, join = Comparison(script), PWJoin().start(script.query())
    results = step(join, [script.batch(0, i) for i in (0, 1)])
    assert bag(results) == bag([(None, 0, 0, 1, 0)])
    assert join.counters.null_keys == 0
    assert step(join, [script.batch(1, i) for i in (0, 1)]) == []
    assert [row[1] for row in stored(join, 0)] == [0], "the row with the NULL key is purged"
    assert comparison.query.describe()["streams"][0]["null_safe"] == [True]  # type: ignore[index]


def test_the_state_is_opened_without_its_program() -> None:
    query = one().query()
    assert query_of(log.begin(query)) == query
    assert query.digest() != one(safe=False).query().digest()


def test_zero_and_null_are_different_keys() -> None:
    keys = encode_key([pa.array([0, None, None, 1], pa.int64())], (True,))
    assert keys.valid.all()
    assert keys.words[1] == keys.words[2]
    assert len({*keys.words.tolist()}) == 3


def test_constraints_that_need_an_order_or_an_end_are_refused() -> None:
    with pytest.raises(QueryError) as caught:
        replace(one().query().streams[0], constraints=(Clustered(),))
    assert str(caught.value) == (
        "`clustered` of stream `a` is about k0, of which NULLs are joined; a row without a value ends no cluster.\n"
        "Hint: leave the constraint out, or join with = in place of <=>."
    )
    with pytest.raises(QueryError, match=r"^`ordered` of stream `a` is about k0 \(int64\); only one column"):
        replace(one().query().streams[0], constraints=(Ordered(),))
