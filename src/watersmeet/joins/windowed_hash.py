"""The windowed hash join over buckets of circular buffers."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from watersmeet.errors import QueryError
from watersmeet.joins.running import check_windows
from watersmeet.joins.tuple_at_a_time import INVALIDATION, RunningTupleAtATime
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class WindowedHashJoin:
    """Two streams, a window each; a new tuple is compared with the other window's bucket of its key.

    ::

                    hash(key)
        a ──► B:  ▒▒▒ │ ▒▒▒▒▒ │ ▒▒ │ … ──► A:  ▒▒ │ ▒▒▒▒ │ ▒ │ …     `buckets` circular buffers on each side
                    probe one bucket             insert into one

    Emits   (a, b) with a.key = b.key and  -Ta <= a.ts - b.ts <= Tb, once, in the batch of the later arrival.
    Forgets a when, after progress(b) > a.ts + Ta, an arrival comes by its bucket; likewise b. Where arrivals look:

            ============  ===========================  =========================
            invalidation  buckets of the other stream  buckets of the own stream
            ============  ===========================  =========================
            probe         the probed one               none
            probe_insert  the probed one               the one inserted into
            probe_all     all                          none
            all           all                          all
            ============  ===========================  =========================

            (Ta = 10, progress(b) = 34: a.ts < 24 goes, from the buckets that are looked into. With `all`, which also
            looks at the end of a batch, nothing else is ever stored than what may still match.)
    Costs   per second  (ra + rb) (invalidate + insert) + ra rb (Ta + Tb) scan / buckets  while there are at least as
            many keys as buckets; more buckets do not help then. The greedy strategies add a look into every bucket.

    What has left its window and is still stored is never part of a result, and does not survive a restart.

    References: Kostowski and Claypool, Analytical and experimental evaluation of stream-based join, sections 2 and
    3.2 and equation 2.
    """

    query: JoinQuery
    buckets: int
    invalidation: str = "probe_insert"

    def __post_init__(self) -> None:
        if len(self.query.streams) != 2 or self.query.how != "inner":
            asked = f'"{self.query.how}" of {len(self.query.streams)}'
            raise QueryError(f"the windowed hash join computes inner joins of two streams; asked for {asked}.")
        check_windows(self.query)
        if type(self.buckets) is not int or not 1 <= self.buckets <= 1 << 24:
            raise QueryError(
                f"`buckets` is {self.buckets!r}; it is a whole number from 1 to {1 << 24}.",
                hint="take about as many as there are distinct keys in a window, or leave it out: one bucket per key.",
            )
        if self.invalidation not in INVALIDATION:
            near = get_close_matches(str(self.invalidation), INVALIDATION, 1)
            raise QueryError(
                f"`invalidation` is {self.invalidation!r}; the strategies are {', '.join(INVALIDATION)}.",
                hint=f'did you mean "{near[0]}"?' if near else '"probe_insert" is fast and keeps little.',
            )

    def start(self, arrays: Arrays | None = None, *, sample_every: int | None = None) -> RunningTupleAtATime:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        return RunningTupleAtATime(self.query, self.buckets, self.invalidation, arrays, sample_every)
