"""One model per operator, and what all of them must do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from lab.joins.cost_settings import ONE_FAST, setting
from watersmeet.cost import asof, multiway
from watersmeet.cost.models import COST_MODELS, eager, general_lazy, nested_loop, scans
from watersmeet.cost.parameters import KEY_BYTES, PER_KEY, Parameters, Statistics
from watersmeet.cost.work import Constants, Work
from watersmeet.errors import QueryError
from watersmeet.model.asof import AsOf

TWO = Parameters(
    (
        Statistics("a", 20, 10, 40, delay=1, row_bytes=50, buckets=8),
        Statistics("b", 30, 5, 25, row_bytes=80, buckets=8),
    ),
    interval=1.0,
)


@pytest.mark.parametrize("name", COST_MODELS)
def test_all_models_agree_on_what_goes_in(name: str) -> None:
    cost = COST_MODELS[name](TWO)
    assert cost.work.rows_in == 50
    assert cost.work.inserted == 50
    assert cost.work.expired + cost.work.purged == pytest.approx(50)
    keys = (
        0
        if name in ("nested_loop", "windowed_hash", "theta", "band")
        else min(40, cost.tuples[0]) + min(25, cost.tuples[1])
    )
    assert cost.bytes == pytest.approx(50 * cost.tuples[0] + 80 * cost.tuples[1] + KEY_BYTES * keys)
    assert cost.work.bytes == 20 * 50 + 30 * 80
    assert cost.cpu(Constants()) == Constants().price(cost.work) > 0


@pytest.mark.parametrize("name", sorted(set(COST_MODELS) - {"wo_join", "asof"}))
def test_all_window_joins_find_the_same_results(name: str) -> None:
    assert COST_MODELS[name](TWO).work.results == pytest.approx((20 * 150 + 30 * 200) / 40)


@pytest.mark.parametrize("name", sorted(set(COST_MODELS) - {"wo_join", "windowed_hash", "asof"}))
def test_all_window_joins_keep_the_same_tuples(name: str) -> None:
    assert COST_MODELS[name](TWO).tuples == (200, 180)


def test_stale_tuples_are_stored_too() -> None:
    p = replace(TWO, invalidation="probe")
    assert COST_MODELS["windowed_hash"](p).tuples == pytest.approx((200 + 8 * 20 / 30, 180 + 8 * 30 / 20))


def test_eager_of_two_streams_is_the_hash_join() -> None:
    p = TWO.indexed([PER_KEY, PER_KEY])
    assert eager(p).work == COST_MODELS["hash"](p).work
    assert eager(scans(TWO)).work == replace(nested_loop(TWO).work, checked=0)


def test_the_order_is_the_parameters() -> None:
    worst = replace(ONE_FAST, orders=multiway.one_order((3, 2, 1, 0)))
    assert (eager(ONE_FAST).work.looked_at, eager(worst).work.looked_at) == (16000, 86850)


def test_punctuations_save_memory() -> None:
    a, b = TWO.streams
    punctuated = replace(TWO, streams=(replace(a, punctuation_rate=4.0), replace(b, punctuation_rate=4.0)))
    plain, less = COST_MODELS["pwjoin"](TWO), COST_MODELS["pwjoin"](punctuated)
    assert less.tuples[0] < plain.tuples[0]
    assert less.tuples[1] == pytest.approx(30 * 25 / 4 * (1 - math.exp(-4 * 6 / 25)))
    assert less.work.results == pytest.approx(plain.work.results, rel=0.3), "what is purged would not have matched"
    assert less.work.purged > 0
    assert (plain.work.punctuations, less.work.punctuations) == (0, 8)
    assert COST_MODELS["eager"](punctuated).work.punctuations == 8


def test_equation_1_where_the_keys_since_the_start_are_known() -> None:
    """A quarter of b's keys is closed, and none of a's."""
    a, b = TWO.streams
    punctuated = replace(TWO, streams=(replace(a, punctuation_rate=0.5), replace(b, keys_seen=200.0)), elapsed=100.0)
    cost = COST_MODELS["pwjoin"](punctuated)
    assert cost.tuples == (200, 180 * 0.75)
    assert cost.work.purged == 30 * 0.25
    assert cost.work.looked_at == pytest.approx((20 * 150 * 0.75 + 30 * 200) / 40)


def test_pjoin_needs_no_window() -> None:
    p = Parameters((Statistics("a", 10, distinct=20, punctuation_rate=2), Statistics("b", 5, 30, 20, tuples=70)))
    with pytest.raises(QueryError, match="stream `a` has no window"):
        COST_MODELS["pjoin"](p)
    both = replace(p, streams=(p.streams[0], replace(p.streams[1], punctuation_rate=1.0)))
    assert COST_MODELS["pjoin"](both).tuples[0] == 10 * 20 / 1


def test_window_oblivious_buffers_are_its_windows() -> None:
    p = Parameters((Statistics("a", 10, scrambling=9, distinct=5), Statistics("b", 10, scrambling=1, distinct=5)))
    cost = COST_MODELS["wo_join"](p)
    assert cost.tuples == (10, 10)
    assert cost.work.looked_at == pytest.approx(2 * 10 * 10 / 5)


def test_binary_models_take_two_streams() -> None:
    with pytest.raises(QueryError, match="this model is of two streams; 4 given"):
        nested_loop(ONE_FAST)


def test_a_lazy_join_has_an_interval() -> None:
    with pytest.raises(QueryError, match="`interval` is 0; a lazy join"):
        general_lazy(setting((1, 1), (5, 5), (2, 2)))


def test_work_as_a_running_join_counts_it() -> None:
    counted = Work.counted({"rows_in": 10, "late": 2, "null_keys": 1, "probed": 30, "stored": 99})
    assert counted == Work(rows_in=10, lookups=7, probed=30)
    assert Work.counted({"rows_in": 10, "lookups": 25}).lookups == 25
    assert Work.counted({"probed": 30}, scans=True) == Work(scanned=30)


def test_an_as_of_join_stores_waiting_rows_and_a_version_of_each_key() -> None:
    a, b = Statistics("a", 10, distinct=40, delay=2), Statistics("b", 5, distinct=20, delay=3)
    p = Parameters((a, b), interval=1.0)
    model = COST_MODELS["asof"]
    assert model(replace(p, asof=AsOf())).tuples == (10 * 3, 20 + 5 * 2)
    assert model(replace(p, asof=AsOf(tolerance=1_000_000))).tuples == (30, 5 * 1 + 5 * 2), "fewer than there are keys"
    assert model(replace(p, asof=AsOf("forward"))).tuples == (10 * (20 / 5 + 3), 5 * 2), "until the next of the key"
    assert model(replace(p, asof=AsOf("nearest", 1_000_000))).tuples == (10 * (1 + 3), 5 * 1 + 5 * 2)
    assert model(p).work.results == model(p).work.probed == 10
    kept = [asof.retention(replace(p, asof=of), i) for of in (AsOf(), AsOf("forward", 4_000_000)) for i in (0, 1)]
    assert kept == [3, math.inf, 7, 2]
