"""The as-of join: each tuple of the left stream with the nearest one of the right stream."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from watersmeet.joins.algorithm import Algorithm, Traits
from watersmeet.joins.base import RunningJoin
from watersmeet.kernels import asof as kernel
from watersmeet.kernels.value_lists import CLOSED, NIL, OUTLIVED, UNPASSED
from watersmeet.model.asof import AsOf
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.state import value_lists
from watersmeet.state.arrays import Arrays
from watersmeet.state.durable.parts import DurablePart
from watersmeet.state.gone_rows import GoneRows
from watersmeet.state.index import Int32s
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.punctuations.closed_keys import Effect
from watersmeet.state.punctuations.punctuation_set import PunctuationSet
from watersmeet.state.row_order import row_ranks, value_ranks
from watersmeet.state.segments import pieces
from watersmeet.state.stream_state import StreamState
from watersmeet.state.value_lists import ValueLists


@dataclass(frozen=True, slots=True)
class AsofJoin(Algorithm["RunningAsofJoin"]):
    """Each tuple l of the left stream with at most one of the right: the nearest in time, of the same key.

    ::

        quotes of a key   ──q1────q2──────────q3──►      l = (09:02): backward q2, forward q3, nearest q2
        trades                       l                   l is final when no nearer quote can come

    Emits   (l, r), once; without a candidate (l, NULLs) if `how` is "left". l comes out when it is final: backward when
            watermark(right) > l.ts; forward and nearest when it is past the first candidate after l, or past
            l.ts + tolerance; at once when the right stream has closed l.key, or has ended.
    Evicts  r once it is the best candidate of no stored l, and no l to come prefers it: backward and nearest when
            watermark(left) has reached a later version of the key, or is past r.ts + tolerance; forward when it is past
            r.ts; at once when the left stream has closed the key. Of versions with one time the last one stays.
            (Backward, versions at 3, 8 and 12, watermark(left) = 9: 3 goes, 8 and 12 stay.)
    Propagates a key as soon as the left stream has closed it and no tuple of it is stored there.

    >>> AsofJoin().describe()
    {'name': 'asof', 'options': {}}

    References: Kdb+'s aj; DuckDB's ASOF JOIN; pandas' merge_asof, whose arguments these are.
    """

    traits: ClassVar[Traits] = Traits(
        "asof",
        family="hash",
        preference=0,
        how=("inner", "left"),
        windows=("none",),
        punctuations=True,
        asof=True,
        bounded=True,
    )

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningAsofJoin:
        return RunningAsofJoin(query, arrays)


class RunningAsofJoin(RunningJoin[ValueLists]):
    """The join at work. Left tuples are stored until they are final, right ones while they may be an answer."""

    def __init__(self, query: JoinQuery, arrays: Arrays | None = None) -> None:
        super().__init__(query, [StreamState(s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)])
        assert query.asof is not None, "checked by AsofJoin.check"
        self.asof: AsOf = query.asof
        self.rule = (self.asof.backward, self.asof.forward, self.asof.allow_exact, self.asof.reach)
        # a left tuple may wait for a closed key alone, if it looks ahead without a bound
        may_drop = (True, self.asof.tolerance is not None or not self.asof.forward)
        self.punctuation_sets = [
            PunctuationSet(i, s.spec, s.lists, may_drop=may_drop[i]) for i, s in enumerate(self.streams)
        ]
        self.gone = [GoneRows(i, s.lists, s.segments) for i, s in enumerate(self.streams)]

    def alive_from(self, i: int) -> int:
        """Tuples of stream i before this are evicted, whatever their keys; others may be, too."""
        left, right = self.watermarks
        reach = self.asof.reach
        if i == 0:
            waits = right - reach if self.asof.forward else right if self.asof.allow_exact else right + 1
            return max(waits, BEFORE_ALL)
        if not self.asof.backward:
            return min(left, right)
        return max(min(left - reach, right - (2 * reach if self.asof.forward else reach)), BEFORE_ALL)

    def output_watermark(self) -> int:
        """No left tuple to come, and none that is stored, is older than this."""
        oldest = self.streams[0].lists.oldest_time()
        return self.watermarks[0] if oldest is None else min(self.watermarks[0], oldest)

    def reached(self) -> list[int]:
        """Results have the time of their left tuple; the right stream's watermark bounds them through finality."""
        now = self.output_watermark()
        return [now, now if now == AFTER_ALL else self.watermarks[1]]

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self.propagated, self.propagated_ranges = [], []
        before = list(self.watermarks)
        self._begin(batches)
        effects = [
            of.keys.take_effect(watermark) for of, watermark in zip(self.punctuation_sets, self.watermarks, strict=True)
        ]
        self.insert(1, self.arrivals[1].which)
        self._drop_ties()
        self.insert(0, self.arrivals[0].which)
        self.punctuation_sets[0].keys.mark_inside(effects[0])
        answers = self._answer(before[1], effects)
        self._evict(before[0], effects[0], answers)
        self._propagate(effects[0])
        for of, effect in zip(self.punctuation_sets, effects, strict=True):
            of.retention.release(effect)
            of.retention.trim()
        self.counters.closed_keys = sum(p.retention.size for p in self.punctuation_sets)
        self.counters.stored = sum(map(len, self.streams))
        yield from self._results(answers)
        yield from self._without_key(before[0])

    # ------------------------------------------------------------ versions

    def _drop_ties(self) -> None:
        """Of the right tuples with one key and time keep the last by `order_by` and row bytes."""
        arrivals, right = self.arrivals[1], self.streams[1]
        room = np.empty(2 * arrivals.slots.size, np.int64)
        slots = np.unique(room[: kernel.ties(right.lists.lists, arrivals.slots, room)])
        if not slots.size:
            return
        rows = right.take(slots, right.spec.schema.names).combine_chunks().to_batches()[0]
        columns = self.asof.order_by or ((right.spec.order_by,) if right.spec.order_by is not None else ())
        chosen = [value_ranks(rows.column(c)) for c in reversed(columns)]
        lists = right.lists.lists
        nodes, times = lists.node[slots], lists.time[slots]
        order = np.lexsort((row_ranks(rows), *chosen, times, nodes))
        follows = np.zeros(slots.size, np.bool_)
        follows[:-1] = (np.diff(nodes[order]) == 0) & (np.diff(times[order]) == 0)
        losers = slots[order[follows]]
        self.gone[1].add(losers)
        right.lists.discard(losers, right.segments.left)
        self.counters.expired += int(losers.size)

    # ------------------------------------------------------------ left tuples

    def _answer(self, seen_before: int, effects: list[Effect]) -> Int32s:
        """Answer and evict the left tuples that are final: slots of the tuple, its answer, its other candidate."""
        left, right = self.streams[0], self.streams[1]
        room = np.empty((3, len(left)), np.int32)
        ring, counts = np.empty(len(left), np.int64), np.zeros(2, np.int64)
        own, other = left.lists.lists, right.lists.lists
        where = (*self.rule, left.segments.left, room, ring, counts)
        kernel.answer_before(own, other, self.alive_from(0), *where)
        seen = self.watermarks[1]
        if self.asof.forward and len(left):
            kernel.answer_nodes(own, other, self._reached(seen_before), False, seen, *where)
        by_time = int(counts[0])
        if len(left):
            kernel.answer_nodes(own, other, self._closed_by_right(effects[1]), True, seen, *where)
        answers = room[:, : counts[0]]
        self.counters.expired += by_time
        self.counters.purged += answers.shape[1] - by_time
        self.counters.probed += answers.shape[1]
        effects[0].nodes = np.concatenate([effects[0].nodes, ring[: counts[1]]])
        self._record(0, answers[0].astype(np.int64))
        return answers

    def _reached(self, seen_before: int) -> Int64s:
        """Left nodes that may have tuples whose first later version is now past: new ones, and those of such versions.

        Versions that the watermark passed in earlier batches have no left tuples any more, but for new ones.
        """
        left, right = self.streams[0].lists, self.streams[1].lists
        room = np.empty(len(right), np.int64)
        passed = room[: kernel.newest_nodes(right.lists, seen_before, room)]
        arrived = left.lists.node[self.arrivals[0].slots].astype(np.int64)
        arrived = arrived[arrived != NIL]  # answered already
        return np.unique(np.concatenate([right.counterparts(np.unique(passed), left), arrived]))

    def _closed_by_right(self, effect: Effect) -> Int64s:
        """Left nodes whose keys the right stream has just closed, or has closed before and new tuples have."""
        left, right, closed = self.streams[0].lists, self.streams[1].lists, self.punctuation_sets[1].keys
        nodes = [right.counterparts(effect.nodes, left)]
        nodes += [self.punctuation_sets[0].keys.index.between(low, high) for low, high, _ in effect.intervals]
        arrivals = self.arrivals[0]
        which = arrivals.which[closed.closed(arrivals.which, arrivals.keys)]
        return np.concatenate([*nodes, left.nodes_of(which, arrivals.keys)])

    # ------------------------------------------------------------ right tuples

    def _evict(self, passed_before: int, effect: Effect, answers: Int32s) -> None:
        """Evict right tuples that can be no answer any more, among those of which this may have changed."""
        lists = self.streams[1].lists
        slots = np.concatenate([self.arrivals[1].slots, answers[1:].ravel()])
        if self.watermarks[0] == AFTER_ALL > passed_before:
            slots = lists.living()
        elif self.watermarks[0] > passed_before:
            slots = np.concatenate([slots, *self._passed(passed_before)])
        if effect.nodes.size or effect.intervals:
            slots = np.concatenate([slots, self._closed_by_left(effect)])
        slots = slots[slots != NIL]
        slots = slots[lists.alive(slots)]
        if not slots.size:
            return
        closed = self._left_closed(lists.lists.node[slots].astype(np.int64))
        self.counters.expired += self._evict_some(slots[~closed], ended=self.watermarks[0] == AFTER_ALL)
        self.counters.purged += self._evict_some(slots[closed], ended=True)

    def _evict_some(self, slots: Int64s, *, ended: bool) -> int:
        left, right = self.streams[0], self.streams[1]
        room = np.empty(len(right), np.int64)
        how = (ended, self.watermarks[0], *self.rule, right.segments.left, room)
        out = room[: kernel.evict(right.lists.lists, left.lists.lists, slots, *how)]
        self._record(1, out)
        return int(out.size)

    def _passed(self, before: int) -> Iterator[Int64s]:
        """Right tuples that the left watermark has just passed, and those that are now beyond the tolerance."""
        lists, now = self.streams[1].lists, self.watermarks[0]
        distances = [(UNPASSED, 0)]
        if self.asof.backward and self.asof.tolerance is not None:
            distances.append((OUTLIVED, self.asof.reach))
        for place, distance in distances:
            room = np.empty(len(lists), np.int64)
            yield room[: kernel.between(lists.lists, place, before - distance, now - distance, room)]

    def _closed_by_left(self, effect: Effect) -> Int64s:
        """Right tuples of keys that the left stream has just closed, or that it holds no tuple of any more."""
        left, right = self.streams[0].lists, self.streams[1].lists
        nodes = [left.counterparts(effect.nodes, right)]
        nodes += [self.punctuation_sets[1].keys.index.between(low, high) for low, high, _ in effect.intervals]
        room = np.empty(len(right), np.int64)
        return room[: kernel.slots_of(right.lists, np.unique(np.concatenate(nodes)), room)]

    def _left_closed(self, nodes: Int64s) -> Bools:
        """Which of these right nodes have keys that the left stream has closed."""
        left, right, closed = self.streams[0].lists, self.streams[1].lists, self.punctuation_sets[0].keys
        out = closed.closed_nodes(right, nodes)
        if left.closed_keys:
            out = out | (left.marks(right.counterparts(nodes, left)) >= CLOSED)
        return out

    def _record(self, i: int, slots: Int64s) -> None:
        """Store which durable rows have left before their time."""
        early = self.streams[i].lists.lists.time[slots] >= self.alive_from(i)
        self.gone[i].add(slots[early])

    # ------------------------------------------------------------ results

    def _results(self, answers: Int32s) -> Iterator[pa.Table]:
        if self.query.how == "inner":
            answers = answers[:, answers[1] != NIL]
        for at in range(0, answers.shape[1], value_lists.CHUNK):
            some = answers[:2, at : at + value_lists.CHUNK].astype(np.int64)
            for piece in self._pieces(*some):
                yield self._table(*some[:, piece])

    def _pieces(self, own: Int64s, found: Int64s) -> Iterator[slice]:
        """Results in pieces that are bounded in bytes, too."""
        left, right = self.streams
        if not self.varies:
            return iter([slice(0, own.size)])
        widths = left.widths(own, left.spec.schema.names)
        widths[found != NIL] += right.widths(found[found != NIL], list(right.spec.payload))
        return pieces(widths)

    def _table(self, own: Int64s, found: Int64s) -> pa.Table:
        """Left tuples beside their answers; without one, NULLs."""
        left, right = self.streams
        self.counters.results += own.size
        mine = left.take(own, [*left.spec.key, *left.spec.payload])
        some = found[found != NIL]
        if not some.size:
            return self._padded(mine)
        theirs = right.take(some, list(right.spec.payload))
        if some.size < found.size:
            places = np.cumsum(found != NIL) - 1
            theirs = theirs.take(pa.array(places, mask=found == NIL))
        return pa.table([*mine.columns, *theirs.columns], schema=self.query.schema)

    def _padded(self, rows: pa.Table | pa.RecordBatch) -> pa.Table:
        nulls = [pa.nulls(rows.num_rows, self.query.streams[1].schema.field(c).type) for c in self._right_columns]
        return pa.table([*rows.columns, *nulls], schema=self.query.schema)

    @property
    def _right_columns(self) -> tuple[str, ...]:
        return self.query.streams[1].payload

    def _without_key(self, watermark: int) -> Iterator[pa.Table]:
        """Left rows on time whose key is NULL have no answer."""
        arrivals, left = self.arrivals[0], self.query.streams[0]
        which = np.flatnonzero(~arrivals.keys.valid & (arrivals.times >= watermark))
        if self.query.how == "inner":
            return
        for at in range(0, which.size, value_lists.CHUNK):
            rows = arrivals.rows.take(pa.array(which[at : at + value_lists.CHUNK]))
            self.counters.results += rows.num_rows
            yield self._padded(rows.select([*left.key, *left.payload]))

    # ------------------------------------------------------------ propagation

    def _propagate(self, effect: Effect) -> None:
        """Propagate keys that the left stream has closed and of which it holds nothing."""
        keys = self.punctuation_sets[0].keys
        finished = self._finish(effect)
        if finished.size:
            self.propagated.append(keys.keys_of(finished))
            self.counters.propagated += int(finished.size)
        for low, high, _ in effect.intervals:
            self.propagated_ranges += keys.finished_parts(low, high)
        self.counters.propagated_ranges = len(self.propagated_ranges)

    def _finish(self, effect: Effect) -> Int64s:
        none_pending = np.zeros(effect.nodes.size, np.bool_)
        return self.streams[0].lists.finish(effect.nodes, self.streams[1].lists, none_pending, (True, False))

    # ------------------------------------------------------------ the durable form

    def _own_parts(self) -> list[DurablePart]:
        return list(self.gone)

    def restored(self) -> None:
        """Mark the keys that have been propagated."""
        effects = [
            p.all_effective(watermark) for p, watermark in zip(self.punctuation_sets, self.watermarks, strict=True)
        ]
        self.punctuation_sets[0].keys.mark_inside(effects[0])
        self._finish(effects[0])
