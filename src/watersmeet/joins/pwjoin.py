"""PWJoin: a window join that exploits punctuations."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.joins import pairs
from watersmeet.joins.algorithm import ANY_HOW, Algorithm, Traits
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.hash_join import HashJoin
from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import AFTER_ALL, Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Unbounded
from watersmeet.state.arrays import Arrays
from watersmeet.state.durable.parts import DurablePart
from watersmeet.state.index import first_since
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.punctuations.closed_keys import Effect
from watersmeet.state.punctuations.punctuation_set import PunctuationSet
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.unmatched import Unmatched
from watersmeet.state.value_lists import UNASKED, ValueLists


@dataclass(frozen=True, slots=True)
class PWJoin(Algorithm["RunningPWJoin"]):
    """Two streams, a window each, and punctuations such as "no more bids for auction 180".

    ::

        a ──► violation? ──► probe B ──► insert A, unless B has closed the key
        punctuation of a ──► purge B's tuples of the key ──► no further result? propagate it

    Emits   what the windows alone would give, as long as punctuations are true; for outer joins a row that leaves the
            state without having matched, padded with NULLs.
    Evicts  a at the first of: watermark(b) > a.ts + Ta (it expires); b has closed a.key (it is purged).
            (Ta = 10, a.ts = 20: at watermark(b) = 31, or at a punctuation "no more a.key" of b, even at 21.)
    Propagates a key, once, as soon as both streams have closed it, or one has closed it and holds no tuple of it. A
            stream that has ended has closed all keys. The end, when both have ended or one has and holds nothing.

    >>> PWJoin().describe()
    {'name': 'pwjoin', 'options': {}}

    References: Ding and Rundensteiner, Evaluating window joins over punctuated streams (2004).
    """

    traits: ClassVar[Traits] = replace(HashJoin.traits, name="pwjoin", preference=1, how=ANY_HOW, punctuations=True)

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningPWJoin:
        return RunningPWJoin(query, arrays)


class RunningPWJoin(RunningJoin[ValueLists]):
    """The join at work, with the punctuation set of each stream.

    After a step `violations` holds each stream's rows that violate its punctuations, `propagated` the keys (rows of key
    columns) and `propagated_ranges` the intervals without further results.
    """

    decides_on_arrival = True

    def __init__(self, query: JoinQuery, arrays: Arrays | None = None) -> None:
        super().__init__(query, [StreamState(s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)])
        windowed = not any(isinstance(s.window, Unbounded) for s in query.streams)
        self.punctuation_sets = [
            PunctuationSet(i, s.spec, s.lists, may_drop=windowed) for i, s in enumerate(self.streams)
        ]
        self.unmatched = Unmatched(query, self.streams)

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self.propagated, self.propagated_ranges = [], []
        self._begin(batches)
        self.unmatched.begin(self.arrivals)
        build, other = (0, 1) if len(self.arrivals[0].which) <= len(self.arrivals[1].which) else (1, 0)
        # keys closed before the batch: the other stream brings no tuple of them. Those that it closes now are purged.
        closed = yield from self._probe(build)
        self._store(build, 0, closed)
        single_keys = min(self.watermarks) < AFTER_ALL  # if all streams have ended, no key is propagated by itself
        effects = [
            of.keys.take_effect(watermark, ended=single_keys and watermark == AFTER_ALL)
            for of, watermark in zip(self.punctuation_sets, self.watermarks, strict=True)
        ]
        closed = yield from self._probe(other)
        rest = self.arrivals[other]
        self._store(other, first_since(rest.times, rest.which, self.alive_from(other)), closed)
        if self.unmatched.semi:
            found = self.unmatched.take_semi(0)
            self._drop(0, found, effects[0])
            self.counters.matched += int(found.size)
        for of, effect in zip(self.punctuation_sets, effects, strict=True):
            of.keys.mark_inside(effect)
        for i in (0, 1):
            self._purge(1 - i, effects[i])
        for i in (0, 1):
            self._expire(i, effects[i])
        for i in (0, 1):
            self._propagate(i, effects[i])
        for of, effect in zip(self.punctuation_sets, effects, strict=True):
            of.retention.release(effect)
        for i in (0, 1):
            # rows that were purged by a closed key that is now dropped must not come back
            self.streams[1 - i].rewrite_due |= self.punctuation_sets[i].retention.trim()
        self.counters.closed_keys = sum(p.retention.size for p in self.punctuation_sets)
        yield from self._padded()

    # ------------------------------------------------------------ tuples in

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        self.unmatched.without_key(i, arrivals, self.watermarks[i])
        return arrivals

    def _fail(self, i: int, arrivals: Arrivals, which: Int64s) -> None:
        self.unmatched.without_partner(i, arrivals, which)

    def _probe(self, i: int) -> Generator[pa.Table, None, Bools | None]:
        """Yields results; returns which new rows have a key that the other stream has closed (None: it closed none)."""
        arrivals, other = self.arrivals[i], self.punctuation_sets[1 - i].keys
        track = self.unmatched.tracks(1 - i) and self.query.where is None
        closed = np.empty(arrivals.which.size, np.bool_) if other.lists.closed_keys else UNASKED
        for rows, slots, numbers, positions in pairs.probe(self, i, track=track, closed=closed):
            fits = pairs.holds(self, i, rows, numbers, positions)
            if fits is not None:
                rows, numbers, positions = rows[fits], numbers[fits], positions[fits]
                self.unmatched.match_stored(1 - i, slots[fits])
            self.unmatched.match(i, rows)
            if self.query.pairs:
                yield from pairs.results(self, i, rows, numbers, positions)
        if not other.has_ranges():
            return closed if closed.size else None
        return other.in_ranges(arrivals.which, arrivals.keys) | (closed if closed.size else False)

    def _store(self, i: int, first: int, closed: Bools | None) -> None:
        """Insert the tuples from number `first` on whose keys are not closed; the others leave at once."""
        which = self.arrivals[i].which[first:]
        open_ = None if closed is None else ~closed[first:]
        if open_ is not None:
            dead = which.size - int(np.count_nonzero(open_))
            self.counters.dead += dead
            open_ = open_ if dead else None
        if not self.unmatched.tracks(i):
            self.insert(i, which if open_ is None else which[open_])
            return
        stays = self.unmatched.wanted(i, which)
        if open_ is not None:
            stays = stays & open_
        self.insert(i, which[stays])
        self.unmatched.inserted(i, which[stays])
        self.unmatched.leave_rows(i, np.concatenate([self.arrivals[i].which[:first], which[~stays]]))

    # ------------------------------------------------------------ tuples out

    def _drop(self, i: int, slots: Int64s, effect: Effect) -> None:
        """Drop single tuples; closed keys that lose their last tuple become candidates for propagation."""
        stream = self.streams[i]
        nodes = np.unique(stream.lists.lists.node[slots]).astype(np.int64)
        nodes = nodes[stream.lists.lists.mark[nodes] == kernel.CLOSED]
        stream.lists.discard(slots, stream.segments.left)
        self.unmatched.leave(i, slots)
        effect.nodes = np.concatenate([effect.nodes, nodes])

    def _purge(self, j: int, effect: Effect) -> None:
        """Purge the tuples of j under keys that the other stream has just closed; new ones count as not stored."""
        stream, closer, left = self.streams[j], self.streams[1 - j].lists, self.streams[j].segments.left
        number = self.arrivals[j].number if self.arrivals else -1  # -1: no new one is stored
        stored, new = len(stream), left[number]
        if effect.nodes.size:
            self.unmatched.leave(j, stream.lists.purge_counterparts(closer, effect.nodes, left))
        for low, high, _ in effect.intervals:
            nodes = self.punctuation_sets[j].keys.index.between(low, high)
            self.unmatched.leave(j, stream.lists.purge(nodes, left))
        dead = int(new - left[number]) if number >= 0 else 0
        self.counters.dead += dead
        self.counters.inserted -= dead
        self.counters.purged += stored - len(stream) - dead

    def _expire(self, i: int, effect: Effect) -> None:
        """Expire tuples; closed keys that lose their last tuple become candidates for propagation."""
        stream = self.streams[i]
        if self.unmatched.tracks(i):
            gone, ring = stream.lists.expire(self.alive_from(i), stream.segments.left)
            self.unmatched.leave(i, gone)
            count = gone.size
        else:
            count, ring = stream.lists.expire_ringing(self.alive_from(i), stream.segments.left)
        if ring.size:
            effect.nodes = np.concatenate([effect.nodes, ring])
        self.counters.expired += count
        self.counters.stored += len(stream)

    def _padded(self) -> Iterator[pa.Table]:
        """Rows that left without a match (or, of a semi join, that found their first)."""
        for table in self.unmatched.tables():
            self.counters.results += table.num_rows
            yield table

    # ------------------------------------------------------------ propagation

    def _propagate(self, i: int, effect: Effect) -> None:
        """Propagate finished keys: closed on both sides, or closed here with nothing stored.

        Where unmatched rows of the other stream are results, it must have closed the key as well.
        """
        self._propagate_keys(i, effect.nodes)
        for low, high, _ in effect.intervals:
            if self.query.pads(1 - i):
                self.propagated_ranges += self.punctuation_sets[1 - i].keys.closed_parts(low, high)
                self._propagate_keys(1 - i, self.punctuation_sets[1 - i].keys.index.between(low, high))
            else:
                self.propagated_ranges += self.punctuation_sets[i].keys.finished_parts(low, high)
        self.counters.propagated_ranges = len(self.propagated_ranges)

    def _propagate_keys(self, i: int, nodes: Int64s) -> None:
        finished = self._finish(i, nodes)
        if finished.size:
            self.propagated.append(self.punctuation_sets[i].keys.keys_of(finished))
            self.counters.propagated += int(finished.size)

    def _finish(self, i: int, nodes: Int64s) -> Int64s:
        if not nodes.size:
            return nodes
        own, other = self.streams[i].lists, self.streams[1 - i].lists
        closed = self.punctuation_sets[1 - i].keys.closed_nodes(own, nodes)
        return own.finish(nodes, other, closed, (self.query.pads(i), self.query.pads(1 - i)))

    def output_watermark(self) -> int:
        """No result to come is older than this; none will come if a stream that can match has ended and is empty."""
        for i, stream in enumerate(self.streams):
            if self.watermarks[i] == AFTER_ALL and not len(stream) and not self.query.pads(1 - i):
                return AFTER_ALL
        stored = [s.lists.oldest_time() for i, s in enumerate(self.streams) if i in self.query.preserved]
        return min([*self.watermarks, *(t for t in stored if t is not None)])

    # ------------------------------------------------------------ the durable form

    def _own_parts(self) -> list[DurablePart]:
        return self.unmatched.parts

    def restored(self) -> None:
        """Evict the rows of closed keys, and mark the keys that have been propagated."""
        for i, stream in enumerate(self.streams):
            stream.expire_before(self.alive_from(i))
        effects = [
            p.all_effective(watermark) for p, watermark in zip(self.punctuation_sets, self.watermarks, strict=True)
        ]
        for i, effect in enumerate(effects):
            self.punctuation_sets[i].keys.mark_inside(effect)
        for i, effect in enumerate(effects):
            self._purge(1 - i, effect)
        for i, effect in enumerate(effects):
            self._finish(i, effect.nodes)
        self.unmatched.begin([])
