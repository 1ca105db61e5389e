"""Equations 1 and 2 of Kostowski and Claypool, and the stale tuples of the invalidation strategies."""

from __future__ import annotations

import pytest

from watersmeet.cost.binary import checked_buckets, hashed, nested_loops, results, stale_tuples
from watersmeet.cost.parameters import PER_KEY, Statistics
from watersmeet.cost.work import Constants, Work

A = Statistics("a", rate=4, window=30, distinct=100, buckets=20)
B = Statistics("b", rate=10, window=60, distinct=100, buckets=20)
NOTHING = Constants(*[0.0] * 13)


def test_nested_loops_is_equation_1() -> None:
    """λa = 4, λb = 10, Ta = 30, Tb = 60; c_inv = 2, c_ins = 3, c_scan = 5: 14·5 + 40·90·5 = 18070."""
    work = nested_loops(A, B)
    assert work == Work(rows_in=14, scanned=3600, results=36, inserted=14, expired=14)
    assert Constants(0, 0, 0, 5, 0, 3, 0, 2, 0, 0, 0, 0).price(work) == 18070


def test_hashed_is_equation_2() -> None:
    """The same with 20 buckets: 14·5 + 40·90·5 / 20 = 970."""
    assert Constants(0, 0, 0, 5, 0, 3, 0, 2, 0, 0, 0, 0).price(hashed(A, B)) == 970


def test_an_index_is_probed_once_for_each_arrival() -> None:
    assert hashed(A, B).lookups == 14
    assert hashed(A, Statistics("b", 10, 60, 100, buckets=1)).lookups == 10
    assert nested_loops(A, B).lookups == 0


def test_each_side_has_its_own_buckets() -> None:
    """Arrivals of a meet 600 / 20, those of b 120 / 60."""
    a = Statistics("a", rate=4, window=30, distinct=100, buckets=60)
    assert hashed(a, B).looked_at == 4 * 30 + 10 * 2


@pytest.mark.parametrize(("buckets", "probed"), [(1, 3600), (10, 360), (100, 36), (101, 36), (1000, 36), (PER_KEY, 36)])
def test_more_buckets_than_keys_part_nothing_more(buckets: float, probed: float) -> None:
    a, b = (Statistics(s.name, s.rate, s.window, s.distinct, buckets=buckets) for s in (A, B))
    assert hashed(a, b).looked_at == pytest.approx(probed)


def test_one_bucket_is_nested_loops() -> None:
    a, b = (Statistics(s.name, s.rate, s.window, s.distinct, buckets=1) for s in (A, B))
    assert hashed(a, b) == nested_loops(a, b)


def test_keys_of_one_stream_only_match_nothing() -> None:
    """b has 10 of a's 100 keys: an arrival of a finds 600/10 partners, but one in ten finds any."""
    assert results(A, Statistics("b", rate=10, window=60, distinct=10)) == 4 * 6 + 10 * 1.2


@pytest.mark.parametrize(
    ("invalidation", "checked", "stale"),
    [("probe", 14, 2.5), ("probe_insert", 28, 10 / 14), ("probe_all", 280, 0.125), ("all", 560, 0)],
)
def test_invalidation_strategies(invalidation: str, checked: float, stale: float) -> None:
    assert checked_buckets(A, B, invalidation) == checked
    assert stale_tuples(B, A, invalidation) == pytest.approx(stale)


def test_nobody_comes_by_to_clean() -> None:
    silent = Statistics("a", rate=0, window=30)
    assert stale_tuples(B, silent, "probe") == float("inf")
    assert stale_tuples(B, silent, "probe_insert") == 1
    assert stale_tuples(silent, B, "probe") == 0


def test_nothing_costs_nothing() -> None:
    assert NOTHING.price(nested_loops(A, B)) == 0
