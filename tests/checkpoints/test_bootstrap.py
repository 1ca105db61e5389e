"""Seed and live rows: rows before a cut as batch 0 with a heartbeat, then batches that overlap; the seam is exact."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import Row, bag, rows_of
from lab.joins.scripts import Comparison, Script, scripts
from lab.joins.sharded_join import Sharded
from watersmeet.joins import Join
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import window_join
from watersmeet.joins.reference.stream_rules import Elements, Rules
from watersmeet.model.punctuations import End, Heartbeat, Punctuation
from watersmeet.model.queries import HOW

few = settings(max_examples=settings().max_examples // 2)


def seed_of(script: Script, i: int, cut: int) -> Elements:
    """All that stream i brings before the cut, and rows without a time, with a heartbeat of the cut."""
    tuples = [t for batch in script.batches for t in batch[i].tuples if t.ts is None or t.ts < cut]
    punctuations = [p for batch in script.batches for p in batch[i].punctuations if p.time < cut]
    punctuations = [p for p in punctuations if not isinstance(p.pattern, End)]
    return Elements(tuple(tuples), (*punctuations, Punctuation(Heartbeat(cut), cut)))


def since(script: Script, cuts: tuple[int, ...]) -> tuple[tuple[Elements, ...], ...]:
    """The batches without what the seed has."""

    def rest(e: Elements, cut: int) -> Elements:
        tuples = tuple(t for t in e.tuples if t.ts is not None and t.ts >= cut)
        punctuations = tuple(p for p in e.punctuations if p.time >= cut or isinstance(p.pattern, End))
        return replace(e, tuples=tuples, punctuations=punctuations)

    return tuple(tuple(map(rest, batch, cuts)) for batch in script.batches)


def results_of(script: Script) -> list[Row]:
    """All results by the rules."""
    comparison, rules = Comparison(script), Rules(script.query())
    out: list[Row] = []
    for elements in script.batches:
        outcome = rules.step(elements)
        out += [comparison.combination(c) for c in outcome.pairs]
        out += [comparison.single(i, t) for i, alone in enumerate(outcome.alone) for t in alone]
    return out


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data())
def test_the_seam(how: str, data: st.DataObject) -> None:
    """Results, late rows and state are those of the rules; what comes again is late and changes no result."""
    script = replace(data.draw(scripts(how=st.just(how))), idle_after=(None,) * 8)
    cuts = data.draw(st.tuples(*[st.integers(0, 24)] * 2), label="cuts")
    fresh = since(script, cuts)
    empty = next((n for n, batch in enumerate(fresh) if any(e != Elements() for e in batch)), len(fresh))
    first = data.draw(st.integers(0, empty), label="position of the sources")
    seed, end = tuple(seed_of(script, i, cut) for i, cut in enumerate(cuts)), (Elements(ended=True),) * 2
    whole = replace(script, batches=(seed, *script.batches[first:], end))
    comparison, shards = Comparison(whole), data.draw(st.integers(1, 3))
    sharded, rules = Sharded(Join(whole.query(), PWJoin()), shards), Rules(whole.query())
    found: list[Row] = []
    for n, elements in enumerate(whole.batches):
        found += sharded.step(sharded.part([whole.batch(n, i) for i in (0, 1)]))
        outcome = rules.step(elements)
        for i, cut in enumerate(cuts):
            late = [row for running in sharded.running for row in rows_of(running.late[i])]
            assert bag(late) == bag([comparison.row(i, t) for t in outcome.late[i]])
            again = [t for t in elements[i].tuples if n and (t.ts is None or t.ts < cut)]
            assert not bag([comparison.row(i, t) for t in again]) - bag(late), "what the seed had is late"
            assert bag(sharded.held(i)) == bag([comparison.row(i, t) for t in rules.stored(i)])
            if not n:
                assert {running.watermarks[i] for running in sharded.running} == {max(cut, *_beats(elements[i]))}
        if data.draw(st.booleans(), label="restart"):
            sharded.restart()
    assert bag(found) == bag(results_of(replace(script, batches=(seed, *fresh[first:], end)))), "nothing comes twice"
    if how == "inner":
        good = [s.good for s in rules.streams]
        defined = window_join(good, [s.window for s in whole.query().streams])
        assert bag(found) == bag([comparison.combination(c) for c in defined])


def _beats(elements: Elements) -> list[int]:
    return [p.pattern.until for p in elements.punctuations if isinstance(p.pattern, Heartbeat)]
