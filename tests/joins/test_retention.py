"""True punctuations change no result, however batches are cut; and the punctuation set stays bounded."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.limits import limit_retention
from lab.joins.oracle import KEYS, Row, bag, step, stored, windows
from lab.joins.scripts import Script
from lab.joins.valid_streams import cuts, run, unpunctuated, valid_stream
from watersmeet.errors import StateError
from watersmeet.joins.pwjoin import PWJoin, RunningPWJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import (
    Constraint,
    Heartbeat,
    Ordered,
    Punctuation,
    Range,
    Unique,
    Value,
)
from watersmeet.model.queries import HOW
from watersmeet.model.windows import TimeWindow, Unbounded, Window
from watersmeet.state import stream_state
from watersmeet.state.durable import log, parts
from watersmeet.state.punctuations import bounds

few = settings(max_examples=max(15, settings().max_examples // 3))


# ---------------------------------------------------------------- streams that keep their word


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data())
def test_neither_true_punctuations_nor_the_cut_into_batches_change_the_result(how: str, data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from(sorted(KEYS)))
    streams = [data.draw(valid_stream(kind, windows())) for _ in range(2)]
    one, another = (data.draw(cuts(streams, how, kind)) for _ in range(2))
    assert run(one) == run(another) == run(unpunctuated(one))


# ---------------------------------------------------------------- bounds


@pytest.fixture
def tight(monkeypatch: pytest.MonkeyPatch) -> None:
    limit_retention(monkeypatch, 4, 2)


@few
@given(data=st.data())
def test_dropping_closed_keys_changes_no_result_and_brings_nothing_back(data: st.DataObject) -> None:
    kind, how = data.draw(st.sampled_from(sorted(KEYS))), data.draw(st.sampled_from(sorted(HOW)))
    length = st.integers(0, 12).map(TimeWindow)
    script = data.draw(cuts([data.draw(valid_stream(kind, length)) for _ in range(2)], how, kind))
    with pytest.MonkeyPatch.context() as patch:
        limit_retention(patch, 1, 1)
        join, out = PWJoin().start(script.query()), []
        store, header = log.MemoryStore(), log.begin(script.query())
        for n in range(len(script.batches)):
            out += step(join, [script.batch(n, i) for i in (0, 1)])
            header = log.commit(join, header, store)
            before = [bag(stored(join, i)) for i in (0, 1)]
            dropped = [p.retention.dropped for p in join.punctuation_sets]
            join = PWJoin().start(script.query())
            log.rebuild(join, header, store)
            assert [bag(stored(join, i)) for i in (0, 1)] == before
            assert [p.retention.dropped for p in join.punctuation_sets] == dropped
    assert bag(out) == run(unpunctuated(script))


def endless(
    how: str, kind: str, constraints: tuple[Constraint, ...], window: Window, other: Window | None = None
) -> Script:
    """Stream a brings what the caller puts in; b never says anything."""
    return Script(kind, how, (window, other or window), (0, 0), (constraints, ()), ())


def feed(join: RunningPWJoin, script: Script, a: Elements, b: Elements) -> None:
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
    limit_retention(monkeypatch, 40, 8)
    constraints: tuple[Constraint, ...] = (Unique(),) if source == "unique" else ()
    script = endless(how, "string", constraints, TimeWindow(3))
    join = PWJoin().start(script.query())
    store, header = log.MemoryStore(), log.begin(script.query())
    for n in range(200):
        tuples = tuple(texts(n))
        punctuations = [Punctuation(Value(t.key), n) for t in tuples] if source == "values" else []
        if source == "ranges":
            punctuations = [Punctuation(Range(f"key {n:04}", f"key {n:04}x"), n)]
        feed(join, script, Elements(tuples, tuple(punctuations)), Elements((Tuple(n, ("another",), 0),)))
        header = log.commit(join, header, store)
        a, b = (stream.lists for stream in join.streams)
        assert a.keys <= 40 + 5 * 5
        assert a.closed_keys <= 40 + 5
        assert b.keys == 1
        assert len(a) <= 5 * 4
        ranges = join.punctuation_sets[0].keys.ranges
        assert ranges is None or len(ranges) <= 8
    assert join.punctuation_sets[0].retention.dropped > (600 if source != "ranges" else 150)
    assert a.lists.born.size < 5000
    assert len(header.segments) < parts.MOST_PIECES + 40
    assert len(header.pack()) < 20_000


def test_births_are_noted_only_as_long_as_that_is_cheaper_than_looking() -> None:
    """One range makes the index; thousands of keys later no lookup has been made since."""
    script = endless("inner", "string", (), TimeWindow(1))
    join = PWJoin().start(script.query())
    feed(join, script, Elements(punctuations=(Punctuation(Range("a", "b"), 0),)), Elements())
    for n in range(100):
        feed(join, script, Elements(tuple(texts(n, 50))), Elements((Tuple(n, ("another",), 0),)))
    assert join.streams[0].lists.lists.born.size < 3000
    last = f"key {99 * 50}"
    feed(join, script, Elements(), Elements(punctuations=(Punctuation(Range(last, last), 99),)))
    assert last not in {row[1] for row in stored(join, 0)}
    assert len(join.streams[0]) == 99


@pytest.mark.parametrize("window", [TimeWindow(3), Unbounded()])
@pytest.mark.usefixtures("tight")
def test_neighbours_merge_into_a_range(window: Window) -> None:
    script = endless("inner", "int64", (), window)
    join = PWJoin().start(script.query())
    for n in range(50):
        punctuations = tuple(Punctuation(Value((k,)), n) for k in (2 * n, 2 * n + 1))
        feed(join, script, Elements((Tuple(n, (2 * n,), 0),), punctuations), Elements(punctuations=punctuations))
        assert join.streams[0].lists.keys <= 5
    assert join.punctuation_sets[0].retention.dropped == 0
    merged = join.punctuation_sets[0].keys.merged
    assert merged is not None
    assert (merged.low, len(merged)) == ([0], 1)
    feed(join, script, Elements((Tuple(50, (7,), 0),)), Elements())
    assert join.violations[0].num_rows == 1, "none of them is dropped"


@pytest.mark.usefixtures("tight")
def test_what_a_range_says_needs_no_keys_beside_it() -> None:
    """Keys of an ordered stream lie in one range: a join without a window remembers all of them in little."""
    script = replace(endless("inner", "string", (), Unbounded()), constraints=((Ordered(),), (Ordered(),)))
    join = PWJoin().start(script.query())
    for n in range(60):
        arrivals = Elements((Tuple(n, (f"{n:03}",), 0),))
        feed(join, script, arrivals, arrivals)
        assert [len(s) for s in join.streams] == [1, 1]
        assert all(s.lists.keys <= 6 for s in join.streams)
    assert [p.retention.dropped for p in join.punctuation_sets] == [0, 0]


FULL = "stream `a` has closed more than {}, and a join without a window must keep them all.\nHint: {}"
HINT = "give the streams a window, or close longer ranges of keys."


@pytest.mark.parametrize("windows", [(Unbounded(), Unbounded()), (TimeWindow(3), Unbounded())])
@pytest.mark.usefixtures("tight")
def test_a_join_without_a_window_stops_rather_than_drop_closed_keys(windows: tuple[Window, Window]) -> None:
    script = endless("inner", "string", (), *windows)
    join = PWJoin().start(script.query())
    punctuations = tuple(Punctuation(Value((f"{n}",)), 0) for n in range(5))
    feed(join, script, Elements(punctuations=punctuations[:4]), Elements())
    with pytest.raises(StateError) as caught:
        feed(join, script, Elements(punctuations=punctuations[4:]), Elements())
    assert str(caught.value) == FULL.format("4 keys that do not merge into ranges", HINT)

    join = PWJoin().start(script.query())
    punctuations = tuple(Punctuation(Range(f"{n}", f"{n}x"), 0) for n in range(3))
    feed(join, script, Elements(punctuations=punctuations[:2]), Elements())
    with pytest.raises(StateError) as caught:
        feed(join, script, Elements(punctuations=punctuations[2:]), Elements())
    assert str(caught.value) == FULL.format("2 ranges of keys", HINT)


@pytest.mark.usefixtures("tight")
def test_a_dropped_closed_key_lets_tuples_in_again() -> None:
    script = endless("inner", "string", (), TimeWindow(3))
    join = PWJoin().start(script.query())
    feed(join, script, Elements(punctuations=(Punctuation(Value(("x",)), 0),)), Elements((Tuple(0, ("x",), 0),)))
    assert len(join.streams[1]) == 0
    feed(join, script, Elements(punctuations=tuple(Punctuation(Value((f"{n}",)), 1) for n in range(6))), Elements())
    assert join.punctuation_sets[0].retention.dropped == 2
    feed(join, script, Elements((Tuple(1, ("x",), 0),)), Elements((Tuple(1, ("x",), 0),)))
    assert [len(s) for s in join.streams] == [1, 1]
    assert join.counters.violations == 0
    feed(join, script, Elements((Tuple(9, ("y",), 0),)), Elements((Tuple(9, ("y",), 0),)))
    assert [len(s) for s in join.streams] == [1, 1], "they leave by their windows"


# ---------------------------------------------------------------- what a restart must not bring back


class Restarted:
    """A join of text keys that is rebuilt from its store after every batch."""

    def __init__(self, how: str, window: int) -> None:
        self.script = endless(how, "string", (), TimeWindow(window))
        self.store, self.header = log.MemoryStore(), log.begin(self.script.query())
        self.join = PWJoin().start(self.script.query())

    def step(self, a: Elements | None = None, b: Elements | None = None) -> list[Row]:
        one = replace(self.script, batches=((a or Elements(), b or Elements()),))
        out = step(self.join, [one.batch(0, i) for i in (0, 1)])
        self.header = log.commit(self.join, self.header, self.store)
        self.join = PWJoin().start(self.script.query())
        log.rebuild(self.join, self.header, self.store)
        return out

    def segments(self, kind: str) -> int:
        return sum(entry.kind == kind for entry in self.header.segments)


def came(time: int, keys: str) -> Elements:
    return Elements(tuple(Tuple(time, (key,), n) for n, key in enumerate(keys)))


@pytest.mark.usefixtures("tight")
def test_rows_that_a_dropped_closed_key_purged_stay_away() -> None:
    run = Restarted("full", 100)
    run.step(b=came(0, "xy"))
    assert run.step(Elements(punctuations=(Punctuation(Value(("x",)), 0),))) == [("x", None, None, 0, 0)]
    run.step(*[Elements(punctuations=tuple(Punctuation(Value((f"{n}",)), 1) for n in range(6)))] * 2)
    assert run.join.punctuation_sets[0].retention.dropped > 0
    assert [row[1] for row in stored(run.join, 1)] == ["y"]


@pytest.mark.parametrize("how", ["left", "full", "anti", "semi"])
def test_a_row_has_matched_wherever_it_is_moved(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments are merged again and again; what has matched is known by segment and row."""
    monkeypatch.setattr(stream_state, "MAX_SMALL_SEGMENTS", 1)
    run, out = Restarted(how, 20), []
    for n in range(6):
        out += run.step(came(n, "xyz"[n % 3] + "w"), came(n, "xyz"[n % 3]))
    out += run.step(*[Elements(punctuations=(Punctuation(Heartbeat(100), 100),))] * 2)
    alone = [row[:2] for row in out if len(row) == 3 or None in row]
    if how == "semi":
        assert sorted(alone) == sorted(("xyz"[n % 3], n) for n in range(6))
    else:
        assert sorted(alone) == [("w", n) for n in range(6)]


@pytest.mark.parametrize("how", ["left", "semi"])
def test_marks_of_matched_rows_stand_in_few_segments(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "MOST_PIECES", 3)
    run, out = Restarted(how, 1000), []
    out += run.step(came(0, "abcdefghijklmnopqrst"))
    for n, key in enumerate("abcdefghijklmnopqrst"):
        out += run.step(b=came(n, key))
        assert run.segments("gone" if how == "semi" else "matched") <= 4
    assert len(out) == 20
    assert len(run.join.streams[0]) == (0 if how == "semi" else 20)
    out = run.step(*[Elements(punctuations=(Punctuation(Heartbeat(5000), 5000),))] * 2)
    assert out == []


def test_neighbours_are_looked_for_when_there_are_twice_as_many_and_not_again_after_a_restart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bounds, "MERGED_FROM", 16)
    script = endless("inner", "int64", (), TimeWindow(3))
    join, store = PWJoin().start(script.query()), log.MemoryStore()
    header = log.begin(script.query())
    rewritten = []
    for n in range(64):
        punctuations = (Punctuation(Value((7 * n,)), n),)  # no neighbours
        feed(join, script, Elements(punctuations=punctuations), Elements())
        rewritten.append(join.punctuation_sets[0].retention.rewrite)
        header = log.commit(join, header, store)
        join = PWJoin().start(script.query())
        log.rebuild(join, header, store)
    assert [n for n, again in enumerate(rewritten) if again] == [16, 34], "at 17 keys, and at 35"
    assert join.streams[0].lists.closed_keys == 64
