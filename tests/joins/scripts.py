"""Punctuated streams made at random, and joins run over them beside the rules (`joins.reference_rules`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from decimal import Decimal
from functools import cache
from itertools import product
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from tests.oracle import KEYS, Row, bag, canonical, key_names, key_types, keys, rows_of, step, stored, windows
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.pwjoin import RunningPWJoin
from watersmeet.joins.reference import Tuple
from watersmeet.joins.reference_rules import News, Rules, place
from watersmeet.model.batches import AFTER_ALL, Batch
from watersmeet.model.predicate_parser import parse
from watersmeet.model.punctuations import (
    Closings,
    Clustered,
    Empty,
    End,
    Heartbeat,
    Ordered,
    Promise,
    Punctuation,
    Range,
    Unique,
    Value,
    ValueList,
)
from watersmeet.model.queries import HOW, JoinQuery, StreamSpec, columns_of
from watersmeet.model.windows import RowsWindow, Unbounded, Window

#: Kinds of keys that have an order, with a slack that fits them (None: they know no distance).
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
}


#: Names of streams.
NAMES = "abcdefgh"


@dataclass(frozen=True)
class Script:
    """Streams with what they say, batch by batch. Tuples carry a number that no other tuple of the stream has."""

    kind: str
    how: str
    windows: tuple[Window, ...]
    delays: tuple[int, ...]
    promises: tuple[tuple[Promise, ...], ...]
    batches: tuple[tuple[News, ...], ...]
    where: str | None = None  # one of WHERE
    idle_after: tuple[int | None, ...] = (None,) * 8

    def query(self) -> JoinQuery:
        specs = tuple(map(self.spec, range(len(self.windows))))
        return JoinQuery(specs, self.how, None if self.where is None else parse(self.where, columns_of(specs)))

    def spec(self, i: int) -> StreamSpec:
        name, columns = NAMES[i], key_names(self.kind, i)
        types = zip(columns, key_types(self.kind), strict=True)
        fields = [(f"{name}_ts", pa.int64()), *types, (f"{name}_n", pa.int64())]
        spec = StreamSpec(name, pa.schema(fields), f"{name}_ts", columns, self.windows[i], self.delays[i])
        counted = isinstance(self.windows[i], RowsWindow)
        spec = replace(spec, promises=self.promises[i], order_by=f"{name}_n" if counted else None)
        return replace(spec, idle_after=self.idle_after[i])

    def batch(self, n: int, i: int) -> Batch:
        """What stream i brings in batch n, as the engine takes it."""
        return engine_batch(self.spec(i), self.batches[n][i])

    def mirrored(self) -> Script:
        """The same of two streams, seen from the other side."""
        turned = {"left": "right", "right": "left"}.get(self.how, self.how)
        windows, delays, promises = self.windows[::-1], self.delays[::-1], self.promises[::-1]
        swapped, idle = tuple(news[::-1] for news in self.batches), self.idle_after[1::-1]
        return Script(self.kind, turned, windows, delays, promises, swapped, idle_after=idle)


def engine_batch(spec: StreamSpec, news: News) -> Batch:
    """A batch with all that is told of a whole stream: what was seen, the newest keys, the largest key."""
    columns = [pa.array([t.ts for t in news.tuples], pa.int64())]
    columns += [pa.array([t.key[c] for t in news.tuples], spec.schema.field(k).type) for c, k in enumerate(spec.key)]
    columns.append(pa.array([t.row for t in news.tuples], pa.int64()))
    schema = pa.schema([spec.schema.field(k) for k in spec.key])
    closings = Closings.of(news.said, schema) if news.said else None
    batch = Batch.of(pa.record_batch(columns, schema=spec.schema), spec.time, ended=news.ended, closings=closings)
    shown = [t for t in news.tuples if t.ts is not None and None not in t.key]
    if not shown or not spec.promises:
        return batch
    time = max(t.ts for t in shown)
    tips = [t.key for t in shown if t.ts == time]
    newest = pa.record_batch([pa.array([k[c] for k in tips], f.type) for c, f in enumerate(schema)], schema=schema)
    largest = None
    if any(isinstance(p, Ordered) for p in spec.promises):
        key = max((t.key[0] for t in shown), key=place)
        largest = (key, min(t.ts for t in shown if place(t.key[0]) == place(key)))
    return replace(batch, newest=(newest, time), largest=largest)


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
    promising: bool = True,
    streams: int = 2,
) -> Script:
    """Anything, false promises included."""
    chosen = draw(kind if kind is not None else st.sampled_from(sorted(KEYS)))
    window = windows() if window is None else window
    delays = tuple(draw(st.sampled_from([0, 0, 3, 8])) for _ in range(streams))
    steps, stride = draw(st.integers(1, batches)), draw(st.sampled_from([0, 2, 6]))
    numbers = iter(range(1 << 30))
    made = []
    for n in range(steps):
        made.append(tuple(_at(n * stride, draw(_news(chosen, rows)), numbers) for _ in range(streams)))
    promises = tuple(draw(_promises(chosen)) if promising else () for _ in range(streams))
    hows = draw(how if how is not None else st.sampled_from(sorted(HOW)))
    idle = tuple(draw(st.sampled_from([None, None, 1, 6])) for _ in range(streams))
    each = (tuple(draw(window) for _ in range(streams)), delays, promises)
    return Script(chosen, hows, *each, tuple(made), idle_after=idle)


@cache
def _news(kind: str, rows: int) -> st.SearchStrategy[tuple[Any, Any, bool]]:
    """Tuples without numbers, punctuations, and whether the stream ends; times from 0 on."""
    times = st.one_of(*[st.integers(0, 9)] * 8, st.none())
    ends = st.integers(0, 40).map(lambda chance: chance == 40)
    return st.tuples(
        st.lists(st.tuples(times, keys(kind)), max_size=rows), st.lists(_punctuations(kind), max_size=2), ends
    )


def _at(base: int, drawn: tuple[Any, Any, bool], numbers: Iterator[int]) -> News:
    tuples, said, ended = drawn
    made = tuple(Tuple(None if ts is None else base + ts, key, next(numbers)) for ts, key in tuples)
    return News(made, tuple(_later(p, base) for p in said), ended)


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
    """Open, closed, half-open, unbounded, empty and reversed ones."""
    ends = st.sampled_from([*KEYS[kind][0][1], None])
    return st.builds(Range, ends, ends, st.booleans(), st.booleans())


def _promises(kind: str) -> st.SearchStrategy[tuple[Promise, ...]]:
    known: list[tuple[Promise, ...]] = [(), (), (), (Unique(),), (Clustered(),)]
    if kind in ORDERED:
        known += [(Ordered(),), (Unique(), Ordered())]
        known += [(Ordered(ORDERED[kind]),)] if ORDERED[kind] is not None else []
    return st.sampled_from(known)


def unbounded() -> st.SearchStrategy[Window]:
    return st.just(Unbounded())


# ---------------------------------------------------------------- comparing


class Comparison:
    """A join and the rules, fed the same; every step is compared in every respect."""

    def __init__(self, script: Script, every: int = 0) -> None:
        self.script = script
        self.query = script.query()
        self.rules = Rules(self.query, every, WHERE[script.where] if script.where is not None else None)
        self.announced: list[Any] = []  # keys said one by one
        self.over = False
        self.intervals: list[tuple[Any, Any]] = []

    def step(self, join: RunningPWJoin | RunningMultiway, n: int) -> None:
        news = self.script.batches[n]
        self.rules.ends_close = isinstance(join, RunningPWJoin)
        before = {key: self._announced(join, key) for key in self._keys()}
        results = step(join, [self.script.batch(n, i) for i in range(len(news))])
        outcome = self.rules.step(news)
        for i in range(len(news)):
            assert bag(rows_of(join.late[i])) == bag([self.row(i, t) for t in outcome.late[i]])
            assert bag(rows_of(join.violations[i])) == bag([self.row(i, t) for t in outcome.violations[i]])
            self.check_state(join, i)
        wanted = [self.combination(c) for c in outcome.pairs]
        wanted += [self.single(i, t) for i, alone in enumerate(outcome.alone) for t in alone]
        assert bag(results) == bag(wanted)
        assert not (results and self.over), "the end was announced"
        self.over = join.output_progress() == AFTER_ALL
        self._counters(join, n, results)
        self._announcements(join, before)
        self._not_contradicted(results, before)

    def check_state(self, join: RunningPWJoin | RunningMultiway, i: int) -> None:
        """Stream i stands where the rules have it, and holds exactly what they keep."""
        assert join.progress[i] == self.rules.streams[i].progress
        held = stored(join, i)
        if isinstance(self.script.windows[i], RowsWindow):
            held = [row[:-1] for row in held]  # the last one is its place in the stream
        assert bag(held) == bag([self.row(i, t) for t in self.rules.stored(i)])
        if isinstance(join, RunningMultiway) and join.waits:
            waiting = stored(join, len(self.query.streams) + i)
            assert bag(waiting) == bag([self.row(i, t) for t in self.rules.pending(i)])

    def _counters(self, join: RunningPWJoin | RunningMultiway, n: int, results: list[Row]) -> None:
        c, news = join.counters, self.script.batches[n]
        assert c.rows_in == sum(len(side.tuples) for side in news)
        assert c.late == sum(rows.num_rows for rows in join.late)
        assert c.violations == sum(rows.num_rows for rows in join.violations)
        assert c.results == len(results)
        assert c.stored == sum(len(s) for s in join.streams)
        assert c.announced == sum(rows.num_rows for rows in join.announced)
        assert c.announced_ranges == len(join.announced_ranges)

    def _announcements(self, join: RunningPWJoin | RunningMultiway, before: dict[Any, bool]) -> None:
        """A key is announced with the batch in which the rules finish it: not earlier, not later, and once."""
        said = [key for rows in join.announced for key in rows_of(rows)]
        assert not set(said) & set(self.announced), "announced twice"
        assert len(set(said)) == len(said), "announced twice"
        self.announced += said
        self.intervals += join.announced_ranges
        for key in self._keys():
            canonical_key = tuple(map(canonical, key))
            assert not (before[key] and canonical_key in said), "announced twice"
            assert self._announced(join, key) == self.rules.finished(key), key

    def _announced(self, join: RunningPWJoin | RunningMultiway, key: Any) -> bool:
        if tuple(map(canonical, key)) in self.announced:
            return True
        if not self.intervals:
            return False
        order = join.promises[0].order()
        at = order.place(key[0])
        return any(low <= at <= high if order.words else low <= at < high for low, high in self.intervals)

    def _not_contradicted(self, results: list[Row], before: dict[Any, bool]) -> None:
        n = len(KEYS[self.script.kind])
        finished = [tuple(map(canonical, key)) for key, was in before.items() if was]
        assert not [row for row in results if row[:n] in finished]

    def _keys(self) -> list[Any]:
        """All keys there are, hashable."""
        return [Key(key) for key in product(*(values for _, values in KEYS[self.script.kind]))]

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
    """A key by what it is made of, be that hashable or not."""

    def __hash__(self) -> int:
        return hash(repr(self))
