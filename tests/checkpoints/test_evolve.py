"""States that a changed query continues: results are exact from the event time that is given on; refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.joins import naive_groups
from lab.joins.oracle import Row, all_windows, bag, canonical, rows_of, windows
from lab.joins.scripts import MAY_HOLD, WHERE, Script, scripts
from lab.joins.sharded_join import Sharded
from watersmeet.checkpoints.convert_rows import PART, SplitKeys
from watersmeet.checkpoints.evolve import Evolution
from watersmeet.errors import StateMismatchError
from watersmeet.joins import Join, Operator, plan
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple, window_join
from watersmeet.joins.reference.rules import Elements, Rules
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.grouping import Bucket
from watersmeet.model.punctuations import Heartbeat, Unique
from watersmeet.model.queries import HOW, JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import Interval, RowsWindow, TimeWindow, Tumbling, Unbounded, Window
from watersmeet.query.predicate_parser import parse

few = settings(max_examples=settings().max_examples // 2)
S = 1_000_000

#: Kinds of joins whose state suffices for others.
SUFFICIENT = {
    "inner": ("inner",),
    "left": ("left", "inner", "anti", "semi"),
    "right": ("right", "inner"),
    "full": ("full", "left", "right", "inner", "anti", "semi"),
    "semi": ("semi", "anti"),
    "anti": ("anti", "inner", "left", "semi"),
}


@dataclass
class Run:
    """A script whose query changes before batch `at`: all results, and the rules beside it."""

    script: Script
    changed: Script
    at: int
    sharded: Sharded
    rules: Rules

    def __init__(self, script: Script, changed: Script, at: int, before: Operator, shards: int) -> None:
        self.script, self.changed, self.at = script, changed, at
        self.sharded = Sharded(before, shards)
        self.rules = Rules(before.query)
        self.results: list[list[Row]] = []
        self.held: list[set[int]] = []

    def step(self, elements: Sequence[Elements], script: Script) -> None:
        ends = replace(script, batches=(tuple(elements),))
        batches = [ends.batch(0, i) for i in range(len(elements))]
        self.results.append(self.sharded.step(self.sharded.part(batches)))
        outcome = self.rules.step(elements)
        for name in ("late", "violations"):
            for i in range(len(elements)):
                parts = [getattr(running, name) for running in self.sharded.running]
                found = [r for part in parts if part for r in rows_of(part[i])]  # none: the join ignores punctuations
                assert bag(found) == bag([_row(t) for t in getattr(outcome, name)[i]])

    def evolve(self, into: Operator, shards: int) -> Evolution:
        """Change the query; the rules keep what they know of the streams."""
        names = [s.spec.schema.names.index(s.spec.time.replace("ts", "n")) for s in self.rules.streams]
        self.held = [{row[at] for row in self.sharded.held(i)} for i, at in enumerate(names)]
        evolution = self.sharded.evolve(into, shards)
        self.rules.query = into.query
        for stream, spec in zip(self.rules.streams, into.query.streams, strict=True):
            stream.spec = spec
            stream.take_effect(
                self.rules.batch, ends_close=False
            )  # without a delay, also those of the watermark itself
        return evolution

    def check_state(self) -> None:
        """Of the tuples that the new query would keep, those are there that were there or came since."""
        for i in range(len(self.rules.streams)):
            old = {t.row for batch in self.script.batches[: self.at] for t in batch[i].tuples}
            kept = [t for t in self.rules.stored(i) if t.row in self.held[i] or t.row not in old]
            width = len(self.rules.streams[i].spec.schema.names)
            assert bag([row[:width] for row in self.sharded.held(i)]) == bag([_row(t) for t in kept])

    def check(self, exact_from: int) -> None:
        """All streams have ended: from `exact_from` on the results are those of the definition."""
        wanted = [r for r in self._defined() if _event_time(r, self._times()) >= exact_from]
        before = [row for some in self.results[: self.at] for row in some]
        after = [row for some in self.results[self.at :] for row in some]
        if exact_from > BEFORE_ALL:
            times = self._times(self.script)
            assert not [r for r in before if _event_time(r, times) >= exact_from], "exact from now on"
        else:
            after = before + after
        assert bag([r for r in after if _event_time(r, self._times()) >= exact_from]) == bag(wanted)

    def _times(self, script: Script | None = None) -> list[int]:
        """Where the event times are in a result."""
        query = (script or self.changed).query()
        return [n for n, name in enumerate(query.schema.names) if name.endswith("_ts")]

    def _defined(self) -> list[Row]:
        query, holds = self.changed.query(), WHERE[self.changed.where] if self.changed.where is not None else None
        streams = [s.good for s in self.rules.streams]
        found = window_join(streams, [s.window for s in query.streams])
        if holds is not None:
            found = [c for c in found if holds(*c)]
        out = [_combination(c) for c in found] if query.pairs else []
        for i in query.preserved:
            matched = {id(c[i]) for c in found}
            alone = [t for t in streams[i] if (id(t) in matched) == (query.how == "semi")]
            if query.pads(i):
                alone += [t for t in self.rules.streams[i].shown if None in t.key]
            out += [_single(query, i, t) for t in alone]
        return out


def _row(t: Tuple) -> Row:
    return (t.ts, *map(canonical, t.key), t.row)


def _combination(tuples: Sequence[Tuple]) -> Row:
    return (*map(canonical, tuples[0].key), *(part for t in tuples for part in (t.ts, t.row)))


def _single(query: JoinQuery, i: int, t: Tuple) -> Row:
    key = tuple(map(canonical, t.key))
    if not query.pairs:
        return (*key, t.ts, t.row)
    return (*key, t.ts, t.row, None, None) if i == 0 else (*key, None, None, t.ts, t.row)


def _event_time(row: Row, times: Sequence[int]) -> int:
    return max(row[n] for n in times if row[n] is not None)


def unless_ended(evolve: Callable[[], Evolution]) -> Evolution | None:
    """None if a stream has ended, after which windows, `how` and `where` stay."""
    try:
        return evolve()
    except StateMismatchError as error:
        if "has ended" in str(error):
            return None
        raise


def may_hold(script: Script) -> Callable[[int, Tuple], bool]:
    """What a tuple of a stream decides of `where` by itself."""
    return MAY_HOLD.get(script.where or "", lambda i, t: True)


def carry_on(data: st.DataObject, script: Script, changed: Script, before: Operator, after: Operator) -> Evolution:
    """Run a script, change the query somewhere, go on to the end of all streams, and compare."""
    nothing = (Elements(),) * len(script.windows)
    script = replace(script, batches=(nothing, *script.batches))  # the query may change before there is a row
    at = data.draw(st.integers(1, len(script.batches)), label="change before batch")
    shards = st.integers(1, 3)
    run = Run(script, changed, at, before, data.draw(shards))
    run.rules.ends_close = isinstance(before, Join) and before.name == "pwjoin"
    if script.where is not None:
        run.rules.holds = WHERE[script.where]
    run.rules.may_hold = may_hold(script)
    for elements in script.batches[:at]:
        run.step(elements, script)
    evolution = unless_ended(lambda: run.evolve(after, data.draw(shards)))
    assume(evolution is not None)
    assert evolution is not None, "assumed"
    run.rules.ends_close = isinstance(after, Join) and after.name == "pwjoin"
    run.rules.holds = None if changed.where is None else WHERE[changed.where]
    now = may_hold(changed)
    run.rules.may_hold = lambda i, t: t.row in run.held[i] or now(i, t)  # what is stored stays
    for elements in script.batches[at:]:
        run.step(elements, changed)
        if "semi" not in (script.how, changed.how):
            run.check_state()
        if data.draw(st.booleans(), label="restart"):
            run.sharded.restart()
    run.step([Elements(ended=True)] * len(script.windows), changed)
    run.check(evolution.exact_from)
    return evolution


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data())
def test_a_changed_pwjoin(how: str, data: st.DataObject) -> None:
    """Windows, delays, how and where, at any point of any history with punctuations."""
    where = st.sampled_from([None, None, *WHERE])
    script = replace(data.draw(scripts(how=st.just(how))), where=data.draw(where))
    changed = replace(
        script,
        how=data.draw(st.sampled_from(SUFFICIENT[how])),
        windows=tuple(data.draw(st.just(w) | windows()) for w in script.windows),
        delays=tuple(data.draw(st.sampled_from([d, 0, 3, 8])) for d in script.delays),
        idle_after=tuple(data.draw(st.sampled_from([n, None, 6])) for n in script.idle_after),
        where=data.draw(st.just(script.where) | where),
    )
    carry_on(data, script, changed, Join(script.query(), PWJoin()), Join(changed.query(), PWJoin()))


def without_punctuations(script: Script) -> Script:
    """Only heartbeats and ends: what a join that ignores punctuations takes the stream for."""

    def plain(e: Elements) -> Elements:
        return replace(e, punctuations=tuple(p for p in e.punctuations if isinstance(p.pattern, Heartbeat)))

    return replace(script, batches=tuple(tuple(map(plain, batch)) for batch in script.batches))


ALGORITHMS: dict[str, dict[str, Any]] = {
    name: {} for name in ("hash", "nested_loop", "pwjoin", "eager", "lazy", "naive_multiway", "general_lazy", "hybrid")
} | {"windowed_hash": {"buckets": 3, "invalidation": "probe"}}


@few
@given(data=st.data(), names=st.tuples(*[st.sampled_from(sorted(ALGORITHMS))] * 2))
def test_a_changed_algorithm(data: st.DataObject, names: tuple[str, str]) -> None:
    script = without_punctuations(data.draw(scripts(how=st.just("inner"), punctuated=False)))
    changed = replace(script, windows=tuple(data.draw(st.just(w) | windows()) for w in script.windows))
    before, after = (
        plan(s.query(), name, **ALGORITHMS[name]) for s, name in zip((script, changed), names, strict=True)
    )
    if "windowed_hash" in names:
        assume(False) if names[1] == "windowed_hash" else None  # which keeps rows longer
    evolution = carry_on(data, script, changed, before, after)
    assert (f"algorithm {names[0]} → {names[1]}" in evolution.changes) == (names[0] != names[1])


@few
@given(data=st.data(), every=st.sampled_from([None, 4]))
def test_several_streams_and_windows_of_rows(data: st.DataObject, every: int | None) -> None:
    """Windows of rows stay, windows of time change, pending tuples come out by the new query."""
    per_key = all_windows().map(lambda w: replace(w, per_key=True) if isinstance(w, RowsWindow) else w)
    script = data.draw(scripts(how=st.just("inner"), window=per_key, streams=3))
    time = [w if isinstance(w, RowsWindow) else data.draw(st.just(w) | windows()) for w in script.windows]
    changed = replace(script, windows=tuple(time))
    at, shards = data.draw(st.integers(1, len(script.batches))), st.integers(1, 3)
    run = Run(script, changed, at, plan(script.query(), "general_lazy", every=every), data.draw(shards))
    run.rules.ends_close, run.rules.every = False, every or 0
    for elements in script.batches[:at]:
        run.step(elements, script)
    evolution = unless_ended(lambda: run.evolve(plan(changed.query(), "general_lazy", every=every), data.draw(shards)))
    if evolution is None:
        return
    for elements in (*script.batches[at:], [Elements(ended=True)] * 3):
        run.step(elements, changed)
    run.check(evolution.exact_from)


# ---------------------------------------------------------------- columns and split keys


def stream(name: str, columns: Sequence[str], window: Window | None = None, key: Sequence[str] = ("k",)) -> StreamSpec:
    parts = {c: pa.int32() for c in key if c.startswith(PART)}
    schema = pa.schema(
        [
            ("k", pa.string()),
            (f"{name}_ts", pa.int64()),
            *((c, pa.int64()) for c in columns),
            *parts.items(),
        ]
    )
    return StreamSpec(name, schema, f"{name}_ts", tuple(key), window or TimeWindow(10))


def rows(spec: StreamSpec, tuples: Sequence[dict[str, Any]]) -> Batch:
    return Batch.of(pa.RecordBatch.from_pylist(list(tuples), schema=spec.schema), spec.time)


@st.composite
def histories(draw: Any) -> list[list[list[dict[str, Any]]]]:
    """Batches of two streams: key, time and three numbers."""
    out, numbers = [], iter(range(1 << 20))
    for n in range(draw(st.integers(2, 5))):
        batch = []
        for name in "ab":
            drawn = draw(st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 4)), max_size=5))
            batch.append(
                [
                    {"k": k, f"{name}_ts": 5 * n + t} | {f"{name}{c}": next(numbers) for c in range(3)}
                    for k, t in sorted(drawn, key=lambda d: d[1])
                ]
            )
        out.append(batch)
    return out


@few
@given(history=histories(), data=st.data(), how=st.sampled_from(sorted(HOW)))
def test_columns(history: list[list[list[dict[str, Any]]]], data: st.DataObject, how: str) -> None:
    """A column that is added is NULL in stored rows; one that is dropped is in no result any more."""
    chosen = [[data.draw(st.permutations([f"{n}{c}" for c in range(3)])) for n in "ab"] for _ in (0, 1)]
    some = [[c[: data.draw(st.integers(1, 3))] for c in of_query] for of_query in chosen]
    specs = [[stream(n, c) for n, c in zip("ab", of_query, strict=True)] for of_query in some]
    before, after = (Join(JoinQuery(tuple(s), how), PWJoin()) for s in specs)
    at = data.draw(st.integers(1, len(history) - 1))
    sharded = Sharded(before, data.draw(st.integers(1, 3)))
    alone = Sharded(after, 1)
    for n, batch in enumerate(history):
        spec = specs[n >= at]
        if n == at:
            evolution = sharded.evolve(after, data.draw(st.integers(1, 3)))
            for i, name in enumerate("ab"):
                added = [c for c in some[1][i] if c not in some[0][i]]
                assert all(f"column `{c}` of `{name}` added" in evolution.changes for c in added)
                assert all(f"Column `{c}` of `{name}` is NULL" in str(evolution) for c in added)
            assert evolution.exact_from == BEFORE_ALL
        found = sharded.step(sharded.part([rows(s, b) for s, b in zip(spec, batch, strict=True)]))
        known = [[{c: v for c, v in t.items() if n >= at or c in s.schema.names} for t in b]
                 for s, b in zip(specs[0], batch, strict=True)]  # fmt: skip
        wanted = alone.step(alone.part([rows(s, b) for s, b in zip(specs[1], known, strict=True)]))
        if n >= at:
            assert bag(found) == bag(wanted)
            for i in (0, 1):
                assert bag(sharded.held(i)) == bag(alone.held(i))


def divided(tuples: Sequence[dict[str, Any]], split: SplitKeys | None, copied: bool) -> list[dict[str, Any]]:
    """Rows with their parts, as the program that packs them does it."""
    if split is None:
        return list(tuples)
    out = []
    for n, t in enumerate(tuples):
        parts = list(split.parts.get(t["k"], [0]))
        out += [t | {split.column: part} for part in (parts if copied else [parts[n % len(parts)]])]
    return out


@few
@given(history=histories(), data=st.data(), how=st.sampled_from(["inner", "left", "semi", "anti"]))
def test_split_keys(history: list[list[list[dict[str, Any]]]], data: st.DataObject, how: str) -> None:
    """Keys are split, split otherwise, or whole again; no result is lost or doubled."""
    splits = [None, SplitKeys(f"{PART} 1", {"x": [0, 3, 4]}), SplitKeys(f"{PART} 2", {"x": [0, 1], "y": [0, 2, 5]})]
    sharded: Sharded | None = None
    alone = Sharded(Join(JoinQuery((stream("a", ["a0"]), stream("b", ["b0"])), how), PWJoin()), 1)
    chosen: SplitKeys | None = None
    for n, batch in enumerate(history):
        was, chosen = chosen, data.draw(st.sampled_from(splits))
        key = ("k", chosen.column) if chosen is not None else ("k",)
        specs = [stream("a", ["a0"], key=key), stream("b", ["b0"], key=key)]
        join, shards = Join(JoinQuery(tuple(specs), how), PWJoin()), data.draw(st.integers(1, 3))
        if sharded is None:
            sharded = Sharded(join, shards)
        else:
            evolution = sharded.evolve(join, shards, chosen)
            assert any("split_keys" in c for c in evolution.changes) == (was is not chosen)
        some = [divided(b, chosen, bool(i)) for i, b in enumerate(batch)]
        some = [
            [{c: v for c, v in t.items() if c in s.schema.names} for t in b] for s, b in zip(specs, some, strict=True)
        ]
        plain = [[{c: t[c] for c in ("k", f"{m}_ts", f"{m}0")} for t in b] for m, b in zip("ab", batch, strict=True)]
        found = sharded.step(sharded.part([rows(s, b) for s, b in zip(specs, some, strict=True)]))
        at = [i for i, name in enumerate(join.query.schema.names) if not name.startswith(PART)]
        wanted = alone.step(alone.part([rows(s, b) for s, b in zip(alone.join.query.streams, plain, strict=True)]))
        assert bag([tuple(r[i] for i in at) for r in found]) == bag(wanted), n


# ---------------------------------------------------------------- groups


@few
@given(feed=naive_groups.feeds(), w=naive_groups.windows(), new=naive_groups.windows(), data=st.data())
def test_groups_of_later_buckets_are_exact(feed: naive_groups.Feed, w: Any, new: Any, data: st.DataObject) -> None:
    by = ("k", Bucket("a_ts", 7, "from"))
    before, after = (naive_groups.query(by, some, "inner") for some in (w, new))
    at = data.draw(st.integers(1, len(feed)))
    sharded, alone = (Sharded(GroupedJoin(Join(q.join, PWJoin()), q), 2) for q in (before, after))
    found: list[Row] = []
    wanted: list[Row] = []
    exact_from = BEFORE_ALL
    for n in range(len(feed) + 1):
        if n == at:
            into, shards = GroupedJoin(Join(after.join, PWJoin()), after), data.draw(st.integers(1, 3))
            evolution = unless_ended(lambda: sharded.evolve(into, shards))  # noqa: B023  # called at once
            if evolution is None:
                return
            exact_from = evolution.exact_from
            assert ("Groups that are open" in str(evolution)) == (w != new)
        batches = feed.batches(n) if n < len(feed) else [Batch(b.rows.slice(0, 0), ended=True) for b in feed.batches(0)]
        found += sharded.step(sharded.part(batches))
        wanted += alone.step(alone.part(batches))
    start = after.schema.names.index("from")
    assert naive_groups.bag([r for r in found if r[start] >= exact_from]) == naive_groups.bag(
        [r for r in wanted if r[start] >= exact_from]
    )


# ---------------------------------------------------------------- words and refusals


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


def test_an_interval_is_carried_and_not_changed() -> None:
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
    with pytest.raises(
        StateMismatchError,
        match=r"window of stream `a` was partners from .* to .*10 seconds, is partners from .* to .*20 seconds; only",
    ):
        changed(sharded, other(longer, longer.mirrored))
    with pytest.raises(StateMismatchError, match=r"window of stream `a` was partners from .*, is 5 seconds; only"):
        changed(sharded, other(TimeWindow(5 * S), TimeWindow(5 * S)))
    with pytest.raises(StateMismatchError, match="window of stream `a` was 10 seconds, is partners from"):
        changed(started(), other(longer, longer.mirrored))
    with pytest.raises(StateMismatchError, match="window of stream `a` was 10 seconds, is the same 5 seconds; only"):
        changed(started(), lambda q: other_pieces(q, 5 * S))


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
