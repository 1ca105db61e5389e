"""The oracle against another one, and on the cases where it is easily wrong."""

from __future__ import annotations

import pytest
from hypothesis import given

from lab.joins.oracle import NAN, Scenario, bag, duckdb_join, expected, scenarios
from watersmeet.joins.reference.definition import (
    Tuple,
    inside,
    last_instant,
    may_still_match,
    on_time,
    same_key,
    window_join,
)
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.windows import RowsWindow, TimeWindow, Window

LAST = AFTER_ALL - 1


@given(scenarios())
def test_the_reference_is_the_batch_join_of_duckdb(scenario: Scenario) -> None:
    assert bag([row for rows in expected(scenario) for row in rows]) == bag(duckdb_join(scenario))


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        (0, 0, True),
        (None, None, False),
        (None, 0, False),
        (NAN, NAN, True),
        (NAN, 0.0, False),
        (0.0, -0.0, True),
        ([None], [None], True),
        ([NAN, -0.0], [NAN, 0.0], True),
        ([], [None], False),
        ({"x": NAN, "y": None}, {"x": NAN, "y": None}, True),
        ({"x": 1, "y": None}, {"x": 1, "y": 2}, False),
    ],
)
def test_keys_are_equal_as_spark_has_it(a: object, b: object, equal: bool) -> None:
    assert same_key((a,), (b,)) is equal


def test_late_is_behind_the_watermark_before_the_batch() -> None:
    batches = [
        [Tuple(10, (1,)), Tuple(3, (1,))],
        [Tuple(8, (1,)), Tuple(7, (1,)), Tuple(20, (1,))],
        [Tuple(None, (1,))],
    ]
    assert [t.ts for t in on_time(batches, delay=2)] == [10, 3, 8, 20]


def test_a_result_may_hold_the_edge_of_its_window() -> None:
    a, b = Tuple(10, ("x",)), Tuple(14, ("x",))
    assert window_join([[a], [b]], [TimeWindow(4), TimeWindow(0)]) == [(a, b)]
    assert window_join([[a], [b]], [TimeWindow(3), TimeWindow(99)]) == []


A1, B2, A3, N3, A4 = (
    Tuple(1, ("a",), 0),
    Tuple(2, ("b",), 1),
    Tuple(3, ("a",), 2),
    Tuple(3, (None,), 3),
    Tuple(4, ("a",), 4),
)


@pytest.mark.parametrize(
    ("window", "ends"),
    [
        (TimeWindow(5), [6, 7, 8, 8, 9]),
        (RowsWindow(1), [1, 2, 2, 3, LAST]),  # A3 stands before N3 at one instant: it never is the last
        (RowsWindow(2), [2, 2, 3, LAST, LAST]),
        (RowsWindow(5), [LAST] * 5),
        (RowsWindow(1, per_key=True), [2, LAST, 3, LAST, LAST]),
        (RowsWindow(2, per_key=True), [3, LAST, LAST, LAST, LAST]),
    ],
    ids=str,
)
def test_the_last_instant_is_the_last_at_which_a_tuple_is_inside(window: Window, ends: list[int]) -> None:
    stream = [A1, B2, A3, N3, A4]
    assert [last_instant(t, stream, window) for t in stream] == ends
    for t, end in zip(stream, ends, strict=True):
        assert [now for now in range(t.time, 20) if inside(t, now, stream, window)] == list(
            range(t.time, min(end, 19) + 1)
        )


def test_equal_times_and_rows_are_distinguished_by_the_key() -> None:
    one, other, none = Tuple(1, (1,), 0), Tuple(1, (2,), 0), Tuple(1, (None,), 0)
    assert (none.before(one), one.before(other), other.before(none), one.before(one)) == (True, True, False, False)


@pytest.mark.parametrize(
    ("t", "watermark", "alive"),
    [
        (Tuple(24, (0,)), 34, True),
        (Tuple(23, (0,)), 34, False),
        (Tuple(24, ("",)), 34, True),
        (Tuple(24, (False,)), 34, True),
        (Tuple(24, (0, None)), BEFORE_ALL, False),
        (Tuple(None, (0,)), BEFORE_ALL, False),
        (Tuple(24, (0,)), AFTER_ALL, False),
    ],
)
def test_what_may_still_match(t: Tuple, watermark: int, alive: bool) -> None:
    assert may_still_match(t, 10, [watermark]) is alive


def test_one_stream_that_is_behind_is_enough() -> None:
    assert may_still_match(Tuple(24, (0,)), 10, [40, 34])
    assert not may_still_match(Tuple(24, (0,)), 10, [40, 35])
