"""The lazy multi-way join: new tuples wait, and are joined as the eager join does, every so often."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.joins.one_by_one import Loops, RunningOneByOne
from watersmeet.joins.orders import PeriodicJoin
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class LazyJoin(PeriodicJoin):
    """Two to eight streams, a window each; new tuples are joined when all streams have passed a multiple of `every`.

    ::

        new a, b, c ──► wait until all progress is past 10, 20, 30, …  ──► each of them as the eager join does

    Emits   what `eager` emits, later: a combination whose newest tuple stands at `now` comes out with the batch in
            which every stream's progress reaches the first multiple of `every` after `now`.
            (every = 10, now = 34: when all progress is at 40. Without `every`: with the batch.)
    Forgets a tuple once it has been joined and `eager` would forget it; those that wait are kept.

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    def start(self, arrays: Arrays | None = None) -> RunningOneByOne:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        loops = Loops((self.index == "hash",) * len(self.query.streams))
        return RunningOneByOne(
            self.query, loops, self.order, self.every, self.expiration, self.max_matches_per_row, arrays
        )
