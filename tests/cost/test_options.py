"""Parameters as a join's options have them, and the stay of tuples as it was seen."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from watersmeet.cost import memory
from watersmeet.cost.measured_parameters import assumed, assumed_stream
from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.options import cost_of_join, parameters_of
from watersmeet.cost.parameters import PER_KEY, SCAN, Parameters, Statistics
from watersmeet.joins import REGISTRY, plan
from watersmeet.workload.steady import Steady

THREE = Steady((10, 20, 30), (5.0, 4.0, 3.0), (10, 20, 30)).query
TWO = Steady((10, 20), (5.0, 4.0), (10, 20)).query


@pytest.mark.parametrize(
    ("name", "options", "buckets"),
    [
        ("eager", {}, [PER_KEY] * 3),
        ("eager", {"index": "scan"}, [SCAN] * 3),
        ("hybrid", {"index": ("a", "c")}, [PER_KEY, SCAN, PER_KEY]),
        ("general_lazy", {"every": 2_000_000, "expiration": 500_000}, [PER_KEY] * 3),
    ],
)
def test_indexes_and_intervals(name: str, options: dict[str, Any], buckets: list[float]) -> None:
    p = parameters_of(plan(THREE, name, **options), assumed(THREE))
    assert [s.buckets for s in p.streams] == buckets
    assert p.orders == ((1, 2), (0, 2), (0, 1))
    assert (p.interval, p.expiration) == ((2.0, 0.5) if "every" in options else (1.0, 0.0))


def test_orders_are_those_of_the_join_or_those_it_follows_now() -> None:
    given = plan(THREE, "general_lazy", order=(2, 0, 1))
    assert parameters_of(given, assumed(THREE)).orders == ((2, 1), (2, 0), (0, 1))
    assert parameters_of(given, assumed(THREE), ((0, 2, 1), (1, 0, 2), (2, 1, 0))).orders == ((2, 1), (0, 2), (1, 0))
    naive = plan(THREE, "naive_multiway", order=(2, 0, 1))
    assert parameters_of(naive, assumed(THREE)).orders == ((2, 0, 1),) * 3


def test_buckets_of_two_streams() -> None:
    bucketed = plan(TWO, "hash", buckets=8, invalidation="all")
    assert bucketed.name == "windowed_hash"
    p = parameters_of(bucketed, assumed(TWO))
    assert ([s.buckets for s in p.streams], p.invalidation) == ([8.0, 8.0], "all")
    assert cost_of_join(bucketed, assumed(TWO)) == COST_MODELS["windowed_hash"](p)


ON_A_KEY = {name for name, kind in REGISTRY.items() if not kind.traits.theta and not kind.traits.asof}


@pytest.mark.parametrize("name", sorted(ON_A_KEY - {"wo_join", "windowed_hash", "pjoin"}))
def test_every_join_has_a_cost_by_its_own_options(name: str) -> None:
    assert cost_of_join(plan(TWO, name), assumed(TWO)).work.rows_in == 2000


# ---------------------------------------------------------------- stays

PAIR = Parameters((Statistics("a", 10, 20, 40, punctuation_rate=2), Statistics("b", 5, 30, 40, delay=4)), interval=1.0)


def stayed(seconds: float) -> Parameters:
    a, b = PAIR.streams
    return replace(PAIR, streams=(a, replace(b, stay=seconds)))


def test_what_is_stored_is_the_rate_times_the_stay() -> None:
    """b comes 5 times a second and stays 12 s of the 30 that its window would keep it."""
    cost = COST_MODELS["pwjoin"](stayed(12))
    assert cost.tuples == (10 * 24, 5 * 12)
    assert COST_MODELS["pwjoin"](stayed(99)).tuples[1] == 150, "the window bounds it"
    endless = replace(PAIR.streams[1], window=math.inf, stay=12)
    assert memory.thinned(replace(PAIR, streams=(PAIR.streams[0], endless)), 1, 0.0) == 60


@pytest.mark.parametrize("share", [0.1, 0.3, 0.632120558828558, 0.99])
def test_who_stays_less_was_purged_more(share: float) -> None:
    """Of tuples that stay (1 - e^-x)/x of their window e^-x leave with it; x = 1 for a share of 0.632."""
    purged = memory.purged_share(stayed(30 * share), 1)
    x = -math.log1p(-purged)
    assert -math.expm1(-x) / x == pytest.approx(share, rel=1e-6)
    assert memory.purged_share(stayed(30), 1) == 0


def test_keys_are_assumed_for_the_rate_that_is_known() -> None:
    assert assumed_stream(TWO.streams[0], 100.0).distinct == 100 * 5 / 4
    assert assumed_stream(TWO.streams[0]).rate == 1000
