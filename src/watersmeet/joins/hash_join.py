"""The windowed hash join over value lists."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.outputs import Counters
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.stream_state import Arrivals, StreamState


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

    def start(self, arrays: Arrays | None = None) -> RunningHashJoin:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        return RunningHashJoin(self.query, arrays)


class RunningHashJoin:
    """The join at work: state of each stream, progress of each stream, counters of the last step."""

    def __init__(self, query: JoinQuery, arrays: Arrays | None = None) -> None:
        self.query = query
        self.streams = [StreamState(spec, i, arrays) for i, spec in enumerate(query.streams)]
        self.progress = [BEFORE_ALL] * len(query.streams)
        self.counters = Counters()
        self.late: list[pa.RecordBatch] = []
        self.arrivals: list[Arrivals] = []

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        """Join one micro-batch, one `Batch` per stream; yields results in bounded tables.

        When it is exhausted the state is that after the batch, `late` holds each stream's late rows and
        `counters` the work. `arrivals` are to be settled (see `state.log`) before the next step.
        """
        self.counters = Counters()
        self.late = []
        self.arrivals = [self._admit(i, batch) for i, batch in enumerate(batches)]
        for i, batch in enumerate(batches):
            self._advance(i, batch)
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

    def alive_from(self, i: int) -> int:
        """Tuples of stream i with an event time before this cannot match anything that may still come."""
        others = (p for j, p in enumerate(self.progress) if j != i)
        return min(others) - self.query.streams[i].window.reach

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        """Set late rows and rows without a key apart."""
        times, keys = self.streams[i].read(batch.rows)
        on_time = times >= self.progress[i]
        joinable = on_time & keys.valid
        self.late.append(batch.rows.filter(pa.array(~on_time)))
        self.counters.rows_in += times.size
        self.counters.late += self.late[-1].num_rows
        self.counters.null_keys += int(np.count_nonzero(on_time & ~keys.valid))
        return Arrivals(batch.rows, times, keys, np.flatnonzero(joinable))

    def _advance(self, i: int, batch: Batch) -> None:
        if batch.seen is not None:
            self.progress[i] = max(self.progress[i], batch.seen - self.query.streams[i].delay)
        if batch.ended:
            self.progress[i] = AFTER_ALL

    def _insert(self, i: int, which: np.ndarray) -> None:
        self.streams[i].insert(self.arrivals[i], which)
        self.counters.inserted += which.size

    def _probe(self, i: int) -> Iterator[pa.Table]:
        """Results of stream i's new rows with what is stored of the other."""
        j = 1 - i
        own, other = self.query.streams[i], self.query.streams[j]
        arrivals, state = self.arrivals[i], self.streams[j]
        before = state.lists.looked_at
        for rows, numbers, places in state.probe(arrivals, arrivals.which, other.window.reach, own.window.reach):
            self.counters.results += rows.size
            mine = arrivals.rows.take(pa.array(rows))
            columns = [*other.key, *other.payload] if j == 0 else other.payload
            theirs = state.segments.take(numbers, places, columns)
            yield self._combine(mine, theirs, i)
        self.counters.probed += state.lists.looked_at - before

    def _combine(self, mine: pa.RecordBatch, theirs: pa.Table, i: int) -> pa.Table:
        """Columns of the result; key values are those of the first stream's tuple."""
        first, second = self.query.streams
        sides = (mine, theirs) if i == 0 else (theirs, mine)
        names = [(0, c) for c in first.key] + [(0, c) for c in first.payload] + [(1, c) for c in second.payload]
        schema = self.query.schema
        return pa.table([sides[side].column(c) for side, c in names], names=schema.names)
