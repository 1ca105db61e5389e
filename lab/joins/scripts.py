"""Random punctuated streams, and joins run over them, compared with the rules (`joins.reference.stream_rules`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import cache
from itertools import accumulate, product
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from lab.joins.oracle import KEYS, NULL, Row, bag, canonical, key_names, key_types, keys, rows_of, step, stored, windows
from watersmeet.joins.asof_join import AsofJoin, RunningAsofJoin
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.pwjoin import PWJoin, RunningPWJoin
from watersmeet.joins.reference.asof import AsofRules
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements, Rules
from watersmeet.model.asof import DIRECTIONS, AsOf
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.instants import Instants
from watersmeet.model.punctuations import (
    BatchPunctuations,
    Clustered,
    Constraint,
    Empty,
    End,
    Heartbeat,
    Ordered,
    Punctuation,
    Range,
    Unique,
    Value,
    ValueList,
)
from watersmeet.model.queries import HOW, JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, Unbounded, Window
from watersmeet.query.predicate_parser import parse

#: Kinds of keys that have an order, with a slack of their type (None: they have no distance).
ORDERED: dict[str, Any] = {
    "int64": 1,
    "int32": 8,
    "string": None,
    "binary": None,
    "bool": None,
    "date": timedelta(days=3),
    "timestamp": timedelta(microseconds=4),
    "decimal10": Decimal("1.10"),
    "decimal38": Decimal("1.0"),
    "float64": 1.5,
}

#: Predicates across the streams, in SQL and in Python.
WHERE: dict[str, Callable[[Any, Any], bool]] = {
    "a_n % 2 = b_n % 2": lambda a, b: a.row % 2 == b.row % 2,
    "a_ts <= b_ts AND a_n <> b_n": lambda a, b: a.ts <= b.ts and a.row != b.row,
    "a_n % 3 = 0 AND NULL OR b_ts - a_ts > 2 OR a_ts = b_ts": lambda a, b: b.ts - a.ts > 2 or a.ts == b.ts,
    "a_n <> 0 AND b_n / a_n BETWEEN 0.5 AND 2": lambda a, b: a.row != 0 and 0.5 <= b.row / a.row <= 2,
    "NOT (b_n > 4 OR NULL)": lambda a, b: False,
    "b_n > 4": lambda a, b: b.row > 4,
    "1 < 2": lambda a, b: True,
    "a_n % 2 = 0 AND b_n > 4 AND a_n < b_n": lambda a, b: a.row % 2 == 0 and 4 < b.row > a.row,
    "a_n > 2 AND b_n % 2 = 0": lambda a, b: a.row > 2 and b.row % 2 == 0,
    "b_n <> 1 AND a_n % (b_n - 1) = 0": lambda a, b: b.row != 1 and a.row % (b.row - 1) == 0,
}
#: What a tuple of stream i decides of them by itself.
MAY_HOLD: dict[str, Callable[[int, Any], bool]] = {
    "a_n <> 0 AND b_n / a_n BETWEEN 0.5 AND 2": lambda i, t: i == 1 or t.row != 0,
    "NOT (b_n > 4 OR NULL)": lambda i, t: i == 0,
    "b_n > 4": lambda i, t: i == 0 or t.row > 4,
    "a_n % 2 = 0 AND b_n > 4 AND a_n < b_n": lambda i, t: t.row % 2 == 0 if i == 0 else t.row > 4,
    "a_n > 2 AND b_n % 2 = 0": lambda i, t: t.row > 2 if i == 0 else t.row % 2 == 0,
    "b_n <> 1 AND a_n % (b_n - 1) = 0": lambda i, t: i == 0 or t.row != 1,
}
#: Names of streams.
NAMES = "abcdefgh"


@dataclass(frozen=True)
class Script:
    """Tuples and punctuations of streams, batch by batch. A tuple has a number that is unique in its stream."""

    kind: str
    how: str
    windows: tuple[Window, ...]
    delays: tuple[int, ...]
    constraints: tuple[tuple[Constraint, ...], ...]
    batches: tuple[tuple[Elements, ...], ...]
    where: str | None = None  # one of WHERE
    idle_after: tuple[int | None, ...] = (None,) * 8
    idle_clock: tuple[int | None, ...] = (None,) * 8
    clocks: tuple[int, ...] = ()  # timestamps of the batches, where a stream follows the clock
    null_safe: tuple[bool, ...] = ()
    asof: AsOf | None = None

    def query(self) -> JoinQuery:
        specs = tuple(map(self.spec, range(len(self.windows))))
        where = None if self.where is None else parse(self.where, columns_of(specs))
        return JoinQuery(specs, self.how, where, asof=self.asof)

    def spec(self, i: int) -> StreamSpec:
        name, columns = NAMES[i], key_names(self.kind, i)
        types = zip(columns, key_types(self.kind), strict=True)
        fields = [(f"{name}_ts", pa.int64()), *types, (f"{name}_n", pa.int64())]
        spec = StreamSpec(name, pa.schema(fields), f"{name}_ts", columns, self.windows[i], self.delays[i])
        counted = isinstance(self.windows[i], RowsWindow)
        spec = replace(spec, constraints=self.constraints[i], order_by=f"{name}_n" if counted else None)
        spec = replace(spec, idle_after=self.idle_after[i], idle_clock=self.idle_clock[i])
        return replace(spec, null_safe=self.null_safe)

    def for_rules(self, elements: Elements) -> Elements:
        """The elements as the rules take them: a NULL of a null-safe column is a value."""

        def key(of: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(NULL if v is None and safe else v for v, safe in zip(of, self.null_safe, strict=True))

        def with_nulls(p: Punctuation) -> Punctuation:
            match p.pattern:
                case Value(value):
                    return replace(p, pattern=Value(key(value)))
                case ValueList(values):
                    return replace(p, pattern=ValueList(tuple(map(key, values))))
            return p

        if not self.null_safe:
            return elements
        tuples = tuple(replace(t, key=key(t.key)) for t in elements.tuples)
        return replace(elements, tuples=tuples, punctuations=tuple(map(with_nulls, elements.punctuations)))

    def batch(self, n: int, i: int) -> Batch:
        """The arrivals of stream i in batch n, as input of the engine."""
        return replace(engine_batch(self.spec(i), self.batches[n][i]), clock=self.clock(n))

    def clock(self, n: int) -> int | None:
        return self.clocks[n] if self.clocks else None

    def mirrored(self) -> Script:
        """The same script with its two streams exchanged."""
        turned = {"left": "right", "right": "left"}.get(self.how, self.how)
        windows, delays, constraints = self.windows[::-1], self.delays[::-1], self.constraints[::-1]
        swapped, idle = tuple(elements[::-1] for elements in self.batches), self.idle_after[1::-1]
        clock = {"idle_clock": self.idle_clock[1::-1], "clocks": self.clocks}
        return Script(self.kind, turned, windows, delays, constraints, swapped, idle_after=idle, **clock)


def engine_batch(spec: StreamSpec, elements: Elements) -> Batch:
    """A batch as the engine takes it, with the newest keys and all keys by time if the stream has constraints."""
    columns = [pa.array([t.ts for t in elements.tuples], pa.int64())]
    columns += [
        pa.array([t.key[c] for t in elements.tuples], spec.schema.field(k).type) for c, k in enumerate(spec.key)
    ]
    columns.append(pa.array([t.row for t in elements.tuples], pa.int64()))
    schema = pa.schema([spec.schema.field(k) for k in spec.key])
    punctuations = BatchPunctuations.of(elements.punctuations, schema) if elements.punctuations else None
    batch = Batch.of(
        pa.record_batch(columns, schema=spec.schema), spec.time, ended=elements.ended, punctuations=punctuations
    )
    shown = [t for t in elements.tuples if t.ts is not None and None not in t.key]
    if not shown or not spec.constraints:
        return batch
    time = max(t.ts for t in shown)
    tips = [t.key for t in shown if t.ts == time]
    newest = pa.record_batch([pa.array([k[c] for k in tips], f.type) for c, f in enumerate(schema)], schema=schema)
    columns = [pa.array([t.key[c] for t in shown], f.type) for c, f in enumerate(schema)]
    instants = Instants(pa.record_batch(columns, schema=schema), np.array([t.ts for t in shown], np.int64))
    return replace(batch, newest=(newest, time), largest=instants, different=instants)


# ---------------------------------------------------------------- strategies


@st.composite
def scripts(
    draw: Any,
    kind: st.SearchStrategy[str] | None = None,
    how: st.SearchStrategy[str] | None = None,
    *,
    batches: int = 5,
    rows: int = 5,
    window: st.SearchStrategy[Window] | None = None,
    windows_of_all: st.SearchStrategy[tuple[Window, ...]] | None = None,
    punctuated: bool = True,
    streams: int = 2,
    clocked: bool = False,
) -> Script:
    """Any script, violations included."""
    chosen = draw(kind if kind is not None else st.sampled_from(sorted(KEYS)))
    window = windows() if window is None else window
    delays = tuple(draw(st.sampled_from([0, 0, 3, 8])) for _ in range(streams))
    steps, stride = draw(st.integers(1, batches)), draw(st.sampled_from([0, 2, 6]))
    numbers = iter(range(1 << 30))
    made = []
    for n in range(steps):
        made.append(tuple(_at(n * stride, draw(_elements(chosen, rows)), numbers) for _ in range(streams)))
    constraints = tuple(draw(_constraints(chosen)) if punctuated else () for _ in range(streams))
    hows = draw(how if how is not None else st.sampled_from(sorted(HOW)))
    idle = tuple(draw(st.sampled_from([None, None, 1, 6])) for _ in range(streams))
    both = tuple(draw(window) for _ in range(streams)) if windows_of_all is None else draw(windows_of_all)
    script = Script(chosen, hows, both, delays, constraints, tuple(made), idle_after=idle)
    if clocked:
        behind = tuple(draw(st.sampled_from([None, 1, 4, 12])) for _ in range(streams))
        clocks = accumulate([draw(st.sampled_from([0, 1, 3, 9])) for _ in range(steps)])
        script = replace(script, idle_clock=behind, clocks=tuple(clocks))
    return script


@cache
def _elements(kind: str, rows: int) -> st.SearchStrategy[tuple[Any, Any, bool]]:
    """Tuples without numbers, punctuations, and whether the stream ends; times from 0 on."""
    times = st.one_of(*[st.integers(0, 9)] * 8, st.none())
    ends = st.integers(0, 40).map(lambda chance: chance == 40)
    return st.tuples(
        st.lists(st.tuples(times, keys(kind)), max_size=rows), st.lists(_punctuations(kind), max_size=2), ends
    )


def _at(base: int, drawn: tuple[Any, Any, bool], numbers: Iterator[int]) -> Elements:
    tuples, punctuations, ended = drawn
    made = tuple(Tuple(None if ts is None else base + ts, key, next(numbers)) for ts, key in tuples)
    return Elements(made, tuple(_later(p, base) for p in punctuations), ended)


def _later(p: Punctuation, base: int) -> Punctuation:
    pattern = Heartbeat(p.time + base) if isinstance(p.pattern, Heartbeat) else p.pattern
    return Punctuation(pattern, p.time + base)


def _punctuations(kind: str) -> st.SearchStrategy[Punctuation]:
    key = keys(kind)
    patterns: list[st.SearchStrategy[Any]] = [
        key.map(Value),
        key.map(Value),
        st.lists(key, min_size=1, max_size=3).map(lambda several: ValueList(tuple(several))),
    ]
    if kind in ORDERED:
        patterns += [ranges(kind)] * 3
    rare = st.sampled_from([Heartbeat(0), Heartbeat(0), Heartbeat(0), Empty(), Empty(), End()])
    return st.builds(Punctuation, st.one_of(*patterns * 2, rare), st.integers(0, 9))


def ranges(kind: str) -> st.SearchStrategy[Range]:
    """Open, closed, half-open, unbounded, empty and reversed ranges."""
    ends = st.sampled_from([*KEYS[kind][0][1], None])
    return st.builds(Range, ends, ends, st.booleans(), st.booleans())


def _constraints(kind: str) -> st.SearchStrategy[tuple[Constraint, ...]]:
    known: list[tuple[Constraint, ...]] = [(), (), (), (Unique(),), (Clustered(),)]
    if kind in ORDERED:
        known += [(Ordered(),), (Unique(), Ordered())]
        known += [(Ordered(ORDERED[kind]),)] if ORDERED[kind] is not None else []
    return st.sampled_from(known)


def unbounded() -> st.SearchStrategy[Window]:
    return st.just(Unbounded())


@st.composite
def asofs(draw: Any, direction: str | None = None) -> AsOf:
    """Any as-of join, or any in a direction."""
    exact = draw(st.booleans())
    tolerance = draw(st.one_of(st.none(), st.integers(0 if exact else 1, 8)))
    return AsOf(direction or draw(st.sampled_from(DIRECTIONS)), tolerance, exact)


@st.composite
def asof_scripts(draw: Any, direction: str | None = None, **options: Any) -> Script:
    """Any script of an as-of join."""
    options.setdefault("how", st.sampled_from(["left", "inner"]))
    script = draw(scripts(window=unbounded(), **options))
    return replace(script, asof=draw(asofs(direction)))


# ---------------------------------------------------------------- comparing


class Comparison:
    """A join and the rules over the same input, compared in every respect after every step."""

    def __init__(self, script: Script, every: int = 0) -> None:
        self.script = script
        self.query = script.query()
        where = script.where
        rules = Rules(self.query, every, WHERE[where] if where is not None else None)
        if where in MAY_HOLD:
            rules.may_hold = MAY_HOLD[where]
        self.rules: Rules | AsofRules = rules if self.query.asof is None else AsofRules(self.query)
        self.propagated: list[Any] = []  # keys propagated one by one
        self.over = False
        self.watermark = BEFORE_ALL  # of the output, after the last step
        self.intervals: list[tuple[Any, Any]] = []

    def step(self, join: RunningPWJoin | RunningMultiway | RunningAsofJoin, n: int) -> None:
        elements = self.script.batches[n]
        if isinstance(self.rules, Rules):
            self.rules.ends_close = isinstance(join, RunningPWJoin)
        before = {key: self._propagated(join, key) for key in self._keys()}
        results = step(join, [self.script.batch(n, i) for i in range(len(elements))])
        outcome = self.rules.step([self.script.for_rules(e) for e in elements], self.script.clock(n))
        for i in range(len(elements)):
            assert bag(rows_of(join.late[i])) == bag([self.row(i, t) for t in outcome.late[i]])
            assert bag(rows_of(join.violations[i])) == bag([self.row(i, t) for t in outcome.violations[i]])
            self.check_state(join, i)
        wanted = [self.combination(c) for c in outcome.pairs]
        wanted += [self.single(i, t) for i, alone in enumerate(outcome.alone) for t in alone]
        assert bag(results) == bag(wanted)
        assert not (results and self.over), "the end was propagated"
        times = [row[len(KEYS[self.script.kind]) :: 2] for row in results]
        assert all(max(t for t in each if t is not None) >= self.watermark for each in times), "late for a further join"
        self.watermark = join.output_watermark()
        self.over = join.output_watermark() == AFTER_ALL
        self._counters(join, n, results)
        self._propagations(join, before)
        self._not_contradicted(results, before)

    def check_state(self, join: RunningPWJoin | RunningMultiway | RunningAsofJoin, i: int) -> None:
        """Stream i has the watermark and exactly the tuples that the rules have."""
        assert join.watermarks[i] == self.rules.streams[i].watermark
        held = stored(join, i)
        if isinstance(self.script.windows[i], RowsWindow):
            held = [row[:-1] for row in held]  # the last column is the row's position in the stream
        assert bag(held) == bag([self.row(i, t) for t in self.rules.stored(i)])
        if isinstance(join, RunningMultiway) and isinstance(self.rules, Rules) and join.defers:
            waiting = stored(join, len(self.query.streams) + i)
            assert bag(waiting) == bag([self.row(i, t) for t in self.rules.pending(i)])

    def _counters(self, join: RunningPWJoin | RunningMultiway | RunningAsofJoin, n: int, results: list[Row]) -> None:
        c, elements = join.counters, self.script.batches[n]
        assert c.rows_in == sum(len(side.tuples) for side in elements)
        assert c.late == sum(rows.num_rows for rows in join.late)
        assert c.violations == sum(rows.num_rows for rows in join.violations)
        assert c.results == len(results)
        assert c.stored == sum(len(s) for s in join.streams)
        assert c.propagated == sum(rows.num_rows for rows in join.propagated)
        assert c.propagated_ranges == len(join.propagated_ranges)

    def _propagations(self, join: RunningPWJoin | RunningMultiway | RunningAsofJoin, before: dict[Any, bool]) -> None:
        """A key is propagated with the batch in which the rules finish it: not earlier, not later, and once."""
        keys = [key for rows in join.propagated for key in rows_of(rows)]
        assert not set(keys) & set(self.propagated), "propagated twice"
        assert len(set(keys)) == len(keys), "propagated twice"
        self.propagated += keys
        self.intervals += join.propagated_ranges
        for key in self._keys():
            canonical_key = tuple(map(canonical, key))
            assert not (before[key] and canonical_key in keys), "propagated twice"
            assert self._propagated(join, key) == self.rules.finished(key), key

    def _propagated(self, join: RunningPWJoin | RunningMultiway | RunningAsofJoin, key: Any) -> bool:
        if tuple(map(canonical, key)) in self.propagated:
            return True
        if not self.intervals:
            return False
        order = join.punctuation_sets[0].keys.order()
        at = order.rank(key[0])
        return any(low <= at <= high if order.words else low <= at < high for low, high in self.intervals)

    def _not_contradicted(self, results: list[Row], before: dict[Any, bool]) -> None:
        n = len(KEYS[self.script.kind])
        finished = [tuple(map(canonical, key)) for key, was in before.items() if was]
        assert not [row for row in results if row[:n] in finished]

    def _keys(self) -> list[Any]:
        """All keys of this kind, hashable."""
        safe = self.script.null_safe or (False,) * len(KEYS[self.script.kind])
        values = [(*of, NULL) if s else of for (_, of), s in zip(KEYS[self.script.kind], safe, strict=True)]
        return [Key(key) for key in product(*values)]

    # rows as `rows_of` reads them

    def row(self, i: int, t: Tuple) -> Row:
        return (t.ts, *map(canonical, t.key), t.row)

    def combination(self, tuples: tuple[Tuple, ...]) -> Row:
        return (*map(canonical, tuples[0].key), *(part for t in tuples for part in (t.ts, t.row)))

    def single(self, i: int, t: Tuple) -> Row:
        key = tuple(map(canonical, t.key))
        if not self.query.pairs:
            return (*key, t.ts, t.row)
        return (*key, t.ts, t.row, None, None) if i == 0 else (*key, None, None, t.ts, t.row)


class Key(tuple[Any, ...]):
    """A key that is hashable even if its values are not."""

    def __hash__(self) -> int:
        return hash(repr(self))


def follow(script: Script, join: RunningPWJoin | RunningMultiway | RunningAsofJoin | None = None) -> None:
    """Run a join, by default PWJoin (or an as-of join), beside the rules."""
    join = join or (PWJoin() if script.asof is None else AsofJoin()).start(script.query())
    comparison = Comparison(script, getattr(join, "every", 0))
    for n in range(len(script.batches)):
        comparison.step(join, n)
