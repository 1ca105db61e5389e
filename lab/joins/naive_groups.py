"""Streams without violations, and a naive group-by over their join: it keeps all rows."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from random import Random
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from watersmeet.joins.group_by.operator import GroupedJoin, RunningGroupedJoin
from watersmeet.joins.pwjoin import RunningPWJoin
from watersmeet.model.batches import Batch
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.punctuations import BatchPunctuations, End, Heartbeat, Punctuation, Range, Value
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow, Window
from watersmeet.state.durable import log

Row = tuple[Any, ...]
SCHEMAS = (
    pa.schema([("k", pa.int64()), ("a_ts", pa.int64()), ("x", pa.float64()), ("i", pa.int64())]),
    pa.schema([("k", pa.int64()), ("b_ts", pa.int64()), ("y", pa.decimal128(10, 2)), ("s", pa.string())]),
)
COLUMNS = ("k", "a_ts", "x", "i", "b_ts", "y", "s")
#: Every aggregate of every column that it accepts.
ALL = {
    "n": Aggregate("count"),
    **{
        f"{kind}_{c}": Aggregate(kind, c)
        for kind in ("count", "sum", "min", "max", "mean", "first", "last", "collect_list", "count_distinct")
        for c in ("x", "i", "y", "s")
        if c != "s" or kind not in ("sum", "mean")
    },
}
BY: dict[str, tuple[str | Bucket, ...]] = {
    "key": ("k",),
    "key and text": ("s", "k"),
    "key and float": ("k", "x"),
    "key and bucket": ("k", Bucket("a_ts", 10, "a_from")),
    "bucket and key": (Bucket("b_ts", 7, "b_from"), "k", "s"),
}


def query(
    by: tuple[str | Bucket, ...],
    windows: tuple[Window, Window],
    how: str = "inner",
    emit: str = "final",
    names: Sequence[str] = ("n", "sum_i", "mean_y", "max_x", "last_s"),
) -> GroupedQuery:
    streams = tuple(
        StreamSpec(name, schema, f"{name}_ts", ("k",), window)
        for name, schema, window in zip("ab", SCHEMAS, windows, strict=True)
    )
    return GroupedQuery(streams, how, group_by=GroupBy(by, tuple((name, ALL[name]) for name in names), emit))


# ---------------------------------------------------------------- streams in order, without violations


@dataclass(frozen=True)
class Feed:
    """Rows of both streams, batch by batch (times of batch n are 10 n to 10 n + 9), and their punctuations."""

    rows: tuple[tuple[tuple[Row, ...], ...], ...]  # by stream, by batch
    punctuations: tuple[tuple[tuple[Punctuation, ...], ...], ...]

    def __len__(self) -> int:
        return len(self.rows[0])

    def batches(self, n: int) -> list[Batch]:
        out = []
        for i, schema in enumerate(SCHEMAS):
            columns = [pa.array([r[c] for r in self.rows[i][n]], f.type) for c, f in enumerate(schema)]
            punctuations = BatchPunctuations.of(self.punctuations[i][n], pa.schema([schema.field("k")]))
            out.append(Batch.of(pa.record_batch(columns, schema=schema), f"{'ab'[i]}_ts", punctuations=punctuations))
        return out


VALUES = (
    (st.sampled_from([None, 0.0, -0.0, 1.5, -2.25, math.nan]), st.sampled_from([None, 1, -7, 2**53 + 1])),
    (st.sampled_from([None, *map(Decimal, ("1.10", "-3.00", "99999999.99"))]), st.sampled_from([None, "", "ä", "b"])),
)


@st.composite
def feeds(draw: Any, batches: int = 5, keys: int = 4, nulls: bool = False) -> Feed:
    steps = draw(st.integers(1, batches))
    key = st.sampled_from([*range(keys), *([None] if nulls else [])])
    rows, punctuations = [], []
    for i in (0, 1):
        mine = []
        for n in range(steps):
            times = sorted(draw(st.lists(st.integers(10 * n, 10 * n + 9), max_size=5)))
            mine.append(tuple((draw(key), t, draw(VALUES[i][0]), draw(VALUES[i][1])) for t in times))
        rows.append(tuple(mine))
        punctuations.append(tuple(tuple(draw(_punctuations(mine, n, steps))) for n in range(steps)))
    return Feed(tuple(rows), tuple(punctuations))


@st.composite
def _punctuations(draw: Any, rows: Sequence[Sequence[Row]], n: int, steps: int) -> list[Punctuation]:
    """Punctuations of keys without further rows."""
    open_keys = {r[0] for batch in rows[n + 1 :] for r in batch}
    done = [k for k in range(4) if k not in open_keys]
    now, out = 10 * n + 9, []
    if done:
        out += [Punctuation(Value((k,)), now) for k in draw(st.lists(st.sampled_from(done), max_size=2))]
        low = draw(st.sampled_from(done))
        high = low
        while high + 1 in done:
            high += 1
        if draw(st.integers(0, 3)) == 0:
            out.append(Punctuation(Range(low, high), now))
    if draw(st.booleans()):
        out.append(Punctuation(Heartbeat(now + 1), now))
    if n == steps - 1 and draw(st.booleans()):
        out.append(Punctuation(End(), now))
    return out


def windows() -> st.SearchStrategy[tuple[Window, Window]]:
    one = st.one_of(st.integers(0, 25).map(TimeWindow), st.integers(1, 9).map(lambda n: TimeWindow(n, closed=False)))
    return st.tuples(one, one)


def some_aggregates() -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(sorted(ALL)), min_size=1, max_size=4, unique=True)


# ---------------------------------------------------------------- the naive group-by


def plain_bytes(row: Row) -> bytes:
    """The bytes of a result, encoded in plain Python."""
    out = b""
    for value in row:
        if value is None:
            out += b"\0"
            continue
        match value:
            case float():
                data = struct.pack("<d", math.nan if value != value else value + 0.0)
            case Decimal():
                data = struct.pack("<q", int(value.scaleb(2)))
            case int():
                data = struct.pack("<q", value)
            case _:
                data = value.encode()
        out += b"\1" + struct.pack("<i", len(data)) + data
    return out


def group_of(row: Row, by: Sequence[str | Bucket]) -> Row:
    values = dict(zip(COLUMNS, row, strict=True))
    out: list[Any] = []
    for b in by:
        value = values[b if isinstance(b, str) else b.column]
        if isinstance(b, Bucket) and value is not None:
            value -= value % b.length
        out.append(comparable(value))
    return tuple(out)


def comparable(value: Any) -> Any:
    """A value that is equal to another one if Spark's are, floats up to rounding."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else f"{value + 0.0:.12g}"
    return [comparable(v) for v in value] if isinstance(value, list) else value


def naive(aggregate: Aggregate, rows: Sequence[Row]) -> Any:
    at = {c: i for i, c in enumerate(COLUMNS)}

    def now(row: Row) -> int:
        return max(t for t in (row[at["a_ts"]], row[at["b_ts"]]) if t is not None)

    rows = sorted(rows, key=lambda r: (now(r), plain_bytes(r)))
    if aggregate.column is None:
        return len(rows)
    whole = [r[at[aggregate.column]] for r in rows]
    values = [v for v in whole if v is not None]

    def size(v: Any) -> Any:
        return (v != v, 0.0 if v != v else v) if isinstance(v, float) else v

    match aggregate.kind:
        case "count":
            return len(values)
        case "count_distinct":
            return len({comparable(v) for v in values})
        case "collect_list":
            return values
        case "first":
            return whole[0]
        case "last":
            return whole[-1]
        case "min":
            return min(values, key=size, default=None)
        case "max":
            return max(values, key=size, default=None)
        case "sum":
            return sum(values[1:], values[0]) if values else None
        case _ if not values:
            return None
        case _ if isinstance(values[0], Decimal):
            return (sum(values, Decimal(0)) / len(values)).quantize(Decimal("0.000001"), ROUND_HALF_UP)
        case _:
            return sum(values) / len(values)


class NaiveGroups:
    """All rows of every open group."""

    def __init__(self, q: GroupedQuery) -> None:
        self.query = q
        self.open: dict[Row, list[Row]] = {}
        self.closed: set[Row] = set()

    def step(
        self, rows: Sequence[Row], join: RunningPWJoin | None, watermarks: Sequence[int], ended: bool
    ) -> list[Row]:
        """The groups that a batch with these results emits."""
        changed = set()
        for row in rows:
            group = group_of(row, self.query.group_by.by)
            assert group not in self.closed, "a final group gets no more results"
            self.open.setdefault(group, []).append(row)
            changed.add(group)
        final = {g for g in self.open if ended or self._final(g, join, watermarks)}
        emitted = changed if self.query.group_by.emit == "update" else final
        out = [self.read(g) for g in emitted]
        for group in final:
            del self.open[group]
        self.closed |= final
        return out

    def _final(self, group: Row, join: RunningPWJoin | None, watermarks: Sequence[int]) -> bool:
        by = self.query.group_by.by
        if join is not None and "k" in by:
            key = group[by.index("k")]
            if any(key in rows.column(0).to_pylist() for rows in join.propagated):
                return True
            if key is not None and any(low <= key <= high for low, high in join.propagated_ranges):
                return True
        found = self.query.final_bucket()
        if found is None or group[found[0]] is None:
            return False
        place, i = found
        end = group[place] + by[place].length - 1  # type: ignore[union-attr]
        return watermarks[i] > end and watermarks[1 - i] > end + self.query.streams[i].window.reach

    def read(self, group: Row) -> Row:
        aggregates = self.query.group_by.aggregates
        return (*group, *(comparable(naive(a, self.open[group])) for _, a in aggregates))


def bag(rows: Sequence[Row]) -> Counter[str]:
    return Counter(map(repr, rows))


def rows_of(tables: Sequence[pa.Table]) -> list[Row]:
    return [tuple(row.values()) for t in tables for row in t.to_pylist()]


def groups_of(tables: Sequence[pa.Table], q: GroupedQuery) -> list[Row]:
    assert all(t.schema == q.schema for t in tables)
    assert all(t.num_rows for t in tables)
    return [tuple(map(comparable, row)) for row in rows_of(tables)]


def open_groups(join: Any) -> list[Row]:
    """The groups in the state."""
    state, fold = join.groups.state, join.groups.fold
    return groups_of([fold.read(t)] if (t := state.rows(state.lists.living())[0]).num_rows else [], fold.query)


def rebuilt(join: GroupedJoin, header: log.Header, store: log.MemoryStore) -> RunningGroupedJoin:
    running = join.start()
    log.rebuild(running, header, store)
    return running


def feed(batches: int = 4) -> Feed:
    chance = Random(3)
    rows: list[list[tuple[Row, ...]]] = [[], []]
    values: tuple[Any, ...]
    for n in range(batches):
        for mine, values in zip(rows, ((None, 1, -7), (None, "", "ä")), strict=True):
            late = [(1, 0, None, None)] if n == 2 else []
            times = sorted(chance.randrange(10 * n, 10 * n + 10) for _ in range(12))
            mine.append((*late, *((chance.randrange(4), t, None, chance.choice(values)) for t in times)))
    return Feed(tuple(map(tuple, rows)), (((),) * batches,) * 2)
