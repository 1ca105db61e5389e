"""The windowed hash join over value lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from watersmeet.joins import pairs
from watersmeet.joins.algorithm import Algorithm, Traits
from watersmeet.joins.base import RunningJoin
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.index import first_since
from watersmeet.state.stream_state import StreamState
from watersmeet.state.value_lists import ValueLists


@dataclass(frozen=True, slots=True)
class HashJoin(Algorithm["RunningHashJoin"]):
    """Two streams, a window each, any disorder within the delays.

    ::

        a ──► probe B ──► insert A        state A: tuples of a that a later b may match
        b ──► probe A ──► insert B        state B: tuples of b that a later a may match

    Emits   (a, b) with a.key = b.key and  -Ta <= a.ts - b.ts <= Tb, once, in the batch of the later arrival.
    Evicts  a once watermark(b) > a.ts + Ta, b once watermark(a) > b.ts + Tb; watermark = largest ts seen - delay.
            (Ta = 10, watermark(b) = 34: a.ts < 24 expires.)

    >>> HashJoin().describe()
    {'name': 'hash', 'options': {}}

    References: Kang, Naughton, Viglas, Evaluating window joins over unbounded streams; Kostowski and Claypool,
    windowed hash join; Ding and Rundensteiner, PWJoin, section 4 (the lists).
    """

    traits: ClassVar[Traits] = Traits(
        "hash", family="hash", preference=0, windows=("time", "interval", "tumbling", "none")
    )

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningHashJoin:
        return RunningHashJoin(query, arrays)


class RunningHashJoin(RunningJoin[ValueLists]):
    """The join at work."""

    decides_on_arrival = True

    def __init__(self, query: JoinQuery, arrays: Arrays | None = None) -> None:
        super().__init__(query, [StreamState(s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)])

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        """Evaluates the batch as one; see `RunningJoin.step`."""
        self._begin(batches)
        # Every pair is found once: the build side probes the stored tuples, the other side those and the new ones.
        build, other = (0, 1) if len(self.arrivals[0].which) <= len(self.arrivals[1].which) else (1, 0)
        yield from self._probe(build)
        self.insert(build, self.arrivals[build].which)
        yield from self._probe(other)
        rest = self.arrivals[other]
        self.insert(other, rest.which[first_since(rest.times, rest.which, self.alive_from(other)) :])
        for i, stream in enumerate(self.streams):
            self.counters.expired += stream.expire_before(self.alive_from(i))
            self.counters.stored += len(stream)

    def _probe(self, i: int) -> Iterator[pa.Table]:
        """Results of stream i's new rows with the stored tuples of the other."""
        for rows, _, numbers, positions in pairs.probe(self, i):
            yield from pairs.fitting(self, i, rows, numbers, positions)
