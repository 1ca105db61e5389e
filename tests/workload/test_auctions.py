"""The auction house keeps its word: rates, order, running auctions, true closings, the same rows for any cut."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.auctions import ACTIVE_PEOPLE, AuctionHouse

HOUSE = AuctionHouse(rate=500, seed=7, in_flight=50, duration=2.0, delay=1.5, lost=0.25)
LENGTH = 40 * SECOND


@pytest.fixture(scope="module")
def auctions():
    return HOUSE.auctions(0, LENGTH)


@pytest.fixture(scope="module")
def bids():
    return HOUSE.bids(0, LENGTH)


def only(rows, mask):
    return {name: values[mask] for name, values in rows.items()}


def opened_at(auctions, items):
    return auctions["opened_at"][np.searchsorted(auctions["item_id"], items)]


def test_rates(auctions, bids):
    assert auctions["item_id"].size == pytest.approx(25 * 40, rel=0.15)
    assert np.count_nonzero(~bids["closed"]) == pytest.approx(475 * 40, rel=0.05)


def test_about_in_flight_auctions_run_at_a_time(auctions):
    lossless = AuctionHouse(rate=500, seed=7, in_flight=50, duration=2.0)
    markers = lossless.bids(0, LENGTH)
    ends = np.sort(markers["bid_at"][markers["closed"]])
    at = np.arange(5 * SECOND, LENGTH, SECOND)
    running = np.searchsorted(auctions["opened_at"], at, side="right") - np.searchsorted(ends, at, side="right")
    assert running.mean() == pytest.approx(50, rel=0.15)


def test_items_ascend_and_are_opened_in_order(auctions):
    assert (np.diff(auctions["item_id"]) > 0).all()
    assert (np.diff(auctions["opened_at"]) >= 0).all()


def test_every_bid_is_for_an_auction_that_runs(auctions, bids):
    assert np.isin(bids["item_id"], auctions["item_id"]).all()
    age = bids["bid_at"] - opened_at(auctions, bids["item_id"])
    assert age.min() >= 0
    assert age.max() < 1.5 * 2 * SECOND


def test_no_bid_is_later_than_its_end_marker(bids):
    markers, real = only(bids, bids["closed"]), only(bids, ~bids["closed"])
    assert np.unique(markers["item_id"]).size == markers["item_id"].size
    closing = dict(zip(markers["item_id"].tolist(), markers["bid_at"].tolist(), strict=True))
    marked = np.isin(real["item_id"], markers["item_id"])
    assert marked.any()
    ends = np.array([closing[item] for item in real["item_id"][marked].tolist()])
    assert (real["bid_at"][marked] < ends).all()


def test_a_share_of_the_end_markers_is_lost(auctions, bids):
    expected = np.count_nonzero(auctions["opened_at"] < LENGTH - 5 * SECOND)
    finished = set(auctions["item_id"][:expected].tolist())
    seen = finished & set(bids["item_id"][bids["closed"]].tolist())
    assert len(seen) / len(finished) == pytest.approx(0.75, abs=0.06)


def test_bids_are_disordered_within_the_delay(bids):
    behind = np.maximum.accumulate(bids["bid_at"]) - bids["bid_at"]
    assert SECOND < behind.max() <= 1.5 * SECOND


def test_without_delay_bids_come_in_order():
    bids = AuctionHouse(rate=500, in_flight=50).bids(0, 10 * SECOND)
    assert (np.diff(bids["bid_at"]) >= 0).all()


def test_hot_auctions_get_their_share():
    bids = AuctionHouse(rate=2_000, seed=1, in_flight=100, duration=4.0).bids(8 * SECOND, 9 * SECOND)
    _, counts = np.unique(bids["item_id"][~bids["closed"]], return_counts=True)
    assert counts.max() / counts.sum() == pytest.approx(1 / 2, abs=0.06)


def test_hot_bidders_get_their_share(bids):
    bidders = bids["bidder"][~bids["closed"]]
    assert np.mean(bidders % 100 == 0) == pytest.approx(3 / 4, abs=0.05)
    assert np.unique(bidders).size > ACTIVE_PEOPLE / 2


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 8 * SECOND), max_size=5))
@pytest.mark.parametrize("stream", ["auctions", "bids"])
def test_rows_do_not_depend_on_the_cuts(stream, cuts):
    rows = getattr(AuctionHouse(rate=300, seed=11, in_flight=20, delay=0.7, lost=0.1), stream)
    pieces = [rows(low, high) for low, high in pairwise([0, *sorted(cuts), 8 * SECOND])]
    for name, whole in rows(0, 8 * SECOND).items():
        assert np.array_equal(np.concatenate([piece[name] for piece in pieces]), whole)


def test_another_seed_is_another_day():
    one, other = (AuctionHouse(seed=seed).bids(0, SECOND)["bid_at"] for seed in (1, 2))
    assert not np.array_equal(one, other)


def test_an_empty_interval_has_typed_columns():
    assert {name: values.dtype.kind for name, values in HOUSE.bids(5, 5).items()} == {
        "item_id": "i",
        "bidder": "i",
        "price": "f",
        "bid_at": "i",
        "closed": "b",
    }


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"in_flight": 0}, "`in_flight` and `duration` must be positive"),
        ({"duration": 0.0}, "`in_flight` and `duration` must be positive"),
        ({"rate": 10.0}, r"`rate` \(10 rows/s\) leaves no room for bids: 100 auctions of 2 s open at 50 per second"),
        ({"delay": -1.0}, "`delay` must not be negative"),
        ({"lost": 1.5}, "`lost` must be a fraction"),
    ],
)
def test_impossible_houses_are_refused(wrong, message):
    with pytest.raises(QueryError, match=message):
        AuctionHouse(**wrong)
