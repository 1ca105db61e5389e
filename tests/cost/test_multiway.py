"""Costs of multi-way joins: the numbers of the spec, cases worked by hand, and what must hold of any setting."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.cost_settings import ONE_FAST, TWO_FAST, setting, settings_of
from watersmeet.cost import multiway
from watersmeet.cost.parameters import PER_KEY, Order, Parameters


def looked_at(p: Parameters, order: Order) -> float:
    return multiway.eager(p, multiway.one_order(order)).looked_at


def of_all_orders(p: Parameters) -> dict[Order, float]:
    return {order: looked_at(p, order) for order in permutations(range(len(p.streams)))}


@pytest.mark.parametrize(
    ("p", "order", "cost"),
    [
        (ONE_FAST, (0, 1, 2, 3), 16000),
        (ONE_FAST, (1, 0, 2, 3), 19600),
        (ONE_FAST, (3, 2, 1, 0), 86850),
        (TWO_FAST, (0, 1, 2, 3), 68200),
        (TWO_FAST, (1, 0, 2, 3), 79000),
    ],
)
def test_checked_numbers(p: Parameters, order: Order, cost: float) -> None:
    assert looked_at(p, order) == cost


def test_best_and_worst_of_all_24_orders() -> None:
    costs = of_all_orders(ONE_FAST)
    assert len(costs) == 24
    assert (min(costs.values()), max(costs.values())) == (16000, 86850)
    assert [order for order, cost in costs.items() if cost == 16000] == [(0, 1, 2, 3)]
    assert [order for order, cost in costs.items() if cost == 86850] == [(3, 2, 1, 0)]


def test_best_of_all_24_orders_when_two_streams_are_fast() -> None:
    costs = of_all_orders(TWO_FAST)
    assert round(looked_at(TWO_FAST, (2, 0, 3, 1))) == 47977
    assert min(costs.values()) == pytest.approx(looked_at(TWO_FAST, (2, 0, 3, 1)), rel=1e-12)
    assert looked_at(TWO_FAST, (2, 0, 3, 1)) == pytest.approx(47976 + 12 / 13, rel=1e-12)


def test_one_arrival_worked_by_hand() -> None:
    """10 arrivals of a: 100 of b, 100/500 = 0.2 match; 0.2 of 200 of c, 0.2 * 200/50 = 0.8 match; 0.8 of 300 of d."""
    work = multiway.from_origin(ONE_FAST, 0, (1, 2, 3))
    assert work.looked_at == pytest.approx(10 * (100 + 0.2 * 200 + 0.8 * 300))
    assert work.lookups == 0
    assert multiway.from_origin(ONE_FAST.indexed([2.0] * 4), 0, (1, 2, 3)).lookups == pytest.approx(
        10 * (1 + 0.2 + 0.8)
    )
    some = ONE_FAST.indexed([1.0, 1.0, 2.0, 1.0])
    assert multiway.from_origin(some, 0, (1, 2, 3)).lookups == pytest.approx(10 * 0.2)
    assert work.results == pytest.approx(10 * 0.8 * 300 / 40)


def test_buckets_divide_what_is_looked_at_and_nothing_else() -> None:
    hashed = multiway.eager(ONE_FAST.indexed([5.0] * 4), multiway.one_order((3, 2, 1, 0)))
    scanned = multiway.eager(ONE_FAST, multiway.one_order((3, 2, 1, 0)))
    assert hashed.looked_at == pytest.approx(86850 / 5)
    assert hashed.results == pytest.approx(scanned.results)


@given(settings_of(), st.data())
def test_a_bucket_per_key_meets_matches_only(p: Parameters, data: st.DataObject) -> None:
    order = tuple(data.draw(st.permutations(range(len(p.streams)))))
    per_key = multiway.eager(p.indexed([PER_KEY] * len(p.streams)), multiway.one_order(order))
    many = multiway.eager(p.indexed([1e9] * len(p.streams)), multiway.one_order(order))
    assert per_key.looked_at == many.looked_at
    matches = 0.0
    for i, s in enumerate(p.streams):
        found, keys = s.rate, s.distinct
        for j in multiway.without(order, i):
            found *= p.streams[j].window_tuples / max(keys, p.streams[j].distinct)
            keys = min(keys, p.streams[j].distinct)
            matches += found
    assert per_key.looked_at == pytest.approx(matches)


@given(settings_of(), st.data())
def test_results_do_not_depend_on_the_order(p: Parameters, data: st.DataObject) -> None:
    n = range(len(p.streams))
    orders = [tuple(data.draw(st.permutations(n))) for _ in range(2)]
    eager = [multiway.eager(p, multiway.one_order(o)).results for o in orders]
    naive = [multiway.naive_multiway(p, o).results for o in orders]
    late = replace(p, interval=3.0)
    lazy = [multiway.general_lazy(late, [tuple(data.draw(st.permutations(n))) for _ in n]).results for _ in orders]
    assert [*eager, *naive, *lazy] == pytest.approx([eager[0]] * 6)


@given(settings_of())
def test_new_tuples_outermost_is_lazy_and_without_an_interval_eager(p: Parameters) -> None:
    n = len(p.streams)
    orders = multiway.one_order(tuple(range(n)))
    late = replace(p, interval=2.0)
    general = multiway.general_lazy(late, [(i, *order) for i, order in enumerate(orders)])
    assert general.looked_at == pytest.approx(multiway.lazy(late, orders).looked_at)
    assert multiway.lazy(replace(p, interval=0.0), orders) == multiway.eager(p, orders)
    assert multiway.lazy(late, orders).looked_at >= multiway.eager(p, orders).looked_at


def test_lazy_worked_by_hand() -> None:
    """Two streams, one tuple a second, windows of 10 s, evaluated every 5 s: probes meet 15 seconds, 10 match."""
    p = replace(setting((1, 1), (10, 10), (2, 2)), interval=5.0)
    work = multiway.lazy(p, ((1,), (0,)))
    assert (work.looked_at, work.results) == (30.0, 10.0)
    worse = multiway.general_lazy(p, ((1, 0), (0, 1)))  # 15 stored ones outermost, 5 new ones inside, every 5 s
    assert (worse.looked_at, worse.results) == (2 * (15 + 15 * 5) / 5, 10.0)


def test_tuples_that_wait_for_their_removal_are_looked_at() -> None:
    p = setting((1, 2), (10, 10), (2, 2))
    assert multiway.eager(replace(p, expiration=4.0), ((1,), (0,))).looked_at == 1 * (20 + 4) + 2 * (10 + 2)


def test_naive_worked_by_hand() -> None:
    """Three streams alike, C = 10, v = 5, one arrival a second each.

    First in the order: 10 + 2·10. Second: 10 (a's window), of which 2 match the new one, + 2·10. Third: 10 + 10·10.
    """
    p = setting((1, 1, 1), (10, 10, 10), (5, 5, 5))
    assert multiway.naive_multiway(p, (0, 1, 2)).looked_at == pytest.approx(30 + 30 + 110)
    assert looked_at(p, (0, 1, 2)) == 90


def test_eager_scales_better_than_naive() -> None:
    """Multi-way figure 2: streams alike; what the naive one looks at beyond grows with each stream, and is the most."""
    surplus = []
    for n in range(2, 7):
        p = setting((1,) * n, (100,) * n, (50,) * n)
        eager = looked_at(p, tuple(range(n)))
        surplus.append(multiway.naive_multiway(p, tuple(range(n))).looked_at - eager)
        assert n == 2 or surplus[-1] > 4 * eager
    assert surplus[0] == 0
    assert surplus == sorted(surplus)
