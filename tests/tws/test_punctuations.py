"""Punctuations through the real packer and processor: the same results, whatever the number of shards."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.oracle import KEYS, NAN, bag
from lab.joins.scripts import ORDERED, Comparison, Key, Script, scripts
from lab.tws import scripted_shards
from lab.tws.scripted_shards import RULES, OutputPunctuations, Shards, blobs, flat, homes, rows_with_rules
from watersmeet.errors import ViolationError
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model import instants
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.model.punctuations import (
    Clustered,
    Constraint,
    End,
    Heartbeat,
    Ordered,
    Punctuation,
    Range,
    Unique,
    Value,
    ValueList,
)
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.punctuations import UPSTREAM_SHARD
from watersmeet.spark.runtime.packing import PackedRule, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.row_kinds import LATE, PUNCTUATION, STATS, VIOLATION
from watersmeet.spark.runtime.unpacking import Unpacker
from watersmeet.state.key_order import Order
from watersmeet.state.punctuations import bounds

pytestmark = pytest.mark.tws

IDS = tuple(shard_ids(n, n) for n in range(4)[1:])


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
        patch.setattr(bounds, "MERGED_FROM", 0)
        patch.setattr(bounds, "LONG_RUN", 1)
        follow(script, shards, seed)


def follow(script: Script, shards: int, seed: int) -> None:
    comparison, run, chance = Comparison(script), Shards(script, shards), Random(seed)
    punctuations = OutputPunctuations(script, run.ids)
    for a, b in script.batches:
        arrivals = (replace(a, ended=False), replace(b, ended=False))
        outcome = comparison.rules.step(arrivals)
        run.step(arrivals, chance)
        wanted = [comparison.combination(pair) for pair in outcome.pairs]
        wanted += [comparison.single(i, t) for i in (0, 1) for t in outcome.alone[i]]
        assert bag(run.results) == bag(wanted)
        for kind, rows in ((LATE, outcome.late), (VIOLATION, outcome.violations)):
            assert run.unjoined(kind) == Counter(("ab"[i], t.row) for i in (0, 1) for t in rows[i])
        assert run.stored() == sum(map(len, outcome.stored))
        if script.kind in ("int64", "string"):
            punctuations.add(run.details.get(PUNCTUATION, []))
            for key in [Key((value,)) for value in KEYS[script.kind][0][1]]:
                assert punctuations.finished(key) == comparison.rules.finished(key)


# ---------------------------------------------------------------- where things go


def unpackers(spec: StreamSpec, ids: tuple[int, ...], arrivals: Elements) -> dict[int, Batch]:
    """What each shard hears of a stream."""
    out = {id: Unpacker(spec) for id in ids}
    for row in pa.Table.from_batches(blobs(spec, 0, ids, arrivals, Random(0))).to_pylist():
        out[row["shard"]].put(row["kind"], row["seen"], row["rows"], row["blob"])
    return {id: unpacker.batch(ended=False) for id, unpacker in out.items()}


def text_spec(*constraints: Constraint, kind: str = "string") -> StreamSpec:
    windows = (TimeWindow(9), TimeWindow(9))
    return Script(kind, "inner", windows, (0, 0), (constraints, ()), ()).spec(0)


@pytest.mark.parametrize("ids", IDS, ids=len)
def test_values_and_lists_go_to_their_shard_and_the_rest_to_all(ids: tuple[int, ...]) -> None:
    spec = text_spec()
    punctuations = (
        Punctuation(Value(("a",)), 1),
        Punctuation(ValueList((("b",), ("c",), (None,))), 2),
        Punctuation(Range("d", None, False, True), 7),
        Punctuation(Heartbeat(5), 5),
        Punctuation(Heartbeat(4), 4),
        Punctuation(End(), 3),
    )
    received = unpackers(spec, ids, Elements(punctuations=punctuations))
    keys = {}
    for id, batch in received.items():
        assert batch.punctuations is not None
        for key, time in zip(
            batch.punctuations.keys.column(0).to_pylist(), batch.punctuations.times.tolist(), strict=True
        ):
            keys[key] = (id, time)
        assert batch.punctuations.ranges == ((Range("d", None, False, True), 7),)
        assert batch.punctuations.ended
        assert batch.seen == 7, "a punctuation's time counts as seen"
    assert {key: time for key, (_, time) in keys.items()} == {"a": 1, "b": 2, "c": 2, None: 2}
    assert all([keys[key][0]] == homes(spec, ids, (key,)) for key in "abc")
    for id, batch in unpackers(spec, ids, Elements(punctuations=punctuations[3:5])).items():
        assert batch.punctuations is not None, id
        assert (batch.punctuations.heartbeat, batch.punctuations.ended, batch.seen) == (5, False, None)


def test_without_a_time_nothing_is_closed() -> None:
    punctuations = [Value(("a",)), ValueList((("b",),)), Range("c", "d"), Range(None, None)]
    spec = text_spec()
    arrivals = Elements(punctuations=tuple(Punctuation(p, None) for p in punctuations))  # type: ignore[arg-type]
    assert [batch.punctuations for batch in unpackers(spec, IDS[1], arrivals).values()] == [None, None]


@pytest.mark.parametrize("ids", IDS, ids=len)
def test_all_shards_hear_of_the_newest_and_the_largest_keys(ids: tuple[int, ...]) -> None:
    spec = text_spec(Clustered(), Ordered())
    tuples = [(3, "b"), (9, "a"), (9, "c"), (8, "d"), (7, "d"), (None, "z"), (12, None)]
    arrivals = Elements(tuple(Tuple(ts, (key,), n) for n, (ts, key) in enumerate(tuples)))
    for batch in unpackers(spec, ids, arrivals).values():
        assert batch.newest is not None
        assert (sorted(batch.newest[0].column(0).to_pylist()), batch.newest[1]) == (["a", "c"], 9)
        assert largest(spec, batch) == ("d", 7)
        assert batch.different is not None
        keys, times = batch.different.keys.column(0).to_pylist(), batch.different.times.tolist()
        assert sorted(zip(times, keys, strict=True)) == [(3, "b"), (7, "d"), (8, "d"), (9, "a"), (9, "c")]
        assert batch.seen == 12
    nothing = Elements((Tuple(12, (None,), 0), Tuple(None, ("a",), 1)))
    for batch in unpackers(spec, ids, nothing).values():
        assert (batch.newest, batch.largest, batch.different, batch.seen) == (None, None, None, 12)


@pytest.mark.parametrize("kind", ORDERED)
def test_the_largest_key_of_every_ordered_kind(kind: str) -> None:
    values = KEYS[kind][0][1]
    arrivals = Elements(tuple(Tuple(n, (v,), n) for n, v in enumerate([*values, *values])))
    for batch in unpackers(text_spec(Ordered(), kind=kind), IDS[1], arrivals).values():
        value, time = largest(text_spec(Ordered(), kind=kind), batch)
        if kind == "float64":
            assert (value != value, time) == (True, next(n for n, v in enumerate(values) if v != v))
        else:
            assert (value, time) == (max(values), values.index(max(values)))


def test_nan_is_the_largest_whoever_brings_it() -> None:
    spec = text_spec(Ordered(), kind="float64")
    for chance in range(5):
        out = Unpacker(spec)
        arrivals = Elements((Tuple(1, (NAN,), 0), Tuple(2, (5.0,), 1), Tuple(0, (float("inf"),), 2)))
        for row in pa.Table.from_batches(blobs(spec, 0, (0,), arrivals, Random(chance))).to_pylist():
            out.put(row["kind"], row["seen"], row["rows"], row["blob"])
        value, time = largest(spec, out.batch(ended=False))
        assert (np.isnan(value), time) == (True, 1)


def largest(spec: StreamSpec, batch: Batch) -> tuple[Any, int]:
    """The largest key that a batch shows, and the first time with it."""
    assert batch.largest is not None
    keys = batch.largest.keys.column(0)
    which, since = batch.largest.rises(Order(keys.type).ranks(keys), BEFORE_ALL)
    return keys[int(which[-1])].as_py(), int(since[-1])


@settings(max_examples=25)
@given(scripts(st.sampled_from(["int64", "string"]), st.just("inner"), punctuated=False, rows=9, batches=3), st.data())
def test_violations_of_large_batches_depend_neither_on_shards_nor_on_partitions(script: Script, data: Any) -> None:
    """Batches with so many event times that they are sent in slices."""
    constraint = data.draw(st.sampled_from([Ordered(), Clustered()]))
    script = replace(script, constraints=((constraint,), ()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instants, "MOST", 3)
        runs = [(Shards(script, shards), Random(seed)) for shards, seed in ((1, 0), (2, 1), (3, 2))]
        for a, b in script.batches:
            arrivals = (replace(a, ended=False), replace(b, ended=False))
            for run, chance in runs:
                run.step(arrivals, chance)
            output = [(run.unjoined(LATE), run.unjoined(VIOLATION), bag(run.results)) for run, _ in runs]
            assert output[0] == output[1] == output[2]


def test_of_slices_the_one_in_which_the_watermark_stands_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows at 64 and 65 are in one slice; the first is late, and has the larger key."""
    monkeypatch.setattr(instants, "MOST", 2)
    windows = (TimeWindow(500), TimeWindow(500))
    for shards in (1, 2):
        run = Shards(Script("int64", "inner", windows, (0, 0), ((Ordered(),), ()), ()), shards)
        batches = [[(65, 1)], [(64, 90), (65, 50), (66, 30), (200, 40)], [(201, 49)]]
        found = []
        for batch in batches:
            run.step((Elements(tuple(Tuple(ts, (k,), k) for ts, k in batch)), Elements()), Random(0))
            found.append((sorted(n for _, n in run.unjoined(LATE)), sorted(n for _, n in run.unjoined(VIOLATION))))
        assert found == [([], []), ([90], [40]), ([], [49])]


# ---------------------------------------------------------------- what comes out


def scene(**options: Any) -> Script:
    windows = (TimeWindow(100), TimeWindow(100))
    return replace(Script("string", "left", windows, (0, 0), ((), ()), ()), **options)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_violations_and_punctuations_come_out_as_rows(shards: int) -> None:
    run, chance = Shards(scene(), shards), Random(0)
    closing = (Punctuation(Value(("x",)), 2), Punctuation(Range("m", "p"), 2))
    run.step((Elements((Tuple(1, ("x",), 0), Tuple(1, ("n",), 1)), closing), Elements(punctuations=closing)), chance)
    assert bag(run.results) == bag([("x", 1, 0, None, None), ("n", 1, 1, None, None)])
    output = [(n["shard"], n["row"]) for n in run.details[PUNCTUATION]]
    assert [row for _, row in output if "key" in row and row["key"] == ["x"]] == [{"key": ["x"]}]
    ranges = [(shard, row) for shard, row in output if "range" in row]
    assert {shard for shard, _ in ranges} == set(range(shards)), "each shard speaks for itself"
    assert {shard for shard, row in output if row == {"heartbeat": 2}} == set(range(shards))
    assert VIOLATION not in run.details

    run.step((Elements((Tuple(3, ("x",), 7), Tuple(3, ("n",), 8), Tuple(3, ("y",), 9))), Elements()), chance)
    assert run.unjoined(VIOLATION) == Counter([("a", 7), ("a", 8)])
    outcome = {n["row"]["a_n"]: n["row"] for n in run.details[VIOLATION]}
    assert outcome[7] == {"a_ts": 3, "k0": "x", "a_n": 7}
    assert run.stored() == 1

    run.step((Elements(punctuations=(Punctuation(End(), 3),)), Elements(punctuations=(Punctuation(End(), 3),))), chance)
    assert bag(run.results) == bag([("y", 3, 9, None, None)])
    assert [n["row"] for n in run.details[PUNCTUATION] if "end" in n["row"]] == [{"end": True}] * shards


def test_a_violation_may_stop_the_query() -> None:
    second = 1_000_000
    run, chance = Shards(scene(), 2, on_violation="error"), Random(0)
    run.step((Elements(punctuations=(Punctuation(Value(("x",)), 2 * second),)), Elements()), chance)
    before = {id: store.header for id, store in run.stores.items()}
    with pytest.raises(ViolationError) as caught:
        run.step((Elements((Tuple(3 * second, ("x",), 0),)), Elements()), chance)
    assert str(caught.value) == (
        f"stream `a` brought a tuple with k0 = x at {3 * second}, against a punctuation (at 1970-01-01 00:00:02+00:00) "
        "by which no more of these would come.\n"
        'Hint: mend the source, or use on_violation="drop" to set such tuples apart.'
    )
    home = homes(run.query.streams[0], run.ids, ("x",))[0]
    assert run.stores[home].header == before[home], "nothing of the batch was kept"


@pytest.mark.parametrize("constraint", [Unique(), Clustered(), Ordered()], ids=lambda p: type(p).__name__)
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_what_is_known_of_a_stream_holds_in_all_shards(constraint: Constraint, shards: int) -> None:
    """Keys of b ascend, each at one instant: closed by their successors, or by themselves."""
    run, chance, held = Shards(scene(constraints=((), (constraint,)), how="inner"), shards), Random(1), []
    for n in range(10):
        waiting = tuple(Tuple(0, (f"{k}",), k) for k in range(10)) if n == 0 else ()
        run.step((Elements(waiting), Elements((Tuple(n, (f"{n}",), 0),))), chance)
        assert len(run.results) == 1
        held.append(run.stored() - (n + 1))  # b's own stay: a closes nothing
    late = 0 if isinstance(constraint, Unique) else 1
    assert held == [9 - n + late for n in range(10)]


@pytest.mark.parametrize("ids", IDS, ids=len)
def test_a_range_of_a_joins_output_goes_to_the_shard_of_the_same_number(ids: tuple[int, ...]) -> None:
    spec = replace(text_spec(), upstream_shards=len(ids))
    rows = rows_with_rules(
        spec, Elements(punctuations=tuple(Punctuation(Range(f"{n}", f"{n}"), 7) for n in range(len(ids))))
    )
    rows = rows.append_column(UPSTREAM_SHARD, pa.array(range(len(ids)), pa.int32()))
    received = {id: Unpacker(spec) for id in ids}
    for row in pa.Table.from_batches(Packer(spec, 0, ids, _needing((False, False)))(iter([rows]))).to_pylist():
        received[row["shard"]].put(row["kind"], row["seen"], row["rows"], row["blob"])
    punctuations = [unpacker.batch(ended=False).punctuations for unpacker in received.values()]
    lows = [[r.low for r, _ in closed.ranges] for closed in punctuations if closed is not None]
    assert lows == [[f"{n}"] for n in range(len(ids))]


@pytest.mark.parametrize("ids", IDS, ids=len)
def test_a_range_without_an_end_that_it_needs_is_rejected(ids: tuple[int, ...]) -> None:
    spec = text_spec()
    arrivals = Elements(
        punctuations=tuple(Punctuation(Range(low, high), 7) for low, high in (("d", None), (None, "d"), ("e", "f")))
    )
    rows = rows_with_rules(spec, arrivals)
    for needs, closed in (
        ((False, False), [("d", None), (None, "d"), ("e", "f")]),
        ((True, False), [("d", None), ("e", "f")]),
        ((True, True), [("e", "f")]),
    ):
        received = {id: Unpacker(spec) for id in ids}
        for row in pa.Table.from_batches(Packer(spec, 0, ids, _needing(needs))(iter([rows]))).to_pylist():
            received[row["shard"]].put(row["kind"], row["seen"], row["rows"], row["blob"])
        batches = [unpacker.batch(ended=False) for unpacker in received.values()]
        for batch in batches:
            assert batch.punctuations is not None
            assert [(r.low, r.high) for r, _ in batch.punctuations.ranges] == closed
        found = [b.rejected.to_pylist() if b.rejected is not None else [] for b in batches]
        assert found[1:] == [[]] * (len(ids) - 1), "one shard tells of it"
        assert [(r["low"], r["high"]) for r in found[0]] == [
            (r.pattern.low, r.pattern.high)
            for r in arrivals.punctuations
            if isinstance(r.pattern, Range) and (r.pattern.low, r.pattern.high) not in closed
        ]


def _needing(needs: tuple[bool, bool]) -> tuple[PackedRule, ...]:
    return tuple(replace(rule, needs=needs) if rule.kind == "range" else rule for rule in RULES)


@pytest.mark.parametrize("on_violation", ["drop", "error"])
def test_a_rejected_punctuation_is_reported(on_violation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scripted_shards, "RULES", _needing((True, True)))
    run, chance = Shards(scene(), 3, on_violation), Random(0)
    arrivals = (
        Elements((Tuple(9, ("x",), 0),), (Punctuation(Range(None, "d"), 7), Punctuation(Range("e", "f"), 8))),
        Elements(),
    )
    if on_violation == "error":
        with pytest.raises(ViolationError) as caught:
            run.step(arrivals, chance)
        assert str(caught.value) == (
            "stream `a` brought a punctuation without an end of the range that it closes: "
            '{"low": null, "high": "d", "a_ts": 7}.\n'
            "Hint: leave `low` or `high` out of wm.when to leave that end unbounded, or mend the source."
        )
        return
    run.step(arrivals, chance)
    assert [(n["stream"], n["row"]) for n in run.details[VIOLATION]] == [
        ("a", {"punctuation": {"low": None, "high": "d", "a_ts": 7}})
    ]
    assert sum(n["violations"] for n in run.details[STATS]) == 1
    run.step((Elements((Tuple(9, ("a",), 1), Tuple(9, ("e",), 2))), Elements()), chance)
    assert run.unjoined(VIOLATION) == Counter([("a", 2)]), "only the other range was closed"


@pytest.mark.parametrize("shards", [1, 3])
def test_a_silent_stream_is_idle_on_every_shard(shards: int) -> None:
    run, chance = Shards(scene(idle_after=(None, 20)), shards), Random(0)
    run.step((Elements((Tuple(1, ("x",), 0),)), Elements((Tuple(1, ("y",), 0),))), chance)
    assert [n["idle"] for n in run.details[STATS]] == [0] * shards
    run.step((Elements((Tuple(130, ("z",), 1),)), Elements()), chance)
    assert [(n["idle"], n["watermarks"]) for n in run.details[STATS]] == [(1, [130, 110])] * shards
    assert run.results == [("x", 1, 0, None, None)], "b is taken to be past its window"
    run.step((Elements(), Elements((Tuple(109, ("z",), 1), Tuple(110, ("z",), 2)))), chance)
    assert run.unjoined(LATE) == Counter([("b", 1)])
    assert bag(run.results) == bag([("z", 130, 1, 110, 2)])
