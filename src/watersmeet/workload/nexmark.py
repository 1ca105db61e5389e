"""NEXMark: people register, open auctions, and bid.

Events are numbered; of every 50 the first is a person, the next three are auctions, and 46 are bids. Event n happens
n / `rate` seconds after the start. Its values follow from its number, so any interval can be generated alone.

    event   0      1 2 3     4 ... 49  |  50     51 52 53    54 ...
            person auctions  bids      |  person auctions    bids

As published: bids go to the hot auction (the first of each hundred) or to one of those in flight. Bidders and sellers
are the hot person (the first of each hundred) or one of the active ones. An auction lasts up to twice as long as
`in_flight` auctions take to open. Prices spread over six orders of magnitude.

Unlike the publication: all people register before they act, and a bid is always for an auction that runs. So the
punctuations, rows of the bid stream with `closed` at the end of each auction, are never violated: no bid for the
auction comes at that time or later. To this end an auction runs at least until the next 50 events begin, and a hot one
as long as it is hot.

References: Tucker, Tufte, Papadimos, Maier, NEXMark: a benchmark for queries over data streams (2008 draft).
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np
from numpy.typing import NDArray

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import SECOND, Columns, Times
from watersmeet.workload.draws import below, draw

Numbers = NDArray[np.int64]

PERSONS, AUCTIONS, BIDS = 1, 3, 46  # events of each kind in an epoch
EPOCH = PERSONS + AUCTIONS + BIDS
FIRST_ID = 1_000  # of people and of auctions
FIRST_CATEGORY, CATEGORIES = 10, 5
HOT_FOR = 100  # auctions (or people) of which the first is the hot one
TRIES = 12  # random choices of an auction that still runs; after them the newest one is taken

# Purposes of the random numbers.
NAME, PLACE, LENGTH, SELLER, HOT_SELLER, CATEGORY, ITEM, START, RESERVE = range(9)
BIDDER, HOT_BIDDER, HOT_AUCTION, PRICE, CHOICE = range(9, 14)  # CHOICE + n is the purpose of try n

FIRST_NAMES = ("Ada", "Bo", "Cleo", "Dan", "Eve", "Finn", "Gus", "Hana", "Ivo", "June")
LAST_NAMES = ("Abbott", "Baker", "Carter", "Dyer", "Fisher", "Mason", "Potter", "Smith", "Turner", "Weaver")
NAMES = np.array([f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES])
PLACES = {
    "Phoenix": "AZ",
    "Los Angeles": "CA",
    "San Francisco": "CA",
    "Boise": "ID",
    "Portland": "OR",
    "Bend": "OR",
    "Redmond": "WA",
    "Seattle": "WA",
    "Kent": "WA",
    "Cheyenne": "WY",
}
CITIES, STATES = np.array(list(PLACES)), np.array(list(PLACES.values()))
ITEMS = np.array([f"{kind} no {n}" for kind in ("teapot", "atlas", "lamp", "clock", "stamp") for n in range(20)])


@dataclass(frozen=True)
class Nexmark:
    """The three streams; `persons`, `auctions` and `bids` give the rows of any interval of stream time, by time."""

    rate: float = 10_000.0  # persons, auctions and bids per second, together; punctuations are additional
    seed: int = 0
    in_flight: int = 100  # auctions that run at the same time, on average
    active_people: int = 1_000  # the last people to register; only they bid and sell
    hot_auctions: int = 2  # one in so many bids is for any auction, the others are for the hot one
    hot_bidders: int = 4  # one in so many bids is by any bidder, the others are by the hot one
    hot_sellers: int = 4  # one in so many auctions is by any seller, the others are by the hot one

    def __post_init__(self) -> None:
        if not 0 < self.rate <= SECOND:
            raise QueryError(f"`rate` is {self.rate:g} events/s; times are whole microseconds, so it is at most 1e6.")
        ratios = (self.hot_auctions, self.hot_bidders, self.hot_sellers)
        if min(self.in_flight, self.active_people, *ratios) < 1:
            raise QueryError("`in_flight`, `active_people` and the hot ratios must be at least 1.")

    @property
    def longest(self) -> int:
        """The longest that an auction can last, in microseconds."""
        auctions = max(2 * self.in_flight, HOT_FOR) + 2 * AUCTIONS
        return ceil(auctions / AUCTIONS * EPOCH * SECOND / self.rate) + 2

    def persons(self, start: int, end: int) -> Columns:
        """People who register in [start, end) microseconds."""
        number = self._numbers(0, PERSONS, start, end)
        place = below(self.seed, PLACE, number, CITIES.size)
        return {
            "person_id": FIRST_ID + number,
            "name": NAMES[below(self.seed, NAME, number, NAMES.size)],
            "city": CITIES[place],
            "state": STATES[place],
            "registered_at": self._times(_events(number, 0, PERSONS)),
        }

    def auctions(self, start: int, end: int) -> Columns:
        """Auctions opened in [start, end) microseconds."""
        number = self._numbers(PERSONS, AUCTIONS, start, end)
        first = _prices(draw(self.seed, START, number))
        return {
            "auction_id": FIRST_ID + number,
            "item_name": ITEMS[below(self.seed, ITEM, number, ITEMS.size)],
            "initial_bid": first,
            "reserve": first + _prices(draw(self.seed, RESERVE, number)),
            "opened_at": self._opened(number),
            "expires_at": self._expires(number),
            "seller": self._people(number, number // AUCTIONS, self.hot_sellers, SELLER, HOT_SELLER),
            "category": FIRST_CATEGORY + below(self.seed, CATEGORY, number, CATEGORIES),
        }

    def bids(self, start: int, end: int) -> Columns:
        """Bids and punctuations in [start, end) microseconds; a punctuation has bidder and price 0."""
        number = self._numbers(PERSONS + AUCTIONS, BIDS, start, end)
        at = self._times(_events(number, PERSONS + AUCTIONS, BIDS))
        ended, ends = self._punctuations(start, end)
        places = np.searchsorted(at, ends)
        bidder = self._people(number, number // BIDS, self.hot_bidders, BIDDER, HOT_BIDDER)
        return {
            "auction_id": FIRST_ID + np.insert(self._choose(number, at), places, ended),
            "bidder": np.insert(bidder, places, 0),
            "price": np.insert(_prices(draw(self.seed, PRICE, number)), places, 0),
            "bid_at": np.insert(at, places, ends),
            "closed": np.insert(np.zeros(number.size, np.bool_), places, True),
        }

    def _times(self, events: Numbers) -> Times:
        times: Times = np.floor(events * (SECOND / self.rate)).astype(np.int64)
        return times

    def _numbers(self, offset: int, per_epoch: int, start: int, end: int) -> Numbers:
        """Numbers, within their kind, of the events of that kind in [start, end)."""
        return np.arange(self._first(offset, per_epoch, start), self._first(offset, per_epoch, end))

    def _first(self, offset: int, per_epoch: int, time: int) -> int:
        """The number of the first event of a kind at that time or later."""
        about = int(time * self.rate / SECOND / EPOCH * per_epoch)
        near = np.arange(max(0, about - 2 * per_epoch), max(0, about) + 2 * per_epoch)
        return int(near[0]) + int(np.searchsorted(self._times(_events(near, offset, per_epoch)), time))

    def _opened(self, auction: Numbers) -> Times:
        return self._times(_events(auction, PERSONS, AUCTIONS))

    def _expires(self, auction: Numbers) -> Times:
        """The ends of auctions; no bid comes then or later."""
        horizon = self.in_flight / AUCTIONS * EPOCH * SECOND / self.rate
        drawn = self._opened(auction) + 1 + below(self.seed, LENGTH, auction, 2 * ceil(horizon))
        hot = auction % HOT_FOR == 0
        needed = np.where(hot, auction + HOT_FOR, auction)  # bids in the epoch of auction `needed` may be for it
        expires: Times = np.maximum(drawn, self._times((needed // AUCTIONS + 1) * EPOCH) + 1)
        return expires

    def _punctuations(self, start: int, end: int) -> tuple[Numbers, Times]:
        """Auctions that end in [start, end), by time."""
        auction = self._numbers(PERSONS, AUCTIONS, max(0, start - self.longest), end)
        expires = self._expires(auction)
        inside = np.flatnonzero((expires >= start) & (expires < end))
        order = inside[np.argsort(expires[inside], kind="stable")]
        return auction[order], expires[order]

    def _choose(self, bid: Numbers, at: Times) -> Numbers:
        """An auction for each bid, one that runs."""
        newest = bid // BIDS * AUCTIONS + AUCTIONS - 1
        hot = draw(self.seed, HOT_AUCTION, bid) * self.hot_auctions >= 1
        chosen = np.where(hot, newest // HOT_FOR * HOT_FOR, newest)
        waiting = np.flatnonzero(~hot)
        for attempt in range(TRIES):
            span = np.minimum(newest[waiting] + 1, 2 * self.in_flight + AUCTIONS)
            guess = newest[waiting] - below(self.seed, CHOICE + attempt, bid[waiting], span)
            runs = self._expires(guess) > at[waiting]
            chosen[waiting[runs]] = guess[runs]
            waiting = waiting[~runs]
        return chosen

    def _people(self, number: Numbers, newest: Numbers, hot_ratio: int, who: int, hot: int) -> Numbers:
        """The acting person: the hot one, or, once in `hot_ratio` times, any of the active ones."""
        anyone = newest - below(self.seed, who, number, np.minimum(newest + 1, self.active_people))
        is_hot = draw(self.seed, hot, number) * hot_ratio >= 1
        return FIRST_ID + np.where(is_hot, newest // HOT_FOR * HOT_FOR, anyone)


def _events(number: Numbers, offset: int, per_epoch: int) -> Numbers:
    """The numbers, among all events, of these events of one kind."""
    return number // per_epoch * EPOCH + offset + number % per_epoch


def _prices(chances: NDArray[np.float64]) -> Numbers:
    """Cents, from one dollar to a million, each order of magnitude as likely as the next."""
    return np.round(100 * 10.0 ** (6 * chances)).astype(np.int64)
