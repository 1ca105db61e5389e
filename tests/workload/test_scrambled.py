"""Scrambled streams: the promised disorder, exactly; the promised rates, lags and multiplicities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.scrambled import BURST, DIP, Scrambled, cut, distances, three_streams


def slow_scrambling(keys: list[int]) -> int:
    """By the definition: the least k with t.A <= t'.A => PI(t) - k <= PI(t'), over all pairs."""
    pairs = [(p, q) for p, a in enumerate(keys) for q, b in enumerate(keys) if a <= b]
    return max((p - q for p, q in pairs), default=0)


@given(st.lists(st.integers(0, 8), max_size=12))
def test_distances_are_those_of_the_definition(keys: list[int]) -> None:
    assert distances(np.array(keys, np.int64)).max(initial=0) == slow_scrambling(keys)


@settings(max_examples=60, deadline=None)
@given(k=st.integers(0, 60), multiplicity=st.integers(1, 4), seed=st.integers(0, 9), n=st.integers(0, 400))
def test_the_scrambling_factor_is_reached_exactly(k: int, multiplicity: int, seed: int, n: int) -> None:
    k = max(k, multiplicity - 1)
    keys = Scrambled(k, multiplicity).keys(n, seed=seed)
    reached = int(distances(keys).max(initial=0))
    assert reached <= k
    assert reached == k or n <= 2 * k + 2
    assert np.sort(keys).tolist() == (np.arange(n) // multiplicity).tolist()


def test_the_papers_factor_is_reached_by_many_tuples() -> None:
    behind = distances(Scrambled(500).keys(6000, seed=1))
    assert behind.max() == 500
    assert np.count_nonzero(behind > 250) > 300
    assert np.count_nonzero(behind > 400) > 10


def test_rates_dip_and_burst() -> None:
    plain = Scrambled(10).arrivals(120, seed=3)
    assert plain.size == pytest.approx(6000, rel=0.05)
    assert np.diff(plain).std() == pytest.approx(20_000, rel=0.1)  # a Poisson process: gaps vary as much as they last
    dip = Scrambled(10, swings=(DIP,)).arrivals(120, seed=3)
    assert np.count_nonzero((dip >= 10 * SECOND) & (dip < 40 * SECOND)) == pytest.approx(187.5, rel=0.25)
    assert np.count_nonzero(dip < 10 * SECOND) == pytest.approx(500, rel=0.2)
    burst = Scrambled(10, swings=(BURST,)).arrivals(120, seed=3)
    assert np.count_nonzero((burst >= 80 * SECOND) & (burst < 90 * SECOND)) == pytest.approx(4000, rel=0.1)
    assert np.count_nonzero(burst >= 90 * SECOND) == pytest.approx(1500, rel=0.1)
    assert (np.diff(burst) >= 0).all()


def test_a_lag_is_a_late_beginning() -> None:
    late = Scrambled(10, lag=100).arrivals(60, seed=2)
    assert late[0] == pytest.approx(2 * SECOND, rel=0.1)
    assert late.size == pytest.approx(2900, rel=0.06)


def test_the_same_seed_makes_the_same_rows_and_streams_differ() -> None:
    stream = Scrambled(20)
    assert stream.rows(5, seed=7, stream=1).equals(stream.rows(5, seed=7, stream=1))
    assert not stream.rows(5, seed=7, stream=1).equals(stream.rows(5, seed=7, stream=2))
    assert stream.rows(5, seed=7).nbytes == 24 * stream.rows(5, seed=7).num_rows


def test_batches_are_cut_by_arrival() -> None:
    rows = [s.rows(10, seed=1, stream=i) for i, s in enumerate(three_streams((5, 6, 7), lag=50))]
    batches = cut(rows, 10, 1.0)
    assert len(batches) == 10
    for i, whole in enumerate(rows):
        assert sum(b[i].num_rows for b in batches) == whole.num_rows
        for n, b in enumerate(batches):
            at = b[i].column("at").to_numpy()
            assert ((at >= n * SECOND) & (at < (n + 1) * SECOND)).all()


def test_equal_keys_are_disorder() -> None:
    with pytest.raises(QueryError, match=r"(?s)`scrambling` is 0 and `multiplicity` 2; .*Hint: use scrambling=1"):
        Scrambled(0, 2)
    with pytest.raises(QueryError, match="`multiplicity` is 0; every key comes at least once"):
        Scrambled(3, 0)
