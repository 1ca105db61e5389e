"""The axis of the window-oblivious join: tuples stand at the ranks of their keys, and disorder bounds what is kept.

The order of a whole stream is measured where rows are packed and travels to all shards, as watermarks do.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import MemoryLimitError
from watersmeet.joins.axis import Axis
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.general_lazy import IndexProbes
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_options import Order
from watersmeet.joins.wo_join.retention import Buffers, LearnedBuffers, ShownKeys, check_same, low_ranks_above
from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import FOREVER
from watersmeet.state.arrays import Arrays
from watersmeet.state.durable.parts import DurablePart, Metadata
from watersmeet.state.key_ordered import BEYOND, FIRST, KeyOrderedState
from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.spill import DeferredTuples
from watersmeet.state.spill_files import SpillFiles
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Tuples deferred: none, those that cannot be sorted yet, those ahead of the others (spilled), both, or as needed.
STRATEGIES = ("none", "msf", "dbf", "hybrid", "auto")
#: Samples of the furthest stream's watermark and closed rank, for idle streams; older ones are thinned.
TRACK = 128
#: Strategies of `auto`, the cheapest first.
LADDER = ("none", "dbf", "hybrid")
SORTING, SPILLING = ("msf", "hybrid"), ("dbf", "hybrid")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes that may be in memory, how to stay within them, and whether tuples may be shed if nothing helps."""

    strategy: str = "none"
    memory: int | None = None
    shed: bool = False


class KeyRanks(Axis):
    """Tuples stand at the ranks of their keys. Windows are empty, as all keys of a result are equal.

    Each stream has a low rank, which the buffers raise; tuples below it are evicted.
    """

    def __init__(
        self,
        query: JoinQuery,
        buffers: Buffers,
        arrays: Arrays | None = None,
        limits: Limits = Limits(),  # noqa: B008  # it is frozen
    ) -> None:
        self.query = query
        self.buffers = buffers
        self.low_rank = [FIRST] * len(query.streams)  # smaller ranks have been evicted
        self.limits = limits
        self.strategy = LADDER[0] if limits.strategy == "auto" else limits.strategy  # of this batch
        self.deferred: list[DeferredTuples] = []
        if limits.strategy != "none":
            spill_files = SpillFiles(arrays)
            self.deferred = [DeferredTuples(i, s, spill_files) for i, s in enumerate(query.streams)]
        self.states: list[KeyOrderedState] = []
        self.track: list[tuple[int, int]] = []  # (watermark, closed rank) of the furthest stream, over time
        self._shown_keys: list[tuple[Int64s, Int64s, Keys]] = []  # rows, their ranks, all keys; by stream
        self._behind: list[Int64s] = []

    def state(self, i: int, spec: StreamSpec, lists: ValueLists) -> StreamState[ValueLists]:
        self.states.append(KeyOrderedState(spec, lists))
        return self.states[-1]

    def bound(self, join: RunningMultiway, i: int) -> int:
        return self.low_rank[i]

    def reach(self, join: RunningMultiway, i: int) -> int:
        return 0

    def reached(self, join: RunningMultiway) -> list[int]:
        """Watermarks in event time; a stream with an endless delay has none before it ends."""
        return [p if p > -FOREVER // 2 else BEFORE_ALL for p in join.watermarks]

    def may_drop_closed_keys(self, query: JoinQuery) -> bool:
        return True  # the low rank evicts the tuples that a dropped key would have purged

    # ------------------------------------------------------------ a batch

    def usable_punctuations(self, batches: Sequence[Batch]) -> Sequence[Batch]:
        """While tuples are deferred, none that close keys: tuples of these keys may not have been joined yet."""
        self._shown_keys = []
        return [_without_closed_keys(b) for b in batches] if self.deferred else batches

    def admit(self, join: RunningMultiway, i: int, batch: Batch, arrivals: Arrivals) -> None:
        arrivals.times = self.states[i].ranks(arrivals.keys)
        which = np.sort(arrivals.which)
        self._shown_keys.append((which, arrivals.times[which], arrivals.keys))
        gone = max(f for j, f in enumerate(self.low_rank) if j != i)
        join.counters.too_late += int(np.count_nonzero(arrivals.times[arrivals.which] < gone))

    def begin(self, join: RunningMultiway, batches: Sequence[Batch]) -> None:
        self._behind = self.buffers.observe([self._shown(i, batch) for i, batch in enumerate(batches)])
        if self.limits.strategy == "auto":
            self._choose(sum(batch.rows.nbytes for batch in batches))
        for i, deferred in enumerate(self.deferred):
            join.arrivals[i] = self._take_part(join, i, deferred)

    def _shown(self, i: int, batch: Batch) -> ShownKeys:
        which, ranks, _ = self._shown_keys[i]
        positions = batch.positions
        return ShownKeys(ranks, batch.order, None if positions is None else positions[which])

    def evaluated(self, join: RunningMultiway) -> None:
        if isinstance(self.buffers, LearnedBuffers):
            self.buffers.learn(self._behind, [self._matters(i) for i in range(len(self.states))])
        self._rise(self.buffers.low_ranks(ended(join)))
        self._follow_idle(join)

    def _rise(self, low_ranks: Sequence[int]) -> None:
        if self.deferred:  # partners of deferred tuples must stay, also those that came under another strategy
            least = [h.least for h in self.deferred]
            low_ranks = [min(f, *(p for j, p in enumerate(least) if j != i)) for i, f in enumerate(low_ranks)]
        self.low_rank = [max(old, new) for old, new in zip(self.low_rank, low_ranks, strict=True)]

    def closed(self, join: RunningMultiway) -> list[int | None]:
        """The largest closed rank of each stream: tuples to come are expected above it."""
        return [BEYOND if end else self.buffers.closed(j) for j, end in enumerate(ended(join))]

    def _follow_idle(self, join: RunningMultiway) -> None:
        """Give an idle stream the closed rank that the furthest stream had at the idle stream's watermark."""
        if all(s.idle_after is None for s in self.query.streams):
            return
        closed = self.closed(join)
        if any(join.idle):
            times = [time for time, _ in self.track]
            for j in np.flatnonzero(join.idle).tolist():
                at = bisect_right(times, join.watermarks[j]) - 1
                there = [c for c in (closed[j], self.track[at][1] if at >= 0 else None) if c is not None]
                closed[j] = max(there, default=None)
            self._rise(low_ranks_above(closed))
        going = [(p, c) for p, c in zip(join.watermarks, closed, strict=True) if p < AFTER_ALL and c is not None]
        if going:
            furthest = (max(p for p, _ in going), max(c for _, c in going))
            if not self.track or furthest[0] > self.track[-1][0]:
                self.track.append(furthest)
            if len(self.track) > TRACK:
                self.track = [*self.track[: TRACK // 2 : 2], *self.track[TRACK // 2 :]]

    def finish(self, join: RunningMultiway) -> None:
        if self.limits.memory is not None:
            self._fit(join, self.limits.memory)
        join.counters.deferred = sum(h.in_memory.num_rows for h in self.deferred)
        join.counters.spilled = sum(h.spilled for h in self.deferred)

    # ------------------------------------------------------------ memory

    def _choose(self, coming: int) -> None:
        """Take the next strategy if half the memory will be in use, the cheaper one if all tuples fit in a quarter."""
        assert self.limits.memory is not None, "`auto` needs a bound"
        spilled = sum(p.bytes for h in self.deferred for p in h.pieces)
        step = LADDER.index(self.strategy)
        if self.used + 2 * coming > self.limits.memory // 2:  # a row takes about as much again in the lists
            step = min(step + 1, len(LADDER) - 1)
        elif self.used + 2 * (coming + spilled) < self.limits.memory // 4:
            step = max(step - 1, 0)
        self.strategy = LADDER[step]

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return sum(s.bytes for s in self.states) + sum(int(h.in_memory.nbytes) for h in self.deferred)

    def _take_part(self, join: RunningMultiway, i: int, deferred: DeferredTuples) -> Arrivals:
        """The tuples of stream i, new or deferred, that are joined in this batch."""
        closed, over = self.closed(join), ended(join)
        rows = join.arrivals[i].rows.take(pa.array(self._shown_keys[i][0]))
        if any(end for j, end in enumerate(over) if j != i):
            rows = deferred.drop_beyond(min(self._last(j) for j, end in enumerate(over) if end and j != i), rows)
        shown = [d.maxima.highest for d in self.buffers.disorder]
        sorting, spilling = self.strategy in SORTING, self.strategy in SPILLING
        near = min(_or_first(s) for j, s in enumerate(closed if sorting else shown) if j != i)
        rows = deferred.sort(rows, _or_first(closed[i]) if sorting else BEYOND)
        rows = deferred.spill(rows, near if spilling else BEYOND)
        _, keys = self.states[i].read(rows)
        return Arrivals(rows, self.states[i].ranks(keys), keys, np.arange(rows.num_rows))

    def _last(self, j: int) -> int:
        """The largest rank of stream j so far; once it has ended, tuples beyond match nothing."""
        highest = self.buffers.disorder[j].maxima.highest
        return FIRST - 1 if highest is None else highest

    def _matters(self, i: int) -> Any:
        """Which of the batch's tuples have a partner in every other stream, or are below the low rank of one."""
        which, ranks, keys = self._shown_keys[i]
        others = [s for j, s in enumerate(self.states) if j != i]
        found = np.logical_and.reduce([s.lists.nodes_of(which, keys) != kernel.NIL for s in others])
        gone = max(f for j, f in enumerate(self.low_rank) if j != i)
        return found | (ranks < gone)

    def _fit(self, join: RunningMultiway, memory: int) -> None:
        """Stay within the memory: shed the smallest keys of the largest stream, or stop the query."""
        while self.used > memory:
            i = max(range(len(self.states)), key=lambda i: len(self.states[i]))
            ranks = self.states[i].lists.lists.time[self.states[i].lists.living()]
            if not self.limits.shed or not ranks.size:
                raise MemoryLimitError(
                    f'`memory` is {memory} bytes and strategy "{self.strategy}"; what may still match takes '
                    f"{self.used} bytes ({', '.join(f'{len(s)} tuples of {s.spec.name}' for s in self.states)}).",
                    hint='give more memory, more shards, strategy="hybrid", or shed=True to lose results and count it.',
                )
            self.low_rank[i] = max(self.low_rank[i], int(ranks[ranks.size // 8]) + 1)
            join.counters.shed += self.states[i].expire_before(self.low_rank[i])

    def measured(self) -> dict[str, Any]:
        factors = [self.buffers.allowance(j) for j in range(len(self.states))]
        return {"scrambling": factors, "strategy": self.strategy}

    # ------------------------------------------------------------ the durable form

    def parts(self) -> list[DurablePart]:
        deferred = [part for h in self.deferred for part in (h.memory, h.disk)]
        return [
            Metadata("low_ranks", lambda: list(self.low_rank), partial(setattr, self, "low_rank")),
            Metadata("strategy", lambda: self.strategy, partial(setattr, self, "strategy")),
            Metadata("track", lambda: self.track or None, self._load_track),
            *self.buffers.parts(),
            *deferred,
        ]

    def check_operator(self, stored: dict[str, Any]) -> None:
        options = stored.get("options", {})
        if "strategy" in options:
            check_same("strategy", options["strategy"], self.limits.strategy)
            check_same("buffer", options["buffer"], self.buffers.name)

    def _load_track(self, track: list[list[int]]) -> None:
        self.track = [(time, rank) for time, rank in track]


def running(
    query: JoinQuery,
    buffers: Buffers,
    order: Order | None = None,
    arrays: Arrays | None = None,
    limits: Limits = Limits(),  # noqa: B008  # it is frozen
) -> RunningMultiway:
    """The window-oblivious join at work: a general lazy one over the ranks of keys."""
    return RunningMultiway(query, IndexProbes(), order, arrays=arrays, axis=KeyRanks(query, buffers, arrays, limits))


def key_ranks(join: RunningJoin[Any]) -> KeyRanks:
    """The axis of a window-oblivious join."""
    axis = join.axis if isinstance(join, RunningMultiway) else None
    assert isinstance(axis, KeyRanks), "a window-oblivious join"
    return axis


def ended(join: RunningMultiway) -> list[bool]:
    """Which streams have ended."""
    return [p >= AFTER_ALL for p in join.watermarks]


def _without_closed_keys(batch: Batch) -> Batch:
    """The batch without the punctuations that close keys."""
    given = batch.punctuations
    if given is None:
        return batch
    return replace(batch, punctuations=replace(given, keys=given.keys.slice(0, 0), times=given.times[:0], ranges=()))


def _or_first(rank: int | None) -> int:
    """The rank; None (no key is closed yet) becomes the first rank."""
    return FIRST if rank is None else rank
