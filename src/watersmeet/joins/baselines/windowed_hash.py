"""The windowed hash join over buckets of circular buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.errors import QueryError, did_you_mean
from watersmeet.joins.algorithm import Algorithm, Traits
from watersmeet.joins.baselines.tuple_at_a_time import INVALIDATION, RunningTupleAtATime
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class WindowedHashJoin(Algorithm[RunningTupleAtATime]):
    """Two streams, a window each; a new tuple is compared with the other window's bucket of its key.

    ::

                    hash(key)
        a ──► B:  ▒▒▒ │ ▒▒▒▒▒ │ ▒▒ │ … ──► A:  ▒▒ │ ▒▒▒▒ │ ▒ │ …     `buckets` circular buffers on each side
                    probe one bucket             insert into one

    Emits   (a, b) with a.key = b.key and  -Ta <= a.ts - b.ts <= Tb, once, in the batch of the later arrival.
    Evicts  a when, after watermark(b) > a.ts + Ta, an arrival checks its bucket; likewise b. Buckets checked:

            ============  ===========================  =========================
            invalidation  buckets of the other stream  buckets of the own stream
            ============  ===========================  =========================
            probe         the probed one               none
            probe_insert  the probed one               the one inserted into
            probe_all     all                          none
            all           all                          all
            ============  ===========================  =========================

            (Ta = 10, watermark(b) = 34: a.ts < 24 expires in the buckets that are checked. `all` also checks at the
            end of a batch, so that only tuples that may still match are stored.)
    Costs   per second  (ra + rb) (expire + insert) + ra rb (Ta + Tb) scan / buckets  while there are at least as
            many keys as buckets; more buckets do not help then. The greedy strategies add a check of every bucket.

    A stored tuple that has left its window is never part of a result, and does not survive a restart.

    >>> WindowedHashJoin(buckets=64, invalidation="all").describe()["options"]
    {'buckets': 64, 'invalidation': 'all'}

    References: Kostowski and Claypool, Analytical and experimental evaluation of stream-based join, sections 2 and
    3.2 and equation 2.
    """

    buckets: int
    invalidation: str = "probe_insert"
    traits: ClassVar[Traits] = Traits("windowed_hash", family="nested_loop", preference=9, baseline=True)

    def __post_init__(self) -> None:
        if type(self.buckets) is not int or not 1 <= self.buckets <= 1 << 24:
            raise QueryError(
                f"`buckets` is {self.buckets!r}; it is a whole number from 1 to {1 << 24}.",
                hint="take about as many as there are distinct keys in a window, or leave it out: one bucket per key.",
            )
        if self.invalidation not in INVALIDATION:
            raise QueryError(
                f"`invalidation` is {self.invalidation!r}; the strategies are {', '.join(INVALIDATION)}.",
                hint=did_you_mean(str(self.invalidation), INVALIDATION, '"{}"'.format)
                or '"probe_insert" is fast and keeps little.',
            )

    def start(
        self, query: JoinQuery, arrays: Arrays | None = None, *, sample_every: int | None = None
    ) -> RunningTupleAtATime:
        """The running join with empty state; it samples its occupancy every so many microseconds."""
        running = Algorithm.start(self, query, arrays)
        running.sample(sample_every)
        return running

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningTupleAtATime:
        return RunningTupleAtATime(query, self.buckets, self.invalidation, arrays)
