"""PWJoin: a window join that exploits punctuations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins.hash_join import RunningHashJoin
from watersmeet.joins.promising import PromisingJoin
from watersmeet.joins.running import check_windows
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL, Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Unbounded
from watersmeet.state.arrays import Arrays
from watersmeet.state.closings import Effect
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.log import Delta, Entry
from watersmeet.state.promises import Promises
from watersmeet.state.stream_state import Arrivals
from watersmeet.state.unmatched import Unmatched


@dataclass(frozen=True, slots=True)
class PWJoin:
    """Two streams, a window each, and promises such as "no more bids for auction 180".

    ::

        a ──► broke its word? ──► probe B ──► insert A, unless B has closed the key
        punctuation of a ──► purge B's tuples of the key ──► nothing can come any more? announce it

    Emits   what the windows alone would give, as long as punctuations are true; for outer joins a row that leaves the
            state without having matched, padded with NULLs.
    Forgets a at the first of: progress(b) > a.ts + Ta (its window); b has closed a.key (nothing can match it).
            (Ta = 10, a.ts = 20: at progress(b) = 31, or when b says "no more a.key", be it at 21.)
    Announces a key, once, as soon as both streams have closed it, or one has closed it and holds no tuple of it. A
            stream that has ended has closed all keys. The end, when both have ended or one has and holds nothing.

    References: Ding and Rundensteiner, Evaluating window joins over punctuated streams (2004).
    """

    query: JoinQuery

    def __post_init__(self) -> None:
        if len(self.query.streams) != 2:
            raise QueryError(f"PWJoin joins two streams; {len(self.query.streams)} given.")
        check_windows(self.query)

    def start(self, arrays: Arrays | None = None) -> RunningPWJoin:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        return RunningPWJoin(self.query, arrays)


class RunningPWJoin(PromisingJoin, RunningHashJoin):
    """The join at work; beside what a hash join has, the promises of each stream."""

    def __init__(self, query: JoinQuery, arrays: Arrays | None = None) -> None:
        super().__init__(query, arrays)
        windowed = not any(isinstance(s.window, Unbounded) for s in query.streams)
        self.promises = [Promises(s.spec, s.lists, forgets=windowed) for s in self.streams]
        self.unmatched = Unmatched(query, self.streams)

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self.violations, self.announced, self.announced_ranges = [], [], []
        self._begin(batches)
        self.unmatched.begin(self.arrivals)
        alone = min(self.progress) < AFTER_ALL  # if all streams have ended there is nothing left to say of single keys
        effects = [
            promises.take_effect(p, ended=alone and p == AFTER_ALL)
            for promises, p in zip(self.promises, self.progress, strict=True)
        ]
        build, other = (0, 1) if len(self.arrivals[0].which) <= len(self.arrivals[1].which) else (1, 0)
        yield from self._probe(build)
        self._store(build)
        yield from self._probe(other)
        rest = self.arrivals[other]
        useful = rest.times[rest.which] >= self.alive_from(other)
        closed = self.promises[build].closed(rest.which, rest.keys)
        self.counters.dead += int(np.count_nonzero(useful & closed))
        useful &= ~closed
        self._store(other, useful)
        self._discard(build, effects[build])
        if self.unmatched.semi:
            found = self.unmatched.take_semi(0)
            self._drop(0, found, effects[0])
            self.counters.matched += int(found.size)
        for promises, effect in zip(self.promises, effects, strict=True):
            promises.mark_inside(effect)
        for i in (0, 1):
            self._purge(1 - i, effects[i])
        for i in (0, 1):
            self._expire(i, effects[i])
        for i in (0, 1):
            self._announce(i, effects[i])
        for promises, effect in zip(self.promises, effects, strict=True):
            promises.release(effect)
        for i in (0, 1):
            # rows that a forgotten closing had purged must not come back
            self.streams[1 - i].shed |= self.promises[i].trim()
        self.counters.closings = sum(p.remembered for p in self.promises)
        yield from self._padded()

    # ------------------------------------------------------------ tuples in

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        self.unmatched.without_key(i, arrivals, self.progress[i])
        return arrivals

    def _probe(self, i: int) -> Iterator[pa.Table]:
        own, other = self.query.streams[i], self.query.streams[1 - i]
        arrivals, state = self.arrivals[i], self.streams[1 - i]
        before = state.lists.looked_at
        track = self.unmatched.tracks(1 - i) and self.query.where is None
        reaches = other.window.reach, own.window.reach
        for rows, slots, numbers, places in state.probe(arrivals, arrivals.which, *reaches, track):
            holds = self._holds(i, rows, numbers, places)
            if holds is not None:
                rows, numbers, places = rows[holds], numbers[holds], places[holds]
                self.unmatched.match_stored(1 - i, slots[holds])
            self.unmatched.match(i, rows)
            if self.query.pairs:
                yield from self._results(i, rows, numbers, places)
        self.counters.probed += state.lists.looked_at - before

    def _store(self, i: int, useful: Bools | None = None) -> None:
        """Insert the useful tuples (None: all are); the others leave at once."""
        which = self.arrivals[i].which
        if not self.unmatched.tracks(i):
            self._insert(i, which if useful is None else which[useful])
            return
        stays = self.unmatched.wanted(i, which)
        if useful is not None:
            stays = stays & useful
        self._insert(i, which[stays])
        self.unmatched.inserted(i, which[stays])
        self.unmatched.leave_rows(i, which[~stays])

    # ------------------------------------------------------------ tuples out

    def _discard(self, i: int, effect: Effect) -> None:
        """Drop the batch's own tuples of i that the other stream had closed: joined, and never stored."""
        arrivals = self.arrivals[i]
        closed = self.promises[1 - i].closed(arrivals.stored, arrivals.keys)
        slots = arrivals.slots[closed]
        if slots.size:
            self._drop(i, slots, effect)
            self.counters.dead += int(slots.size)
            self.counters.inserted -= int(slots.size)

    def _drop(self, i: int, slots: Int64s, effect: Effect) -> None:
        """Drop tuples one by one; closed keys that thereby lost their last tuple may be announced."""
        stream = self.streams[i]
        nodes = np.unique(stream.lists.lists.node[slots]).astype(np.int64)
        nodes = nodes[stream.lists.lists.mark[nodes] == kernel.CLOSED]
        stream.lists.discard(slots, stream.segments.left)
        self.unmatched.leave(i, slots)
        effect.nodes = np.concatenate([effect.nodes, nodes])

    def _purge(self, j: int, effect: Effect) -> None:
        """Drop what is stored of j under keys that the other stream has just closed."""
        stream, closer = self.streams[j], self.streams[1 - j]
        nodes = closer.lists.counterparts(effect.nodes, stream.lists) if effect.nodes.size else effect.nodes
        for low, high, _ in effect.intervals:
            nodes = np.union1d(nodes, self.promises[j].index.between(low, high))
        if nodes.size:
            gone = stream.lists.purge(nodes, stream.segments.left)
            self.unmatched.leave(j, gone)
            self.counters.purged += int(gone.size)

    def _expire(self, i: int, effect: Effect) -> None:
        """Drop what has left its window; closed keys that thereby lost their last tuple may be announced."""
        stream = self.streams[i]
        if stream.lists.closings or self.unmatched.tracks(i):
            gone, ring = stream.lists.expire(self.alive_from(i), stream.segments.left, ring=True)
            effect.nodes = np.concatenate([effect.nodes, ring])
            self.unmatched.leave(i, gone)
            self.counters.invalidated += int(gone.size)
        else:
            self.counters.invalidated += stream.expire_before(self.alive_from(i))
        self.counters.stored += len(stream)

    def _padded(self) -> Iterator[pa.Table]:
        """Rows that left without a match (or, of a semi join, that found their first)."""
        for table in self.unmatched.tables():
            self.counters.results += table.num_rows
            yield table

    # ------------------------------------------------------------ announcing

    def _announce(self, i: int, effect: Effect) -> None:
        """Say which keys are finished: closed on both sides, or closed here with nothing stored.

        Where unmatched rows of the other stream are results, it must have closed the key as well.
        """
        self._announce_keys(i, effect.nodes)
        for low, high, _ in effect.intervals:
            if self.query.pads(1 - i):
                self.announced_ranges += self.promises[1 - i].closed_parts(low, high)
                self._announce_keys(1 - i, self.promises[1 - i].index.between(low, high))
            else:
                self.announced_ranges += self.promises[i].finished_parts(low, high)
        self.counters.announced_ranges = len(self.announced_ranges)

    def _announce_keys(self, i: int, nodes: Int64s) -> None:
        finished = self._finish(i, nodes)
        if finished.size:
            self.announced.append(self.promises[i].keys_of(finished))
            self.counters.announced += int(finished.size)

    def _finish(self, i: int, nodes: Int64s) -> Int64s:
        own, other = self.streams[i].lists, self.streams[1 - i].lists
        closed = self.promises[1 - i].closed_nodes(own, nodes)
        return own.finish(nodes, other, closed, (self.query.pads(i), self.query.pads(1 - i)))

    def output_progress(self) -> int:
        """No result to come is older than this; none will come if a stream that can match has ended and is empty."""
        for i, stream in enumerate(self.streams):
            if self.progress[i] == AFTER_ALL and not len(stream) and not self.query.pads(1 - i):
                return AFTER_ALL
        stored = [s.lists.oldest_time() for i, s in enumerate(self.streams) if self.query.pads(i)]
        return min([*self.progress, *(t for t in stored if t is not None)])

    # ------------------------------------------------------------ the durable form

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        return super().deltas(entries, rewritten=rewritten) + self.unmatched.deltas(entries, rewritten=rewritten)

    def replay(self, delta: Delta) -> None:
        if delta.kind == "closings":
            super().replay(delta)
        else:
            self.unmatched.replay(delta.stream, delta.rows)

    def restored(self) -> None:
        """Forget the rows of closed keys, and remember which keys have been announced."""
        for i, stream in enumerate(self.streams):
            stream.expire_before(self.alive_from(i))
        self.unmatched.restored()
        effects = [p.all_effective(progress) for p, progress in zip(self.promises, self.progress, strict=True)]
        for i, effect in enumerate(effects):
            self.promises[i].mark_inside(effect)
        for i, effect in enumerate(effects):
            self._purge(1 - i, effect)
        for i, effect in enumerate(effects):
            self._finish(i, effect.nodes)
        self.unmatched.begin([])
