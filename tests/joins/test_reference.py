"""The oracle against another one, and on the cases where it is easily wrong."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.oracle import NAN, Scenario, bag, duckdb_join, expected, scenarios
from watersmeet.joins.reference import Tuple, may_still_match, on_time, same_key, window_join
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.windows import TimeWindow


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


def test_late_is_behind_the_progress_before_the_batch() -> None:
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


@pytest.mark.parametrize(
    ("t", "progress", "alive"),
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
def test_what_may_still_match(t: Tuple, progress: int, alive: bool) -> None:
    assert may_still_match(t, 10, [progress]) is alive
