"""Punctuations through the real packer and processor: the same results, whatever the number of shards."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.joins.scripts import ORDERED, Comparison, Key, Script, scripts
from tests.oracle import KEYS, NAN, Row, bag, key_types, rows_of
from tests.tws.harness import Task
from watersmeet.errors import ViolationError
from watersmeet.joins import Join
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference import Tuple
from watersmeet.joins.reference_rules import News
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import (
    Clustered,
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
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.inbox import Inbox
from watersmeet.spark.kinds import LATE, PUNCTUATION, RESULT, STATS, VIOLATION
from watersmeet.spark.packing import PACKED, ROWS, Packer, Signed
from watersmeet.spark.placement import shard_ids
from watersmeet.spark.punctuations import flag, part
from watersmeet.state import remembered
from watersmeet.state.log import MemoryStore

pytestmark = pytest.mark.tws

#: Every sign that a DataFrame may carry; of a range one for each way to close its ends.
SIGNS = (
    Signed(0, "value"),
    Signed(1, "list"),
    *(Signed(2 + n, "range", bool(n & 1), bool(n & 2)) for n in range(4)),
    Signed(6, "heartbeat"),
    Signed(7, "end"),
)
IDS = tuple(shard_ids(n, n) for n in range(4)[1:])


def rows_with_signs(spec: StreamSpec, news: News) -> pa.RecordBatch:
    """Tuples and punctuations as rows of one DataFrame, in any order."""
    kinds = [spec.schema.field(k).type for k in spec.key]
    rows: list[dict[str, Any]] = []
    for t in news.tuples:
        rows.append(dict(zip(spec.schema.names, (t.ts, *t.key, t.row), strict=True)))
    for p in news.said:
        row: dict[str, Any] = {spec.time: p.time}
        match p.pattern:
            case Value(key):
                row |= {flag(0): True} | {part(0, n): v for n, v in enumerate(key)}
            case ValueList(keys) if len(kinds) == 1:
                row |= {flag(1): True, part(1, 0): [key[0] for key in keys]}
            case ValueList(keys):
                rows += [row | {flag(0): True} | {part(0, n): v for n, v in enumerate(key)} for key in keys]
                continue
            case Range(low, high, low_closed, high_closed):
                number = 2 + low_closed + 2 * high_closed
                row |= {flag(number): True, part(number, 0): low, part(number, 1): high}
            case Heartbeat(until):
                row |= {flag(6): True, part(6, 0): until}
            case End():
                row |= {flag(7): True}
            case _:
                continue
        rows.append(row)
    parts = {part(0, n): kind for n, kind in enumerate(kinds)} | {part(1, 0): pa.list_(kinds[0])}
    parts |= {part(number, n): kinds[0] for number in range(2, 6) for n in (0, 1)} | {part(6, 0): pa.int64()}
    columns = {f.name: pa.array([row.get(f.name) for row in rows], f.type) for f in spec.schema}
    columns |= {flag(n): pa.array([row.get(flag(n), False) for row in rows], pa.bool_()) for n in range(8)}
    columns |= {name: pa.array([row.get(name) for row in rows], kind) for name, kind in parts.items()}
    return pa.record_batch(columns)


def blobs(spec: StreamSpec, i: int, ids: tuple[int, ...], news: News, chance: Random) -> list[pa.RecordBatch]:
    """What a few source partitions send."""
    rows = rows_with_signs(spec, news)
    partitions = chance.randint(1, 3)
    homes = [chance.randrange(partitions) for _ in range(rows.num_rows)]
    out: list[pa.RecordBatch] = []
    for partition in range(partitions):
        mine = rows.take(pa.array([n for n, home in enumerate(homes) if home == partition], pa.int64()))
        out += Packer(spec, i, ids, SIGNS)(iter([mine]))
    return out


class Shards:
    """A join, by default PWJoin, on so many shards, and what it put out in the last batch."""

    def __init__(
        self, script: Script, shards: int, on_violation: str = "drop", join: Callable[[JoinQuery], Join] = PWJoin
    ) -> None:
        self.script, self.query, self.ids = script, script.query(), shard_ids(shards, shards)
        self.join = join(self.query)
        self.on_violation = on_violation
        self.stores = {id: MemoryStore() for id in self.ids}
        self.results: list[Row] = []
        self.notes: dict[int, list[dict[str, Any]]] = {}

    def step(self, news: tuple[News, ...], chance: Random) -> None:
        sent = [b for i, n in enumerate(news) for b in blobs(self.query.streams[i], i, self.ids, n, chance)]
        table = pa.Table.from_batches(sent, PACKED)
        order = list(range(table.num_rows))
        chance.shuffle(order)
        self.results, self.notes = [], {}
        for shard in self.ids:
            options = {"join": self.join, "on_violation": self.on_violation}
            task = Task(self.query, self.ids, shard, self.stores[shard], ended=False, **options)
            for frame in task.run(table.take(pa.array(order, pa.int64())), chance):
                self._read(pa.Table.from_pandas(frame, preserve_index=False))
            self.stores[shard] = task.store()

    def _read(self, table: pa.Table) -> None:
        (kind,) = set(table.column(0).to_pylist())
        if kind == RESULT:
            self.results += rows_of(table.select(self.query.schema.names))
        else:
            self.notes.setdefault(kind, []).extend(json.loads(note) for note in table.column(1).to_pylist())

    def told(self, kind: int) -> Counter[tuple[str, int]]:
        """Stream and number of the rows that were set apart."""
        return Counter((n["stream"], n["row"][f"{n['stream']}_n"]) for n in self.notes.get(kind, []))

    def stored(self) -> int:
        return sum(n["stored"] for n in self.notes[STATS])


flat = sorted(kind for kind in KEYS if not any(pa.types.is_nested(t) for t in key_types(kind)))


@settings(max_examples=max(20, settings().max_examples // 3))
@given(script=scripts(st.sampled_from(flat), batches=4), shards=st.integers(1, 3), seed=st.integers(0, 999))
def test_shards_follow_the_rules(script: Script, shards: int, seed: int) -> None:
    follow(script, shards, seed)


@settings(max_examples=max(20, settings().max_examples // 3))
@given(
    script=scripts(st.sampled_from(["int64", "int32", "decimal10", "date"]), batches=6),
    shards=st.integers(1, 3),
    seed=st.integers(0, 999),
)
def test_closed_keys_merge_over_those_of_other_shards_unnoticed(script: Script, shards: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(remembered, "MERGED_FROM", 0)
        patch.setattr(remembered, "LONG_RUN", 1)
        follow(script, shards, seed)


def follow(script: Script, shards: int, seed: int) -> None:
    comparison, run, chance = Comparison(script), Shards(script, shards), Random(seed)
    said = Said(script, run.ids)
    for a, b in script.batches:
        news = (replace(a, ended=False), replace(b, ended=False))
        outcome = comparison.rules.step(news)
        run.step(news, chance)
        wanted = [comparison.combination(pair) for pair in outcome.pairs]
        wanted += [comparison.single(i, t) for i in (0, 1) for t in outcome.alone[i]]
        assert bag(run.results) == bag(wanted)
        for kind, rows in ((LATE, outcome.late), (VIOLATION, outcome.violations)):
            assert run.told(kind) == Counter(("ab"[i], t.row) for i in (0, 1) for t in rows[i])
        assert run.stored() == sum(map(len, outcome.stored))
        if script.kind in ("int64", "string"):
            said.hear(run.notes.get(PUNCTUATION, []))
            for key in [Key((value,)) for value in KEYS[script.kind][0][1]]:
                assert said.finished(key) == comparison.rules.finished(key)


class Said:
    """Output punctuations of all shards: what a shard says of a key counts if the key is its own."""

    def __init__(self, script: Script, ids: tuple[int, ...]) -> None:
        self.script, self.ids = script, ids
        self.keys: list[tuple[int, Any]] = []
        self.ranges: list[tuple[int, dict[str, Any]]] = []

    def hear(self, notes: list[dict[str, Any]]) -> None:
        for note in notes:
            assert note["stream"] is None
            if "key" in note["row"]:
                self.keys.append((note["shard"], note["row"]["key"][0]))
            elif "range" in note["row"]:
                self.ranges.append((note["shard"], note["row"]["range"]))

    def finished(self, key: tuple[Any, ...]) -> bool:
        (home,) = homes(self.script.spec(0), self.ids, key)
        value = key[0]
        assert not any(shard != home and value == said for shard, said in self.keys), "not its own"
        if (home, value) in self.keys:
            return True
        return any(
            shard == home
            and ("low" not in r or r["low"] <= value)
            and ("high" not in r or value <= r["high"])
            and ("below" not in r or value < r["below"])
            for shard, r in self.ranges
        )


def homes(spec: StreamSpec, ids: tuple[int, ...], key: tuple[Any, ...]) -> list[int]:
    """Shards that get a row with this key."""
    sent = pa.Table.from_batches(Packer(spec, 0, ids)(iter([rows_with_signs(spec, News((Tuple(0, key, 0),)))])))
    return [row["shard"] for row in sent.to_pylist() if row["rows"] and row["kind"] == ROWS]


# ---------------------------------------------------------------- where things go


def inboxes(spec: StreamSpec, ids: tuple[int, ...], news: News) -> dict[int, Batch]:
    """What each shard hears of a stream."""
    out = {id: Inbox(spec) for id in ids}
    for row in pa.Table.from_batches(blobs(spec, 0, ids, news, Random(0))).to_pylist():
        out[row["shard"]].put(row["kind"], row["seen"], row["rows"], row["blob"])
    return {id: inbox.batch(ended=False) for id, inbox in out.items()}


def text_spec(*promises: Promise, kind: str = "string") -> StreamSpec:
    windows = (TimeWindow(9), TimeWindow(9))
    return Script(kind, "inner", windows, (0, 0), (promises, ()), ()).spec(0)


@pytest.mark.parametrize("ids", IDS, ids=len)
def test_values_and_lists_go_to_their_shard_and_the_rest_to_all(ids: tuple[int, ...]) -> None:
    spec = text_spec()
    said = (
        Punctuation(Value(("a",)), 1),
        Punctuation(ValueList((("b",), ("c",), (None,))), 2),
        Punctuation(Range("d", None, False, True), 7),
        Punctuation(Heartbeat(5), 5),
        Punctuation(Heartbeat(4), 4),
        Punctuation(End(), 3),
    )
    heard = inboxes(spec, ids, News(said=said))
    keys = {}
    for id, batch in heard.items():
        assert batch.closings is not None
        for key, time in zip(batch.closings.keys.column(0).to_pylist(), batch.closings.times.tolist(), strict=True):
            keys[key] = (id, time)
        assert batch.closings.ranges == ((Range("d", None, False, True), 7),)
        assert batch.closings.ended
        assert batch.seen == 7, "a punctuation's time counts as seen"
    assert {key: time for key, (_, time) in keys.items()} == {"a": 1, "b": 2, "c": 2, None: 2}
    assert all([keys[key][0]] == homes(spec, ids, (key,)) for key in "abc")
    for id, batch in inboxes(spec, ids, News(said=said[3:5])).items():
        assert batch.closings is not None, id
        assert (batch.closings.heartbeat, batch.closings.ended, batch.seen) == (5, False, None)


def test_without_a_time_nothing_is_promised() -> None:
    said = [Value(("a",)), ValueList((("b",),)), Range("c", "d"), Range(None, None)]
    spec = text_spec()
    news = News(said=tuple(Punctuation(p, None) for p in said))  # type: ignore[arg-type]
    assert [batch.closings for batch in inboxes(spec, IDS[1], news).values()] == [None, None]


@pytest.mark.parametrize("ids", IDS, ids=len)
def test_all_shards_hear_of_the_newest_and_the_largest_keys(ids: tuple[int, ...]) -> None:
    spec = text_spec(Clustered(), Ordered())
    tuples = [(3, "b"), (9, "a"), (9, "c"), (8, "d"), (7, "d"), (None, "z"), (12, None)]
    news = News(tuple(Tuple(ts, (key,), n) for n, (ts, key) in enumerate(tuples)))
    for batch in inboxes(spec, ids, news).values():
        assert batch.newest is not None
        assert (sorted(batch.newest[0].column(0).to_pylist()), batch.newest[1]) == (["a", "c"], 9)
        assert batch.largest == ("d", 7)
        assert batch.seen == 12
    nothing = News((Tuple(12, (None,), 0), Tuple(None, ("a",), 1)))
    for batch in inboxes(spec, ids, nothing).values():
        assert (batch.newest, batch.largest, batch.seen) == (None, None, 12)


@pytest.mark.parametrize("kind", ORDERED)
def test_the_largest_key_of_every_ordered_kind(kind: str) -> None:
    values = KEYS[kind][0][1]
    news = News(tuple(Tuple(n, (v,), n) for n, v in enumerate([*values, *values])))
    for batch in inboxes(text_spec(Ordered(), kind=kind), IDS[1], news).values():
        assert batch.largest is not None
        value, time = batch.largest
        if kind == "float64":
            assert (value != value, time) == (True, next(n for n, v in enumerate(values) if v != v))
        else:
            assert (value, time) == (max(values), values.index(max(values)))


def test_nan_is_the_largest_whoever_brings_it() -> None:
    spec = text_spec(Ordered(), kind="float64")
    for chance in range(5):
        out = Inbox(spec)
        news = News((Tuple(1, (NAN,), 0), Tuple(2, (5.0,), 1), Tuple(0, (float("inf"),), 2)))
        for row in pa.Table.from_batches(blobs(spec, 0, (0,), news, Random(chance))).to_pylist():
            out.put(row["kind"], row["seen"], row["rows"], row["blob"])
        largest = out.batch(ended=False).largest
        assert largest is not None
        assert (np.isnan(largest[0]), largest[1]) == (True, 1)


# ---------------------------------------------------------------- what comes out


def scene(**options: Any) -> Script:
    windows = (TimeWindow(100), TimeWindow(100))
    return replace(Script("string", "left", windows, (0, 0), ((), ()), ()), **options)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_violations_and_punctuations_come_out_as_rows(shards: int) -> None:
    run, chance = Shards(scene(), shards), Random(0)
    closing = (Punctuation(Value(("x",)), 2), Punctuation(Range("m", "p"), 2))
    run.step((News((Tuple(1, ("x",), 0), Tuple(1, ("n",), 1)), closing), News(said=closing)), chance)
    assert bag(run.results) == bag([("x", 1, 0, None, None), ("n", 1, 1, None, None)])
    said = [(n["shard"], n["row"]) for n in run.notes[PUNCTUATION]]
    assert [row for _, row in said if "key" in row and row["key"] == ["x"]] == [{"key": ["x"]}]
    ranges = [(shard, row) for shard, row in said if "range" in row]
    assert {shard for shard, _ in ranges} == set(run.ids), "each shard speaks for itself"
    assert {shard for shard, row in said if row == {"heartbeat": 2}} == set(run.ids)
    assert VIOLATION not in run.notes

    run.step((News((Tuple(3, ("x",), 7), Tuple(3, ("n",), 8), Tuple(3, ("y",), 9))), News()), chance)
    assert run.told(VIOLATION) == Counter([("a", 7), ("a", 8)])
    told = {n["row"]["a_n"]: n["row"] for n in run.notes[VIOLATION]}
    assert told[7] == {"a_ts": 3, "k0": "x", "a_n": 7}
    assert run.stored() == 1

    run.step((News(said=(Punctuation(End(), 3),)), News(said=(Punctuation(End(), 3),))), chance)
    assert bag(run.results) == bag([("y", 3, 9, None, None)])
    assert [n["row"] for n in run.notes[PUNCTUATION] if "end" in n["row"]] == [{"end": True}] * shards


def test_a_violation_may_stop_the_query() -> None:
    second = 1_000_000
    run, chance = Shards(scene(), 2, on_violation="error"), Random(0)
    run.step((News(said=(Punctuation(Value(("x",)), 2 * second),)), News()), chance)
    before = {id: store.header for id, store in run.stores.items()}
    with pytest.raises(ViolationError) as caught:
        run.step((News((Tuple(3 * second, ("x",), 0),)), News()), chance)
    assert str(caught.value) == (
        f"stream `a` brought a tuple with k0 = x at {3 * second}, against a punctuation (at 1970-01-01 00:00:02+00:00) "
        "by which no more of these would come.\n"
        'Hint: mend the source, or use on_violation="drop" to set such tuples apart.'
    )
    home = homes(run.query.streams[0], run.ids, ("x",))[0]
    assert run.stores[home].header == before[home], "nothing of the batch was kept"


@pytest.mark.parametrize("promise", [Unique(), Clustered(), Ordered()], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_what_is_known_of_a_stream_holds_in_all_shards(promise: Promise, shards: int) -> None:
    """Keys of b ascend, each at one instant: closed by their successors, or by themselves."""
    run, chance, held = Shards(scene(promises=((), (promise,)), how="inner"), shards), Random(1), []
    for n in range(10):
        waiting = tuple(Tuple(0, (f"{k}",), k) for k in range(10)) if n == 0 else ()
        run.step((News(waiting), News((Tuple(n, (f"{n}",), 0),))), chance)
        assert len(run.results) == 1
        held.append(run.stored() - (n + 1))  # b's own stay: a closes nothing
    late = 0 if isinstance(promise, Unique) else 1
    assert held == [9 - n + late for n in range(10)]


@pytest.mark.parametrize("ids", IDS, ids=len)
def test_a_range_without_an_end_that_it_needs_is_rejected(ids: tuple[int, ...]) -> None:
    spec = text_spec()
    news = News(said=tuple(Punctuation(Range(low, high), 7) for low, high in (("d", None), (None, "d"), ("e", "f"))))
    rows = rows_with_signs(spec, news)
    for needs, closed in (
        ((False, False), [("d", None), (None, "d"), ("e", "f")]),
        ((True, False), [("d", None), ("e", "f")]),
        ((True, True), [("e", "f")]),
    ):
        heard = {id: Inbox(spec) for id in ids}
        for row in pa.Table.from_batches(Packer(spec, 0, ids, _needing(needs))(iter([rows]))).to_pylist():
            heard[row["shard"]].put(row["kind"], row["seen"], row["rows"], row["blob"])
        batches = [inbox.batch(ended=False) for inbox in heard.values()]
        for batch in batches:
            assert batch.closings is not None
            assert [(r.low, r.high) for r, _ in batch.closings.ranges] == closed
        told = [b.rejected.to_pylist() if b.rejected is not None else [] for b in batches]
        assert told[1:] == [[]] * (len(ids) - 1), "one shard tells of it"
        assert [(r["low"], r["high"]) for r in told[0]] == [
            (r.pattern.low, r.pattern.high)
            for r in news.said
            if isinstance(r.pattern, Range) and (r.pattern.low, r.pattern.high) not in closed
        ]


def _needing(needs: tuple[bool, bool]) -> tuple[Signed, ...]:
    return tuple(replace(sign, needs=needs) if sign.kind == "range" else sign for sign in SIGNS)


@pytest.mark.parametrize("on_violation", ["drop", "error"])
def test_a_rejected_punctuation_is_told_of(on_violation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "SIGNS", _needing((True, True)))
    run, chance = Shards(scene(), 3, on_violation), Random(0)
    news = (News((Tuple(9, ("x",), 0),), (Punctuation(Range(None, "d"), 7), Punctuation(Range("e", "f"), 8))), News())
    if on_violation == "error":
        with pytest.raises(ViolationError) as caught:
            run.step(news, chance)
        assert str(caught.value) == (
            "stream `a` brought a punctuation without an end of the range that it closes: "
            '{"low": null, "high": "d", "a_ts": 7}.\n'
            "Hint: leave `low` or `high` out of wm.when to leave that end unbounded, or mend the source."
        )
        return
    run.step(news, chance)
    assert [(n["stream"], n["row"]) for n in run.notes[VIOLATION]] == [
        ("a", {"punctuation": {"low": None, "high": "d", "a_ts": 7}})
    ]
    assert sum(n["violations"] for n in run.notes[STATS]) == 1
    run.step((News((Tuple(9, ("a",), 1), Tuple(9, ("e",), 2))), News()), chance)
    assert run.told(VIOLATION) == Counter([("a", 2)]), "only the other range was closed"


@pytest.mark.parametrize("shards", [1, 3])
def test_a_silent_stream_is_idle_on_every_shard(shards: int) -> None:
    run, chance = Shards(scene(idle_after=(None, 20)), shards), Random(0)
    run.step((News((Tuple(1, ("x",), 0),)), News((Tuple(1, ("y",), 0),))), chance)
    assert [n["idle"] for n in run.notes[STATS]] == [0] * shards
    run.step((News((Tuple(130, ("z",), 1),)), News()), chance)
    assert [(n["idle"], n["progress"]) for n in run.notes[STATS]] == [(1, [130, 110])] * shards
    assert run.results == [("x", 1, 0, None, None)], "b is taken to be past its window"
    run.step((News(), News((Tuple(109, ("z",), 1), Tuple(110, ("z",), 2)))), chance)
    assert run.told(LATE) == Counter([("b", 1)])
    assert bag(run.results) == bag([("z", 130, 1, 110, 2)])
