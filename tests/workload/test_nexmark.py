"""NEXMark as published: proportions, hot keys, lives of auctions; closings are true; the same rows for any cut."""

import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.workload import SECOND, Nexmark
from watersmeet.workload.draws import draw
from watersmeet.workload.nexmark import FIRST_ID

MARKET = Nexmark(rate=20_000, seed=3)
LENGTH = 20 * SECOND  # 400,000 events


@pytest.fixture(scope="module")
def persons():
    return MARKET.persons(0, LENGTH)


@pytest.fixture(scope="module")
def auctions():
    return MARKET.auctions(0, LENGTH)


@pytest.fixture(scope="module")
def rows():
    return MARKET.bids(0, LENGTH)


@pytest.fixture(scope="module")
def bids(rows):
    return {name: values[~rows["closed"]] for name, values in rows.items()}


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_46_bids(persons, auctions, bids):
    sizes = [persons["person_id"].size, auctions["auction_id"].size, bids["auction_id"].size]
    assert sizes == [8_000, 24_000, 368_000]


def test_events_are_evenly_spaced_over_all_three_streams(persons, auctions, bids):
    times = np.sort(np.concatenate([persons["registered_at"], auctions["opened_at"], bids["bid_at"]]))
    assert np.array_equal(times, np.arange(400_000) * 50)


def test_every_stream_is_in_order_and_ids_ascend(persons, auctions, rows):
    for times in (persons["registered_at"], auctions["opened_at"], rows["bid_at"]):
        assert (np.diff(times) >= 0).all()
    for ids in (persons["person_id"], auctions["auction_id"]):
        assert np.array_equal(ids, FIRST_ID + np.arange(ids.size))


def test_every_bid_is_for_an_auction_that_runs(auctions, bids):
    auction = bids["auction_id"] - FIRST_ID
    assert (bids["bid_at"] >= auctions["opened_at"][auction]).all()
    assert (bids["bid_at"] < auctions["expires_at"][auction]).all()


def test_each_auction_is_closed_once_when_it_expires(auctions, rows):
    closed = rows["auction_id"][rows["closed"]] - FIRST_ID
    assert np.array_equal(np.sort(closed), np.flatnonzero(auctions["expires_at"] < LENGTH))
    assert np.array_equal(rows["bid_at"][rows["closed"]], auctions["expires_at"][closed])


def test_about_in_flight_auctions_run_at_a_time(auctions):
    at = np.arange(SECOND, LENGTH, SECOND // 10)
    ends = np.sort(auctions["expires_at"])
    running = np.searchsorted(auctions["opened_at"], at, "right") - np.searchsorted(ends, at, "right")
    assert running.mean() == pytest.approx(100, rel=0.08)


def test_an_auction_lasts_up_to_twice_the_time_in_which_those_in_flight_open(auctions):
    lasts = auctions["expires_at"] - auctions["opened_at"]
    horizon = 100 / 1200 * SECOND  # 1,200 auctions open in a second
    assert lasts.mean() == pytest.approx(horizon, rel=0.03)
    assert 1.99 * horizon < lasts.max() <= MARKET.longest
    usual = lasts[np.arange(lasts.size) % 100 != 0]  # a hot one lasts longer
    quarters = np.histogram(usual, 4, (0, 2 * horizon))[0] / usual.size
    assert quarters == pytest.approx([0.25] * 4, abs=0.02)


def test_half_of_the_bids_go_to_the_hot_auction(bids):
    auction = bids["auction_id"] - FIRST_ID
    newest = np.floor(bids["bid_at"] / 50 / 50).astype(np.int64) * 3 + 2
    hot = auction == newest // 100 * 100
    assert hot.mean() == pytest.approx(0.5 + 0.5 / 100, abs=0.01)  # some of the others choose it, too
    others = (newest - auction)[~hot]
    assert others.min() >= 0
    assert others.max() < 206


def test_three_of_four_bidders_and_sellers_are_the_hot_one(auctions, bids):
    for who, at in ((bids["bidder"], bids["bid_at"]), (auctions["seller"], auctions["opened_at"])):
        late = at > 3 * SECOND  # a thousand people are there by then
        newest = at[late] // 50 // 50
        number = who[late] - FIRST_ID
        hot = number == newest // 100 * 100
        assert hot.mean() == pytest.approx(0.75, abs=0.01)
        age = (newest - number)[~hot]
        assert age.min() >= 0
        assert age.max() < 1_000
        assert age.mean() == pytest.approx(500, rel=0.03)


def test_nobody_acts_before_registering(persons, auctions, bids):
    for who, at in ((bids["bidder"], bids["bid_at"]), (auctions["seller"], auctions["opened_at"])):
        assert (persons["registered_at"][who - FIRST_ID] <= at).all()


def test_prices_spread_over_six_orders_of_magnitude(bids):
    shares = np.histogram(np.log10(bids["price"]), 6, (2, 8))[0] / bids["price"].size
    assert shares == pytest.approx([1 / 6] * 6, abs=0.01)


def test_categories_and_states_are_as_likely_as_published(persons, auctions):
    assert np.bincount(auctions["category"], minlength=15)[10:] / 24_000 == pytest.approx([0.2] * 5, abs=0.02)
    assert np.isin(persons["state"], ["OR", "ID", "CA"]).mean() == pytest.approx(0.5, abs=0.03)


@settings(max_examples=25, deadline=None)
@given(rate=st.sampled_from([7.0, 333.3, 20_000.0, 1e6]), cuts=st.lists(st.integers(0, SECOND), max_size=5))
@pytest.mark.parametrize("stream", ["persons", "auctions", "bids"])
def test_rows_do_not_depend_on_the_cuts(stream, rate, cuts):
    end = round(SECOND * min(1, 20_000 / rate))
    rows = getattr(Nexmark(rate=rate, seed=11, in_flight=20), stream)
    pieces = [rows(low, high) for low, high in pairwise([0, *sorted(c for c in cuts if c < end), end])]
    for name, whole in rows(0, end).items():
        assert np.array_equal(np.concatenate([piece[name] for piece in pieces]), whole)


def test_ten_million_events_take_seconds():
    began = time.process_time()
    bids = Nexmark(rate=1e6).bids(0, 10 * SECOND)
    assert np.count_nonzero(~bids["closed"]) == 9_200_000
    assert time.process_time() - began < 30


def test_another_seed_is_another_market():
    one, other = (Nexmark(seed=seed).bids(0, SECOND)["price"] for seed in (1, 2))
    assert not np.array_equal(one, other)


def test_draws_are_uniform_and_independent():
    one, next_, other = (draw(0, purpose, np.arange(first, 100_000)) for purpose, first in ((1, 0), (1, 1), (2, 0)))
    for values in (one, other):
        assert np.histogram(values, 10, (0, 1))[0] / values.size == pytest.approx([0.1] * 10, abs=0.005)
    assert abs(np.corrcoef(one[:-1], next_)[0, 1]) < 0.015
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.015


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"rate": 0.0}, "`rate` is 0 events/s"),
        ({"rate": 2e6}, "times are whole microseconds"),
        ({"in_flight": 0}, "must be at least 1"),
        ({"hot_sellers": 0}, "must be at least 1"),
    ],
)
def test_impossible_markets_are_refused(wrong, message):
    with pytest.raises(QueryError, match=message):
        Nexmark(**wrong)
