"""Every generated stream by name, from text options: `STREAMS["bids"]({"rate": "500"}).table(0, 3 * SECOND)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from watersmeet.errors import QueryError
from watersmeet.workload import nexmark
from watersmeet.workload.arrivals import Columns, micros
from watersmeet.workload.auctions import AuctionHouse
from watersmeet.workload.drifting_keys import Drifting
from watersmeet.workload.nexmark import Nexmark
from watersmeet.workload.punctuated_streams import Punctuated
from watersmeet.workload.scrambled import Scrambled, Swing
from watersmeet.workload.several import NAMES, Several
from watersmeet.workload.source_options import gap_of, made
from watersmeet.workload.tables import (
    AUCTIONS,
    BIDS,
    KEYED,
    NARROW,
    NEXMARK_AUCTIONS,
    NEXMARK_BIDS,
    PERSONS,
    PUNCTUATED,
    SCRAMBLED,
    WIDE,
    TableStream,
    bid_table,
    plain_table,
    punctuated_table,
    wide_table,
)

Options = Mapping[str, str]


def _auctions(options: Options) -> TableStream:
    house = made(AuctionHouse, options)
    return TableStream(AUCTIONS, house.auctions_per_second, house.auctions, plain_table)


def _bids(options: Options) -> TableStream:
    house = made(AuctionHouse, options)
    return TableStream(BIDS, house.bids_per_second, house.bids, bid_table)


def _drifting(side: str, *, wide: bool) -> Callable[[Options], TableStream]:
    def make(options: Options) -> TableStream:
        drifting = made(Drifting, options)
        columns = drifting.left if side == "left" else drifting.right
        return TableStream(WIDE if wide else NARROW, drifting.rate, columns, wide_table if wide else plain_table)

    return make


def _persons(options: Options) -> TableStream:
    market = made(Nexmark, options)
    return TableStream(PERSONS, market.rate * nexmark.PERSONS / nexmark.EPOCH, market.persons, plain_table)


def _nexmark_auctions(options: Options) -> TableStream:
    market = made(Nexmark, options)
    return TableStream(NEXMARK_AUCTIONS, market.rate * nexmark.AUCTIONS / nexmark.EPOCH, market.auctions, plain_table)


def _nexmark_bids(options: Options) -> TableStream:
    market = made(Nexmark, options)
    return TableStream(NEXMARK_BIDS, market.rate * nexmark.BIDS / nexmark.EPOCH, market.bids, bid_table)


def _punctuated(options: Options) -> TableStream:
    stream = made(Punctuated, gap_of(options))

    def columns(start: int, end: int) -> Columns:
        tuples = 1024
        while True:
            rows = _interleaved(stream, tuples)
            over = rows["key"].size - np.count_nonzero(rows["closed"]) < tuples
            if over or rows["ts"][-1] >= end:
                return _between(rows, "ts", start, end)
            tuples *= 2

    return TableStream(PUNCTUATED, 1 / stream.gap, columns, punctuated_table)


@lru_cache(maxsize=4)
def _interleaved(stream: Punctuated, tuples: int) -> Columns:
    """The first `tuples` tuples with the punctuations between them."""
    rows = stream.take(tuples)
    return {
        "key": np.insert(rows.keys, rows.ends, rows.closed_keys),
        "ts": np.insert(rows.times, rows.ends, rows.closed_at),
        "n": np.insert(np.arange(rows.times.size), rows.ends, -1),
        "closed": np.insert(np.zeros(rows.times.size, np.bool_), rows.ends, True),
    }


@dataclass(frozen=True)
class OneOfSeveral:
    """Stream number `stream` of a `Several` in which all streams have this rate and number of keys."""

    rate: float = 1_000.0
    distinct: int = 1_000
    seed: int = 0
    stream: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.stream < len(NAMES):
            raise QueryError(f"option `stream` is {self.stream}; streams are numbered from 0 to {len(NAMES) - 1}.")

    def all(self) -> Several:
        count = self.stream + 1
        return Several((self.rate,) * count, (0.0,) * count, (self.distinct,) * count, self.seed)


def _several(options: Options) -> TableStream:
    one = made(OneOfSeveral, options)
    one.all()  # refuses an invalid rate or number of keys

    def columns(start: int, end: int) -> Columns:
        seconds = 64
        while micros(seconds) < end:
            seconds *= 2
        return _between(_first_seconds(one, seconds), "ts", start, end)

    return TableStream(KEYED, one.rate, columns, plain_table)


@lru_cache(maxsize=8)
def _first_seconds(one: OneOfSeveral, seconds: int) -> Columns:
    return one.all().rows(one.stream, seconds)


@dataclass(frozen=True)
class ScrambledRun:
    """`Scrambled(…).rows(length, seed=…, stream=…)`. The keys are scrambled as a whole, so the stream has a length."""

    scrambling: int = 100
    multiplicity: int = 2
    lag: int = 0
    gap: float = 0.02
    swings: str = ""  # start:seconds:factor, separated by commas
    seed: int = 0
    stream: int = 0
    length: float = 120.0  # seconds of stream time

    def __post_init__(self) -> None:
        if self.gap <= 0 or self.length <= 0:
            raise QueryError("`gap` and `length` must be positive.")

    def stream_of(self) -> Scrambled:
        return Scrambled(self.scrambling, self.multiplicity, self.lag, self.gap, _swings(self.swings))


def _scrambled(options: Options) -> TableStream:
    run = made(ScrambledRun, gap_of(options))
    stream = run.stream_of()

    def columns(start: int, end: int) -> Columns:
        return _between(_whole(run), "at", start, end)

    return TableStream(SCRAMBLED, 1 / stream.gap, columns, plain_table, end=micros(run.length))


@lru_cache(maxsize=4)
def _whole(run: ScrambledRun) -> Columns:
    rows = run.stream_of().rows(run.length, seed=run.seed, stream=run.stream)
    return {name: rows.column(name).to_numpy() for name in rows.schema.names}


def _swings(text: str) -> tuple[Swing, ...]:
    try:
        swings = tuple(Swing(*map(float, part.split(":"))) for part in text.split(",") if part)
    except (TypeError, ValueError):
        swings = (Swing(0, 0, 0),)
    if any(s.seconds <= 0 or s.factor <= 0 for s in swings):
        raise QueryError(
            f"option `swings` is {text!r}; a swing of the rate is start:seconds:factor.",
            hint='an eighth of the rate for 30 s from second 10 on, eight times it for 10 s: "10:30:0.125,80:10:8".',
        )
    return swings


def _between(rows: Columns, time: str, start: int, end: int) -> Columns:
    low, high = np.searchsorted(rows[time], (start, end))
    return {name: values[low:high] for name, values in rows.items()}


STREAMS: dict[str, Callable[[Options], TableStream]] = {
    "auctions": _auctions,
    "bids": _bids,
    "left": _drifting("left", wide=False),
    "right": _drifting("right", wide=False),
    "wide_left": _drifting("left", wide=True),
    "wide_right": _drifting("right", wide=True),
    "nexmark_persons": _persons,
    "nexmark_auctions": _nexmark_auctions,
    "nexmark_bids": _nexmark_bids,
    "punctuated": _punctuated,
    "several": _several,
    "scrambled": _scrambled,
}
