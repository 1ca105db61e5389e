"""True promises change no result, however batches are cut; and what is remembered of them stays bounded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.joins.scripts import ORDERED, Script
from tests.oracle import KEYS, Row, bag, step, stored, windows
from watersmeet.errors import StateError
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.pwjoin import PWJoin, RunningPWJoin
from watersmeet.joins.reference import Tuple, same_key
from watersmeet.joins.reference_rules import News, covers, place
from watersmeet.model.punctuations import (
    Clustered,
    Heartbeat,
    Ordered,
    Promise,
    Punctuation,
    Range,
    Unique,
    Value,
)
from watersmeet.model.queries import HOW
from watersmeet.model.windows import TimeWindow, Unbounded, Window
from watersmeet.state import log, remembered, stream_state, unmatched

few = settings(max_examples=max(15, settings().max_examples // 3))
Element = Tuple | Punctuation


# ---------------------------------------------------------------- streams that keep their word


@st.composite
def honest(draw: Any, kind: str, window: st.SearchStrategy[Window]) -> tuple[Any, ...]:
    """A stream in its order of arrival, disorder within its delay, with promises that it keeps."""
    values = [tuple(key) for key in _keys(kind)]
    promise = draw(st.sampled_from([None, None, Unique(), *([Clustered(), Ordered()] if kind in ORDERED else [])]))
    delay = draw(st.sampled_from([0, 0, 4]))
    drawn = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, delay), st.sampled_from(values)), max_size=14))
    if isinstance(promise, Clustered | Ordered):
        ascending = sorted(values, key=lambda key: place(key[0]))
        drawn = [(ts, late, ascending[ts * len(ascending) // 31]) for ts, late, _ in drawn]
    elif isinstance(promise, Unique):
        drawn = [d for n, d in enumerate(drawn) if not any(same_key(d[2], e[2]) for e in drawn[:n])]
    tuples = [(ts + late, 0, Tuple(ts, key, n)) for n, (ts, late, key) in enumerate(drawn)]
    said = []
    for time, pattern in draw(st.lists(st.tuples(st.integers(0, 32), _patterns(kind)), max_size=4)):
        if isinstance(pattern, Heartbeat):
            pattern = Heartbeat(time - delay)
        if not any(covers(pattern, t.key) and t.ts > time for _, _, t in tuples if t.ts is not None):
            said.append((time, 1, Punctuation(pattern, time)))
    arrived = [element for *_, element in sorted([*tuples, *said], key=lambda e: e[:2])]
    return draw(window), delay, (promise,) if promise else (), arrived


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
        sides.append([_news(arrived[a:b]) for a, b in pairwise(edges)] + [News(ended=True)])
    windows, delays, promises = (tuple(stream[part] for stream in streams) for part in range(3))
    return Script(kind, how, windows, delays, promises, tuple(zip(*sides, strict=True)))


def _news(elements: list[Element]) -> News:
    tuples = tuple(e for e in elements if isinstance(e, Tuple))
    return News(tuples, tuple(e for e in elements if isinstance(e, Punctuation)))


def silent(script: Script) -> Script:
    """The same tuples without any promise."""
    mute = tuple(tuple(replace(news, said=()) for news in batch) for batch in script.batches)
    return replace(script, batches=mute, promises=((),) * len(script.windows))


def run(script: Script, join: RunningPWJoin | RunningMultiway | None = None) -> Counter[Row]:
    join, out = join or PWJoin(script.query()).start(), []
    for n in range(len(script.batches)):
        out += step(join, [script.batch(n, i) for i in range(len(script.windows))])
        assert join.counters.violations == join.counters.late == 0
    return bag(out)


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data())
def test_neither_true_promises_nor_the_cut_into_batches_change_the_result(how: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KEYS)))
    streams = [data.draw(honest(kind, windows())) for _ in range(2)]
    one, another = (data.draw(cuts(streams, how, kind)) for _ in range(2))
    assert run(one) == run(another) == run(silent(one))


# ---------------------------------------------------------------- bounds


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    remember(monkeypatch, 4, 2)


def remember(patch: pytest.MonkeyPatch, keys: int, ranges: int) -> None:
    patch.setattr(remembered, "REMEMBERED", keys)
    patch.setattr(remembered, "REMEMBERED_RANGES", ranges)


@few
@given(data=st.data())
def test_forgetting_changes_no_result_and_brings_nothing_back(data: st.DataObject) -> None:
    kind, how = data.draw(st.sampled_from(sorted(KEYS))), data.draw(st.sampled_from(sorted(HOW)))
    length = st.integers(0, 12).map(TimeWindow)
    script = data.draw(cuts([data.draw(honest(kind, length)) for _ in range(2)], how, kind))
    with pytest.MonkeyPatch.context() as patch:
        remember(patch, 1, 1)
        join, out = PWJoin(script.query()).start(), []
        store, header = log.MemoryStore(), log.begin(script.query())
        for n in range(len(script.batches)):
            out += step(join, [script.batch(n, i) for i in (0, 1)])
            header = log.commit(join, header, store)
            before = [bag(stored(join, i)) for i in (0, 1)]
            forgotten = [p.forgotten for p in join.promises]
            join = PWJoin(script.query()).start()
            log.rebuild(join, header, store)
            assert [bag(stored(join, i)) for i in (0, 1)] == before
            assert [p.forgotten for p in join.promises] == forgotten
    assert bag(out) == run(silent(script))


def endless(how: str, kind: str, promises: tuple[Promise, ...], window: Window, other: Window | None = None) -> Script:
    """Stream a brings what the caller puts in; b never says anything."""
    return Script(kind, how, (window, other or window), (0, 0), (promises, ()), ())


def feed(join: RunningPWJoin, script: Script, a: News, b: News) -> None:
    one = replace(script, batches=((a, b),))
    step(join, [one.batch(0, i) for i in (0, 1)])


def texts(n: int, per_batch: int = 5) -> Iterator[Tuple]:
    for k in range(per_batch):
        yield Tuple(n, (f"key {n * per_batch + k}",), k)


@pytest.mark.parametrize("how", ["inner", "right"])
@pytest.mark.parametrize("source", ["unique", "values", "ranges"])
def test_an_endless_stream_of_keys_leaves_a_bounded_state(
    how: str, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The paper leaves an index node behind for every closed value whose partner never closes."""
    remember(monkeypatch, 40, 8)
    promises: tuple[Promise, ...] = (Unique(),) if source == "unique" else ()
    script = endless(how, "string", promises, TimeWindow(3))
    join = PWJoin(script.query()).start()
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(200):
        tuples = tuple(texts(n))
        said = [Punctuation(Value(t.key), n) for t in tuples] if source == "values" else []
        if source == "ranges":
            said = [Punctuation(Range(f"key {n:04}", f"key {n:04}x"), n)]
        feed(join, script, News(tuples, tuple(said)), News((Tuple(n, ("another",), 0),)))
        header = log.commit(join, header, store)
        a, b = (stream.lists for stream in join.streams)
        assert a.keys <= 40 + 5 * 5
        assert a.closings <= 40 + 5
        assert b.keys == 1
        assert len(a) <= 5 * 4
        ranges = join.promises[0].ranges
        assert ranges is None or len(ranges) <= 8
    assert join.promises[0].forgotten > (600 if source != "ranges" else 150)
    assert a.lists.born.size < 5000
    assert len(header.segments) < remembered.MOST_PIECES + 40
    assert len(header.pack()) < 20_000


def test_births_are_noted_only_as_long_as_that_is_cheaper_than_looking() -> None:
    """One range makes the index; thousands of keys later nobody has asked again."""
    script = endless("inner", "string", (), TimeWindow(1))
    join = PWJoin(script.query()).start()
    feed(join, script, News(said=(Punctuation(Range("a", "b"), 0),)), News())
    for n in range(100):
        feed(join, script, News(tuple(texts(n, 50))), News((Tuple(n, ("another",), 0),)))
    assert join.streams[0].lists.lists.born.size < 3000
    last = f"key {99 * 50}"
    feed(join, script, News(), News(said=(Punctuation(Range(last, last), 99),)))
    assert last not in {row[1] for row in stored(join, 0)}
    assert len(join.streams[0]) == 99


@pytest.mark.parametrize("window", [TimeWindow(3), Unbounded()])
@pytest.mark.usefixtures("tight")
def test_neighbours_merge_into_a_range(window: Window) -> None:
    script = endless("inner", "int64", (), window)
    join = PWJoin(script.query()).start()
    for n in range(50):
        said = tuple(Punctuation(Value((k,)), n) for k in (2 * n, 2 * n + 1))
        feed(join, script, News((Tuple(n, (2 * n,), 0),), said), News(said=said))
        assert join.streams[0].lists.keys <= 5
    promises = join.promises[0]
    assert promises.forgotten == 0
    assert promises.merged is not None
    assert (promises.merged.low, len(promises.merged)) == ([0], 1)
    feed(join, script, News((Tuple(50, (7,), 0),)), News())
    assert join.violations[0].num_rows == 1, "none of them is forgotten"


@pytest.mark.usefixtures("tight")
def test_what_a_range_says_needs_no_keys_beside_it() -> None:
    """Keys of an ordered stream lie in one range: a join without a window remembers all of them in little."""
    script = replace(endless("inner", "string", (), Unbounded()), promises=((Ordered(),), (Ordered(),)))
    join = PWJoin(script.query()).start()
    for n in range(60):
        news = News((Tuple(n, (f"{n:03}",), 0),))
        feed(join, script, news, news)
        assert [len(s) for s in join.streams] == [1, 1]
        assert all(s.lists.keys <= 6 for s in join.streams)
    assert [p.forgotten for p in join.promises] == [0, 0]


FULL = "stream `a` has closed more than {}, and a join without a window must remember them all.\nHint: {}"
HINT = "give the streams a window, or close longer ranges of keys."


@pytest.mark.parametrize("windows", [(Unbounded(), Unbounded()), (TimeWindow(3), Unbounded())])
@pytest.mark.usefixtures("tight")
def test_a_join_without_a_window_stops_rather_than_forget(windows: tuple[Window, Window]) -> None:
    script = endless("inner", "string", (), *windows)
    join = PWJoin(script.query()).start()
    said = tuple(Punctuation(Value((f"{n}",)), 0) for n in range(5))
    feed(join, script, News(said=said[:4]), News())
    with pytest.raises(StateError) as caught:
        feed(join, script, News(said=said[4:]), News())
    assert str(caught.value) == FULL.format("4 keys that do not merge into ranges", HINT)

    join = PWJoin(script.query()).start()
    said = tuple(Punctuation(Range(f"{n}", f"{n}x"), 0) for n in range(3))
    feed(join, script, News(said=said[:2]), News())
    with pytest.raises(StateError) as caught:
        feed(join, script, News(said=said[2:]), News())
    assert str(caught.value) == FULL.format("2 ranges of keys", HINT)


@pytest.mark.usefixtures("tight")
def test_a_forgotten_closing_lets_tuples_in_again() -> None:
    script = endless("inner", "string", (), TimeWindow(3))
    join = PWJoin(script.query()).start()
    feed(join, script, News(said=(Punctuation(Value(("x",)), 0),)), News((Tuple(0, ("x",), 0),)))
    assert len(join.streams[1]) == 0
    feed(join, script, News(said=tuple(Punctuation(Value((f"{n}",)), 1) for n in range(6))), News())
    assert join.promises[0].forgotten == 2
    feed(join, script, News((Tuple(1, ("x",), 0),)), News((Tuple(1, ("x",), 0),)))
    assert [len(s) for s in join.streams] == [1, 1]
    assert join.counters.violations == 0
    feed(join, script, News((Tuple(9, ("y",), 0),)), News((Tuple(9, ("y",), 0),)))
    assert [len(s) for s in join.streams] == [1, 1], "they leave by their windows"


# ---------------------------------------------------------------- what a restart must not bring back


class Restarted:
    """A join of text keys that is rebuilt from its store after every batch."""

    def __init__(self, how: str, window: int) -> None:
        self.script = endless(how, "string", (), TimeWindow(window))
        self.store, self.header = log.MemoryStore(), log.begin(self.script.query())
        self.join = PWJoin(self.script.query()).start()

    def step(self, a: News | None = None, b: News | None = None) -> list[Row]:
        one = replace(self.script, batches=((a or News(), b or News()),))
        out = step(self.join, [one.batch(0, i) for i in (0, 1)])
        self.header = log.commit(self.join, self.header, self.store)
        self.join = PWJoin(self.script.query()).start()
        log.rebuild(self.join, self.header, self.store)
        return out

    def segments(self, kind: str) -> int:
        return sum(entry.kind == kind for entry in self.header.segments)


def came(time: int, keys: str) -> News:
    return News(tuple(Tuple(time, (key,), n) for n, key in enumerate(keys)))


@pytest.mark.usefixtures("tight")
def test_rows_that_a_forgotten_closing_purged_stay_away() -> None:
    run = Restarted("full", 100)
    run.step(b=came(0, "xy"))
    assert run.step(News(said=(Punctuation(Value(("x",)), 0),))) == [("x", None, None, 0, 0)]
    run.step(*[News(said=tuple(Punctuation(Value((f"{n}",)), 1) for n in range(6)))] * 2)
    assert run.join.promises[0].forgotten > 0
    assert [row[1] for row in stored(run.join, 1)] == ["y"]


@pytest.mark.parametrize("how", ["left", "full", "anti", "semi"])
def test_a_row_has_matched_wherever_it_is_moved(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are merged again and again; what has matched is known by segment and row."""
    monkeypatch.setattr(stream_state, "MAX_SMALL_SEGMENTS", 1)
    run, out = Restarted(how, 20), []
    for n in range(6):
        out += run.step(came(n, "xyz"[n % 3] + "w"), came(n, "xyz"[n % 3]))
    out += run.step(*[News(said=(Punctuation(Heartbeat(100), 100),))] * 2)
    alone = [row[:2] for row in out if len(row) == 3 or None in row]
    if how == "semi":
        assert sorted(alone) == sorted(("xyz"[n % 3], n) for n in range(6))
    else:
        assert sorted(alone) == [("w", n) for n in range(6)]


@pytest.mark.parametrize("how", ["left", "semi"])
def test_marks_of_matched_rows_stand_in_few_segments(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unmatched, "MOST_MARKS", 3)
    run, out = Restarted(how, 1000), []
    out += run.step(came(0, "abcdefghijklmnopqrst"))
    for n, key in enumerate("abcdefghijklmnopqrst"):
        out += run.step(b=came(n, key))
        assert run.segments("matched") <= 4
    assert len(out) == 20
    assert len(run.join.streams[0]) == (0 if how == "semi" else 20)
    out = run.step(*[News(said=(Punctuation(Heartbeat(5000), 5000),))] * 2)
    assert out == []


def test_neighbours_are_looked_for_when_there_are_twice_as_many_and_not_again_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(remembered, "MERGED_FROM", 16)
    script = endless("inner", "int64", (), TimeWindow(3))
    join, store = PWJoin(script.query()).start(), log.MemoryStore()
    header = log.begin(script.query())
    rewritten = []
    for n in range(64):
        said = (Punctuation(Value((7 * n,)), n),)  # no neighbours
        feed(join, script, News(said=said), News())
        rewritten.append(join.promises[0].rewrite)
        header = log.commit(join, header, store)
        join = PWJoin(script.query()).start()
        log.rebuild(join, header, store)
    assert [n for n, again in enumerate(rewritten) if again] == [16, 34], "at 17 keys, and at 35"
    assert join.streams[0].lists.closings == 64
