"""Random streams, the engine run over them, and the two oracles that it is compared with.

The reference (`joins.reference`) is the result by its definition; DuckDB, with the windows written out as predicates,
watches over the reference.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal
from functools import cache
from itertools import count, pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.types as pt
from hypothesis import strategies as st

from watersmeet.joins.base import RunningJoin
from watersmeet.joins.reference.asof import AsofRules
from watersmeet.joins.reference.definition import Tuple, may_still_match, on_time, watermark_after, window_join
from watersmeet.joins.reference.stream_rules import Elements, Outcome
from watersmeet.model.asof import AsOf
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import CLOSED, Interval, RowsWindow, TimeWindow, Unbounded, Window

Row = tuple[Any, ...]

NAN = float("nan")
ANOTHER_NAN = struct.unpack("<d", bytes.fromhex("010000000000f8ff"))[0]
PAIR = pa.struct([("x", pa.int64()), ("y", pa.string())])

#: Kinds of keys: for every column its type and a few values, so that keys meet often.
KEYS: dict[str, tuple[tuple[pa.DataType, tuple[Any, ...]], ...]] = {
    "int64": ((pa.int64(), (0, 1, -1, 2**63 - 1)),),
    "int32": ((pa.int32(), (0, 7, -(2**31))),),
    "string": ((pa.string(), ("", "a", "b", "ab", "ä" * 40)),),
    "binary": ((pa.binary(), (b"", b"\0", b"\0\0", b"\xff")),),
    "bool": ((pa.bool_(), (False, True)),),
    "date": ((pa.date32(), (date(1970, 1, 1), date(1, 1, 1), date(9999, 12, 31))),),
    "timestamp": ((pa.timestamp("us"), (datetime(1970, 1, 1), datetime(2024, 2, 29, 1, 2, 3, 4))),),
    "decimal10": ((pa.decimal128(10, 2), (Decimal("0.00"), Decimal("-1.10"), Decimal("99999999.99"))),),
    "decimal38": ((pa.decimal128(38, 4), (Decimal("0"), Decimal("-1.1"), Decimal(10**33), Decimal(10**33 + 1))),),
    "float64": ((pa.float64(), (0.0, -0.0, 1.5, NAN, ANOTHER_NAN, float("inf"))),),
    "two columns": ((pa.int64(), (0, 1)), (pa.string(), ("", "a"))),
    "two texts": ((pa.string(), ("a", "ab")), (pa.string(), ("bc", "c"))),
    "float and bool": ((pa.float64(), (NAN, 0.0, -0.0)), (pa.bool_(), (True, False))),
    "struct": ((PAIR, ({"x": 0, "y": ""}, {"x": None, "y": ""}, {"x": 0, "y": None}, {"x": None, "y": None})),),
    "list": ((pa.list_(pa.float64()), ([], [None], [0.0], [-0.0], [NAN], [0.0, None])),),
}
TIME_TYPES = (pa.int64(), pa.timestamp("us"), pa.timestamp("us", "UTC"))


@dataclass(frozen=True)
class Side:
    """One stream: its window and delay, and its tuples batch by batch. `row` of a tuple is its number in the stream."""

    window: Window
    delay: int
    batches: tuple[tuple[Tuple, ...], ...]
    ends_after: int | None = None  # the batch with which the stream ends

    def admitted(self) -> list[list[Tuple]]:
        """The tuples of each batch that are not late."""
        shown = self.batches if self.ends_after is None else self.batches[: self.ends_after + 1]
        kept = [len(list(on_time(shown[:i], self.delay))) for i in range(len(shown) + 1)]
        tuples = list(on_time(shown, self.delay))
        inside = [tuples[a:b] for a, b in pairwise(kept)]
        return inside + [[] for _ in self.batches[len(shown) :]]

    def watermarks(self) -> list[int]:
        """The watermark after each batch."""
        out, now = [], BEFORE_ALL
        for i, batch in enumerate(self.batches):
            ended = self.ends_after is not None and i >= self.ends_after
            now = AFTER_ALL if ended else watermark_after(now, batch, self.delay)
            out.append(now)
        return out


@dataclass(frozen=True)
class Scenario:
    """Two streams, batch by batch. Rows carry their number modulo `payloads`; a small one makes duplicates."""

    kind: str
    time_type: pa.DataType
    sides: tuple[Side, Side]
    payloads: int = 1 << 40
    asof: AsOf | None = None

    def __len__(self) -> int:
        return len(self.sides[0].batches)

    def query(self) -> JoinQuery:
        return JoinQuery(tuple(self._spec(i) for i in (0, 1)), asof=self.asof)

    def _spec(self, i: int) -> StreamSpec:
        side, name, keys = self.sides[i], "ab"[i], key_names(self.kind, i)
        fields = [
            (f"{name}_ts", self.time_type),
            *zip(keys, key_types(self.kind), strict=True),
            (f"{name}_n", pa.int64()),
        ]
        return StreamSpec(name, pa.schema(fields), f"{name}_ts", keys, side.window, side.delay)

    def rows(self, i: int, tuples: Sequence[Tuple]) -> pa.RecordBatch:
        """Tuples of stream i as Arrow rows."""
        columns = [pa.array([t.ts for t in tuples], pa.int64()).cast(self.time_type)]
        columns += [pa.array([t.key[c] for t in tuples], kind) for c, kind in enumerate(key_types(self.kind))]
        columns.append(pa.array([t.row % self.payloads for t in tuples], pa.int64()))
        return pa.record_batch(columns, schema=self._spec(i).schema)

    def batches(self, step: int) -> list[Batch]:
        """The arrivals of one step, a batch of each stream."""
        return [
            Batch.of(self.rows(i, side.batches[step]), f"{'ab'[i]}_ts", ended=side.ends_after == step)
            for i, side in enumerate(self.sides)
        ]

    def with_windows(self, windows: tuple[Window, Window]) -> Scenario:
        a, b = (replace(side, window=window) for side, window in zip(self.sides, windows, strict=True))
        return replace(self, sides=(a, b))

    def mirrored(self) -> Scenario:
        return replace(self, sides=(self.sides[1], self.sides[0]))


@cache
def key_names(kind: str, i: int) -> tuple[str, ...]:
    return tuple(f"{'kjlmnopq'[i]}{c}" for c in range(len(KEYS[kind])))


def key_types(kind: str) -> list[pa.DataType]:
    return [column for column, _ in KEYS[kind]]


# ---------------------------------------------------------------- strategies


def windows() -> st.SearchStrategy[Window]:
    lengths = st.integers(0, 12)
    return st.one_of(
        lengths.map(TimeWindow), st.integers(1, 12).map(lambda n: TimeWindow(n, closed=False)), st.just(Unbounded())
    )


def all_windows() -> st.SearchStrategy[Window]:
    """Windows by time, by rows, by rows of a key, and none."""
    counted = st.builds(RowsWindow, st.integers(1, 4), st.booleans())
    return st.one_of(windows(), counted, counted)


@st.composite
def intervals(draw: Any) -> tuple[Interval, Interval]:
    """The windows of an interval join: bounds of all signs, either end open or closed."""
    lower, closed = draw(st.integers(-9, 9)), draw(st.sampled_from(CLOSED))
    width = draw(st.integers({"both": 0, "neither": 2}.get(closed, 1), 9))
    of_first = Interval.between(lower, lower + width, closed)
    return of_first, of_first.mirrored


def keys(kind: str, *, nulls: bool = True) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(*(st.sampled_from([*values, None] if nulls else values) for _, values in KEYS[kind]))


def kinds() -> st.SearchStrategy[str]:
    return st.sampled_from(sorted(KEYS))


@st.composite
def scenarios(draw: Any, kind: st.SearchStrategy[str] | None = None, batches: int = 5, rows: int = 7) -> Scenario:
    """Any scenario: disorder within and beyond the delays, ties, duplicates, NULLs, empty batches, idle sides, ends."""
    chosen = draw(kind if kind is not None else kinds())
    steps = draw(st.integers(1, batches))
    # times in the distant past, around zero, of today and near the largest possible
    base = draw(st.sampled_from([0, -5, 1_700_000_000_000_000, -62_135_596_800_000_000, 253_402_300_799_999_000]))
    sides = tuple(draw(_sides(chosen, steps, rows, base)) for _ in range(2))
    return Scenario(chosen, draw(st.sampled_from(TIME_TYPES)), sides, draw(st.sampled_from([1, 2, 1 << 40])))


@st.composite
def _sides(draw: Any, kind: str, steps: int, rows: int, base: int) -> Side:
    stride, spread = draw(st.sampled_from([0, 2, 10])), draw(st.integers(0, 15))
    most = draw(st.sampled_from([0, rows, rows, rows]))
    offsets = st.one_of(*[st.integers(0, spread)] * 6, st.none())
    drawn = st.lists(st.tuples(offsets, keys(kind)), max_size=most)
    batches, number = [], 0
    for step in range(steps):
        batch = []
        for offset, key in draw(drawn):
            batch.append(Tuple(None if offset is None else base + step * stride + offset, key, number))
            number += 1
        batches.append(tuple(batch))
    ends_after = draw(st.one_of(st.none(), st.none(), st.integers(0, steps - 1)))
    return Side(draw(windows()), draw(st.integers(0, 12)), tuple(batches), ends_after)


@st.composite
def lively(draw: Any, batches: int = 8, rows: int = 4) -> Scenario:
    """Every batch brings something to both sides, nothing is late, and tuples live for some batches."""
    kind = draw(st.sampled_from(["int64", "string", "two columns"]))
    steps = draw(st.integers(3, batches))
    sides = []
    for _ in range(2):
        offsets = st.lists(st.tuples(st.integers(0, 3), keys(kind, nulls=False)), min_size=1, max_size=rows)
        drawn = [draw(offsets) for _ in range(steps)]
        numbers = count()
        tuples = tuple(
            tuple(Tuple(2 * n + ts, key, next(numbers)) for ts, key in batch) for n, batch in enumerate(drawn)
        )
        sides.append(Side(TimeWindow(draw(st.sampled_from([2, 5, 9, 100]))), 3, tuples))
    return Scenario(kind, pa.int64(), (sides[0], sides[1]))


@st.composite
def recut(draw: Any, steps: int = 5, rows: int = 25) -> tuple[Scenario, Scenario]:
    """Two streams whose disorder stays within their delays, cut into batches in two ways."""
    kind = draw(kinds())
    flat = []
    for _ in range(2):
        delay = draw(st.integers(0, 8))
        times = draw(st.lists(st.tuples(st.integers(0, 30), st.integers(0, delay), keys(kind)), max_size=rows))
        # a tuple behind a newer one is late by at most the jitter
        arrived = sorted(times, key=lambda t: t[0] + t[1])
        tuples = tuple(Tuple(ts, key, number) for number, (ts, _, key) in enumerate(arrived))
        flat.append((draw(windows()), delay, tuples))

    def cut() -> Scenario:
        pieces = draw(st.integers(1, steps))
        sides = []
        for window, delay, tuples in flat:
            places = st.lists(st.integers(0, len(tuples)), min_size=pieces - 1, max_size=pieces - 1)
            edges = [0, *sorted(draw(places)), len(tuples)]
            sides.append(Side(window, delay, tuple(tuples[a:b] for a, b in pairwise(edges))))
        return Scenario(kind, pa.int64(), (sides[0], sides[1]))

    return cut(), cut()


# ---------------------------------------------------------------- comparing


class Null:
    """A NULL that equals itself: the oracles' value of null-safe key columns."""


NULL = Null()


def canonical(value: Any) -> Any:
    """Equal iff Spark calls the values equal (and NULL equals NULL, as in a bag), and hashable."""
    if value is NULL:
        return None
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    if isinstance(value, dict):
        return tuple((name, canonical(v)) for name, v in value.items())
    if isinstance(value, list):
        return tuple(canonical(v) for v in value)
    return value


def rows_of(table: pa.Table | pa.RecordBatch) -> list[Row]:
    """Rows as canonical values; event times as microseconds."""
    columns = []
    for field in table.schema:
        column = table.column(field.name)
        whole = column.cast(pa.int64()) if field.name.endswith("_ts") and pt.is_timestamp(field.type) else column
        columns.append([canonical(v) for v in whole.to_pylist()])
    return list(zip(*columns, strict=True))


def row_of(scenario: Scenario, t: Tuple) -> Row:
    """A tuple as `rows_of` reads it from its own stream."""
    return (t.ts, *map(canonical, t.key), t.row % scenario.payloads)


def bag(rows: Sequence[Row]) -> Counter[Row]:
    return Counter(rows)


# ---------------------------------------------------------------- the engine


def step(join: RunningJoin[Any], batches: Sequence[Batch]) -> list[Row]:
    """One step; its results."""
    out: list[Row] = []
    for table in join.step(batches):
        assert table.num_rows, "a join yields no empty tables"
        assert table.schema.names == join.query.schema.names
        assert table.schema.types == join.query.schema.types
        out += rows_of(table)
    return out


def stored(join: RunningJoin[Any], i: int) -> list[Row]:
    """What the state of stream i holds, read through lists and segments."""
    state = join.streams[i]
    slots = state.lists.living()
    if not slots.size:
        return []
    segment, place = state.lists.segment[slots], state.lists.row[slots]
    order = np.argsort(segment, kind="stable")
    return rows_of(state.segments.take(segment[order], place[order], state.spec.schema.names))


# ---------------------------------------------------------------- the oracles


def expected(scenario: Scenario) -> list[list[Row]]:
    """The results of each step by definition: a pair is a result of the step in which its later tuple arrives."""
    if scenario.asof is not None:
        steps = asof_steps(scenario)
        return [[(*map(canonical, a.key), a.ts, a.row, b.ts, b.row) for a, b in step.pairs] for step in steps]
    admitted = [side.admitted() for side in scenario.sides]
    arrival = [{t.row: n for n, batch in enumerate(side) for t in batch} for side in admitted]
    streams = [[t for batch in side for t in batch] for side in admitted]
    out: list[list[Row]] = [[] for _ in range(len(scenario))]
    for a, b in window_join(streams, [side.window for side in scenario.sides]):
        when = max(arrival[0][a.row], arrival[1][b.row])
        m = scenario.payloads
        out[when].append((*map(canonical, a.key), a.ts, a.row % m, b.ts, b.row % m))
    return out


def expected_state(scenario: Scenario, i: int) -> list[list[Row]]:
    """The tuples of stream i, after each step, that a future tuple may match."""
    if scenario.asof is not None:
        return [[row_of(scenario, t) for t in step.stored[i]] for step in asof_steps(scenario)]
    side, other = scenario.sides[i], scenario.sides[1 - i]
    so_far: list[Tuple] = []
    out = []
    for batch, watermark in zip(side.admitted(), other.watermarks(), strict=True):
        so_far += batch
        alive = [t for t in so_far if may_still_match(t, side.window.reach, [watermark])]
        out.append([row_of(scenario, t) for t in alive])
    return out


def asof_steps(scenario: Scenario) -> list[Outcome]:
    """Every step of an as-of join by the rules."""
    rules, out = AsofRules(scenario.query()), []
    for n in range(len(scenario)):
        elements = []
        for side in scenario.sides:
            tuples = tuple(replace(t, row=t.row % scenario.payloads) for t in side.batches[n])
            elements.append(Elements(tuples, ended=side.ends_after == n))
        out.append(rules.step(elements))
    return out


def duckdb_join(scenario: Scenario) -> list[Row]:
    """All results, from a batch join in SQL over the rows that are not late."""
    plain = replace(scenario, time_type=pa.int64())
    ours, theirs = key_names(plain.kind, 0), key_names(plain.kind, 1)
    same = " AND ".join(f"a.{k} = b.{j}" for k, j in zip(ours, theirs, strict=True))
    inside = [f"{n}.{n}_ts {_predicate(side.window)}" for n, side in zip("ab", plain.sides, strict=True)]
    if isinstance(plain.sides[0].window, Interval):
        inside = [f"b_ts - a_ts BETWEEN {plain.sides[0].window.lower} AND {plain.sides[0].window.upper}"]
    columns = ", ".join(f"a.{k}" for k in ours)
    with duckdb.connect(config={"threads": 1}) as database:
        for i, side in enumerate(plain.sides):
            tuples = [t for batch in side.admitted() for t in batch]
            database.register("ab"[i], pa.Table.from_batches([plain.rows(i, tuples)]))
        found = database.execute(
            f"SELECT {columns}, a_ts, a_n, b_ts, b_n FROM a JOIN b ON {same} WHERE {' AND '.join(inside)}"
        ).fetchall()
    return [tuple(map(canonical, row)) for row in found]


def _predicate(window: Window) -> str:
    if not isinstance(window, TimeWindow):
        return "IS NOT NULL"
    return f"{'>=' if window.closed else '>'} greatest(a_ts, b_ts) - {window.length}"
