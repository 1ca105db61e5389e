"""Arrivals are Poisson, seconds fit together, disorder stays within its bound."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.workload.arrivals import (
    SECOND,
    delivered,
    delivery_times,
    generator,
    merge_by_time,
    poisson_arrivals,
    seconds_of,
)


def test_rate_is_met():
    times = poisson_arrivals(100, 0, 200 * SECOND, seed=1)
    assert times.size == pytest.approx(20_000, abs=5 * np.sqrt(20_000))


def test_gaps_are_exponential_across_seconds():
    gaps = np.diff(poisson_arrivals(50, 0, 400 * SECOND, seed=2)) / SECOND
    assert gaps.mean() == pytest.approx(1 / 50, rel=0.05)
    assert gaps.std() == pytest.approx(1 / 50, rel=0.05)
    assert np.mean(gaps > 0.04) == pytest.approx(np.exp(-2), rel=0.1)


@given(cuts=st.lists(st.integers(0, 5 * SECOND), max_size=6))
def test_cutting_an_interval_changes_nothing(cuts):
    bounds = [0, *sorted(cuts), 5 * SECOND]
    pieces = [poisson_arrivals(40, low, high, seed=3) for low, high in pairwise(bounds)]
    assert np.concatenate(pieces).tolist() == poisson_arrivals(40, 0, 5 * SECOND, seed=3).tolist()


def test_seeds_and_streams_differ():
    made = {tuple(poisson_arrivals(5, 0, 3 * SECOND, seed=s, stream=t)) for s in (0, 1) for t in (0, 1)}
    assert len(made) == 4


@pytest.mark.parametrize(
    ("start", "end", "seconds"),
    [
        (0, 0, []),
        (0, 1, [0]),
        (0, SECOND, [0]),
        (SECOND - 1, SECOND + 1, [0, 1]),
        (-3 * SECOND, SECOND, [0]),
        (-9, -1, []),
    ],
)
def test_seconds_of_an_interval(start, end, seconds):
    assert list(seconds_of(start, end)) == seconds


def test_delivery_is_late_by_at_most_the_delay_and_uses_all_of_it():
    times = np.arange(10_000) * 100
    late_by = delivery_times(generator(0, 0, 0), times, 500) - times
    assert (late_by.min(), late_by.max()) == (0, 500)


def test_no_delay_delivers_at_once():
    times = np.array([1, 2, 3])
    assert delivery_times(generator(0, 0, 0), times, 0) is times


def test_delivered_rows_come_in_order_of_arrival():
    arrival = np.array([30, 10, 20])
    made = {0: (arrival, {"name": np.array([1, 2, 3])})}
    rows = delivered(made.__getitem__, 10, 30, 0, {"name": np.empty(0, np.int64)})
    assert rows["name"].tolist() == [2, 3]


def test_merging_keeps_the_order_of_each_stream_and_of_equal_times():
    merged = merge_by_time(np.array([3, 3, 7]), np.array([], np.int64), np.array([1, 3, 9]))
    assert list(zip(merged.stream.tolist(), merged.row.tolist(), strict=True)) == [
        (2, 0),
        (0, 0),
        (0, 1),
        (2, 1),
        (0, 2),
        (2, 2),
    ]
