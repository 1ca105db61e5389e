"""The promises of one stream alone: what is pending, what holds, what is broken, and how it is written down."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from watersmeet.errors import StateError
from watersmeet.kernels.value_lists import CLOSED, OPEN, PENDING, PROPAGATED
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.instants import Instants
from watersmeet.model.punctuations import (
    BatchPunctuations,
    Clustered,
    Constraint,
    Ordered,
    Punctuation,
    Range,
    Unique,
    Value,
)
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.state.durable.parts import Change
from watersmeet.state.keys import encode
from watersmeet.state.punctuations import bounds
from watersmeet.state.punctuations.punctuation_set import PunctuationSet
from watersmeet.state.row_order import row_ranks
from watersmeet.state.stream_state import Arrivals
from watersmeet.state.value_lists import ValueLists

SCHEMA = pa.schema([("ts", pa.int64()), ("k", pa.int64()), ("n", pa.int64())])


class Stream:
    """A stream with integer keys and its punctuation set."""

    def __init__(
        self, *constraints: Constraint, delay: int = 0, kind: pa.DataType | None = None, may_drop: bool = True
    ):
        schema = SCHEMA if kind is None else SCHEMA.set(1, pa.field("k", kind))
        self.spec = StreamSpec("s", schema, "ts", ("k",), TimeWindow(9), delay, constraints)
        self.lists = ValueLists()
        self.declared = PunctuationSet(0, self.spec, self.lists, may_drop=may_drop)

    @property
    def kind(self) -> pa.DataType:
        return self.spec.schema.field("k").type

    def add(self, *punctuations: Punctuation) -> None:
        self.declared.add_punctuations(BatchPunctuations.of(punctuations, pa.schema([("k", self.kind)])))

    def keys(self, values: Sequence[Any]) -> Any:
        return encode([pa.array(values, self.kind)])

    def store(self, *rows: tuple[int, Any]) -> None:
        times, values = [t for t, _ in rows], [k for _, k in rows]
        self.lists.insert(np.arange(len(rows)), np.array(times, np.int64), self.keys(values), 0)

    def violations(self, *rows: tuple[int, Any]) -> list[bool]:
        times, values = np.array([t for t, _ in rows], np.int64), [k for _, k in rows]
        return self.declared.keys.violations(np.arange(len(rows)), times, self.keys(values)).tolist()

    def closed(self, *values: Any) -> list[bool]:
        return self.declared.keys.closed(np.arange(len(values)), self.keys(values)).tolist()

    def show(self, *rows: tuple[int, Any], watermark: int = BEFORE_ALL, newest: Any = None) -> list[bool]:
        """Tuples that the stream brings, without violations so far; which repeat a unique key."""
        columns = [[t for t, _ in rows], [k for _, k in rows], range(len(rows))]
        batch = pa.record_batch(
            [pa.array(c, f.type) for c, f in zip(columns, self.spec.schema, strict=True)], SCHEMA.names
        )
        arrivals = Arrivals(batch, np.array(columns[0], np.int64), self.keys(columns[1]), np.arange(len(rows)))
        tip = None if newest is None else (pa.record_batch({"k": pa.array(newest[0], self.kind)}), newest[1])
        valid = np.ones(len(rows), np.bool_)
        return self.declared.constraints.add_tuples(arrivals, valid, Batch(batch, newest=tip), watermark).tolist()

    def marks(self, *values: Any) -> list[int]:
        return self.lists.marks(self.lists.nodes_of(np.arange(len(values)), self.keys(values))).tolist()


def value(key: Any, time: int) -> Punctuation:
    return Punctuation(Value((key,)), time)


def between(low: Any, high: Any, time: int, *closed: bool) -> Punctuation:
    return Punctuation(Range(low, high, *closed), time)


# ---------------------------------------------------------------- pending and effective


@pytest.mark.parametrize(("delay", "at_five"), [(0, [True, True, False]), (3, [False, False, False])])
def test_a_punctuation_takes_effect_when_the_watermark_has_reached_it(delay: int, at_five: list[bool]) -> None:
    stream = Stream(delay=delay)
    stream.add(value(1, 5), between(10, 19, 5), value(2, 7))
    assert stream.marks(1, 2, 3) == [PENDING, PENDING, OPEN]
    stream.declared.keys.take_effect(4)
    assert stream.closed(1, 15, 2) == [False] * 3
    stream.declared.keys.take_effect(5)
    assert stream.closed(1, 15, 2) == at_five
    stream.declared.keys.take_effect(6)
    assert stream.closed(1, 15, 2) == [True, True, False]
    effect = stream.declared.keys.take_effect(AFTER_ALL)
    assert stream.closed(1, 15, 2) == [True] * 3
    assert effect.nodes.size == 1


def test_a_tuple_of_the_very_time_violates_a_punctuation_that_has_taken_effect() -> None:
    stream = Stream()
    stream.add(value(7, 1))
    assert stream.violations((1, 7), (1, 8)) == [False, False], "makes the filter"
    stream.add(value(8, 5))
    stream.declared.keys.take_effect(5)
    assert stream.violations((5, 8), (5, 9)) == [True, False]


def test_of_two_times_the_earlier_stands() -> None:
    stream = Stream(delay=1)
    stream.add(value(1, 9))
    stream.add(value(1, 5), value(1, 7))
    assert stream.violations((5, 1), (6, 1)) == [False, True]
    stream.declared.keys.take_effect(6)
    assert stream.closed(1) == [True]


def test_before_a_punctuation_holds_only_later_tuples_violate_it() -> None:
    stream = Stream(delay=5)
    stream.add(value(1, 5), between(10, 19, 5, True, False))
    rows = [(5, 1), (6, 1), (5, 15), (6, 15), (6, 19), (6, 2)]
    assert stream.violations(*rows) == [False, True, False, True, False, False]
    stream.declared.keys.take_effect(6)
    assert stream.violations(*rows) == [True, True, True, True, False, False]


def test_null_closes_nothing() -> None:
    stream = Stream()
    stream.add(value(None, 5))
    assert stream.lists.closed_keys == 0


def test_a_key_in_a_closed_range_needs_no_mark() -> None:
    stream = Stream()
    stream.add(between(0, 9, 1))
    stream.declared.keys.take_effect(1)
    stream.add(value(5, 2), value(10, 2))
    assert stream.lists.closed_keys == 1
    assert stream.declared.keys.time_of(stream.keys([5])) == 1
    assert stream.declared.keys.time_of(stream.keys([10])) == 2


def test_only_what_is_new_of_a_range_takes_effect() -> None:
    stream = Stream()
    stream.add(between(0, 9, 1))
    assert stream.declared.keys.take_effect(1).intervals == [(0, 9, 1)]
    stream.add(between(-5, 20, 2), between(3, 4, 2))
    assert stream.declared.keys.take_effect(2).intervals == [(-5, -1, 2), (10, 20, 2)]


def test_keys_stored_in_a_range_are_marked_with_it() -> None:
    stream = Stream()
    stream.store((1, 5), (1, 6), (1, 30))
    stream.add(value(6, 9), between(0, 9, 2))
    effect = stream.declared.keys.take_effect(2)
    assert stream.marks(5, 6, 30) == [OPEN, PENDING, OPEN]
    stream.declared.keys.mark_inside(effect)
    assert stream.marks(5, 6, 30) == [CLOSED, CLOSED, OPEN]
    assert stream.declared.keys.pending_nodes.size == 0
    assert stream.lists.closed_keys == 2


def test_time_of_a_punctuation() -> None:
    stream = Stream(delay=9)
    assert stream.declared.keys.time_of(stream.keys([1])) is None
    stream.add(value(1, 3), between(10, 20, 4))
    assert [stream.declared.keys.time_of(stream.keys([k])) for k in (1, 10, 21)] == [3, 4, None]
    stream.declared.keys.take_effect(5)
    assert [stream.declared.keys.time_of(stream.keys([k])) for k in (1, 10, 21)] == [3, 4, None]


def test_lies_are_counted_by_key() -> None:
    stream = Stream()
    stream.store((5, 1), (5, 2), (3, 3), (5, 10), (9, 11))
    stream.add(value(1, 4), value(2, 5), value(4, 0), between(10, 12, 8))
    assert stream.declared.keys.contradicted == 2, "1 at 5, and 11 at 9"


def test_a_key_closed_twice_is_contradicted_once_by_the_earlier_time() -> None:
    stream = Stream()
    stream.store((7, 1), (7, 2))
    stream.add(value(1, 9), value(1, 5), value(2, 5), value(2, 4))
    assert stream.declared.keys.contradicted == 2


# ---------------------------------------------------------------- what tuples promise


def test_a_unique_tuple_closes_its_key_and_equal_ones_repeat_it() -> None:
    stream = Stream(Unique(), delay=5)
    assert stream.show((3, 1), (2, 1), (2, 1), (1, 2)) == [True, False, True, False]
    stream.declared.keys.take_effect(BEFORE_ALL)
    assert stream.closed(1, 2, 3) == [True, True, False], "at once, whatever the delay"
    assert stream.violations((0, 1)) == [True]


def test_a_unique_tuple_makes_a_pending_punctuation_hold() -> None:
    stream = Stream(Unique(), delay=5)
    stream.add(value(1, 8))
    assert stream.show((3, 1)) == [False]
    assert stream.declared.keys.pending_nodes.size == 0
    assert stream.declared.keys.take_effect(BEFORE_ALL).nodes.size == 1
    assert stream.closed(1) == [True]


def test_rows_are_ranked_by_their_bytes_whatever_they_hold() -> None:
    rows = pa.record_batch({"k": pa.array([1, 1, 1, 1]), "t": pa.array(["b", "a", None, "a"])})
    ranks = row_ranks(rows).tolist()
    assert ranks[1] == ranks[3]
    assert len(set(ranks)) == 3
    maps = pa.array([[("x", 2)], [("x", 1)], [("x", 1)], None], pa.map_(pa.string(), pa.int64()))
    ranks = row_ranks(pa.record_batch({"m": maps, "l": pa.array([[m] for m in maps.to_pylist()], pa.list_(maps.type))}))
    assert ranks[1] == ranks[2]
    assert len(set(ranks.tolist())) == 3
    assert row_ranks(pa.record_batch({"k": pa.array([7, 5, 7])})).tolist() == [1, 0, 1]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_rows_of_other_bytes_are_other_rows(kind: pa.DataType) -> None:
    """Zeros of both signs are one key, and two rows: which is the first must not depend on their arrival."""
    zeros = row_ranks(pa.record_batch({"v": pa.array([0.0, -0.0, 0.0], kind)})).tolist()
    assert zeros[0] == zeros[2] != zeros[1]


def test_clusters_end_at_the_newest_tuple_of_the_whole_stream() -> None:
    stream = Stream(Clustered())
    stream.show((1, 1), (2, 2), newest=([2], 2))
    assert stream.marks(1, 2) == [PENDING, OPEN]
    stream.show(newest=([7], 2))  # in another shard
    assert stream.marks(1, 2) == [PENDING, OPEN]
    stream.show(newest=None)
    assert stream.marks(1, 2) == [PENDING, OPEN]
    stream.show(newest=([7], 3))
    assert stream.marks(1, 2) == [PENDING, PENDING]
    stream.declared.keys.take_effect(3)
    assert stream.closed(1, 2, 7) == [True, True, False]


def test_late_tuples_end_no_cluster() -> None:
    stream = Stream(Clustered())
    stream.show(newest=([7], 3), watermark=4)
    assert stream.declared.constraints.newest_keys is None
    stream.show((5, 1), newest=([1], 5), watermark=4)
    assert stream.marks(1) == [OPEN]


@pytest.mark.parametrize("kind", [pa.list_(pa.int64()), pa.struct([("x", pa.int64())])], ids=str)
def test_clusters_of_nested_keys(kind: pa.DataType) -> None:
    a, b = ([1], [2]) if pa.types.is_list(kind) else ({"x": 1}, {"x": 2})
    stream = Stream(Clustered(), kind=kind)
    stream.show((1, a), (1, a), (2, b), newest=([b, b], 2))
    stream.declared.keys.take_effect(2)
    assert stream.closed(a, b) == [True, False]
    assert stream.declared.constraints.open_keys is not None
    assert stream.declared.constraints.open_keys.num_rows == 1


def shown(stream: Stream, largest: tuple[Any, int] | None, watermark: int = BEFORE_ALL) -> None:
    rows = pa.record_batch([pa.array([], f.type) for f in stream.spec.schema], schema=stream.spec.schema)
    given = None
    if largest is not None:
        keys = pa.record_batch([pa.array(largest[:1], stream.kind)], ["k"])
        given = Instants(keys, np.array(largest[1:], np.int64))
    stream.declared.constraints.add_largest(Batch(rows, largest=given), watermark)
    stream.declared.keys.take_effect(AFTER_ALL)


def test_an_order_closes_what_was_passed() -> None:
    stream = Stream(Ordered(2))
    shown(stream, None)
    assert stream.declared.keys.ranges is None
    shown(stream, (10, 1))
    assert stream.closed(7, 8) == [True, False]
    shown(stream, (9, 2))
    assert stream.closed(7, 8) == [True, False]
    shown(stream, (12, 2), watermark=3)
    assert stream.closed(9) == [False], "late"
    shown(stream, (12, 3), watermark=3)
    assert stream.closed(9, 10) == [True, False]


def test_an_order_has_a_least_key() -> None:
    stream = Stream(Ordered(2))
    shown(stream, (-(2**63) + 1, 1))
    assert stream.declared.keys.pending_ranges == []
    assert stream.declared.keys.merged is not None
    assert len(stream.declared.keys.ranges) == 0
    assert stream.declared.constraints.largest == -(2**63) + 1


def test_a_stream_without_constraints_closes_no_keys() -> None:
    stream = Stream()
    shown(stream, (10, 1))
    assert stream.show((1, 1), (1, 1), newest=([1], 1)) == [False, False]
    assert stream.lists.closed_keys == 0


# ---------------------------------------------------------------- bounds


def effective(stream: Stream, *punctuations: Punctuation) -> bool:
    stream.add(*punctuations)
    stream.declared.keys.take_effect(AFTER_ALL)
    return stream.declared.retention.trim()


def test_within_the_bound_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_KEYS", 3)
    stream = Stream()
    assert effective(stream, value(1, 0), value(5, 0), value(9, 0)) is False
    assert stream.lists.closed_keys == 3
    assert not stream.declared.retention.rewrite


def test_neighbours_merge_before_anything_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_KEYS", 4)
    stream = Stream()
    stream.store((0, 3))
    assert effective(stream, *(value(k, 10 - k) for k in (1, 2, 3, 4, 5))) is False
    assert stream.declared.keys.merged is not None
    r = stream.declared.keys.merged
    assert (r.low, r.high, r.time) == ([1, 4], [2, 5], [9, 6]), "3 is stored and keeps its node"
    assert stream.closed(*range(7)) == [False, True, True, True, True, True, False]
    assert (stream.lists.keys, stream.lists.closed_keys, stream.declared.retention.dropped) == (1, 1, 0)


@pytest.mark.parametrize("kind", [pa.string(), pa.float64(), pa.decimal128(38, 2)], ids=str)
def test_the_oldest_are_dropped_first(kind: pa.DataType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_KEYS", 4)
    stream = Stream(kind=kind)
    values = pa.array(range(6)).cast(pa.int64() if kind != pa.string() else kind).cast(kind).to_pylist()
    stream.store((0, values[5]))
    assert effective(stream, *(value(v, 10 - k) for k, v in enumerate(values))) is True
    assert stream.closed(*values) == [True, True, True, False, False, True], "what is stored keeps its mark"
    assert stream.declared.retention.dropped == 2
    assert stream.declared.retention.rewrite


def test_what_lies_in_a_range_goes_first_and_is_not_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_KEYS", 4)
    stream = Stream(kind=pa.string())
    for given in (*(value(key, 1) for key in "abcd"), between("b", "d", 2), value("x", 3)):
        effective(stream, given)
    assert stream.declared.retention.dropped == 0
    assert stream.closed(*"abcdx") == [True] * 5
    assert stream.lists.closed_keys == 2


def test_the_oldest_ranges_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_RANGES", 3)
    stream = Stream()
    assert effective(stream, *(between(10 * n, 10 * n + 5, 9 - n) for n in range(4))) is True
    assert stream.closed(0, 10, 20, 30) == [True, True, False, False]
    assert stream.declared.retention.dropped == 2


def test_a_stream_that_must_keep_its_closed_keys_is_refused_beyond_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_KEYS", 2)
    monkeypatch.setattr(bounds, "MOST_RANGES", 1)
    hint = "\nHint: give the streams a window, or close longer ranges of keys."
    with pytest.raises(StateError) as caught:
        effective(Stream(may_drop=False, kind=pa.string()), value("a", 0), value("b", 0), value("c", 0))
    assert str(caught.value) == (
        "stream `s` has closed more than 2 keys that do not merge into ranges, and a join without a window must "
        "keep them all." + hint
    )
    with pytest.raises(StateError) as caught:
        effective(Stream(may_drop=False), between(0, 1, 0), between(5, 6, 0))
    assert str(caught.value) == (
        "stream `s` has closed more than 1 ranges of keys, and a join without a window must keep them all." + hint
    )
    stream = Stream(may_drop=False)
    assert effective(stream, *(value(k, 0) for k in range(9))) is False
    assert stream.closed(*range(10)) == [True] * 9 + [False]


# ---------------------------------------------------------------- the durable form


def changes(stream: Stream, *, rewrite: bool = False) -> Change:
    """What the stream writes, where it writes something."""
    change = stream.declared.changes(rewrite)
    assert change is not None
    return change


def revived(stream: Stream, deltas: Sequence[pa.RecordBatch], watermark: int) -> Stream:
    """Another stream that has read what the first wrote."""
    other = Stream(*stream.spec.constraints, delay=stream.spec.delay, kind=stream.kind)
    other.declared.load_metadata(json.loads(json.dumps(stream.declared.metadata())))
    for rows in deltas:
        other.declared.replay(rows)
    other.declared.all_effective(watermark)
    return other


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64(), pa.decimal128(38, 2)], ids=str)
def test_what_is_written_is_read_again(kind: pa.DataType) -> None:
    stream = Stream(delay=3, kind=kind)
    values = pa.array(range(8)).cast(pa.int64() if kind != pa.string() else kind).cast(kind).to_pylist()
    written: list[pa.RecordBatch] = []
    stream.add(value(values[0], 1), value(values[1], 9), between(values[3], values[4], 2, False, True))
    written += changes(stream).rows
    stream.add(value(values[1], 8), between(values[6], None, 9))
    stream.declared.keys.take_effect(5)
    written += changes(stream).rows
    assert [rows.num_rows for rows in written] == [2, 1]
    for watermark in (5, 9):
        other = revived(stream, written, watermark)
        if watermark > 5:
            stream.declared.keys.take_effect(watermark)
        assert other.closed(*values) == stream.closed(*values)
        rows = [(t, v) for t in (7, 8, 9, 10) for v in values]
        assert other.violations(*rows) == stream.violations(*rows)
        assert other.declared.metadata() == stream.declared.metadata()


def test_nothing_new_writes_nothing_and_many_pieces_become_one() -> None:
    stream = Stream()
    assert stream.declared.changes(rewrite=True) is None
    for key in (0, 1):
        stream.add(value(key, 0))
        change = changes(stream)
        assert ([rows.num_rows for rows in change.rows], change.whole) == ([1], False)
    assert stream.declared.changes(rewrite=True) is None
    stream.add(value(2, 0))
    change = changes(stream, rewrite=True)
    assert (change.rows[0].column("k").to_pylist(), change.whole) == ([0, 1, 2], True)


def test_after_dropping_closed_keys_all_are_written_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MOST_KEYS", 2)
    stream = Stream(kind=pa.string())
    assert effective(stream, value("a", 0), value("b", 1), value("c", 2)) is True
    change = changes(stream)
    assert (change.rows[0].column("k").to_pylist(), change.whole) == (["b", "c"], True)
    assert revived(stream, change.rows, 5).closed("a", "b", "c") == [False, True, True]


def test_metadata_drops_the_ranges_that_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream, other = Stream(), Stream()
    effective(other, between(0, 9, 0))
    other.declared.load_metadata(stream.declared.metadata())
    assert other.closed(5) == [False]


def test_clusters_and_orders_are_stored() -> None:
    stream = Stream(Clustered(), Ordered())
    stream.show((1, 1), (2, 2), newest=([2], 2))
    shown(stream, (2, 2))
    other = revived(stream, changes(stream).rows, 2)
    assert other.declared.metadata() == stream.declared.metadata()
    other.show((3, 3), newest=([3], 3))
    assert other.marks(2) == [PENDING]


def test_marks_of_propagated_keys_are_effective_when_written() -> None:
    stream = Stream()
    stream.add(value(1, 0), value(2, 9))
    stream.declared.keys.take_effect(0)
    stream.lists.lists.mark[stream.lists.nodes_of(np.zeros(1, np.int64), stream.keys([1]))] = PROPAGATED
    rows = stream.declared.keys.rows_of(stream.lists.marked())
    assert rows.to_pylist() == [
        {"k": 1, "closed at": 0, "effective": True},
        {"k": 2, "closed at": 9, "effective": False},
    ]
