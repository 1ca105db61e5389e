"""The windowed nested-loop join."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.joins.algorithm import Algorithm, Traits
from watersmeet.joins.baselines.tuple_at_a_time import RunningTupleAtATime
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class NestedLoopJoin(Algorithm[RunningTupleAtATime]):
    """Two streams, a window each; every new tuple is compared with the whole of the other window.

    ::

        a ──► drop what has left B ──► scan B ──► into A      A, B: one circular buffer each, by time
        b ──► drop what has left A ──► scan A ──► into B      oldest ▒▒▒▒▒▒▒▒▒ newest

    Emits   (a, b) with a.key = b.key and  -Ta <= a.ts - b.ts <= Tb, once, in the batch of the later arrival.
    Evicts  a once watermark(b) > a.ts + Ta, b once watermark(a) > b.ts + Tb; watermark = largest ts seen - delay.
            (Ta = 10, watermark(b) = 34: a.ts < 24 expires.)
    Costs   per second  (ra + rb) (expire + insert) + ra rb (Ta + Tb) scan,  ra, rb the streams' rates.

    >>> NestedLoopJoin().describe()
    {'name': 'nested_loop', 'options': {}}

    References: Kang, Naughton, Viglas, Evaluating window joins over unbounded streams; Kostowski and Claypool,
    Analytical and experimental evaluation of stream-based join, section 2 and equation 1.
    """

    traits: ClassVar[Traits] = Traits("nested_loop", family="nested_loop", preference=8, baseline=True, index="scan")

    def start(
        self, query: JoinQuery, arrays: Arrays | None = None, *, sample_every: int | None = None
    ) -> RunningTupleAtATime:
        """The running join with empty state; it samples its occupancy every so many microseconds."""
        running = Algorithm.start(self, query, arrays)
        running.sample(sample_every)
        return running

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningTupleAtATime:
        return RunningTupleAtATime(query, 1, "all", arrays)
