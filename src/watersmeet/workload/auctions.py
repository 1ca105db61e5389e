"""An auction house: auctions open, receive bids while they run, and close.

Two streams with NEXMark's habits: a few hot auctions, bidders and sellers get most of the traffic. The bid stream also
carries end markers, rows with `closed = true`. An end marker is the punctuation "no more bids for this item" at the end
of an auction. A fraction of them may be lost.

    opened_at            bids, at most `delay` late            closes_at: end marker
        |------x----x--------x--x--------x-----x---------x---------|

The number of auctions opened per second follows from Little's law: `in_flight` at a time, each for `duration` on
average.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import ceil
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import (
    SECOND,
    Columns,
    Times,
    delivered,
    delivery_times,
    generator,
    micros,
    poisson_second,
)

CATEGORIES = np.array(["art", "books", "cameras", "clocks", "coins", "music", "stamps", "tools", "toys", "wine"])
LIVES, SALES, BIDS = range(3)  # the random streams of one house
IDS_PER_SECOND = 1_000_000  # item 12000017 is auction 17 of second 12: ascending, and known without counting from 0
ACTIVE_PEOPLE = 1_000

NO_AUCTIONS: Columns = {
    "item_id": np.empty(0, np.int64),
    "seller": np.empty(0, np.int64),
    "category": np.empty(0, CATEGORIES.dtype),
    "reserve": np.empty(0, np.float64),
    "opened_at": np.empty(0, np.int64),
}
NO_BIDS: Columns = {
    "item_id": np.empty(0, np.int64),
    "bidder": np.empty(0, np.int64),
    "price": np.empty(0, np.float64),
    "bid_at": np.empty(0, np.int64),
    "closed": np.empty(0, np.bool_),
}


class Lives(NamedTuple):
    """Auctions by opening time: item, opening, end (exclusive), and whether the end marker is delivered."""

    item_id: NDArray[np.int64]
    opened_at: Times
    closes_at: Times
    has_marker: NDArray[np.bool_]


@dataclass(frozen=True)
class AuctionHouse:
    """The two streams; `auctions` and `bids` give the rows delivered in any interval of stream time."""

    rate: float = 10_000.0  # auctions and bids per second, together; end markers are additional
    seed: int = 0
    in_flight: int = 100  # auctions that run at the same time, on average
    duration: float = 2.0  # mean seconds an auction runs; each runs between a half and one and a half times that
    delay: float = 0.0  # seconds by which bids and end markers may be late
    lost: float = 0.0  # fraction of the end markers that never come
    hot_auctions: int = 2  # one in so many bids is for any auction, the others are for the hot one
    hot_bidders: int = 4  # one in so many bids is by any bidder, the others are by the hot one
    hot_sellers: int = 4  # one in so many auctions is by any seller, the others are by the hot one

    def __post_init__(self) -> None:
        if self.in_flight < 1 or self.duration <= 0:
            raise QueryError("`in_flight` and `duration` must be positive: without running auctions there are no bids.")
        if self.rate <= self.auctions_per_second:
            raise QueryError(
                f"`rate` ({self.rate:g} rows/s) leaves no room for bids: {self.in_flight} auctions of "
                f"{self.duration:g} s open at {self.auctions_per_second:g} per second.",
                hint="raise `rate` or `duration`, or lower `in_flight`.",
            )
        if self.delay < 0 or not 0 <= self.lost <= 1:
            raise QueryError("`delay` must not be negative, and `lost` must be a fraction between 0 and 1.")

    @property
    def auctions_per_second(self) -> float:
        return self.in_flight / self.duration

    @property
    def bids_per_second(self) -> float:
        return self.rate - self.auctions_per_second

    def auctions(self, start: int, end: int) -> Columns:
        """Auctions opened in [start, end) microseconds, in order."""
        return delivered(self._auctions_of, start, end, 0, NO_AUCTIONS)

    def bids(self, start: int, end: int) -> Columns:
        """Bids and end markers delivered in [start, end) microseconds, out of order by up to `delay`."""
        return delivered(self._bids_of, start, end, micros(self.delay), NO_BIDS)

    def _auctions_of(self, second: int) -> tuple[Times, Columns]:
        lives = _lives(self, second)
        rng = generator(self.seed, SALES, second)
        rows: Columns = {
            "item_id": lives.item_id,
            "seller": self._people(rng, lives.opened_at, self.hot_sellers),
            "category": CATEGORIES[rng.integers(0, CATEGORIES.size, lives.item_id.size)],
            "reserve": _prices(rng, lives.item_id.size),
            "opened_at": lives.opened_at,
        }
        return lives.opened_at, rows

    def _bids_of(self, second: int) -> tuple[Times, Columns]:
        rng = generator(self.seed, BIDS, second)
        lives = _lives_around(self, second)
        bid_at = poisson_second(rng, self.bids_per_second, second)
        auction = self._choose_auctions(rng, bid_at, lives)
        bid_at, auction = bid_at[auction >= 0], auction[auction >= 0]
        ending = np.flatnonzero(lives.has_marker & (lives.closes_at // SECOND == second))
        times = np.concatenate([bid_at, lives.closes_at[ending]])
        closed = np.arange(times.size) >= bid_at.size
        rows: Columns = {
            "item_id": lives.item_id[np.concatenate([auction, ending])],
            "bidder": np.where(closed, 0, self._people(rng, times, self.hot_bidders)),
            "price": np.where(closed, 0.0, _prices(rng, times.size)),
            "bid_at": times,
            "closed": closed,
        }
        return delivery_times(rng, times, micros(self.delay)), rows

    def _choose_auctions(self, rng: np.random.Generator, bid_at: Times, lives: Lives) -> NDArray[np.int64]:
        """The row in `lives`, for each bid, of an auction that runs at that time, or -1 if none does."""
        opened = np.searchsorted(lives.opened_at, bid_at, side="right")
        ended = np.searchsorted(np.sort(lives.closes_at), bid_at, side="right")
        oldest = np.searchsorted(lives.opened_at, bid_at - micros(1.5 * self.duration), side="left")

        # The hot auction is the newest one of each quarter of a mean duration, as long as it runs.
        turn = max(1, micros(self.duration / 4))
        hot = np.searchsorted(lives.opened_at, bid_at // turn * turn, side="right") - 1
        wanted = (rng.random(bid_at.size) * self.hot_auctions >= 1) & (hot >= 0)
        chosen = np.full(bid_at.size, -1, np.int64)
        chosen[wanted] = np.where(lives.closes_at[hot[wanted]] > bid_at[wanted], hot[wanted], -1)

        # The others take any running one: guess among those that could still run, and guess again if it has ended.
        waiting = np.flatnonzero((chosen < 0) & (opened > ended))
        while waiting.size:
            guess = rng.integers(oldest[waiting], opened[waiting])
            runs = lives.closes_at[guess] > bid_at[waiting]
            chosen[waiting[runs]] = guess[runs]
            waiting = waiting[~runs]
        return chosen

    def _people(self, rng: np.random.Generator, times: Times, hot_ratio: int) -> NDArray[np.int64]:
        """The acting person: the current hot one, or, once in `hot_ratio` times, any of the active ones."""
        joined = (times * (self.auctions_per_second / 3 / SECOND)).astype(np.int64)  # one person for three auctions
        anyone = joined + rng.integers(0, ACTIVE_PEOPLE, times.size)
        return np.where(rng.random(times.size) * hot_ratio >= 1, joined // 100 * 100, anyone)


@lru_cache(maxsize=256)
def _lives(house: AuctionHouse, second: int) -> Lives:
    """The auctions that open in one second."""
    rng = generator(house.seed, LIVES, second)
    opened_at = poisson_second(rng, house.auctions_per_second, second)
    assert opened_at.size <= IDS_PER_SECOND, "item ids of one second would run into the next"
    runs = (micros(house.duration) * rng.uniform(0.5, 1.5, opened_at.size)).astype(np.int64)
    return Lives(
        item_id=second * IDS_PER_SECOND + np.arange(opened_at.size),
        opened_at=opened_at,
        closes_at=opened_at + np.maximum(runs, 1),
        has_marker=rng.random(opened_at.size) >= house.lost,
    )


def _lives_around(house: AuctionHouse, second: int) -> Lives:
    """Every auction that runs, or ends, at some time of this second."""
    first = max(0, second - ceil(1.5 * house.duration))
    return Lives(*map(np.concatenate, zip(*(_lives(house, s) for s in range(first, second + 1)), strict=True)))


def _prices(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    """Prices from a cent to ten thousand, each order of magnitude as likely as the next."""
    return np.round(10.0 ** rng.uniform(-2, 4, count), 2)
