"""Closed keys that are neighbours, as ranges.

A shard only ever meets its own keys, so keys of other shards between two of them are no gap: a range may cover such
keys, because this shard never looks them up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from watersmeet.state.keys import Bools, Int64s

#: Keys between two closed ones that are looked at, to see whether all belong to other shards.
LOOK = 4096

#: Which of these words are keys of this shard.
Mine = Callable[[Int64s], Bools]


@dataclass(frozen=True, slots=True)
class Runs:
    """Intervals [low[k], high[k]] in order, and which go together: run r is starts[r]:stops[r] of them."""

    low: Int64s
    high: Int64s
    time: Int64s
    starts: Int64s
    stops: Int64s

    @classmethod
    def of(cls, low: Int64s, high: Int64s, time: Int64s, mine: Mine | None) -> Runs:
        """Disjoint intervals, sorted by `low`, as runs without a key of this shard between their parts."""
        edges = np.flatnonzero(~bridged(high[:-1], low[1:], mine)) + 1
        none = np.zeros(min(1, low.size), np.int64)
        return cls(low, high, time, np.concatenate([none, edges]), np.concatenate([edges, none + low.size]))

    def united(self, which: Bools) -> tuple[Int64s, Int64s, Int64s]:
        """These runs as one interval each, with the latest time of its parts."""
        latest = np.maximum.reduceat(self.time, self.starts) if self.starts.size else self.time
        return self.low[self.starts[which]], self.high[self.stops[which] - 1], latest[which]


def bridged(ends: Int64s, starts: Int64s, mine: Mine | None) -> Bools:
    """For which of these pairs, each an end and the start after it, no key of this shard is in between."""
    gap = starts.view(np.uint64) - ends.view(np.uint64) - np.uint64(1)
    out: Bools = gap == 0
    if mine is None:
        return out
    left = np.flatnonzero((gap > 0) & (gap <= LOOK))
    first, width = 1, 8
    while left.size:
        between = ends[left][:, None] + np.arange(first, first + width)
        hit = mine(between.ravel()).reshape(between.shape) & (between < starts[left][:, None])
        left = left[~hit.any(axis=1)]
        through = gap[left] < first + width
        out[left[through]] = True
        left = left[~through]
        first, width = first + width, 2 * width
    return out
