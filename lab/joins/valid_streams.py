"""Random streams without violations, and joins run over them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from lab.joins.oracle import KEYS, Row, bag, step
from lab.joins.scripts import ORDERED, Script
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.pwjoin import PWJoin, RunningPWJoin
from watersmeet.joins.reference.definition import Tuple, same_key
from watersmeet.joins.reference.stream_rules import Elements, covers, sort_key
from watersmeet.model.punctuations import (
    Clustered,
    Heartbeat,
    Ordered,
    Punctuation,
    Range,
    Unique,
    Value,
)
from watersmeet.model.windows import Window

Element = Tuple | Punctuation


@st.composite
def valid_stream(draw: Any, kind: str, window: st.SearchStrategy[Window]) -> tuple[Any, ...]:
    """A stream in its order of arrival, disorder within its delay, no violation of its punctuations and constraints."""
    values = [tuple(key) for key in _keys(kind)]
    constraint = draw(st.sampled_from([None, None, Unique(), *([Clustered(), Ordered()] if kind in ORDERED else [])]))
    delay = draw(st.sampled_from([0, 0, 4]))
    drawn = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, delay), st.sampled_from(values)), max_size=14))
    if isinstance(constraint, Clustered | Ordered):
        ascending = sorted(values, key=lambda key: sort_key(key[0]))
        drawn = [(ts, late, ascending[ts * len(ascending) // 31]) for ts, late, _ in drawn]
    elif isinstance(constraint, Unique):
        drawn = [d for n, d in enumerate(drawn) if not any(same_key(d[2], e[2]) for e in drawn[:n])]
    tuples = [(ts + late, 0, Tuple(ts, key, n)) for n, (ts, late, key) in enumerate(drawn)]
    punctuations = []
    for time, pattern in draw(st.lists(st.tuples(st.integers(0, 32), _patterns(kind)), max_size=4)):
        if isinstance(pattern, Heartbeat):
            pattern = Heartbeat(time - delay)
        if not any(covers(pattern, t.key) and t.ts > time for _, _, t in tuples if t.ts is not None):
            punctuations.append((time, 1, Punctuation(pattern, time)))
    arrived = [element for *_, element in sorted([*tuples, *punctuations], key=lambda e: e[:2])]
    return draw(window), delay, (constraint,) if constraint else (), arrived


@cache
def _keys(kind: str) -> list[tuple[Any, ...]]:
    out: list[tuple[Any, ...]] = [()]
    for _, values in KEYS[kind]:
        out = [(*key, value) for key in out for value in values]
    return out


@cache
def _patterns(kind: str) -> st.SearchStrategy[Any]:
    some = [st.sampled_from(_keys(kind)).map(Value), st.just(Heartbeat(0))]
    if kind in ORDERED:
        ends = st.sampled_from([*KEYS[kind][0][1], None])
        some.append(st.builds(Range, ends, ends, st.booleans(), st.booleans()))
    return st.one_of(some)


@st.composite
def cuts(draw: Any, streams: Any, how: str, kind: str, most: int = 6) -> Script:
    """The streams cut into batches, and then ended."""
    count = draw(st.integers(1, most))
    sides = []
    for *_, arrived in streams:
        places = st.lists(st.integers(0, len(arrived)), min_size=count - 1, max_size=count - 1)
        edges = [0, *sorted(draw(places)), len(arrived)]
        sides.append([_elements(arrived[a:b]) for a, b in pairwise(edges)] + [Elements(ended=True)])
    windows, delays, constraints = (tuple(stream[part] for stream in streams) for part in range(3))
    return Script(kind, how, windows, delays, constraints, tuple(zip(*sides, strict=True)))


def _elements(elements: list[Element]) -> Elements:
    tuples = tuple(e for e in elements if isinstance(e, Tuple))
    return Elements(tuples, tuple(e for e in elements if isinstance(e, Punctuation)))


def unpunctuated(script: Script) -> Script:
    """The same tuples without punctuations and constraints."""
    batches = tuple(tuple(replace(elements, punctuations=()) for elements in batch) for batch in script.batches)
    return replace(script, batches=batches, constraints=((),) * len(script.windows))


def run(script: Script, join: RunningPWJoin | RunningMultiway | None = None) -> Counter[Row]:
    join, out = join or PWJoin().start(script.query()), []
    for n in range(len(script.batches)):
        out += step(join, [script.batch(n, i) for i in range(len(script.windows))])
        assert join.counters.violations == join.counters.late == 0
    return bag(out)
