"""When rows happen and when they are delivered.

A stream is generated second by second of stream time. Every second has its own random generator, keyed by (seed,
stream, second). So any interval can be generated alone, and a source that restarts delivers the same rows. Times are
integer microseconds of stream time, from 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

SECOND = 1_000_000

Times = NDArray[np.int64]
Columns = dict[str, NDArray[Any]]


class Merged(NamedTuple):
    """The order in which rows of several streams pass: the n-th to pass is row `row[n]` of stream `stream[n]`."""

    stream: NDArray[np.int64]
    row: NDArray[np.int64]


def micros(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * SECOND)


def generator(seed: int, stream: int, second: int) -> np.random.Generator:
    """The random numbers of one second of one stream, independent of those of any other second or stream."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, stream, second))))


def poisson_second(rng: np.random.Generator, rate: float, second: int) -> Times:
    """Sorted arrival times of a Poisson process within one second.

    A Poisson process forgets its past, so seconds drawn apart and laid end to end are one process.
    """
    offsets = rng.integers(0, SECOND, size=rng.poisson(rate), dtype=np.int64)
    offsets.sort()
    return offsets + second * SECOND


def poisson_arrivals(rate: float, start: int, end: int, *, seed: int, stream: int = 0) -> Times:
    """Arrival times in [start, end) of a Poisson process with `rate` arrivals per second."""
    seconds = [poisson_second(generator(seed, stream, second), rate, second) for second in seconds_of(start, end)]
    times = np.concatenate([np.empty(0, np.int64), *seconds])
    return times[(times >= start) & (times < end)]


def seconds_of(start: int, end: int) -> range:
    """The seconds of stream time that [start, end) touches; nothing happens before 0."""
    return range(max(0, start // SECOND), max(0, -(-end // SECOND)))


def delivery_times(rng: np.random.Generator, times: Times, delay: int) -> Times:
    """When rows that happened at `times` arrive: each up to `delay` microseconds after it happened.

    A row that arrives at a has ts >= a - delay, and no row delivered before it has ts > a. So with the watermark
    `max(ts seen) - delay` no row is ever late, whatever the batches.
    """
    if delay == 0:
        return times
    return times + rng.integers(0, delay, size=times.size, dtype=np.int64, endpoint=True)


def delivered(
    make_second: Callable[[int], tuple[Times, Columns]], start: int, end: int, delay: int, empty: Columns
) -> Columns:
    """The rows delivered in [start, end), in order of delivery.

    `make_second(s)` gives the rows that *happen* in second s, with the time at which each is delivered. Rows of the
    last `delay` microseconds before `start` may be delivered after it.
    """
    made = [make_second(second) for second in seconds_of(start - delay, end)]
    arrivals = np.concatenate([np.empty(0, np.int64), *(arrival for arrival, _ in made)])
    inside = np.flatnonzero((arrivals >= start) & (arrivals < end))
    order = inside[np.argsort(arrivals[inside], kind="stable")]
    return {name: np.concatenate([none, *(rows[name] for _, rows in made)])[order] for name, none in empty.items()}


def merge_by_time(*streams: Times) -> Merged:
    """Interleave streams by time; at equal times the earlier stream, and within a stream the earlier row, goes first.

    >>> merged = merge_by_time(np.array([1, 5]), np.array([1, 2]))
    >>> merged.stream.tolist(), merged.row.tolist()
    ([0, 1, 1, 0], [0, 0, 1, 1])
    """
    sizes = [times.size for times in streams]
    order = np.argsort(np.concatenate(streams), kind="stable")
    stream = np.repeat(np.arange(len(streams)), sizes)
    row = np.concatenate([np.arange(size) for size in sizes])
    return Merged(stream[order], row[order])
