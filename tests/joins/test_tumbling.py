"""Joins within the same piece of time: a row is kept until its piece is over on the other stream."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import bag, step, stored
from lab.joins.scripts import WHERE, Comparison, Script, follow, scripts
from watersmeet.checkpoints.reopen import query_of
from watersmeet.errors import WindowError
from watersmeet.joins import REGISTRY, plan
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import Punctuation, Value, ValueList
from watersmeet.model.queries import HOW
from watersmeet.model.windows import Tumbling, format_window
from watersmeet.state.durable import log

LENGTH = 8
few = settings(max_examples=max(10, settings().max_examples // 5))


def in_pieces(script: Script) -> Script:
    """The script with the start of each tuple's piece as the second part of its key."""

    def pieced(t: Tuple) -> Tuple:
        return replace(t, key=(t.key[0], None if t.ts is None else str(t.ts // LENGTH)))

    def closed(p: Punctuation) -> Punctuation:
        if isinstance(p.pattern, Value):
            return replace(p, pattern=Value(closed_key(p.pattern.key)))
        if isinstance(p.pattern, ValueList):
            return replace(p, pattern=ValueList(tuple(map(closed_key, p.pattern.keys))))
        return p

    def of(e: Elements) -> Elements:
        return replace(e, tuples=tuple(map(pieced, e.tuples)), punctuations=tuple(map(closed, e.punctuations)))

    batches = tuple(tuple(map(of, batch)) for batch in script.batches)
    return replace(script, windows=(Tumbling(LENGTH),) * 2, batches=batches)


def closed_key(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """A key that is drawn for a punctuation, with one of the first two pieces."""
    return (key[0], {"": "0", "a": "1"}.get(key[1]))


def drawn(**options: Any) -> st.SearchStrategy[Script]:
    return scripts(st.just("two columns"), **options).map(in_pieces)


@pytest.mark.parametrize("how", HOW)
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it(how: str, data: st.DataObject) -> None:
    follow(data.draw(drawn(how=st.just(how))))


@few
@given(script=drawn(batches=7, rows=4), where=st.sampled_from([None, *sorted(WHERE)]), data=st.data())
def test_a_restart_between_batches_changes_nothing(script: Script, where: str | None, data: st.DataObject) -> None:
    script = replace(script, where=where)
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


@few
@given(script=drawn(how=st.just("inner"), punctuated=False))
def test_the_hash_join_finds_the_same_pairs(script: Script) -> None:
    quiet = tuple(tuple(replace(e, punctuations=(), ended=False) for e in batch) for batch in script.batches)
    script = replace(script, batches=quiet, idle_after=(None,) * 8)
    comparison, join = Comparison(script), plan(script.query(), "hash").start()
    for n, elements in enumerate(quiet):
        found = step(join, [script.batch(n, i) for i in (0, 1)])
        assert bag(found) == bag([comparison.combination(c) for c in comparison.rules.step(elements).pairs])
        for i in (0, 1):
            assert bag(stored(join, i)) == bag([comparison.row(i, t) for t in comparison.rules.stored(i)])


def script_of(*batches: tuple[tuple[int, ...], tuple[int, ...]], how: str = "left") -> Script:
    numbers = iter(range(1 << 30))
    made = [tuple(Elements(tuple(Tuple(t, (0, ""), next(numbers)) for t in side)) for side in b) for b in batches]
    return in_pieces(Script("two columns", how, (Tumbling(LENGTH),) * 2, (0, 0), ((), ()), tuple(made)))


def test_a_row_is_kept_until_its_piece_is_over_and_no_longer() -> None:
    lives = script_of(((6, 9), (1,)), ((), (7,)), ((), (8,)))
    comparison, join = Comparison(lives), PWJoin().start(lives.query())
    comparison.step(join, 0)
    assert [row[0] for row in stored(join, 0)] == [6, 9]
    assert not len(join.streams[1]), "the first stream is at 9, in the next piece"
    comparison.step(join, 1)
    assert [row[0] for row in stored(join, 0)] == [6, 9], "the piece from 0 to 8 is open at 7"
    comparison.step(join, 2)
    assert [row[0] for row in stored(join, 0)] == [9]


def test_algorithms_that_do_not_know_pieces_refuse_them_by_name() -> None:
    query = script_of().query()
    inner = replace(query, how="inner")
    for name, kind in REGISTRY.items():
        if "tumbling" in kind.traits.windows or kind.traits.theta or name == "asof":
            continue
        options = {"lazy": {"every": "1 second"}, "windowed_hash": {"buckets": 2}}.get(name, {})
        with pytest.raises(WindowError) as caught:
            plan(inner, name, **options)
        assert str(caught.value) == (
            f'`{name}` does not know joins within the same 8 microseconds.\nHint: use algorithm="hash" or "pwjoin".'
        )


def test_the_state_is_opened_without_its_program() -> None:
    query = script_of().query()
    assert query_of(log.begin(query)) == query
    assert format_window(query.streams[0].window) == "the same 8 microseconds"
