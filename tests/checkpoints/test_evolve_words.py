"""What evolving says in words, what it refuses, and what it carries over unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from lab.joins.oracle import bag
from lab.joins.payload_streams import SUFFICIENT, rows, stream
from lab.joins.sharded_join import Sharded
from watersmeet.checkpoints.evolve import Evolution
from watersmeet.errors import StateMismatchError
from watersmeet.joins import Join, plan
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.punctuations import Unique
from watersmeet.model.queries import HOW, JoinQuery, columns_of
from watersmeet.model.windows import Interval, RowsWindow, TimeWindow, Tumbling, Unbounded, Window
from watersmeet.query.predicate_parser import parse

S = 1_000_000


def started(
    windows: tuple[Window, Window] = (TimeWindow(10 * S), TimeWindow(10 * S)), how: str = "inner", **about: Any
) -> Sharded:
    """Two streams at 100 s; `a` is 5 s late at most."""
    a = replace(stream("a", ["a0"], windows[0]), delay=5 * S, **about)
    sharded = Sharded(Join(JoinQuery((a, stream("b", ["b0"], windows[1])), how), PWJoin()), 2)
    tuples = [[{"k": "x", f"{n}_ts": t * S, f"{n}0": t} for t in (80, 95, 100)] for n in "ab"]
    sharded.step(sharded.part([rows(s, t) for s, t in zip(sharded.join.query.streams, tuples, strict=True)]))
    return sharded


def changed(sharded: Sharded, change: Callable[[JoinQuery], JoinQuery], algorithm: str = "pwjoin") -> Evolution:
    return sharded.evolve(plan(change(sharded.join.query), algorithm), 2)


def with_stream(query: JoinQuery, i: int, **about: Any) -> JoinQuery:
    streams = list(query.streams)
    streams[i] = replace(streams[i], **about)
    return replace(query, streams=tuple(streams))


def test_a_copy() -> None:
    assert str(changed(started(), lambda q: q)) == "Nothing has changed: a copy.\nAll results to come are exact."


def test_a_longer_window_in_words() -> None:
    """Watermarks 95 and 100: of `a`, with 10 s, rows before 90 are gone; with 30 s all are inside from 120 on."""
    sharded = started()
    evolution = changed(sharded, lambda q: with_stream(q, 0, window=TimeWindow(30 * S)))
    assert evolution.exact_from == 120 * S
    assert str(evolution) == (
        "Changed: window of `a` 10 seconds → 30 seconds.\n"
        "Results with an event time from 1970-01-01 00:02:00+00:00 on are exact. Combinations of rows that came before "
        "the change are not evaluated again.\n"
        "Rows of `a` before 1970-01-01 00:01:30+00:00 had been evicted; the longer window does not find them."
    )
    assert sorted(r[2] for r in sharded.held(0)) == [95, 100], "the row of 80 does not come back"


def test_a_shorter_window_and_a_delay_in_words() -> None:
    change = changed(
        started(), lambda q: with_stream(with_stream(q, 1, window=TimeWindow(2 * S, closed=False)), 0, delay=S)
    )
    assert change.exact_from == 100 * S + 1
    assert change.changes == (
        "delay of `a` 5 seconds → 1 second",
        "window of `b` 10 seconds → 2 seconds (half-open)",
    )
    assert change.cautions == (
        "The watermark of `a` stays at 1970-01-01 00:01:35+00:00 until newer rows move it on with the new delay; rows "
        "before it are late.",
    )


def test_no_window_is_never_complete() -> None:
    change = changed(started(), lambda q: with_stream(q, 0, window=Unbounded()))
    assert change.exact_from == AFTER_ALL
    assert "Results are not exact at any event time: they lack combinations with evicted rows." in str(change)


def test_a_window_grows_before_anything_was_evicted() -> None:
    join = Join(JoinQuery((stream("a", ["a0"]), stream("b", ["b0"]))), PWJoin())
    sharded = Sharded(join, 1)
    sharded.step(
        sharded.part([rows(join.query.streams[0], [{"k": "x", "a_ts": 7, "a0": 1}]), rows(join.query.streams[1], [])])
    )
    assert changed(sharded, lambda q: with_stream(q, 0, window=TimeWindow(30))).exact_from == 8


def test_punctuations_in_words() -> None:
    without_punctuations = changed(started(), lambda q: q, "hash")
    assert without_punctuations.changes == ("algorithm pwjoin → hash",)
    assert without_punctuations.cautions[0].startswith(
        "Punctuations of keys have no effect any more; rows that they had evicted"
    )
    sharded = started()
    sharded.evolve(plan(sharded.join.query, "hash"), 1)
    with_punctuations = sharded.evolve(plan(sharded.join.query, "pwjoin"), 3)
    assert with_punctuations.changes == ("algorithm hash → pwjoin", "shards 1 → 3")
    assert with_punctuations.cautions[0].startswith("Keys that were closed before the change are not known")


def test_rows_that_punctuations_evicted_do_not_come_back() -> None:
    a = replace(stream("a", ["a0"], TimeWindow(100)), constraints=(Unique(),))
    query = JoinQuery((a, stream("b", ["b0"], TimeWindow(100))))
    sharded = Sharded(Join(query, PWJoin()), 1)
    sharded.step(sharded.part([rows(a, []), rows(query.streams[1], [{"k": k, "b_ts": 1, "b0": 1} for k in "xy"])]))
    sharded.step(sharded.part([rows(a, [{"k": "x", "a_ts": 2, "a0": 2}]), rows(query.streams[1], [])]))
    assert [r[0] for r in sharded.held(1)] == ["y"]
    sharded.evolve(plan(query, "hash"), 1)
    assert [r[0] for r in sharded.held(1)] == ["y"]


REFUSED: dict[str, tuple[Callable[[JoinQuery], JoinQuery], str]] = {
    "stream": (lambda q: with_stream(q, 1, name="c"), "streams was a, b, is a, c; the state holds rows of those"),
    "key": (
        lambda q: replace(q, streams=tuple(replace(s, key=("k", s.schema.names[2])) for s in q.streams)),
        "key of stream `a` was k, is k, a0; rows are stored by their key",
    ),
    "time": (
        lambda q: with_stream(q, 0, schema=q.streams[0].schema.append(pa.field("t", pa.int64())), time="t"),
        "time of stream `a` was a_ts, is t; what was evicted depends on it",
    ),
    "type": (
        lambda q: with_stream(q, 0, schema=q.streams[0].schema.set(2, pa.field("a0", pa.string()))),
        "column `a0` of stream `a` was int64, is string; stored rows have values of that type",
    ),
    "constraints": (
        lambda q: with_stream(q, 0, constraints=(Unique(),)),
        r"constraints of stream `a` was none, is .*; what was evicted depends on it",
    ),
    "matches": (
        lambda q: replace(q, how="full"),
        "how was left, is full; the state does not tell which rows of `b` have matched",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    change, text = REFUSED[name]
    sharded = started(how="left")
    with pytest.raises(StateMismatchError, match=text) as error:
        changed(sharded, change)
    assert error.value.hint == "undo this change, or start from a new checkpoint, with new folders for what is written."
    sharded.restart()


def test_refused_kinds_of_joins() -> None:
    for was in HOW:
        for now in HOW:
            sharded = started(how=was)
            if now in SUFFICIENT[was]:
                changed(sharded, lambda q: replace(q, how=now))  # noqa: B023
            else:
                with pytest.raises(StateMismatchError, match=rf"how was {was}, is {now}; (the state does|a semi)"):
                    changed(sharded, lambda q: replace(q, how=now))  # noqa: B023


def test_refused_windows_and_operators() -> None:
    two = JoinQuery((stream("a", ["a0"], RowsWindow(2, per_key=True)), stream("b", ["b0"])))
    sharded = Sharded(plan(two, "general_lazy"), 2)
    sharded.step(sharded.part([rows(s, []) for s in two.streams]))
    with pytest.raises(StateMismatchError, match="window of stream `a` was 2 rows of a key, is 3 rows of a key; only"):
        sharded.evolve(plan(with_stream(two, 0, window=RowsWindow(3, per_key=True)), "general_lazy"), 2)
    with pytest.raises(StateMismatchError, match="window of stream `a` was 2 rows of a key, is 3 microseconds"):
        sharded.evolve(plan(with_stream(two, 0, window=TimeWindow(3)), "general_lazy"), 2)
    with pytest.raises(StateMismatchError, match="operator was pwjoin, is lazy; rows that are deferred in one"):
        started().evolve(plan(started().join.query, "lazy", every=5), 2)
    lazy = Sharded(plan(started().join.query, "lazy", every=5), 2)
    lazy.step(lazy.part([rows(s, []) for s in lazy.join.query.streams]))
    with pytest.raises(
        StateMismatchError, match=r"operator was lazy, is hash; rows that are deferred in one \(`every`\) are not"
    ):
        lazy.evolve(plan(lazy.join.query, "hash"), 2)
    with pytest.raises(StateMismatchError, match="`every` = 5 microseconds, this one has 7 microseconds"):
        lazy.evolve(plan(lazy.join.query, "lazy", every=7), 2)


def test_a_stream_that_has_ended() -> None:
    sharded = started()
    sharded.step(
        [
            [Batch(r.slice(0, 0), ended=True) for r in (b.rows for b in batches)]
            for batches in sharded.part([rows(s, []) for s in sharded.join.query.streams])
        ]
    )
    with pytest.raises(StateMismatchError, match="stream `a` has ended, so the state does not tell the newest event"):
        changed(sharded, lambda q: with_stream(q, 0, window=TimeWindow(30 * S)))
    changed(sharded, lambda q: with_stream(q, 0, delay=0))


# ---------------------------------------------------------------- intervals, pieces, NULLs, clocks, no equality, ends


def test_an_interval_is_carried_and_may_change_its_bounds() -> None:
    interval = Interval(-3 * S, 10 * S)
    sharded = started((interval, interval.mirrored))
    held = [bag(sharded.held(i)) for i in (0, 1)]
    assert changed(sharded, lambda q: q).changes == ()
    assert [bag(sharded.held(i)) for i in (0, 1)] == held

    def other(window: Interval | TimeWindow, mirrored: Interval | TimeWindow) -> Callable[[JoinQuery], JoinQuery]:
        return lambda q: replace(
            q, streams=tuple(replace(s, window=w) for s, w in zip(q.streams, (window, mirrored), strict=True))
        )

    longer = Interval(-3 * S, 20 * S)
    with pytest.raises(StateMismatchError, match=r"window of stream `a` was partners from .*, is 5 seconds; only"):
        changed(sharded, other(TimeWindow(5 * S), TimeWindow(5 * S)))
    with pytest.raises(StateMismatchError, match="window of stream `a` was 10 seconds, is partners from"):
        changed(started(), other(longer, longer.mirrored))
    with pytest.raises(StateMismatchError, match="window of stream `a` was 10 seconds, is the same 5 seconds; only"):
        changed(started(), lambda q: other_pieces(q, 5 * S))
    evolution = changed(sharded, other(longer, longer.mirrored))
    assert evolution.exact_from == 110 * S, "rows of `a` before 90 s are gone: they had partners up to 110 s"
    assert evolution.changes[0].endswith("→ partners from - 3 seconds to + 20 seconds")
    assert evolution.cautions == (
        "Rows of `a` before 1970-01-01 00:01:30+00:00 had been evicted; the longer window does not find them.",
    )


def other_pieces(query: JoinQuery, length: int) -> JoinQuery:
    return replace(query, streams=tuple(replace(s, window=Tumbling(length)) for s in query.streams))


def test_null_safe_keys_are_carried_and_not_changed() -> None:
    def safe(query: JoinQuery) -> JoinQuery:
        return replace(query, streams=tuple(replace(s, null_safe=(True,)) for s in query.streams))

    with pytest.raises(StateMismatchError, match="null-safe key of stream `a` was none, is k; rows without a value"):
        changed(started(), safe)
    query = safe(started().join.query)
    a, b = query.streams
    sharded = Sharded(Join(query, PWJoin()), 1)
    nulls = [{"k": None, "a_ts": 1, "a0": 1}, {"k": "x", "a_ts": 1, "a0": 2}]
    sharded.step(sharded.part([rows(a, nulls), rows(b, [])]))
    assert changed(sharded, lambda q: q).changes == ("shards 1 → 2",)
    sharded.evolve(sharded.join, 1)
    found = sharded.step(sharded.part([rows(a, []), rows(b, [{"k": None, "b_ts": 2, "b0": 3}])]))
    assert found == [(None, 1, 1, 2, 3)]
    with pytest.raises(StateMismatchError, match="null-safe key of stream `a` was k, is none"):
        changed(sharded, lambda q: replace(q, streams=tuple(replace(s, null_safe=()) for s in q.streams)))


def test_a_clock_is_carried_and_not_changed() -> None:
    """The stream counts as quiet from its last row on, not from the change on."""
    sharded = started(idle_clock=60 * S)
    for running in sharded.running:
        running.last_shown = [1000 * S, BEFORE_ALL]
    empty = [rows(s, []) for s in sharded.join.query.streams]
    sharded.step(sharded.part(empty))
    assert changed(sharded, lambda q: q).changes == ()
    assert [running.last_shown for running in sharded.running] == [[1000 * S, BEFORE_ALL]] * 2
    sharded.rescale(3)
    assert [running.last_shown for running in sharded.running] == [[1000 * S, BEFORE_ALL]] * 3
    with pytest.raises(StateMismatchError, match="idle_clock of stream `a` was 1 minute, is 30 seconds; the state has"):
        changed(sharded, lambda q: with_stream(q, 0, idle_clock=30 * S))
    with pytest.raises(StateMismatchError, match="idle_clock of stream `b` was none, is 30 seconds; the state has"):
        changed(sharded, lambda q: with_stream(q, 1, idle_clock=30 * S))


def without_equality(where: str = "a0 - b0 BETWEEN -1 AND 1", **about: Any) -> JoinQuery:
    a, b = (replace(stream(n, [f"{n}0"], TimeWindow(10 * S)), schema=pa.schema(
        [(f"{n}_ts", pa.int64()), (f"{n}0", pa.int64())]), key=()) for n in "ab")  # fmt: skip
    specs = (replace(a, **about), b)
    return JoinQuery(specs, where=parse(where, columns_of(specs)))


@pytest.mark.parametrize("name", ["band", "theta"])
def test_a_join_without_equality_is_copied_only(name: str) -> None:
    query = without_equality()
    sharded = Sharded(plan(query, name), 2)
    mine, copies = rows(query.streams[0], [{"a_ts": S, "a0": 5}]), [{"b_ts": S, "b0": n} for n in (1, 9)]
    nothing = replace(mine, rows=mine.rows.slice(0, 0))  # of another shard; all know the newest time
    sharded.step([[some, rows(query.streams[1], copies)] for some in (mine, nothing)])
    held = [sharded.held(i) for i in (0, 1)]
    copy = sharded.evolve(plan(query, name), 2)
    assert str(copy) == "Nothing has changed: a copy.\nAll results to come are exact."
    assert [sharded.held(i) for i in (0, 1)] == held
    more = rows(query.streams[1], [{"b_ts": 2 * S, "b0": 6}])
    assert sharded.step([[nothing, more]] * 2) == [(S, 5, 2 * S, 6)]
    refused = {
        r"where .* → .*: the state is of a join without equality": without_equality("a0 - b0 BETWEEN -1 AND 2"),
        "window of `a` 10 seconds → 1 second: the state is of": without_equality(window=TimeWindow(S)),
        "how inner → left: the state is of": replace(query, how="left"),
        "compared of stream `a` was none, is a0": without_equality(compared="a0"),
    }
    for text, other in refused.items():
        with pytest.raises(StateMismatchError, match=text):
            sharded.evolve(plan(other, name), 2)
    with pytest.raises(StateMismatchError, match=r"algorithm .* → .*: the state is of"):
        sharded.evolve(plan(query, "band" if name == "theta" else "theta"), 2)
    with pytest.raises(StateMismatchError, match="copied to every shard, and their copies cannot be divided anew"):
        sharded.evolve(plan(query, name), 3)
    with pytest.raises(StateMismatchError, match="key of stream `a` was k, is none; rows are stored by their key"):
        started().evolve(plan(query, name), 2)


def test_a_checkpoint_that_has_ended() -> None:
    sharded = started()
    for running in sharded.running:
        running.ended = True
    sharded.step(sharded.part([rows(s, []) for s in sharded.join.query.streams]))
    with pytest.raises(StateMismatchError, match="the checkpoint has ended: its query was run with ends=True"):
        changed(sharded, lambda q: q)
    with pytest.raises(StateMismatchError, match="the checkpoint has ended"):
        sharded.rescale(3)


def test_rows_that_the_old_condition_excluded_are_missing() -> None:
    """The row of 100 s did not fulfil the condition; with windows of 10 s none of its results is after 110 s."""
    query = started().join.query
    sharded = Sharded(Join(replace(query, where=parse("a0 < 90", query.schema)), PWJoin()), 2)
    tuples = [[{"k": "x", f"{n}_ts": t * S, f"{n}0": t} for t in (80, 95, 100)] for n in "ab"]
    sharded.step(sharded.part([rows(s, t) for s, t in zip(query.streams, tuples, strict=True)]))
    assert sharded.held(0) == []
    evolution = changed(sharded, lambda q: replace(q, where=None))
    assert evolution.exact_from == 110 * S + 1
    assert evolution.cautions == (
        "Rows that the old `where` excluded by themselves were not stored; the new one does not find them.",
    )


# ---------------------------------------------------------------- several changes


def windowed(seconds: int) -> Callable[[JoinQuery], JoinQuery]:
    return lambda q: with_stream(q, 0, window=TimeWindow(seconds * S))


def partners(sharded: Sharded, t: int) -> list[int]:
    """Rows of `a` that a row of `b` of that second meets."""
    a, b = sharded.join.query.streams
    found = sharded.step(sharded.part([rows(a, []), rows(b, [{"k": "x", "b_ts": t * S, "b0": t}])]))
    return sorted(row[1] // S for row in found)


def test_a_gap_is_known_to_the_changes_after_it() -> None:
    """Under the window of 10 s the rows before 90 s were evicted."""
    sharded = started()
    evolutions = [changed(sharded, windowed(seconds)) for seconds in (20, 30)]
    assert [e.exact_from for e in evolutions] == [110 * S, 120 * S]
    assert [e.cautions[0][:48] for e in evolutions] == ["Rows of `a` before 1970-01-01 00:01:30+00:00 had"] * 2
    sharded.rescale(3)
    later = changed(sharded, lambda q: with_stream(q, 0, delay=0))
    assert later.exact_from == 120 * S, "although this change has no influence on it"
    assert later.cautions[0] == evolutions[1].cautions[0]
    assert changed(sharded, windowed(20)).exact_from == 110 * S, "the gap is out of this window earlier"
    assert partners(sharded, 119) == [100], "and not those before 90 s"
    assert changed(sharded, windowed(30)).exact_from == 129 * S, "rows of 99 s and later were there"
    later = changed(sharded, lambda q: q)
    assert later.exact_from == 129 * S
    tuples = [[{"k": "x", f"{n}_ts": 160 * S, f"{n}0": 160}] for n in "ab"]
    sharded.step(sharded.part([rows(s, t) for s, t in zip(sharded.join.query.streams, tuples, strict=True)]))
    assert str(changed(sharded, lambda q: q)).endswith("All results to come are exact."), "they are behind the gap"


def test_rows_that_a_condition_excluded_are_missing_after_further_changes() -> None:
    query = started().join.query
    sharded = Sharded(Join(replace(query, where=parse("a0 < 90", query.schema)), PWJoin()), 2)
    tuples = [[{"k": "x", f"{n}_ts": t * S, f"{n}0": t} for t in (80, 95, 100)] for n in "ab"]
    sharded.step(sharded.part([rows(s, t) for s, t in zip(query.streams, tuples, strict=True)]))
    changed(sharded, lambda q: replace(q, where=None))
    evolution = changed(sharded, windowed(60))
    assert evolution.exact_from == 160 * S + 1
    assert "Rows before 1970-01-01 00:01:40.000001+00:00 that an earlier `where` excluded were not stored." in (
        evolution.cautions
    )
    assert partners(sharded, 155) == [], "95 s and 100 s would be in the window"


def test_a_newest_row_that_is_gone_is_remembered_when_the_delay_becomes_shorter() -> None:
    a, b = (replace(stream(n, [f"{n}0"], TimeWindow(10 * S)), delay=60 * S) for n in "ab")
    sharded = Sharded(Join(JoinQuery((a, replace(b, constraints=(Unique(),)))), PWJoin()), 2)
    found = sharded.step(
        sharded.part([rows(a, [{"k": "x", "a_ts": 95 * S, "a0": 1}]), rows(b, [{"k": "x", "b_ts": 100 * S, "b0": 1}])])
    )
    assert len(found) == 1
    both = [replace(s, delay=0) for s in sharded.join.query.streams]
    changed(sharded, lambda q: replace(q, streams=tuple(both)))
    assert changed(sharded, windowed(2)).exact_from == 100 * S + 1, "a result of 100 s is of the old windows"
