"""Interval, tumbling and null-safe joins in one to four shards: the results and the state do not depend on them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import KEYS, bag, intervals, rows_of
from lab.joins.scripts import Comparison, Script, scripts
from lab.joins.sharded_join import Sharded
from watersmeet.joins import plan
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.windows import Tumbling

some = settings(max_examples=max(20, settings().max_examples // 3))
LENGTH = 8


@st.composite
def interval_scripts(draw: Any) -> Script:
    return draw(scripts(st.sampled_from(["int64", "string"]), windows_of_all=intervals(), punctuated=False))


@st.composite
def tumbling_scripts(draw: Any) -> Script:
    """The second part of a key is the piece of time that the tuple is in."""
    script: Script = draw(scripts(st.just("two columns"), punctuated=False))

    def pieced(t: Tuple) -> Tuple:
        return replace(t, key=(t.key[0], None if t.ts is None else str(t.ts // LENGTH)))

    def of(e: Elements) -> Elements:
        return Elements(tuple(map(pieced, e.tuples)), (), e.ended)

    batches = tuple(tuple(map(of, batch)) for batch in script.batches)
    return replace(script, windows=(Tumbling(LENGTH),) * 2, batches=batches)


@st.composite
def null_safe_scripts(draw: Any) -> Script:
    kind = draw(st.sampled_from(["int64", "string", "two columns"]))
    script: Script = draw(scripts(st.just(kind), punctuated=False))
    safe = draw(st.lists(st.booleans(), min_size=len(KEYS[kind]), max_size=len(KEYS[kind])).filter(any))
    return replace(script, null_safe=tuple(safe))


def without_punctuations(script: Script) -> Script:
    batches = tuple(tuple(replace(e, punctuations=()) for e in batch) for batch in script.batches)
    return replace(script, batches=batches)


@pytest.mark.parametrize("drawn", [interval_scripts, tumbling_scripts, null_safe_scripts])
@some
@given(data=st.data())
def test_every_batch_is_what_the_rules_make_of_it_in_all_shards(drawn: Any, data: st.DataObject) -> None:
    script = without_punctuations(data.draw(drawn()))
    comparison = Comparison(script)
    sharded = Sharded(plan(script.query(), "pwjoin"), data.draw(st.integers(1, 4), label="shards"))
    for n in range(len(script.batches)):
        results = sharded.step(sharded.part([script.batch(n, i) for i in (0, 1)]))
        outcome = comparison.rules.step([script.for_rules(e) for e in script.batches[n]], script.clock(n))
        wanted = [comparison.combination(pair) for pair in outcome.pairs]
        wanted += [comparison.single(i, t) for i in (0, 1) for t in outcome.alone[i]]
        assert bag(results) == bag(wanted)
        for i in (0, 1):
            assert bag(sharded.held(i)) == bag([comparison.row(i, t) for t in comparison.rules.stored(i)])
            late = [row for running in sharded.running for row in rows_of(running.late[i])]
            assert bag(late) == bag([comparison.row(i, t) for t in outcome.late[i]])
            assert {running.watermarks[i] for running in sharded.running} == {comparison.rules.streams[i].watermark}
        if data.draw(st.booleans(), label="restart"):
            sharded.restart()
