"""Drifting keys: the promised rate, the promised number of partners, and a range that moves on."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.drifting_keys import SIDES, Drifting


def matches_within(left, right, window):
    """Pairs with equal keys and times at most `window` apart, by brute force over each key's rows."""
    order = np.argsort(right["key"], kind="stable")
    keys, times = right["key"][order], right["ts"][order]
    low, high = np.searchsorted(keys, left["key"], "left"), np.searchsorted(keys, left["key"], "right")
    pairs = zip(low, high, left["ts"], strict=True)
    return sum(int(np.count_nonzero(np.abs(times[a:b] - t) <= window)) for a, b, t in pairs)


def test_each_row_meets_about_as_many_partners_as_requested():
    made = Drifting(rate=400, partners=3.0)
    middle, around = made.rows("left", 10 * SECOND, 15 * SECOND), made.rows("right", 0, 25 * SECOND)
    assert matches_within(middle, around, 10 * SECOND) / middle["key"].size == pytest.approx(3.0, rel=0.1)
    assert matches_within(middle, around, 5 * SECOND) == matches_within(middle, around, 10 * SECOND)


def test_keys_move_on():
    made = Drifting(rate=1_000, partners=4.0, lifetime=5.0)
    first, later = made.batch("left", 0)["key"], made.batch("left", 20)["key"]
    assert first.max() < later.min()
    assert later.min() == pytest.approx(20 * 250, rel=0.02)


def test_dense_keys_stay():
    keys = Drifting(rate=1_000, dense=10).rows("right", 0, 5 * SECOND)["key"]
    assert np.unique(keys).tolist() == list(range(10))


def test_rate_and_order():
    rows = Drifting(rate=1234.5).rows("left", 0, 10 * SECOND)
    assert rows["ts"].size == 12_345
    assert (np.diff(rows["ts"]) >= 0).all()
    assert rows["ts"][-1] < 10 * SECOND


def test_batches_follow_each_other():
    made = Drifting(rate=1_000, batch_seconds=0.3)
    batches = [made.batch("left", number) for number in range(10)]
    whole = made.rows("left", 0, 3 * SECOND)
    assert all(np.array_equal(np.concatenate([batch[name] for batch in batches]), whole[name]) for name in whole)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 4 * SECOND), max_size=5), side=st.sampled_from(SIDES))
def test_rows_do_not_depend_on_the_cuts(cuts, side):
    made = Drifting(rate=200, seed=5)
    pieces = [made.rows(side, low, high) for low, high in pairwise([0, *sorted(cuts), 4 * SECOND])]
    whole = made.rows(side, 0, 4 * SECOND)
    assert all(np.array_equal(np.concatenate([piece[name] for piece in pieces]), whole[name]) for name in whole)


def test_sides_and_seeds_differ():
    made = [Drifting(rate=100, seed=seed).batch(side, 0)["key"].tolist() for seed in (0, 1) for side in SIDES]
    assert all(one != other for one, other in pairwise(made))


@pytest.mark.parametrize("wrong", [{"rate": 0.0}, {"partners": -1.0}, {"lifetime": 0.0}, {"dense": -1}])
def test_impossible_loads_are_refused(wrong):
    with pytest.raises(QueryError, match="must be positive, `dense` at least 0"):
        Drifting(**wrong)
