"""What several streams have promised, taken together: which tuples are useless, which keys are finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.joins.waiting import WaitingState
from watersmeet.kernels import lists as kernel
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Unbounded
from watersmeet.state.closings import Effect, Latest
from watersmeet.state.keys import Bools, Int64s, Keys
from watersmeet.state.placed import PlacedState
from watersmeet.state.promises import Promises
from watersmeet.state.stream_state import StreamState
from watersmeet.state.value_lists import ValueLists

_NONE = np.empty(0, np.int64)


class Agreement:
    """The promises of each stream, and the rules of several streams over them (spec section 3).

    A key is *dead* when a stream has closed it and holds no tuple of it: no result can come. Whatever may have changed
    the standing of a key hands its node to `review`, which purges and announces; no other key is looked at. While a
    tuple of a key waits (`waiting`, by stream, if tuples wait at all) its stream's promise about the key does, too.
    """

    def __init__(
        self,
        query: JoinQuery,
        streams: Sequence[StreamState[ValueLists]],
        waiting: Sequence[WaitingState],
    ) -> None:
        self.query = query
        self.streams = streams
        self.waiting = waiting
        windowed = not any(isinstance(s.window, Unbounded) for s in query.streams)
        self.promises = [Promises(s.spec, s.lists, _latest(s), forgets=windowed) for s in streams]
        self.announced: list[pa.RecordBatch] = []
        self.announced_ranges: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        self.announced, self.announced_ranges = [], []

    @property
    def silent(self) -> bool:
        """Whether no stream has promised anything that is remembered."""
        return not any(p.lists.closings or p.has_ranges() for p in self.promises)

    def dead(self, i: int, which: Int64s, keys: Keys) -> Bools:
        """Which of these tuples of stream i, not stored yet, have a key that was finished before this batch."""
        out = np.zeros(which.size, np.bool_)
        for j, p in enumerate(self.promises):
            if j == i:
                continue
            if p.lists.closings:
                some = p.filter.suspects(which, keys)
                out[some] |= p.lists.marks(p.lists.nodes_of(which[some], keys)) == kernel.ANNOUNCED
            if p.has_ranges():
                inside = np.flatnonzero(p.within(p.order().of_keys(keys)[which]))
                out[inside] |= p.lists.nodes_of(which[inside], keys) == kernel.NIL  # announced as part of its range
        return out

    def take_effect(self, progress: Sequence[int]) -> list[Effect]:
        """Promises that hold from now on."""
        return [p.take_effect(own) for p, own in zip(self.promises, progress, strict=True)]

    def settle(self, effects: Sequence[Effect], touched: Sequence[Int64s]) -> int:
        """Purge and announce after a batch; `touched` are nodes that got or lost tuples. Tells how many tuples went."""
        for k, effect in enumerate(effects):
            self.promises[k].mark_inside(effect)
            for low, high, time in effect.intervals if self.waiting else []:
                self._mark_waiting(k, low, high, time)
        nodes = [np.concatenate([e.nodes, t]) for e, t in zip(effects, touched, strict=True)]
        for low, high, _ in (interval for e in effects for interval in e.intervals):
            nodes = [np.concatenate([n, p.index.between(low, high)]) for n, p in zip(nodes, self.promises, strict=True)]
        gone = sum(self._review(i, np.unique(some)) for i, some in enumerate(nodes) if some.size)
        for k, effect in enumerate(effects):
            for low, high, _ in effect.intervals:
                inside = self.promises[k].index.between(low, high)
                waiting = inside[self._waits(k, self.streams[k].lists, inside)]
                self.announced_ranges += self.promises[k].finished_parts(low, high, waiting)
        return gone

    def _mark_waiting(self, k: int, low: Any, high: Any, time: int) -> None:
        """Keys of an interval just closed of which tuples wait get nodes of their own, to be finished one by one."""
        promises, lists = self.promises[k], self.waiting[k].lists.lists
        nodes = self.waiting[k].nodes()
        places = promises.order().of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])
        nodes = nodes[promises.order().inside(places, low, high)]
        if nodes.size:
            promises.close_inside(self.waiting[k].lists.keys_of(nodes), time)

    def keep_apart(self) -> None:
        """Closed keys of which tuples wait have nodes of their own, even if they were merged into a range meanwhile."""
        for p, wait in zip(self.promises, self.waiting, strict=False) if not self.silent else ():
            nodes = wait.nodes()
            nodes = nodes[wait.lists.counterparts(nodes, p.lists) == kernel.NIL]
            closed = p.closed(np.arange(nodes.size), wait.lists.keys_of(nodes))
            if closed.any():
                p.close_inside(wait.lists.keys_of(nodes[closed]), wait.lists.oldest_time() or 0)

    def _waits(self, k: int, own: ValueLists, nodes: Int64s) -> Bools:
        """For which keys of these nodes of `own` a tuple of stream k waits."""
        if not self.waiting or not len(self.waiting[k]):
            return np.zeros(nodes.size, np.bool_)
        there: Bools = own.counterparts(nodes, self.waiting[k].lists) != kernel.NIL
        return there

    def _review(self, i: int, nodes: Int64s) -> int:
        """Apply the rules to the keys of these nodes of stream i; idempotent."""
        own = self.streams[i].lists
        nodes = nodes[own.lists.length[nodes] != kernel.NIL]  # the last review may have dropped some
        if not nodes.size:
            return 0
        there = [nodes if k == i else own.counterparts(nodes, s.lists) for k, s in enumerate(self.streams)]
        marks = np.array([s.lists.marks(n) for s, n in zip(self.streams, there, strict=True)])
        closed, held, said = np.zeros((3, len(there), nodes.size), np.bool_)
        for k, p in enumerate(self.promises):
            lists, n = p.lists.lists, there[k]
            in_range = p.closed_nodes(own, nodes)
            closed[k] = ((marks[k] >= kernel.CLOSED) | in_range) & ~self._waits(k, own, nodes)
            held[k] = (n != kernel.NIL) & (lists.oldest[n] != kernel.NIL)
            said[k] = (marks[k] == kernel.ANNOUNCED) | (in_range & (n == kernel.NIL))
        finished = closed.all(axis=0) | (closed & ~held).any(axis=0)
        fresh = finished & ~said.any(axis=0)
        if fresh.any():
            keys = self.promises[i].closed_keys(nodes[fresh]).select(list(self.query.streams[i].key))
            self.announced.append(keys)
        gone = 0
        for k, stream in enumerate(self.streams):
            useless = finished | (closed.sum(axis=0) - closed[k] == len(there) - 1)
            stream.lists.lists.mark[there[k][finished & (marks[k] >= kernel.CLOSED)]] = kernel.ANNOUNCED
            gone += int(stream.lists.purge(there[k][useless & held[k]], stream.segments.left).size)
        return gone

    def trim(self) -> None:
        """Forget promises beyond the bounds; rows that a forgotten one had purged must not come back."""
        forgotten = [p.trim() for p in self.promises]
        for stream in self.streams:
            stream.shed |= any(forgotten)

    def restored(self, progress: Sequence[int]) -> None:
        """After all was read again: forget the rows of closed keys, and remember which keys have been announced."""
        effects = [p.all_effective(own) for p, own in zip(self.promises, progress, strict=True)]
        self.settle(effects, [_NONE] * len(self.streams))
        self.begin()


def _latest(state: StreamState[ValueLists]) -> Latest | None:
    """Who knows the event times of stored tuples, where the lists do not."""
    return state.latest if isinstance(state, PlacedState) else None
