"""The window joins over circular buffers at work: nested loops and hash differ only in the number of buckets."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins import pairs
from watersmeet.joins.base import RunningJoin
from watersmeet.kernels.baselines import tuple_at_a_time as kernel
from watersmeet.kernels.baselines.circular_buffers import NIL
from watersmeet.model import durations
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.circular_buffers import CircularBuffers
from watersmeet.state.keys import Int64s
from watersmeet.state.stream_state import StreamState

#: Pairs that one call of the kernel hands out at a time.
CHUNK = 1 << 18

#: Buckets that an arrival checks for expired tuples: those of the other stream, those of its own.
INVALIDATION = {
    "probe": (kernel.BUCKET, kernel.NOTHING),
    "probe_insert": (kernel.BUCKET, kernel.BUCKET),
    "probe_all": (kernel.EVERYTHING, kernel.NOTHING),
    "all": (kernel.EVERYTHING, kernel.EVERYTHING),
}


class RunningTupleAtATime(RunningJoin[CircularBuffers]):
    """New tuples of both streams, merged by (time, stream, arrival), go through the join one after the other.

    `occupancy` grows by a (time, tuples stored of a, of b) whenever the merge passes a multiple of `sample_every`
    microseconds.
    """

    decides_on_arrival = True

    def __init__(self, query: JoinQuery, buckets: int, invalidation: str, arrays: Arrays | None) -> None:
        buffers = [CircularBuffers(buckets, str(i), arrays) for i in range(2)]
        super().__init__(query, [StreamState(s, b) for s, b in zip(query.streams, buffers, strict=True)])
        self.eager = invalidation == "all"
        self.occupancy: list[tuple[int, int, int]] = []
        self._scopes = np.array(INVALIDATION[invalidation])
        self._every = 0
        self._due = BEFORE_ALL

    def sample(self, every: int | None) -> None:
        """Sample the occupancy every so many microseconds; None: never."""
        if every is not None and every <= 0:
            raise QueryError(
                f"`sample_every` is {durations.formatted(every)}; time only runs forward.",
                hint="give 1 or more, or leave it out.",
            )
        self._every = every or 0

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        """Evaluates the batch tuple by tuple; see `RunningJoin.step`."""
        before = list(self.watermarks)
        self._begin(batches)
        yield from self._merge(before)
        for i, stream in enumerate(self.streams):
            if self.eager or self.watermarks[1 - i] == AFTER_ALL:  # no arrival checks the buckets after the end
                self.counters.expired += stream.expire_before(self.alive_from(i))
            self.counters.stored += len(stream)
            self.counters.stale += stream.lists.older_than(self.alive_from(i))

    def _merge(self, before: list[int]) -> Iterator[pa.Table]:
        order = self._order()
        if not order.size:
            return
        arrivals_of = [self._arrival_arrays(i, before[i]) for i in range(2)]
        cursor = np.zeros(kernel.CURSOR, np.int64)
        cursor[kernel.NEXT], cursor[kernel.DUE] = NIL, self._due
        samples = np.empty((order.size if self._every else 0, 3), np.int64)
        out = np.empty((3, CHUNK), np.int64)
        a, b = (stream.lists.rings for stream in self.streams)
        while cursor[kernel.AT] < order.size:
            n = kernel.join(a, b, *arrivals_of, order, self._scopes, self._every, cursor, samples, out)
            yield from self._found(out[:, :n])
        self._due = int(cursor[kernel.DUE])
        self.occupancy += [(int(t), int(x), int(y)) for t, x, y in samples[: cursor[kernel.SAMPLED]]]
        self.counters.probed += int(cursor[kernel.PROBED])
        self.counters.checked += int(cursor[kernel.CHECKED])
        self.counters.inserted += int(cursor[kernel.INSERTED])
        self.counters.expired += int(cursor[kernel.EXPIRED])
        for arrivals, slots in zip(self.arrivals, (n.slots for n in arrivals_of), strict=True):
            arrivals.stored = arrivals.which[slots[arrivals.which] != NIL]
            arrivals.slots = slots[arrivals.stored]

    def _order(self) -> Int64s:
        """The merge: row * 2 + stream of every new tuple. A stable sort keeps ties in the order (stream, arrival)."""
        entries = np.concatenate([arrivals.which * 2 + i for i, arrivals in enumerate(self.arrivals)])
        times = np.concatenate([arrivals.times[arrivals.which] for arrivals in self.arrivals])
        return entries[np.argsort(times, kind="stable")]

    def _arrival_arrays(self, i: int, before: int) -> kernel.ArrivalArrays:
        """The arrivals of stream i as arrays; makes room for them."""
        arrivals, stream = self.arrivals[i], self.streams[i]
        stream.lists.make_room(arrivals.which, arrivals.keys)
        number = stream.number(arrivals)
        keys, slots = arrivals.keys, np.full(arrivals.times.size, NIL, np.int64)
        return kernel.ArrivalArrays(
            arrivals.times,
            keys.words,
            keys.data,
            keys.offsets,
            slots,
            stream.segments.left,
            number,
            self.query.streams[i].window.reach,
            before,
            self.watermarks[i],
        )

    def _found(self, out: Int64s) -> Iterator[pa.Table]:
        """The results of a chunk, those found by stream a's tuples apart from those found by b's."""
        for i in range(2):
            entries, numbers, positions = out[:, (out[0] & 1) == i]
            if entries.size:
                grouped = np.argsort(numbers, kind="stable")
                yield from pairs.fitting(
                    self,
                    i,
                    entries[grouped] >> 1,
                    numbers[grouped].astype(np.int32),
                    positions[grouped].astype(np.int32),
                )
