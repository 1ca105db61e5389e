"""Rows in order of time."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels import sorting
from watersmeet.state.index import by_time, first_since


@given(
    st.lists(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(0, 20), max_size=40),
    st.randoms(use_true_random=False),
)
def test_rows_by_time_are_what_a_stable_sort_gives(times: list[int], random) -> None:
    which = random.sample(range(len(times)), random.randint(0, len(times)))
    ordered = by_time(np.array(times, np.int64), np.array(which, np.int64))
    assert ordered.tolist() == sorted(which, key=lambda row: times[row])


@given(st.lists(st.integers(-3, 3), max_size=20), st.integers(-4, 4))
def test_the_first_row_since_a_time_divides_the_earlier_from_the_others(times: list[int], time: int) -> None:
    which = by_time(np.array(times, np.int64), np.arange(len(times)))
    first = first_since(np.array(times, np.int64), which, time)
    assert [times[row] < time for row in which.tolist()] == [True] * first + [False] * (len(times) - first)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40))
def test_pairs_by_segment_are_what_a_stable_sort_gives(segments: list[int]) -> None:
    pairs = np.array([[k, k + 100, segment, k + 200] for k, segment in enumerate(segments)], np.int32).T.copy()
    grouped = np.empty_like(pairs)
    sorting.by_segment(*pairs, np.zeros(7, np.int64), grouped)
    assert grouped.T.tolist() == sorted(pairs.T.tolist(), key=lambda pair: pair[2])


@given(st.lists(st.integers(1, 40), max_size=6))
def test_runs_of_equal_values_end_where_the_next_begin(lengths: list[int]) -> None:
    values = np.repeat(np.arange(len(lengths), dtype=np.int32) * 7 % 5, lengths)  # neighbours differ, others may not
    ends = np.zeros(len(lengths), np.int64)
    assert sorting.ends_of_runs(values, ends) == len(lengths)
    assert ends.tolist() == np.cumsum(lengths, dtype=np.int64).tolist()


def test_times_that_bunch_are_given_up_and_sorted_otherwise() -> None:
    times = np.append(np.arange(10_000)[::-1], 1 << 58)  # but for one row all fall into one bucket, in reverse
    which = np.arange(times.size)
    assert not sorting.by_time(times, which, np.empty_like(which))
    assert by_time(times, which).tolist() == [*range(9_999, -1, -1), 10_000]


def test_rows_in_order_are_not_copied() -> None:
    which = np.arange(5)
    assert by_time(np.array([1, 1, 2, 3, 3]), which) is which
