"""States that a changed query continues: results are exact from the event time that is given on; refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.joins import naive_groups
from lab.joins.oracle import Row, all_windows, bag, canonical, rows_of, windows
from lab.joins.payload_streams import SUFFICIENT, rows, stream
from lab.joins.scripts import MAY_HOLD, WHERE, Script, scripts
from lab.joins.sharded_join import Sharded
from watersmeet.checkpoints.convert_rows import PART, SplitKeys
from watersmeet.checkpoints.evolve import Evolution
from watersmeet.errors import StateMismatchError
from watersmeet.joins import Join, Operator, plan
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple, window_join
from watersmeet.joins.reference.stream_rules import Elements, Rules
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.model.grouping import Bucket
from watersmeet.model.punctuations import Heartbeat
from watersmeet.model.queries import HOW, JoinQuery
from watersmeet.model.windows import RowsWindow

few = settings(max_examples=settings().max_examples // 2)
S = 1_000_000


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
        for own, spec in zip(self.rules.streams, into.query.streams, strict=True):
            own.spec = spec
            own.take_effect(self.rules.batch, ends_close=False)  # without a delay, also those of the watermark itself
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
