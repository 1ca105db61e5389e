"""The rules themselves: they lose no result, contradict nothing they announce, and cover what they say."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.oracle import NAN, all_windows
from lab.joins.scripts import Script, scripts
from watersmeet.joins.reference.definition import Tuple, window_join
from watersmeet.joins.reference.stream_rules import Elements, Rules, covers, sort_key
from watersmeet.model.punctuations import Empty, End, Heartbeat, Pattern, Punctuation, Range, Value, ValueList
from watersmeet.model.windows import TimeWindow

OUTER = st.sampled_from(["inner", "left", "right", "full", "anti"])
SEVERAL = st.integers(3, 4).flatmap(
    lambda n: scripts(how=st.just("inner"), streams=n, rows=3, batches=4, window=all_windows())
)


@given(scripts(how=OUTER) | SEVERAL, st.sampled_from([0, 4]))
def test_what_a_result_needs_is_stored_until_then(script: Script, every: int) -> None:
    rules = Rules(script.query(), every)
    n = len(script.windows)
    kept: list[list[Tuple]] = [[] for _ in range(n)]
    for arrivals in script.batches:
        outcome = rules.step(arrivals)
        for found in outcome.pairs:
            assert all(t in kept[i] or t in arrivals[i].tuples for i, t in enumerate(found))
        kept = [[*outcome.stored[i], *rules.pending(i)] for i in range(n)]


@given(SEVERAL, st.sampled_from([0, 4]))
def test_every_result_of_the_definition_comes_out_once(script: Script, every: int) -> None:
    rules = Rules(script.query(), every)
    found = [c for arrivals in script.batches for c in rules.step(arrivals).pairs]
    found += rules.step([Elements(ended=True)] * len(script.windows)).pairs
    whole = window_join([s.shown for s in rules.streams], script.windows)
    assert sorted(tuple(map(id, c)) for c in found) == sorted(tuple(map(id, c)) for c in whole)


@given(scripts() | SEVERAL)
def test_what_is_finished_stays_so_and_gives_nothing_any_more(script: Script) -> None:
    rules = Rules(script.query())
    keys = [t.key for batch in script.batches for arrivals in batch for t in arrivals.tuples if None not in t.key]
    finished: list[Any] = []
    for arrivals in script.batches:
        outcome = rules.step(arrivals)
        given_out = [t.key for pair in outcome.pairs for t in pair] + [t.key for side in outcome.alone for t in side]
        assert not [key for key in given_out if key in finished]
        assert all(rules.finished(key) for key in finished)
        finished = [key for key in keys if rules.finished(key)]


@pytest.mark.parametrize(
    ("pattern", "covered", "others"),
    [
        (Value((1,)), [1], [0, None]),
        (Value((NAN,)), [NAN], [1.0]),
        (Value((None,)), [], [None, 1]),
        (ValueList(((1,), (3,))), [1, 3], [2]),
        (Range(1, 3), [1, 2, 3], [0, 4]),
        (Range(1, 3, False, False), [2], [1, 3]),
        (Range(3, 1), [], [1, 2, 3]),
        (Range(None, 2), [-9, 2], [3]),
        (Range(2.0, None), [2.0, float("inf"), NAN], [1.0]),
        (Range(None, float("inf")), [0.0], [NAN]),
        (Range(-0.0, 0.0), [0.0, -0.0], [5e-324]),
        (Range("a", "b", True, False), ["a", "a\0", "aé"], ["", "b"]),
        (Empty(), [], [1]),
        (End(), [], [1]),
        (Heartbeat(5), [], [1]),
    ],
    ids=str,
)
def test_patterns_cover(pattern: Pattern, covered: list[Any], others: list[Any]) -> None:
    assert all(covers(pattern, (value,)) for value in covered)
    assert not any(covers(pattern, (value,)) for value in others if value is not None or not isinstance(pattern, Range))


def test_nan_is_the_largest() -> None:
    assert sorted([NAN, float("inf"), -1.0], key=sort_key)[:2] == [-1.0, float("inf")]


def test_a_short_story() -> None:
    script = Script("string", "left", (TimeWindow(10), TimeWindow(10)), (0, 0), ((), ()), ())
    rules = Rules(script.query())
    x1, y1, x3, x5 = Tuple(1, ("x",), 0), Tuple(1, ("y",), 1), Tuple(3, ("x",), 0), Tuple(5, ("x",), 1)
    first = rules.step((Elements((x1, y1)), Elements((x3,))))
    assert (first.pairs, first.stored, first.alone) == ([(x1, x3)], ([x1, y1], [x3]), ([], []))
    second = rules.step((Elements(), Elements(punctuations=(Punctuation(Range("x", "y"), 4),))))
    assert (second.stored, second.alone) == (([], [x3]), ([y1], []))
    third = rules.step((Elements(), Elements((x5,))))
    assert third.violations == ([], [x5])
    assert not rules.finished(("x",)), "an x of a would come out, matched or not"
    rules.step((Elements(punctuations=(Punctuation(Value(("x",)), 6),)), Elements()))
    assert rules.finished(("x",))
