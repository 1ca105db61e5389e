"""Streams whose keys ascend in the long run: the load of the window-oblivious joins.

Keys are sequence numbers, each `multiplicity` times in every stream, so that every key meets its partners. A stream's
positions are scrambled exactly as far as its *scrambling factor*: the least number k such that no tuple comes more
than k positions behind the first one with its key or a larger one. Arrival times are independent of that: a Poisson
process whose rate may dip or burst, and which begins `lag` tuples late.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import SECOND, Times, generator, micros

Int64s = NDArray[np.int64]

#: 24 bytes a tuple.
SCHEMA = pa.schema([("at", pa.int64()), ("epoch", pa.int64()), ("reading", pa.float64())])


@dataclass(frozen=True, slots=True)
class Swing:
    """A rate of `factor` times the usual one from `start` on, for `seconds`."""

    start: float
    seconds: float
    factor: float


#: Congestion at a source, and a burst of it.
DIP = Swing(10.0, 30.0, 1 / 8)
BURST = Swing(80.0, 10.0, 8.0)


@dataclass(frozen=True, slots=True)
class Scrambled:
    """One stream: scrambling factor, multiplicity, lag (tuples at the usual rate), mean gap in seconds, swings."""

    scrambling: int
    multiplicity: int = 2
    lag: int = 0
    gap: float = 0.02
    swings: tuple[Swing, ...] = field(default=())

    def __post_init__(self) -> None:
        if self.multiplicity < 1:
            raise QueryError(f"`multiplicity` is {self.multiplicity}; every key comes at least once.")
        if self.scrambling < self.multiplicity - 1:
            raise QueryError(
                f"`scrambling` is {self.scrambling} and `multiplicity` {self.multiplicity}; the last of that many "
                f"equal keys comes at least {self.multiplicity - 1} positions behind the first, which is disorder.",
                hint=f"use scrambling={self.multiplicity - 1} for a stream that only ascends.",
            )

    def arrivals(self, seconds: float, *, seed: int, stream: int = 0) -> Times:
        """Arrival times in microseconds."""
        rng = generator(seed, stream, 0)
        edges = sorted({0.0, *(s.start for s in self.swings), *(s.start + s.seconds for s in self.swings), seconds})
        edges = [e for e in edges if 0 <= e <= seconds]
        middles = [(a + b) / 2 for a, b in pairwise(edges)]
        widths = np.diff(edges)
        due = np.concatenate([[0.0], np.cumsum(widths * [self.rate_at(m) for m in middles])])  # tuples until each edge
        start = self.lag if self.lag > 0 else 0
        steps = rng.exponential(1.0, size=int(due[-1] + 10 * np.sqrt(due[-1]) + 20))
        when = np.cumsum(steps) + start
        times = np.interp(when[when < due[-1]], due, edges)
        whole: Times = (times * SECOND).astype(np.int64)
        return whole

    def rate_at(self, second: float) -> float:
        """Tuples per second at an instant."""
        rate = 1 / self.gap
        for swing in self.swings:
            if swing.start <= second < swing.start + swing.seconds:
                rate *= swing.factor
        return rate

    def keys(self, n: int, *, seed: int, stream: int = 0) -> Int64s:
        """The first n keys in order of arrival; their scrambling factor is `scrambling`, if n is large enough for it.

        Tuples are delayed by random distances, as far as the factor allows. Then the tuple furthest behind is delayed
        until the factor is reached. (The tuples it passes move one position forward, so none is further behind.)
        """
        rng = generator(seed, stream, 1)
        ordered = np.arange(n, dtype=np.int64) // self.multiplicity
        chances = rng.random(n)
        low, high = 0.0, 2.0 * self.scrambling + 1
        keys = ordered
        for _ in range(16):
            width = (low + high) / 2
            tried = ordered[np.argsort(np.arange(n) + width * chances, kind="stable")]
            if distances(tried).max(initial=0) <= self.scrambling:
                low, keys = width, tried
            else:
                high = width
        return self._stretched(keys)

    def _stretched(self, keys: Int64s) -> Int64s:
        behind = distances(keys)
        missing = self.scrambling - int(behind.max(initial=0))
        last = keys.size - 1 - missing
        if missing <= 0 or last < 0:
            return keys
        at = int(np.argmax(behind[: last + 1]))
        if behind[at] == 0:  # keys are in order: after the move, the next key is the first that is as large
            missing, at = self.scrambling, max(0, min(keys.size // 2, keys.size - 1 - self.scrambling))
        else:
            missing = self.scrambling - int(behind[at])
        to = at + missing
        if to >= keys.size:
            return keys
        return np.concatenate([keys[:at], keys[at + 1 : to + 1], keys[at : at + 1], keys[to + 1 :]])

    def rows(self, seconds: float, *, seed: int, stream: int = 0) -> pa.RecordBatch:
        """Tuples in order of arrival."""
        times = self.arrivals(seconds, seed=seed, stream=stream)
        readings = generator(seed, stream, 2).random(times.size)
        return pa.record_batch([times, self.keys(times.size, seed=seed, stream=stream), readings], schema=SCHEMA)


def distances(keys: Int64s) -> Int64s:
    """The number of positions that each tuple comes behind the first one with its key or a larger one."""
    highest = np.maximum.accumulate(keys) if keys.size else keys
    first = np.searchsorted(highest, keys, side="left")
    return np.arange(keys.size) - first


def three_streams(scrambling: Sequence[int], multiplicity: int = 2, lag: int = 0) -> tuple[Scrambled, ...]:
    """The paper's first query: the second stream's rate dips, the third one's bursts; the second begins `lag` late."""
    a, b, c = scrambling
    return (
        Scrambled(a, multiplicity),
        Scrambled(b, multiplicity, lag=lag, swings=(DIP,)),
        Scrambled(c, multiplicity, swings=(BURST,)),
    )


def cut(rows: Sequence[pa.RecordBatch], seconds: float, batch: float) -> list[list[pa.RecordBatch]]:
    """The arrivals of each stream in each interval of `batch` seconds."""
    edges = np.arange(0, micros(seconds) + micros(batch), micros(batch))
    places = [np.searchsorted(r.column("at").to_numpy(), edges) for r in rows]
    return [
        [r.slice(at[n], at[n + 1] - at[n]) for r, at in zip(rows, places, strict=True)] for n in range(edges.size - 1)
    ]
