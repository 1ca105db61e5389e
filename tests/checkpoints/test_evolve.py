"""States that a changed query continues: results are exact from the event time that is given on; refusals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lab.joins import naive_groups
from lab.joins.oracle import Row, all_windows, bag, canonical, intervals, rows_of, windows
from lab.joins.payload_streams import SUFFICIENT, rows, stream
from lab.joins.scripts import MAY_HOLD, WHERE, Script, scripts
from lab.joins.sharded_join import Sharded
from watersmeet.checkpoints.convert_rows import PART, SplitKeys
from watersmeet.checkpoints.evolve import Evolution
from watersmeet.errors import StateMismatchError
from watersmeet.joins import Join, Operator, plan
from watersmeet.joins.asof_join import AsofJoin
from watersmeet.joins.group_by.operator import GroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference.definition import Tuple, window_join
from watersmeet.joins.reference.stream_rules import Elements, Rules
from watersmeet.model.asof import DIRECTIONS, AsOf
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.model.grouping import Bucket
from watersmeet.model.punctuations import Heartbeat
from watersmeet.model.queries import HOW, JoinQuery
from watersmeet.model.windows import Interval, RowsWindow, Unbounded

few = settings(max_examples=settings().max_examples // 2)
S = 1_000_000


class Run:
    """A script whose query changes between batches: all results, and the rules beside it."""

    def __init__(self, script: Script, before: Operator, shards: int) -> None:
        self.sharded = Sharded(before, shards)
        self.rules = Rules(before.query)
        self.results: list[tuple[Script, list[Row]]] = []
        self.came: list[set[int]] = [set() for _ in script.windows]
        self.old = self.came  # tuples that came before the last change
        self.held = self.came  # those of them that it found
        self.exact_from = BEFORE_ALL
        self.mattered = 0  # the batch before which results last began to follow another query
        self.changed = 0  # the batch before which the query last changed
        self._use(script, before)

    def _use(self, script: Script, operator: Operator) -> None:
        """Go by the rules of this query from here on."""
        self.script = script
        self.rules.ends_close = isinstance(operator, Join) and operator.name == "pwjoin"
        self.rules.holds = None if script.where is None else WHERE[script.where]
        held, now = self.held, may_hold(script)
        self.rules.may_hold = lambda i, t: t.row in held[i] or now(i, t)  # what is stored stays

    def step(self, elements: Sequence[Elements]) -> None:
        ends = replace(self.script, batches=(tuple(elements),))
        batches = [ends.batch(0, i) for i in range(len(elements))]
        self.results.append((self.script, self.sharded.step(self.sharded.part(batches))))
        self.came = [rows | {t.row for t in e.tuples} for rows, e in zip(self.came, elements, strict=True)]
        outcome = self.rules.step(elements)
        for name in ("late", "violations"):
            for i in range(len(elements)):
                parts = [getattr(running, name) for running in self.sharded.running]
                found = [r for part in parts if part for r in rows_of(part[i])]  # none: the join ignores punctuations
                assert bag(found) == bag([_row(t) for t in getattr(outcome, name)[i]])

    def evolve(self, script: Script, into: Operator, shards: int) -> Evolution | None:
        """Change the query, if no stream has ended; the rules keep what they know of the streams."""
        evolution = unless_ended(lambda: self.sharded.evolve(into, shards))
        if evolution is None:
            return None
        names = [s.spec.schema.names.index(s.spec.time.replace("ts", "n")) for s in self.rules.streams]
        self.held = [{row[at] for row in self.sharded.held(i)} for i, at in enumerate(names)]
        self.old, self.changed = self.came, len(self.results)
        if any(getattr(script, fact) != getattr(self.script, fact) for fact in ("windows", "how", "where")):
            self.mattered, self.exact_from = len(self.results), evolution.exact_from
        else:
            assert evolution.exact_from in (BEFORE_ALL, self.exact_from), "all are exact, or those that were"
        self.all_exact = evolution.exact_from == BEFORE_ALL
        self._use(script, into)
        self.rules.query = into.query
        for own, spec in zip(self.rules.streams, into.query.streams, strict=True):
            own.spec = spec
            own.take_effect(self.rules.batch, ends_close=False)  # without a delay, also those of the watermark itself
        return evolution

    def check_state(self) -> None:
        """Of the tuples that the new query would keep, those are there that were there or came since."""
        for i in range(len(self.rules.streams)):
            kept = [t for t in self.rules.stored(i) if t.row in self.held[i] or t.row not in self.old[i]]
            width = len(self.rules.streams[i].spec.schema.names)
            assert bag([row[:width] for row in self.sharded.held(i)]) == bag([_row(t) for t in kept])

    def check(self) -> None:
        """All streams have ended: from `exact_from` on the results are those of the definition."""
        timed = [(n, row, _event_time(row, self._times(s))) for n, (s, rows) in enumerate(self.results) for row in rows]
        exact = [(n, row) for n, row, time in timed if time >= self.exact_from]
        wanted = [row for row in self._defined() if _event_time(row, self._times(self.script)) >= self.exact_from]
        if self.exact_from > BEFORE_ALL:
            assert all(n >= self.mattered for n, _ in exact), "exact from now on"
        assert bag([row for _, row in exact]) == bag(wanted)
        if self.changed > self.mattered and self.all_exact:
            assert all(time >= self.exact_from for n, _, time in timed if n >= self.changed)

    def _times(self, script: Script) -> list[int]:
        """Where the event times are in a result."""
        query = script.query()
        return [n for n, name in enumerate(query.schema.names) if name.endswith("_ts")]

    def _defined(self) -> list[Row]:
        query, holds = self.script.query(), self.rules.holds
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


def carry_on(data: st.DataObject, script: Script, *queries: tuple[Script, Operator]) -> list[Evolution | None]:
    """Run a script, change the query somewhere once or several times, go on to the end, and compare."""
    nothing = (Elements(),) * len(script.windows)
    batches = (nothing, *script.batches)  # the query may change before there is a row
    points = sorted(data.draw(st.integers(1, len(batches)), label="change before batch") for _ in queries[1:])
    shards = st.integers(1, 3)
    run = Run(*queries[0], data.draw(shards))
    changes, evolutions = list(zip(points, queries[1:], strict=True)), []
    for n in range(len(batches) + 1):
        while changes and changes[0][0] == n:
            evolutions.append(run.evolve(*changes.pop(0)[1], data.draw(shards)))
        if n == len(batches):
            break
        run.step(batches[n])
        if evolutions and all("semi" not in (s.how, run.script.how) for s, _ in queries):
            run.check_state()
        if evolutions and data.draw(st.booleans(), label="restart"):
            run.sharded.restart()
    run.step([Elements(ended=True)] * len(script.windows))
    run.check()
    return evolutions


@st.composite
def variants(draw: Any, script: Script, window: st.SearchStrategy[Any] | None = None) -> list[Script]:
    """The script with other windows, kinds, delays and conditions, one after the other."""
    out, where = [script], st.sampled_from([None, None, *WHERE])
    for _ in range(draw(st.integers(1, 3))):
        s = out[-1]
        changed = window if window is not None else st.tuples(*(st.just(w) | windows() for w in s.windows))
        out.append(
            replace(
                s,
                how=draw(st.just(s.how) | st.sampled_from(SUFFICIENT[s.how])),
                windows=draw(st.just(s.windows) | changed),
                delays=tuple(draw(st.sampled_from([d, 0, 3, 8])) for d in s.delays),
                idle_after=tuple(draw(st.sampled_from([n, None, 6])) for n in s.idle_after),
                where=draw(st.just(s.where) | where),
            )
        )
    return out


@pytest.mark.parametrize("how", HOW)
@few
@given(data=st.data())
def test_a_changed_pwjoin(how: str, data: st.DataObject) -> None:
    """Windows, delays, how and where, once or more often, at any point of any history with punctuations."""
    where = st.sampled_from([None, None, *WHERE])
    script = replace(data.draw(scripts(how=st.just(how))), where=data.draw(where))
    carry_on(data, script, *((s, Join(s.query(), PWJoin())) for s in data.draw(variants(script))))


@pytest.mark.parametrize("how", ["inner", "full"])
@few
@given(data=st.data(), between=intervals())
def test_changed_intervals(how: str, data: st.DataObject, between: tuple[Interval, Interval]) -> None:
    script = replace(data.draw(scripts(how=st.just(how))), windows=between)
    changed = data.draw(variants(script, intervals()))
    carry_on(data, script, *((s, Join(s.query(), PWJoin())) for s in changed))


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
    assume(names[1] != "windowed_hash")  # which keeps rows longer
    (evolution,) = carry_on(data, script, (script, before), (changed, after))
    assume(evolution is not None)
    assert evolution is not None, "assumed"
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
    run = Run(script, plan(script.query(), "general_lazy", every=every), data.draw(shards))
    run.rules.every = every or 0
    for elements in script.batches[:at]:
        run.step(elements)
    if run.evolve(changed, plan(changed.query(), "general_lazy", every=every), data.draw(shards)) is None:
        return
    for elements in (*script.batches[at:], [Elements(ended=True)] * 3):
        run.step(elements)
    run.check()


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


@few
@given(history=histories(), data=st.data(), direction=st.sampled_from(DIRECTIONS))
def test_as_of_joins(history: list[list[list[dict[str, Any]]]], data: st.DataObject, direction: str) -> None:
    """Columns, kind and shards change; the answers go on as if the query had been the new one all the time."""
    asof = AsOf(direction, data.draw(st.sampled_from([None, 3])), data.draw(st.booleans()))

    def query(how: str, *columns: list[str]) -> JoinQuery:
        a, b = (
            replace(stream(n, c, Unbounded()), delay=delay) for n, c, delay in zip("ab", columns, delays, strict=True)
        )
        return JoinQuery((a, b), how, asof=asof)

    delays = data.draw(st.tuples(*[st.sampled_from([0, 2])] * 2))
    how = data.draw(st.sampled_from(["left", "inner"]))
    queries = [query(how, ["a0"], ["b0"]), query(how, ["a0", "a1"], ["b1", "b0"])]
    queries.append(query(data.draw(st.sampled_from(["inner", how])), ["a1", "a0"], ["b0"]))
    points = sorted(data.draw(st.integers(1, len(history))) for _ in queries[1:])
    sharded = Sharded(Join(queries[0], AsofJoin()), data.draw(st.integers(1, 3)))
    alone = Sharded(Join(queries[-1], AsofJoin()), 1)
    changes = list(zip(points, queries[1:], strict=True))
    for n, batch in enumerate(history):
        while changes and changes[0][0] == n:
            sharded.evolve(Join(changes.pop(0)[1], AsofJoin()), data.draw(st.integers(1, 3)))
        specs = sharded.join.query.streams
        found = sharded.step(sharded.part([rows(s, b) for s, b in zip(specs, batch, strict=True)]))
        known = [
            [{c: v for c, v in t.items() if c in s.schema.names} for t in b] for s, b in zip(specs, batch, strict=True)
        ]
        wanted = alone.step(alone.part([rows(s, b) for s, b in zip(alone.join.query.streams, known, strict=True)]))
        if not changes:
            assert bag(found) == bag(wanted)
        if data.draw(st.booleans(), label="restart"):
            sharded.restart()


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
