"""The windowed hash join over value lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins.running import RunningJoin, check_windows
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.stream_state import StreamState
from watersmeet.state.value_lists import ValueLists


@dataclass(frozen=True, slots=True)
class HashJoin:
    """Two streams, a window each, any disorder within the delays.

    ::

        a ──► probe B ──► insert A        state A: tuples of a that a later b may match
        b ──► probe A ──► insert B        state B: tuples of b that a later a may match

    Emits   (a, b) with a.key = b.key and  -Ta <= a.ts - b.ts <= Tb, once, in the batch of the later arrival.
    Forgets a once progress(b) > a.ts + Ta, b once progress(a) > b.ts + Tb, where progress = largest ts seen - delay.
            (Ta = 10, progress(b) = 34: a.ts < 24 goes.)

    References: Kang, Naughton, Viglas, Evaluating window joins over unbounded streams; Kostowski and Claypool,
    windowed hash join; Ding and Rundensteiner, PWJoin, section 4 (the lists).
    """

    query: JoinQuery

    def __post_init__(self) -> None:
        if len(self.query.streams) != 2 or self.query.how != "inner":
            asked = f'"{self.query.how}" of {len(self.query.streams)}'
            raise QueryError(f"the hash join computes inner joins of two streams; asked for {asked}.")
        check_windows(self.query)

    def start(self, arrays: Arrays | None = None) -> RunningHashJoin:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        return RunningHashJoin(self.query, arrays)


class RunningHashJoin(RunningJoin[ValueLists]):
    """The join at work."""

    def __init__(self, query: JoinQuery, arrays: Arrays | None = None) -> None:
        super().__init__(query, [StreamState(s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)])

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        """Evaluates the batch as one; see `RunningJoin.step`."""
        self._begin(batches)
        # Every pair is found once: by the build side among what was stored, by the other among that and the batch.
        build, other = (0, 1) if len(self.arrivals[0].which) <= len(self.arrivals[1].which) else (1, 0)
        yield from self._probe(build)
        self._insert(build, self.arrivals[build].which)
        yield from self._probe(other)
        rest = self.arrivals[other]
        self._insert(other, rest.which[rest.times[rest.which] >= self.alive_from(other)])
        for i, stream in enumerate(self.streams):
            self.counters.invalidated += stream.expire_before(self.alive_from(i))
            self.counters.stored += len(stream)

    def _insert(self, i: int, which: np.ndarray) -> None:
        self.streams[i].insert(self.arrivals[i], which)
        self.counters.inserted += which.size

    def _probe(self, i: int) -> Iterator[pa.Table]:
        """Results of stream i's new rows with what is stored of the other."""
        j = 1 - i
        own, other = self.query.streams[i], self.query.streams[j]
        arrivals, state = self.arrivals[i], self.streams[j]
        before = state.lists.looked_at
        for rows, _, numbers, places in state.probe(arrivals, arrivals.which, other.window.reach, own.window.reach):
            yield from self._fitting(i, rows, numbers, places)
        self.counters.probed += state.lists.looked_at - before
