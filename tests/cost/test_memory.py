"""Stored tuples: windows, delays, Eq. 1 of PWJoin and the steady state."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.cost.memory import (
    closed_rate,
    punctuated_state,
    purged_share,
    retention,
    steady_state,
    thinned,
    window_state,
)
from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.errors import QueryError

A = Statistics("a", rate=2, window=10, distinct=8, delay=1, punctuation_rate=0.5)
B = Statistics("b", rate=100, window=15, distinct=50, delay=5, punctuation_rate=0.25)
C = Statistics("c", rate=7, window=20, distinct=50)


def test_windows_keep_until_the_slowest_other_is_past() -> None:
    """a waits 10 s for b, which may be 5 s late; b 15 s for a, 1 s late; c waits for the later of both."""
    p = Parameters((A, B, C), expiration=2)
    assert [retention(p, i) for i in range(3)] == [15, 16, 25]
    assert [window_state(p, i) for i in range(3)] == [2 * 16, 100 * 17, 7 * 26]


def test_equation_1() -> None:
    """100 · 15 tuples; after 60 s a has closed 30 of the 120 keys that b has had: a quarter is gone."""
    assert punctuated_state(B, A.punctuation_rate, elapsed=60, keys_seen=120) == 1500 * 0.75


def test_equation_1_in_the_best_case_and_beyond() -> None:
    assert punctuated_state(B, 0.5, elapsed=60, keys_seen=30) == 0
    assert punctuated_state(B, 0.5, elapsed=60, keys_seen=10) == 0  # a closed keys that b never had
    assert punctuated_state(B, 0, elapsed=math.inf, keys_seen=10) == 1500


def test_steady_state_by_hand() -> None:
    """50 keys, one closed every 2 s: a key lives 100 s on average, of which the window sees 15."""
    assert steady_state(B, 0.5) == pytest.approx(100 * 100 * (1 - math.exp(-0.15)))
    assert purged_share(Parameters((A, B)), 1) == pytest.approx(1 - math.exp(-0.5 * 16 / 50))
    forever = Statistics("b", rate=100, distinct=50)
    assert steady_state(forever, 0.5) == 100 * 100
    assert purged_share(Parameters((A, forever)), 1) == 1
    assert purged_share(Parameters((forever, A)), 1) == 0
    now = Parameters((replace(A, window=0.0, stay=0.0), replace(B, delay=0.0)))
    assert purged_share(now, 0) == 0  # of an instant nothing is left to purge


def test_equation_1_needs_to_know_the_keys_and_the_time() -> None:
    known = Statistics("b", rate=100, window=15, distinct=50, keys_seen=120)
    assert thinned(Parameters((A, known), elapsed=60), 1, 0) == 1500 * 0.75
    assert thinned(Parameters((A, known), elapsed=60), 1, 2) == 1700 * 0.75
    assert purged_share(Parameters((A, known), elapsed=60), 1) == 0.25
    assert thinned(Parameters((A, known)), 1, 2) == steady_state(known, 0.5, 2)
    assert thinned(Parameters((A, B), elapsed=60), 1, 2) == steady_state(B, 0.5, 2)


@given(st.just(0.0) | st.floats(1e-9, 1000), st.floats(0, 100))
def test_punctuations_only_ever_shorten(rate: float, extra: float) -> None:
    assert steady_state(B, rate, extra) <= B.window_tuples + B.rate * extra + 1e-6
    assert steady_state(B, rate, extra) > steady_state(B, rate + 1, extra)


def test_all_others_must_close_a_key() -> None:
    assert [closed_rate(Parameters((A, B, C)), i) for i in range(3)] == [0, 0, 0.25]
    assert [closed_rate(Parameters((A, B)), i) for i in range(2)] == [0.25, 0.5]


def test_without_a_window_tuples_are_unknown() -> None:
    forever = Statistics("b", rate=100)
    with pytest.raises(QueryError, match=r"stream `b` has no window; how many tuples it holds"):
        _ = forever.window_tuples
    assert Parameters((A, forever)).after(30).streams[1].window_tuples == 3000


@pytest.mark.parametrize("field", ["rate", "window", "distinct", "delay", "buckets"])
def test_figures_that_make_no_sense(field: str) -> None:
    with pytest.raises(QueryError, match=rf"`{field}` of stream `a` is -1; a cost is defined for"):
        Statistics("a", **{"rate": 1.0} | {field: -1.0})


def test_one_stream_is_no_join() -> None:
    with pytest.raises(QueryError, match="at least two streams; 1 given"):
        Parameters((A,))
