"""PWJoin: a window join that exploits punctuations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.joins.hash_join import RunningHashJoin
from watersmeet.model.batches import AFTER_ALL, Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.closings import Effect, Promises
from watersmeet.state.keys import Int64s
from watersmeet.state.stream_state import Arrivals


@dataclass(frozen=True, slots=True)
class PWJoin:
    """Two streams, a window each, and promises such as "no more bids for auction 180".

    ::

        a ──► broke its word? ──► probe B ──► insert A, unless B has closed the key
        punctuation of a ──► purge B's tuples of the key ──► nothing can come any more? announce it

    Emits   what the windows alone would give, as long as punctuations are true.
    Forgets a at the first of: progress(b) > a.ts + Ta (its window); b has closed a.key (nothing can match it).
            (Ta = 10, a.ts = 20: at progress(b) = 31, or when b says "no more a.key", be it at 21.)
    Announces a key, once, as soon as both streams have closed it, or one has closed it and holds no tuple of it.

    References: Ding and Rundensteiner, Evaluating window joins over punctuated streams (2004).
    """

    query: JoinQuery

    def start(self, arrays: Arrays | None = None) -> RunningPWJoin:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        return RunningPWJoin(self.query, arrays)


class RunningPWJoin(RunningHashJoin):
    """The join at work; beside what a hash join has, the promises of each stream.

    After a step `violations` holds each stream's rows that came against its word, and `announced` the keys (rows of key
    columns) and `announced_ranges` the intervals of which no result can come any more.
    """

    def __init__(self, query: JoinQuery, arrays: Arrays | None = None) -> None:
        super().__init__(query, arrays)
        self.promises = [Promises(s.spec, s.lists) for s in self.streams]
        self.violations: list[pa.RecordBatch] = []
        self.announced: list[pa.RecordBatch] = []
        self.announced_ranges: list[tuple[object, object]] = []

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self.violations, self.announced, self.announced_ranges = [], [], []
        self._begin(batches)
        effects = [promises.take_effect(p) for promises, p in zip(self.promises, self.progress, strict=True)]
        build, other = (0, 1) if len(self.arrivals[0].which) <= len(self.arrivals[1].which) else (1, 0)
        yield from self._probe(build)
        self._insert(build, self.arrivals[build].which)
        yield from self._probe(other)
        rest = self.arrivals[other]
        useful = rest.times[rest.which] >= self.alive_from(other)
        useful &= ~self.promises[build].closed(rest.which, rest.keys)
        self._insert(other, rest.which[useful])
        self._discard(build)
        for promises, effect in zip(self.promises, effects, strict=True):
            promises.mark_inside(effect)
        for i in (0, 1):
            self._purge(1 - i, effects[i])
        for i in (0, 1):
            self._expire(i, effects[i])
        for i in (0, 1):
            self._announce(i, effects[i])
        for promises in self.promises:
            promises.trim()

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        promises = self.promises[i]
        if batch.closings is not None:
            promises.hear(batch.closings)
        broken = promises.broken(arrivals.which, arrivals.times, arrivals.keys)
        self.violations.append(batch.rows.take(pa.array(arrivals.which[broken])))
        self.counters.violations += int(np.count_nonzero(broken))
        arrivals.which = arrivals.which[~broken]
        return arrivals

    def _advance(self, i: int, batch: Batch) -> None:
        super()._advance(i, batch)
        if batch.closings is not None:
            if batch.closings.heartbeat is not None:
                self.progress[i] = max(self.progress[i], batch.closings.heartbeat)
            if batch.closings.ended:
                self.progress[i] = AFTER_ALL

    def _discard(self, i: int) -> None:
        """Drop the batch's own tuples of i that the other stream had closed: joined, and never stored."""
        arrivals, stream = self.arrivals[i], self.streams[i]
        closed = self.promises[1 - i].closed(arrivals.stored, arrivals.keys)
        slots = arrivals.slots[closed]
        stream.lists.discard(slots, stream.segments.left)
        self.counters.purged += int(slots.size)

    def _purge(self, j: int, effect: Effect) -> None:
        """Drop what is stored of j under keys that the other stream has just closed."""
        stream, closer = self.streams[j], self.streams[1 - j]
        nodes = closer.lists.counterparts(effect.nodes, stream.lists) if effect.nodes.size else effect.nodes
        for low, high, _ in effect.intervals:
            nodes = np.union1d(nodes, self.promises[j].index.between(low, high))
        if nodes.size:
            self.counters.purged += int(stream.lists.purge(nodes, stream.segments.left).size)

    def _expire(self, i: int, effect: Effect) -> None:
        """Drop what has left its window; closed keys that thereby lost their last tuple join the announced ones."""
        stream = self.streams[i]
        if stream.lists.closings:
            gone, ring = stream.lists.expire(self.alive_from(i), stream.segments.left, ring=True)
            effect.nodes = np.concatenate([effect.nodes, ring])
            self.counters.invalidated += int(gone.size)
        else:
            self.counters.invalidated += stream.expire_before(self.alive_from(i))
        self.counters.stored += len(stream)

    def _announce(self, i: int, effect: Effect) -> None:
        """Say which keys are finished: closed on both sides, or closed here with nothing stored."""
        own, other = self.streams[i].lists, self.streams[1 - i].lists
        if effect.nodes.size:
            nodes = np.unique(effect.nodes)
            finished = own.finish(nodes, other, self.promises[1 - i].closed_nodes(own, nodes))
            if finished.size:
                self.announced.append(self.promises[i].closed_keys(finished))
                self.counters.announced += int(finished.size)
        for low, high, _ in effect.intervals:
            self._announce_range(i, low, high)

    def _announce_range(self, i: int, low: object, high: object) -> None:
        """A range closed by i is finished but for the keys that i still holds and the other has not closed."""
        promises, lists = self.promises[i], self.streams[i].lists
        inside = promises.index.between(low, high)
        held = inside[lists.lists.oldest[inside] >= 0]
        places = np.sort(promises.index.places(held[lists.marks(held) < 3])).tolist()
        step = 1 if promises.order().words else b"\0"
        for place in places:
            before = place - 1 if promises.order().words else place
            if low <= before if promises.order().words else low < before:  # type: ignore[operator]
                self.announced_ranges.append((low, before))
            low = place + step
        if low <= high if promises.order().words else low < high:  # type: ignore[operator]
            self.announced_ranges.append((low, high))
        self.counters.announced_ranges = len(self.announced_ranges)
