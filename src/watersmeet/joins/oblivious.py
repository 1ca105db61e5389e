"""The window-oblivious join at work."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import MemoryLimitError
from watersmeet.joins.buffers import Buffers, LearnedBuffers, News, check_same, floors_above
from watersmeet.joins.general_lazy import RunningGeneralLazy
from watersmeet.joins.holding import Held
from watersmeet.joins.orders import Order
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import FOREVER
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.log import Delta, Entry
from watersmeet.state.placed import BEYOND, FIRST, PlacedState
from watersmeet.state.shelf import ReadEntry, Shelf
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: What is held back: nothing, what cannot be sorted yet, what others lag behind (on disk), both, or as needed.
STRATEGIES = ("none", "msf", "dbf", "hybrid", "auto")
#: Moments at which it is known how far streams were, for those that are idle; older ones are thinned.
TRACK = 128
#: What `auto` goes through, the cheapest first.
LADDER = ("none", "dbf", "hybrid")
SORTING, PARKING = ("msf", "hybrid"), ("dbf", "hybrid")


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes that may be in memory, how to stay within them, and whether tuples may be shed if nothing helps."""

    strategy: str = "none"
    memory: int | None = None
    shed: bool = False


class RunningWOJoin(RunningGeneralLazy):
    """The join at work: a general lazy one whose time is the key itself, whose windows are empty (all keys of a result
    are equal), and whose progress is what the buffers say."""

    own: list[PlacedState]  # type: ignore[assignment]  # made by `_state`

    def __init__(
        self,
        query: JoinQuery,
        buffers: Buffers,
        order: Order | None = None,
        arrays: Arrays | None = None,
        limits: Limits = Limits(),  # noqa: B008  # it is frozen
    ) -> None:
        super().__init__(query, order, arrays=arrays)
        self.buffers = buffers
        self.floor = [FIRST] * len(query.streams)  # smaller places have been forgotten
        self.limits = limits
        self.strategy = LADDER[0] if limits.strategy == "auto" else limits.strategy  # of this batch
        self.held: list[Held] = []
        if limits.strategy != "none":
            shelf = Shelf(arrays)
            self.held = [Held(i, s, shelf) for i, s in enumerate(query.streams)]
        for promises in self.promises:
            promises.forgets = True  # the floor passes what a forgotten closing would have purged
        self.track: list[tuple[int, int]] = []  # how far the furthest stream was, in time and in what it had closed
        self._idle = [False] * len(query.streams)
        self._news: list[tuple[Int64s, Int64s, Keys]] = []  # of each stream the rows, their places, all keys
        self._behind: list[Int64s] = []

    def _state(self, spec: StreamSpec, lists: ValueLists) -> StreamState[ValueLists]:
        return PlacedState(spec, lists)

    # ------------------------------------------------------------ a batch

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        yield from super().step(batches)
        if self.limits.memory is not None:
            self._fit(self.limits.memory)
        self.counters.stored = sum(map(len, self.streams))
        self.counters.waiting = sum(h.waiting.num_rows for h in self.held)
        self.counters.parked = sum(h.parked for h in self.held)

    def _begin(self, batches: Sequence[Batch]) -> None:
        self._news = []
        super()._begin([_unheard(b) for b in batches] if self.held else batches)
        self._behind = self.buffers.observe([self._shown(i, batch) for i, batch in enumerate(batches)])
        if self.limits.strategy == "auto":
            self._choose(sum(batch.rows.nbytes for batch in batches))
        for i, held in enumerate(self.held):
            self.arrivals[i] = self._take_part(i, held)

    def _shown(self, i: int, batch: Batch) -> News:
        which, places, _ = self._news[i]
        positions = batch.positions
        return News(places, batch.order, None if positions is None else positions[which])

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        arrivals.times = self.own[i].places(arrivals.keys)
        which = np.sort(arrivals.which)
        self._news.append((which, arrivals.times[which], arrivals.keys))
        gone = max(f for j, f in enumerate(self.floor) if j != i)
        self.counters.too_late += int(np.count_nonzero(arrivals.times[arrivals.which] < gone))
        return arrivals

    def _evaluate(self) -> Iterator[pa.Table]:
        yield from super()._evaluate()
        if isinstance(self.buffers, LearnedBuffers):
            self.buffers.learn(self._behind, [self._matters(i) for i in range(len(self.own))])
        self._rise(self.buffers.floors(self.ended))
        self._follow_idle()

    def _rise(self, floors: Sequence[int]) -> None:
        if self.held:  # what others hold back has not met its partners, which may have come under another strategy
            least = [h.least for h in self.held]
            floors = [min(f, *(p for j, p in enumerate(least) if j != i)) for i, f in enumerate(floors)]
        self.floor = [max(old, new) for old, new in zip(self.floor, floors, strict=True)]

    def _pass_idle(self, batches: Sequence[Batch]) -> None:
        before = list(self.progress)
        super()._pass_idle(batches)
        self._idle = [now > then for now, then in zip(self.progress, before, strict=True)]

    def _follow_idle(self) -> None:
        """Take idle streams to be where the furthest one was when its time was theirs."""
        if all(s.idle_after is None for s in self.query.streams):
            return
        closed = [BEYOND if end else self.buffers.closed(j) for j, end in enumerate(self.ended)]
        if any(self._idle):
            times = [time for time, _ in self.track]
            for j in np.flatnonzero(self._idle).tolist():
                at = bisect_right(times, self.progress[j]) - 1
                there = [c for c in (closed[j], self.track[at][1] if at >= 0 else None) if c is not None]
                closed[j] = max(there, default=None)
            self._rise(floors_above(closed))
        going = [(p, c) for p, c in zip(self.progress, closed, strict=True) if p < AFTER_ALL and c is not None]
        if going:
            furthest = (max(p for p, _ in going), max(c for _, c in going))
            if not self.track or furthest[0] > self.track[-1][0]:
                self.track.append(furthest)
            if len(self.track) > TRACK:
                self.track = [*self.track[: TRACK // 2 : 2], *self.track[TRACK // 2 :]]

    @property
    def ended(self) -> list[bool]:
        return [p >= AFTER_ALL for p in self.progress]

    def _choose(self, coming: int) -> None:
        """Take the next strategy when half the memory will be in use, the cheaper one when all would fit a quarter."""
        assert self.limits.memory is not None, "without a bound there is nothing to choose by"
        parked = sum(p.bytes for h in self.held for p in h.pieces)
        step = LADDER.index(self.strategy)
        if self.used + 2 * coming > self.limits.memory // 2:  # a row takes about as much again in the lists
            step = min(step + 1, len(LADDER) - 1)
        elif self.used + 2 * (coming + parked) < self.limits.memory // 4:
            step = max(step - 1, 0)
        self.strategy = LADDER[step]

    @property
    def used(self) -> int:
        """Bytes in memory."""
        return sum(s.bytes for s in self.own) + sum(int(h.waiting.nbytes) for h in self.held)

    def _take_part(self, i: int, held: Held) -> Arrivals:
        """Of the new tuples of stream i, and of those held back, the ones whose turn has come."""
        closed = [BEYOND if end else self.buffers.closed(j) for j, end in enumerate(self.ended)]
        rows = self.arrivals[i].rows.take(pa.array(self._news[i][0]))
        if any(end for j, end in enumerate(self.ended) if j != i):
            rows = held.drop_beyond(min(self._last(j) for j, end in enumerate(self.ended) if end and j != i), rows)
        shown = [d.maxima.highest for d in self.buffers.disorder]
        sorting, parking = self.strategy in SORTING, self.strategy in PARKING
        near = min(_or_first(s) for j, s in enumerate(closed if sorting else shown) if j != i)
        rows = held.sort(rows, _or_first(closed[i]) if sorting else BEYOND)
        rows = held.park(rows, near if parking else BEYOND)
        _, keys = self.own[i].read(rows)
        return Arrivals(rows, self.own[i].places(keys), keys, np.arange(rows.num_rows))

    def _last(self, j: int) -> int:
        """The largest place that stream j has shown, which nothing beyond will meet once it has ended."""
        highest = self.buffers.disorder[j].maxima.highest
        return FIRST - 1 if highest is None else highest

    def _matters(self, i: int) -> Any:
        """Which of the batch's tuples have a partner in every other stream, or are below what those have kept."""
        which, places, keys = self._news[i]
        others = [s for j, s in enumerate(self.own) if j != i]
        found = np.logical_and.reduce([s.lists.nodes_of(which, keys) != kernel.NIL for s in others])
        gone = max(f for j, f in enumerate(self.floor) if j != i)
        return found | (places < gone)

    # ------------------------------------------------------------ forgetting

    def bound(self, i: int) -> int:
        return self.floor[i]

    def reach(self, i: int) -> int:
        return 0

    def _fit(self, memory: int) -> None:
        """Stay within the memory given: shed the smallest keys of the largest stream, or stop."""
        while self.used > memory:
            i = max(range(len(self.own)), key=lambda i: len(self.own[i]))
            places = self.own[i].lists.lists.time[self.own[i].lists.living()]
            if not self.limits.shed or not places.size:
                raise MemoryLimitError(
                    f'`memory` is {memory} bytes and strategy "{self.strategy}"; what may still match takes '
                    f"{self.used} bytes ({', '.join(f'{len(s)} tuples of {s.spec.name}' for s in self.own)}).",
                    hint='give more memory, more shards, strategy="hybrid", or shed=True to lose results and count it.',
                )
            self.floor[i] = max(self.floor[i], int(places[places.size // 8]) + 1)
            self.counters.shed += self.own[i].expire_before(self.floor[i])

    def _expire(self, i: int) -> Int64s:
        if self.floor[i] < BEYOND:
            return super()._expire(i)
        lists = self.own[i].lists
        nodes = np.unique(lists.lists.node[lists.living()]).astype(np.int64)
        self.counters.invalidated += self.own[i].expire_before(BEYOND)
        closed: Int64s = nodes[lists.lists.mark[nodes] == kernel.CLOSED]
        return closed

    def reached(self) -> list[int]:
        return [p if p > -FOREVER // 2 else BEFORE_ALL for p in super().reached()]

    def output_progress(self) -> int:
        """By event time; streams whose tuples are never late by that say nothing before they end."""
        return min(self.reached())

    def measured(self) -> dict[str, Any]:
        factors = [self.buffers.allowance(j) for j in range(len(self.own))]
        return super().measured() | {"scrambling": factors, "strategy": self.strategy}

    # ------------------------------------------------------------ the durable form

    def attach(self, entries: Sequence[Entry], read: ReadEntry) -> None:
        self.apart = frozenset({"parked"}) if self.held else frozenset()
        for held in self.held:
            held.attach([e for e in entries if (e.kind, e.stream) == ("parked", held.i)], read)

    def notes(self) -> dict[str, Any]:
        held = {"held": [h.notes() for h in self.held]} if self.held else {}
        strategies = [self.limits.strategy, self.strategy]
        mine = {"floor": list(self.floor), "strategy": strategies, "buffers": self.buffers.notes()}
        return super().notes() | mine | held | ({"track": self.track} if self.track else {})

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        if "floor" in notes:
            asked, self.strategy = notes["strategy"]
            check_same("strategy", asked, self.limits.strategy)
            self.floor = list(notes["floor"])
            self.buffers.recall(notes["buffers"])
        self.track = [(time, place) for time, place in notes.get("track", [])]
        for held, note in zip(self.held, notes.get("held", []), strict=False):
            held.recall(note)

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        held = [delta for h in self.held for delta in h.deltas(entries)]
        return super().deltas(entries, rewritten=rewritten) + self.buffers.deltas(entries) + held

    def replay(self, delta: Delta) -> None:
        if delta.kind in ("maxima", "tail"):
            self.buffers.replay(delta)
        elif delta.kind in ("waiting", "parked"):
            self.held[delta.stream].replay(delta)
        else:
            super().replay(delta)


def _unheard(batch: Batch) -> Batch:
    """The batch without its closings of keys: a stream that holds tuples back has not shown all that it closes."""
    said = batch.closings
    if said is None:
        return batch
    return replace(batch, closings=replace(said, keys=said.keys.slice(0, 0), times=said.times[:0], ranges=()))


def _or_first(place: int | None) -> int:
    """Nothing is up to a place that does not exist yet (but the least of all, which waits for nobody)."""
    return FIRST if place is None else place
