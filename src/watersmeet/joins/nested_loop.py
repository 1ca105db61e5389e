"""The windowed nested-loop join."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import QueryError
from watersmeet.joins.running import check_windows
from watersmeet.joins.tuple_at_a_time import RunningTupleAtATime
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class NestedLoopJoin:
    """Two streams, a window each; every new tuple is compared with the whole of the other window.

    ::

        a ──► drop what has left B ──► scan B ──► into A      A, B: one circular buffer each, by time
        b ──► drop what has left A ──► scan A ──► into B      oldest ▒▒▒▒▒▒▒▒▒ newest

    Emits   (a, b) with a.key = b.key and  -Ta <= a.ts - b.ts <= Tb, once, in the batch of the later arrival.
    Forgets a once progress(b) > a.ts + Ta, b once progress(a) > b.ts + Tb, where progress = largest ts seen - delay.
            (Ta = 10, progress(b) = 34: a.ts < 24 goes.)
    Costs   per second  (ra + rb) (invalidate + insert) + ra rb (Ta + Tb) scan,  ra, rb the streams' rates.

    References: Kang, Naughton, Viglas, Evaluating window joins over unbounded streams; Kostowski and Claypool,
    Analytical and experimental evaluation of stream-based join, section 2 and equation 1.
    """

    query: JoinQuery

    def __post_init__(self) -> None:
        if len(self.query.streams) != 2 or self.query.how != "inner":
            asked = f'"{self.query.how}" of {len(self.query.streams)}'
            raise QueryError(f"the nested-loop join computes inner joins of two streams; asked for {asked}.")
        check_windows(self.query)

    def start(self, arrays: Arrays | None = None, *, sample_every: int | None = None) -> RunningTupleAtATime:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        return RunningTupleAtATime(self.query, 1, "all", arrays, sample_every)
