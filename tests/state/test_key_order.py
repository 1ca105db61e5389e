"""Keys in the order of their values, and sets of closed intervals."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.oracle import ANOTHER_NAN, NAN
from watersmeet.errors import ColumnError
from watersmeet.joins.reference.stream_rules import covers, sort_key
from watersmeet.model.punctuations import Range
from watersmeet.state.key_order import ABOVE, Order, Ranges
from watersmeet.state.keys import encode

MONEY, WIDE = pa.decimal128(10, 2), pa.decimal128(38, 4)

#: Ordered types, each with values at its ends, beside each other and around zero.
VALUES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [False, True],
    pa.int8(): [-128, -1, 0, 1, 126, 127],
    pa.int32(): [-(2**31), -1, 0, 1, 2**31 - 1],
    pa.int64(): [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 1],
    pa.uint8(): [0, 1, 200, 255],
    pa.float32(): [-math.inf, -1.5, -0.0, 0.0, 1.0, 1.5, math.inf, NAN],
    pa.float64(): [-math.inf, -1.5, -5e-324, -0.0, 0.0, 5e-324, 1.0, math.inf, NAN, ANOTHER_NAN],
    pa.date32(): [date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)],
    pa.timestamp("us"): [datetime(1, 1, 1), datetime(1970, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999_999)],
    pa.timestamp("us", "UTC"): [datetime(1970, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, tzinfo=UTC)],
    pa.duration("us"): [timedelta(-1), timedelta(0), timedelta(microseconds=1)],
    MONEY: [Decimal("-99999999.99"), Decimal("-0.01"), Decimal(0), Decimal("0.01"), Decimal("99999999.99")],
    WIDE: [Decimal(-(10**33)), Decimal("-0.0001"), Decimal(0), Decimal("0.0001"), Decimal(2**64), Decimal(10**33)],
    pa.string(): ["", "\0", "a", "a\0", "aa", "b", "ä", "\U0001f600", "\uffff"],
    pa.large_string(): ["", "a", "a\0", "b"],
    pa.binary(): [b"", b"\0", b"\0\0", b"\1", b"\xff", b"\xff\xff"],
    pa.large_binary(): [b"", b"\0", b"\xff"],
}
ranged = pytest.mark.parametrize("kind", VALUES, ids=str)


def ranks(kind: pa.DataType) -> list[Any]:
    return Order(kind).of_keys(encode([pa.array(VALUES[kind], kind)])).tolist()


@ranged
def test_places_sort_as_spark_sorts_the_values(kind: pa.DataType) -> None:
    order = Order(kind)
    at = ranks(kind)
    for a, x in zip(VALUES[kind], at, strict=True):
        assert order.rank(a) == x
        for b, y in zip(VALUES[kind], at, strict=True):
            assert (x < y, x == y) == (sort_key(a) < sort_key(b), sort_key(a) == sort_key(b)), (a, b)
    least, most = order.ends
    assert all(order.inside(_array(order, at), least, most))


def _array(order: Order, at: list[Any]) -> np.ndarray:
    out = np.empty(len(at), np.int64 if order.words else object)
    out[:] = at
    return out


@ranged
@pytest.mark.parametrize("low_closed", [True, False])
@pytest.mark.parametrize("high_closed", [True, False])
def test_an_interval_holds_what_its_range_covers(kind: pa.DataType, low_closed: bool, high_closed: bool) -> None:
    order, values = Order(kind), VALUES[kind]
    at = _array(order, ranks(kind))
    for low in [*values, None]:
        for high in [*values, None]:
            pattern = Range(low, high, low_closed, high_closed)
            interval = order.interval(pattern)
            covered = [covers(pattern, (v,)) for v in values]
            if interval is None:
                assert not any(covered)
            else:
                assert order.inside(at, *interval).tolist() == covered, pattern
                cut = order.cut(np.sort(at), *interval)
                assert np.sort(at)[cut].tolist() == sorted(at[order.inside(at, *interval)].tolist())


def test_nothing_lies_outside_a_type() -> None:
    assert Order(pa.int8()).interval(Range(127, None, low_closed=False)) is None
    assert Order(pa.bool_()).interval(Range(None, False, high_closed=False)) is None
    assert Order(pa.float64()).interval(Range(NAN, None, low_closed=False)) is None
    assert Order(pa.float32()).interval(Range(None, -math.inf, high_closed=False)) is None
    assert Order(MONEY).interval(Range(Decimal("99999999.99"), None, low_closed=False)) is None


@pytest.mark.parametrize(
    ("kind", "pattern", "spelled"),
    [
        (pa.int64(), Range(None, None), {}),
        (pa.int64(), Range(-(2**63), 2**63 - 1), {}),
        (pa.int64(), Range(1, 5, False, False), {"low": 2, "high": 4}),
        (pa.int8(), Range(None, 126), {"high": 126}),
        (pa.bool_(), Range(True, None), {"low": True}),
        (pa.date32(), Range(date(2024, 2, 28), None, False), {"low": "2024-02-29"}),
        (pa.date32(), Range(date(9999, 12, 31), None, False), {"low": "10000-01-01"}),
        (pa.timestamp("us"), Range(None, datetime(2024, 1, 1), True, False), {"high": "2023-12-31 23:59:59.999999"}),
        (MONEY, Range(Decimal("1.10"), Decimal("2"), False, True), {"low": "1.11", "high": "2.00"}),
        (WIDE, Range(Decimal("-1.1"), Decimal(10**33)), {"low": "-1.1000", "below": f"{10**33}.0001"}),
        (WIDE, Range(Decimal(0), Decimal(1), False, False), {"low": "0.0001", "below": "1.0000"}),
        (pa.float64(), Range(0.0, math.inf), {"low": 0.0, "high": "Infinity"}),
        (pa.float64(), Range(-math.inf, NAN), {}),
        (pa.float32(), Range(1.0, None, False), {"low": 1.0000000000000002}),
        (pa.string(), Range("a", "c", False, False), {"low": "a\0", "below": "c"}),
        (pa.string(), Range("", None), {}),
        (pa.large_string(), Range("ä", None), {"low": "ä"}),
        (pa.binary(), Range(None, b"\xff"), {"below": "/wA="}),
    ],
    ids=str,
)
def test_intervals_are_spelled_as_values(kind: pa.DataType, pattern: Range, spelled: dict[str, Any]) -> None:
    order = Order(kind)
    interval = order.interval(pattern)
    assert interval is not None
    found = order.pattern(*interval)
    ends = {"low": found.low, "high" if found.high_closed else "below": found.high}
    assert {name: end for name, end in ends.items() if end is not None} == spelled


@pytest.mark.parametrize(
    ("kind", "value", "slack", "covered"),
    [
        (pa.int64(), 5, 0, [4]),
        (pa.int64(), 5, 3, [1]),
        (pa.int64(), -(2**63), 0, None),
        (pa.int64(), -(2**63) + 1, 5, None),
        (pa.int8(), -100, 100, None),
        (pa.float64(), 1.5, 0.5, [0.999]),
        (pa.float64(), NAN, 1.0, [math.inf]),
        (pa.date32(), date(1, 1, 2), timedelta(5), None),
        (pa.timestamp("us"), datetime(2024, 1, 1), timedelta(microseconds=1), [datetime(2023, 12, 31)]),
        (MONEY, Decimal("-99999999.00"), Decimal(5), None),
        (pa.string(), "b", 0, ["a", ""]),
        (pa.string(), "", 0, None),
    ],
    ids=str,
)
def test_all_before_a_value(kind: pa.DataType, value: Any, slack: Any, covered: list[Any] | None) -> None:
    order = Order(kind)
    interval = order.below(value, slack)
    if covered is None:
        assert interval is None
    else:
        assert interval is not None
        end = value - slack if slack else value
        at = _array(order, [order.rank(v) for v in [*covered, end]])
        assert order.inside(at, *interval).tolist() == [True] * len(covered) + [False]


@pytest.mark.parametrize(
    ("kinds", "text"),
    [
        ([pa.int64(), pa.string()], "2 columns (int64, string)"),
        ([pa.struct([("x", pa.int8())])], "1 columns (struct<x: int8>)"),
        ([pa.list_(pa.int8())], "1 columns (list<item: int8>)"),
    ],
)
def test_only_single_columns_have_an_order(kinds: list[pa.DataType], text: str) -> None:
    with pytest.raises(ColumnError) as caught:
        Order.of(kinds)
    assert str(caught.value) == (
        f"a range closes an interval of one key column; this join's key is {text}.\n"
        "Hint: close single values, or join on one column of an ordered type."
    )
    assert Order.of([pa.int8()]) == Order(pa.int8())


def test_above_is_above_everything() -> None:
    for text in (b"", b"\xff" * 9):
        assert text < ABOVE
        assert text <= ABOVE
        assert text < ABOVE
        assert text <= ABOVE
        assert not text > ABOVE
        assert not text >= ABOVE
    assert ABOVE <= ABOVE
    assert ABOVE >= ABOVE
    assert not ABOVE < ABOVE
    assert not ABOVE > ABOVE


# ---------------------------------------------------------------- sets of intervals

TEXTS = ["", "a", "a\0", "ab", "b", "c", "d"]
patterns = {
    pa.int64(): st.builds(Range, *[st.one_of(st.integers(0, 9), st.none())] * 2, st.booleans(), st.booleans()),
    pa.string(): st.builds(Range, *[st.sampled_from([*TEXTS, None])] * 2, st.booleans(), st.booleans()),
}


@pytest.mark.parametrize("kind", patterns, ids=str)
@given(data=st.data())
def test_closed_intervals_are_what_was_added(kind: pa.DataType, data: st.DataObject) -> None:
    order = Order(kind)
    ranges, added = Ranges(order), []
    values = list(range(-1, 11)) if kind == pa.int64() else TEXTS
    at = _array(order, [order.rank(v) for v in values])
    for time, pattern in enumerate(data.draw(st.lists(patterns[kind], max_size=8))):
        interval = order.interval(pattern)
        if interval is None:
            continue
        before = ranges.holds(at)
        gaps = ranges.gaps(*interval)
        new = np.any([order.inside(at, *gap) for gap in gaps], axis=0) if gaps else np.zeros(len(at), bool)
        assert (new == (order.inside(at, *interval) & ~before)).all()
        ranges.add(*interval, time)
        added.append((pattern, time))
        assert ranges.gaps(*interval) == []
        closed = [[t for p, t in added if covers(p, (v,))] for v in values]
        assert ranges.holds(at).tolist() == [bool(times) for times in closed]
        for place_, where, times in zip(at, ranges.which(at).tolist(), closed, strict=True):
            assert where < 0 or ranges.low[where] <= place_
            assert not times or ranges.time[where] >= max(times)
        for high, low in zip(ranges.high, ranges.low[1:], strict=False):
            assert low > (high + 1 if order.words else high), "neighbours are one"


def test_nothing_added_holds_nothing() -> None:
    ranges = Ranges(Order(pa.int64()))
    assert ranges.holds(np.array([1, 2])).tolist() == [False, False]
    ranges.add(0, 5, 0)
    assert ranges.holds(np.empty(0, np.int64)).tolist() == []


def test_keys_beyond_all_ranges_are_seen_at_once() -> None:
    ranges = Ranges(Order(pa.int64()))
    assert ranges.is_beyond(np.array([1]))
    ranges.add(0, 5, 0)
    ranges.add(10, 12, 0)
    beyond = {words: ranges.is_beyond(np.array(words)) for words in ((-1,), (13, 20), (-1, 13), (7,), (5,))}
    assert beyond == {(-1,): True, (13, 20): True, (-1, 13): False, (7,): False, (5,): False}
    texts = Ranges(Order(pa.string()))
    texts.add(b"a", b"b", 0)
    assert not texts.is_beyond(np.array([b"z"], object)), "texts are looked up"


def test_neighbours_become_one_and_what_is_not_kept_is_dropped() -> None:
    ranges = Ranges(Order(pa.int64()))
    for low, high, time in ((0, 1, 5), (4, 5, 1), (10, 12, 9), (2, 3, 2)):
        ranges.add(low, high, time)
    assert (ranges.low, ranges.high, ranges.time) == ([0, 10], [5, 12], [5, 9])
    ranges.keep([1])
    assert (ranges.low, ranges.high, ranges.time) == ([10], [12], [9])
    assert len(ranges) == 1
