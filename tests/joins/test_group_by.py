"""Groups over a join: the same as a naive group-by over its results, final exactly when nothing can change them."""

from __future__ import annotations

import math
import struct
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.joins.aggregates import Fold
from watersmeet.joins.group_by import GroupedJoin, GroupsOf, Partials, RunningGroupedJoin
from watersmeet.joins.pwjoin import PWJoin, RunningPWJoin
from watersmeet.joins.reference import Tuple, window_join
from watersmeet.model.batches import AFTER_ALL, Batch, no_rows
from watersmeet.model.grouping import Aggregate, Bucket, GroupBy, GroupedQuery
from watersmeet.model.punctuations import Closings, End, Heartbeat, Punctuation, Range, Value
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow, Window
from watersmeet.state import cache, groups, log, stream_state
from watersmeet.state.arrays import MappedArrays

Row = tuple[Any, ...]
SCHEMAS = (
    pa.schema([("k", pa.int64()), ("a_ts", pa.int64()), ("x", pa.float64()), ("i", pa.int64())]),
    pa.schema([("k", pa.int64()), ("b_ts", pa.int64()), ("y", pa.decimal128(10, 2)), ("s", pa.string())]),
)
COLUMNS = ("k", "a_ts", "x", "i", "b_ts", "y", "s")
#: Every aggregate of every column that it takes.
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
    by: tuple[str | Bucket, ...], windows: tuple[Window, Window], how: str = "inner", emit: str = "final"
) -> GroupedQuery:
    streams = tuple(
        StreamSpec(name, schema, f"{name}_ts", ("k",), window)
        for name, schema, window in zip("ab", SCHEMAS, windows, strict=True)
    )
    return GroupedQuery(streams, how, group_by=GroupBy(by, tuple(ALL.items()), emit))


# ---------------------------------------------------------------- streams in order, with true punctuations


@dataclass(frozen=True)
class Feed:
    """Rows of both streams, batch by batch (times of batch n are 10 n to 10 n + 9), and their punctuations."""

    rows: tuple[tuple[tuple[Row, ...], ...], ...]  # by stream, by batch
    said: tuple[tuple[tuple[Punctuation, ...], ...], ...]

    def __len__(self) -> int:
        return len(self.rows[0])

    def batches(self, n: int) -> list[Batch]:
        out = []
        for i, schema in enumerate(SCHEMAS):
            columns = [pa.array([r[c] for r in self.rows[i][n]], f.type) for c, f in enumerate(schema)]
            closings = Closings.of(self.said[i][n], pa.schema([schema.field("k")]))
            out.append(Batch.of(pa.record_batch(columns, schema=schema), f"{'ab'[i]}_ts", closings=closings))
        return out


VALUES = (
    (st.sampled_from([None, 0.0, -0.0, 1.5, -2.25, math.nan]), st.sampled_from([None, 1, -7, 2**53 + 1])),
    (st.sampled_from([None, Decimal("1.10"), Decimal("-3.00"), Decimal("99999999.99")]), st.sampled_from([None, "", "ä", "b"])),
)  # fmt: skip


@st.composite
def feeds(draw: Any, batches: int = 5, keys: int = 4, nulls: bool = False) -> Feed:
    steps = draw(st.integers(1, batches))
    key = st.sampled_from([*range(keys), *([None] if nulls else [])])
    rows, said = [], []
    for i in (0, 1):
        mine = []
        for n in range(steps):
            times = sorted(draw(st.lists(st.integers(10 * n, 10 * n + 9), max_size=5)))
            mine.append(tuple((draw(key), t, draw(VALUES[i][0]), draw(VALUES[i][1])) for t in times))
        rows.append(tuple(mine))
        said.append(tuple(tuple(draw(_punctuations(mine, n, steps))) for n in range(steps)))
    return Feed(tuple(rows), tuple(said))


@st.composite
def _punctuations(draw: Any, rows: Sequence[Sequence[Row]], n: int, steps: int) -> list[Punctuation]:
    """True ones: of keys that do not come any more."""
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


# ---------------------------------------------------------------- the naive group-by


def plain_bytes(row: Row) -> bytes:
    """The bytes of a result, by hand."""
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
        out.append(told(value))
    return tuple(out)


def told(value: Any) -> Any:
    """Values that compare as Spark compares them."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else round(value + 0.0, 9)
    return [told(v) for v in value] if isinstance(value, list) else value


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
            return len({told(v) for v in values})
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
        self.forgotten: set[Row] = set()

    def step(self, rows: Sequence[Row], join: RunningPWJoin | None, progress: Sequence[int], ended: bool) -> list[Row]:
        """Groups that come out of a batch with these results."""
        changed = set()
        for row in rows:
            group = group_of(row, self.query.group_by.by)
            assert group not in self.forgotten, "no result comes to a final group"
            self.open.setdefault(group, []).append(row)
            changed.add(group)
        final = {g for g in self.open if ended or self._final(g, join, progress)}
        said = changed if self.query.group_by.emit == "update" else final
        out = [self.read(g) for g in said]
        for group in final:
            del self.open[group]
        self.forgotten |= final
        return out

    def _final(self, group: Row, join: RunningPWJoin | None, progress: Sequence[int]) -> bool:
        by = self.query.group_by.by
        if join is not None and "k" in by:
            key = group[by.index("k")]
            if any(key in rows.column(0).to_pylist() for rows in join.announced):
                return True
            if key is not None and any(low <= key <= high for low, high in join.announced_ranges):
                return True
        found = self.query.closing_bucket()
        if found is None or group[found[0]] is None:
            return False
        place, i = found
        end = group[place] + by[place].length - 1  # type: ignore[union-attr]
        return progress[i] > end and progress[1 - i] > end + self.query.streams[i].window.reach

    def read(self, group: Row) -> Row:
        aggregates = self.query.group_by.aggregates
        return (*group, *(told(naive(a, self.open[group])) for _, a in aggregates))


def bag(rows: Sequence[Row]) -> Counter[str]:
    return Counter(map(repr, rows))


def rows_of(tables: Sequence[pa.Table]) -> list[Row]:
    return [tuple(row.values()) for t in tables for row in t.to_pylist()]


def groups_of(tables: Sequence[pa.Table], q: GroupedQuery) -> list[Row]:
    assert all(t.schema == q.schema for t in tables)
    assert all(t.num_rows for t in tables)
    return [tuple(map(told, row)) for row in rows_of(tables)]


def open_groups(join: Any) -> list[Row]:
    """What the state holds, read out."""
    state, fold = join.groups.state, join.groups.fold
    return groups_of([fold.read(t)] if (t := state.rows(state.lists.living())[0]).num_rows else [], fold.query)


# ---------------------------------------------------------------- against it


@pytest.mark.parametrize("by", BY)
@settings(max_examples=20)  # of each grouping
@given(feed=feeds(nulls=True), w=windows(), how=st.sampled_from(["inner", "left", "right", "full"]), data=st.data())
def test_groups_are_those_of_a_naive_group_by(by: str, feed: Feed, w: Any, how: str, data: st.DataObject) -> None:
    q = query(BY[by], w, how, data.draw(st.sampled_from(["final", "update"])))
    join, plain, expected = GroupedJoin(PWJoin(q.join), q), PWJoin(q.join).start(), NaiveGroups(q)
    running, store, header = join.start(), log.MemoryStore(), log.begin(q)
    results: list[Row] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(groups, "MOST_PIECES", data.draw(st.sampled_from([1, 2, 32])))
        patch.setattr(stream_state, "MAX_SMALL_SEGMENTS", data.draw(st.sampled_from([1, 64])))
        for n in range(len(feed)):
            news = rows_of(list(plain.step(feed.batches(n))))
            results += news
            ended = plain.output_progress() >= AFTER_ALL
            out = groups_of(list(running.step(feed.batches(n))), q)
            assert bag(out) == bag(expected.step(news, plain, plain.progress, ended))
            assert bag(open_groups(running)) == bag([expected.read(g) for g in expected.open])
            assert running.counters.open_groups == len(expected.open)
            behind, token = rebuilt(join, header, store), header.token
            header = log.commit(running, header, store)
            again = rebuilt(join, header, store)
            assert bag(open_groups(again)) == bag(open_groups(running))
            if log.catch_up(behind, token, header, store):
                assert bag(open_groups(behind)) == bag(open_groups(running))
                again = behind if data.draw(st.booleans(), label="go on from the one that caught up") else again
            running = again if data.draw(st.booleans(), label="restart") else running
    if how == "inner":
        assert bag(results) == bag(reference(feed, q))


def reference(feed: Feed, q: GroupedQuery) -> list[Row]:
    sides = [[Tuple(r[1], (r[0],), r) for batch in rows for r in batch] for rows in feed.rows]
    return [(*a.row, *b.row[1:]) for a, b in window_join(sides, [s.window.reach for s in q.streams])]


def rebuilt(join: GroupedJoin, header: log.Header, store: log.MemoryStore) -> RunningGroupedJoin:
    running = join.start()
    log.rebuild(running, header, store)
    return running


@settings(max_examples=15)  # files are slow
@given(feed=feeds(), w=windows())
def test_mapped_working_states_change_nothing(feed: Feed, w: Any) -> None:
    q = query(BY["key and bucket"], w)
    join, plain, expected = GroupedJoin(PWJoin(q.join), q), PWJoin(q.join).start(), NaiveGroups(q)
    store, header = log.MemoryStore(), log.begin(q)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for n in range(len(feed)):
            running = join.start(MappedArrays(folder))
            if n:
                assert cache.complete(folder)
                assert cache.load(running, folder)
            out = groups_of(list(running.step(feed.batches(n))), q)
            news = rows_of(list(plain.step(feed.batches(n))))
            ended = plain.output_progress() >= AFTER_ALL
            assert bag(out) == bag(expected.step(news, plain, plain.progress, ended))
            header = log.commit(running, header, cache.KeepingStore(store, folder))
            cache.save(running, folder)


@settings(max_examples=30)
@given(feed=feeds(nulls=True), w=windows(), data=st.data())
def test_groups_behind_a_shuffle(feed: Feed, w: Any, data: st.DataObject) -> None:
    """Results come from two shards of a join; what both have said counts."""
    emit = data.draw(st.sampled_from(["final", "update"]))
    q = query(data.draw(st.sampled_from([("s", Bucket("b_ts", 7, "from")), ("i", "s")])), w, "left", emit)
    plain, expected, fold = PWJoin(q.join).start(), NaiveGroups(q), Fold(q)
    running, store, header = GroupsOf(q, 2).start(), log.MemoryStore(), log.begin(q)
    said: dict[int, Sequence[int]] = {}
    for n in range(len(feed)):
        tables = list(plain.step(feed.batches(n)))
        partials = [fold.partials(t) for t in tables]
        rows = pa.concat_tables(partials).combine_chunks().to_batches() if partials else []
        silent = data.draw(st.sampled_from([None, 0, 1]))
        spoke = {shard: tuple(plain.progress) for shard in (0, 1) if shard != silent}
        said |= spoke
        progress = [min(p) for p in zip(*said.values(), strict=True)] if len(said) == 2 else running.progress
        ended = min(progress) >= AFTER_ALL
        batch = Partials(rows[0] if rows else no_rows(fold.schema), said=tuple(spoke.items()))
        out = groups_of(list(running.step([batch])), q)
        assert bag(out) == bag(expected.step(rows_of(tables), None, progress, ended))
        assert bag(open_groups(running)) == bag([expected.read(g) for g in expected.open])
        header = log.commit(running, header, store)
        if data.draw(st.booleans(), label="restart"):
            running = GroupsOf(q, 2).start()
            log.rebuild(running, header, store)
