"""Punctuations of several streams, taken together: which tuples are useless, which keys are finished."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.kernels import value_lists as kernel
from watersmeet.model.queries import JoinQuery
from watersmeet.state.key_ordered import KeyOrderedState
from watersmeet.state.keys import Bools, Int64s, Keys
from watersmeet.state.pending_tuples import PendingState
from watersmeet.state.punctuations.closed_keys import Effect, Latest
from watersmeet.state.punctuations.punctuation_set import PunctuationSet
from watersmeet.state.stream_state import StreamState
from watersmeet.state.value_lists import ValueLists

_NONE = np.empty(0, np.int64)


class MultiwayPunctuations:
    """The punctuation set of each stream, and the rules of several streams over them (spec section 3).

    A key is *dead* when a stream has closed it and holds no tuple of it: no further result exists. Keys whose tuples or
    punctuations have changed are handed to `_review`, which purges and propagates; other keys are not visited. While a
    tuple of a key is pending (`pending`, by stream; empty if no tuple ever is), its stream has not closed the key.
    """

    def __init__(
        self,
        query: JoinQuery,
        streams: Sequence[StreamState[ValueLists]],
        pending: Sequence[PendingState],
        *,
        may_drop_closed_keys: bool,
    ) -> None:
        self.query = query
        self.streams = streams
        self.pending = pending
        self.punctuation_sets = [
            PunctuationSet(i, s.spec, s.lists, _latest(s), may_drop=may_drop_closed_keys) for i, s in enumerate(streams)
        ]
        self.propagated: list[pa.RecordBatch] = []
        self.propagated_ranges: list[tuple[Any, Any]] = []

    def begin(self) -> None:
        self.propagated, self.propagated_ranges = [], []

    @property
    def empty(self) -> bool:
        """Whether all punctuation sets are empty."""
        return not any(p.keys.lists.closed_keys or p.keys.has_ranges() for p in self.punctuation_sets)

    def dead(self, i: int, which: Int64s, keys: Keys) -> Bools:
        """Which of these tuples of stream i, not stored yet, have a key that was finished before this batch."""
        out = np.zeros(which.size, np.bool_)
        for j, p in enumerate(p.keys for p in self.punctuation_sets):
            if j == i:
                continue
            if p.lists.closed_keys:
                out |= p.filter.marked(which, keys, kernel.PROPAGATED)
            if p.has_ranges():
                inside = np.flatnonzero(p.within(p.order().of_keys(keys)[which]))
                out[inside] |= p.lists.nodes_of(which[inside], keys) == kernel.NIL  # propagated as part of its range
        return out

    def take_effect(self, watermark: Sequence[int]) -> list[Effect]:
        """Let the punctuations take effect that the watermarks have reached."""
        return [p.keys.take_effect(own) for p, own in zip(self.punctuation_sets, watermark, strict=True)]

    def settle(self, effects: Sequence[Effect], touched: Sequence[Int64s]) -> int:
        """Purge and propagate after a batch; `touched` are nodes that got or lost tuples. Counts the purged tuples."""
        for k, effect in enumerate(effects):
            self.punctuation_sets[k].keys.mark_inside(effect)
            for low, high, time in effect.intervals if self.pending else []:
                self._mark_pending(k, low, high, time)
        nodes = [np.concatenate([e.nodes, t]) for e, t in zip(effects, touched, strict=True)]
        for low, high, _ in (interval for e in effects for interval in e.intervals):
            nodes = [
                np.concatenate([n, p.keys.index.between(low, high)])
                for n, p in zip(nodes, self.punctuation_sets, strict=True)
            ]
        gone = sum(self._review(i, np.unique(some)) for i, some in enumerate(nodes) if some.size)
        for k, effect in enumerate(effects):
            for low, high, _ in effect.intervals:
                inside = self.punctuation_sets[k].keys.index.between(low, high)
                pending = inside[self._is_pending(k, self.streams[k].lists, inside)]
                self.propagated_ranges += self.punctuation_sets[k].keys.finished_parts(low, high, pending)
        return gone

    def _mark_pending(self, k: int, low: Any, high: Any, time: int) -> None:
        """Give nodes to the keys of a closed interval that have pending tuples; they finish one by one."""
        closed, lists = self.punctuation_sets[k].keys, self.pending[k].lists.lists
        nodes = self.pending[k].nodes()
        ranks = closed.order().of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])
        nodes = nodes[closed.order().inside(ranks, low, high)]
        if nodes.size:
            closed.close_inside(self.pending[k].lists.keys_of(nodes), time)

    def keep_apart(self) -> None:
        """Give nodes to closed keys with pending tuples that were merged into a range meanwhile."""
        for p, wait in (
            zip([p.keys for p in self.punctuation_sets], self.pending, strict=False) if not self.empty else ()
        ):
            nodes = wait.nodes()
            nodes = nodes[wait.lists.counterparts(nodes, p.lists) == kernel.NIL]
            closed = p.closed(np.arange(nodes.size), wait.lists.keys_of(nodes))
            if closed.any():
                p.close_inside(wait.lists.keys_of(nodes[closed]), wait.lists.oldest_time() or 0)

    def _is_pending(self, k: int, own: ValueLists, nodes: Int64s) -> Bools:
        """For which keys of these nodes of `own` a tuple of stream k is pending."""
        if not self.pending or not len(self.pending[k]):
            return np.zeros(nodes.size, np.bool_)
        there: Bools = own.counterparts(nodes, self.pending[k].lists) != kernel.NIL
        return there

    def _review(self, i: int, nodes: Int64s) -> int:
        """Apply the rules to the keys of these nodes of stream i; idempotent."""
        own = self.streams[i].lists
        nodes = nodes[own.lists.length[nodes] != kernel.NIL]  # the last review may have dropped some
        if not nodes.size:
            return 0
        there = [nodes if k == i else own.counterparts(nodes, s.lists) for k, s in enumerate(self.streams)]
        marks = np.array([s.lists.marks(n) for s, n in zip(self.streams, there, strict=True)])
        closed, held, propagated = np.zeros((3, len(there), nodes.size), np.bool_)
        for k, p in enumerate(p.keys for p in self.punctuation_sets):
            lists, n = p.lists.lists, there[k]
            in_range = p.closed_nodes(own, nodes)
            closed[k] = ((marks[k] >= kernel.CLOSED) | in_range) & ~self._is_pending(k, own, nodes)
            held[k] = (n != kernel.NIL) & (lists.oldest[n] != kernel.NIL)
            propagated[k] = (marks[k] == kernel.PROPAGATED) | (in_range & (n == kernel.NIL))
        finished = closed.all(axis=0) | (closed & ~held).any(axis=0)
        fresh = finished & ~propagated.any(axis=0)
        if fresh.any():
            keys = self.punctuation_sets[i].keys.keys_of(nodes[fresh])
            self.propagated.append(keys)
        gone = 0
        for k, stream in enumerate(self.streams):
            useless = finished | (closed.sum(axis=0) - closed[k] == len(there) - 1)
            stream.lists.lists.mark[there[k][finished & (marks[k] >= kernel.CLOSED)]] = kernel.PROPAGATED
            gone += int(stream.lists.purge(there[k][useless & held[k]], stream.segments.left).size)
        return gone

    def trim(self) -> None:
        """Drop closed keys beyond the bounds; rows that a dropped one had purged must not come back."""
        dropped = [p.retention.trim() for p in self.punctuation_sets]
        for stream in self.streams:
            stream.rewrite_due |= any(dropped)

    def restored(self, watermark: Sequence[int]) -> None:
        """All parts are read: purge the rows of closed keys, and mark the keys that have been propagated."""
        effects = [p.all_effective(own) for p, own in zip(self.punctuation_sets, watermark, strict=True)]
        self.settle(effects, [_NONE] * len(self.streams))
        self.begin()


def _latest(state: StreamState[ValueLists]) -> Latest | None:
    """Lookup of the latest event times in a state whose lists are ordered by key; None: the lists have them."""
    return state.latest if isinstance(state, KeyOrderedState) else None
