"""Keys that a stream will not bring any more: marks on the nodes of its value lists, and ranges.

A closing at event time τ is *pending* while tuples with ts <= τ may still come, and *effective* from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.queries import StreamSpec
from watersmeet.state.closed_filter import ClosedFilter
from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.order import Order, Orders, Ranges
from watersmeet.state.ordered_index import OrderedIndex
from watersmeet.state.value_lists import ValueLists

Bools = npt.NDArray[np.bool_]
#: The largest event time among the tuples stored of each of these nodes, where there are some.
Latest = Callable[[Int64s], Int64s]


@dataclass(slots=True)
class Effect:
    """Promises that became effective: nodes of the stream's own lists, and intervals of its key's order."""

    nodes: Int64s
    intervals: list[tuple[Any, Any, int]] = field(default_factory=list)  # low, high, time


class ClosedKeys:
    """The closings of one stream, over its value lists."""

    def __init__(self, spec: StreamSpec, lists: ValueLists, latest: Latest | None = None) -> None:
        self.spec = spec
        self.lists = lists
        self.latest = latest or self._newest
        self.filter = ClosedFilter(lists)
        self.kinds = [spec.schema.field(k).type for k in spec.key]
        self.pending_nodes: Int64s = np.empty(0, np.int64)
        self.pending_ranges: list[tuple[Any, Any, int]] = []
        self.ranges: Ranges | None = None  # closed as such, and ...
        self.merged: Ranges | None = None  # ... made of single keys that are neighbours
        self.lies = 0  # closings that came after a tuple which breaks them
        self.fresh: Int64s = np.empty(0, np.int64)  # single closings to be made durable
        self.closed_now: Int64s = np.empty(0, np.int64)  # by unique tuples, in this batch
        self._index: OrderedIndex | None = None

    def close(self, keys: Keys, times: Int64s) -> None:
        """Close single keys at these times, but for those in a range that is closed already."""
        if self.has_ranges():
            open_ = ~self.within(self.order().of_keys(keys))
            keys = Keys(keys.words, keys.data, keys.offsets, keys.valid & open_)
        nodes, sooner = self.lists.close(np.flatnonzero(keys.valid), times, keys)
        self.filter.note(keys.words)
        self._count_lies(nodes, self.lists.lists.closing[nodes])
        self.pending_nodes = np.concatenate([self.pending_nodes, nodes])
        self.fresh = np.concatenate([self.fresh, nodes, sooner])

    def _count_lies(self, nodes: Int64s, times: Int64s | int) -> None:
        """Of keys that are closed at these times, if at any, those of which a later tuple is stored."""
        held = (self.lists.lists.newest[nodes] != kernel.NIL) & (np.asarray(times) > BEFORE_ALL)
        self.lies += int(np.count_nonzero(self.latest(nodes[held]) > np.broadcast_to(times, nodes.shape)[held]))

    def _newest(self, nodes: Int64s) -> Int64s:
        newest: Int64s = self.lists.lists.time[self.lists.lists.newest[nodes]]
        return newest

    def order(self) -> Order:
        if self.ranges is None:
            order = Order.of(self.kinds)
            self.ranges, self.merged = Ranges(order), Ranges(order)
        return self.ranges.order

    def has_ranges(self) -> bool:
        return bool(self.ranges) or bool(self.merged)

    def within(self, places: Orders) -> Bools:
        """Which of these places lie in a closed range."""
        inside = [ranges.holds(places) for ranges in (self.ranges, self.merged) if ranges]
        return inside[0] if len(inside) == 1 else inside[0] | inside[1] if inside else np.zeros(len(places), np.bool_)

    @property
    def index(self) -> OrderedIndex:
        """The stream's nodes by key, from the first range on."""
        if self._index is None:
            self._index = OrderedIndex(self.lists, self.order())
        return self._index

    # ------------------------------------------------------------ asking

    def broken(self, which: Int64s, times: Int64s, keys: Keys) -> Bools:
        """Which of these tuples of the stream itself come against its word."""
        out = np.zeros(which.size, np.bool_)
        if self.lists.closings:
            some = self.filter.suspects(which, keys)
            nodes = self.lists.nodes_of(which[some], keys)
            marks = self.lists.marks(nodes)
            after = times[which[some]] > self.lists.lists.closing[nodes]
            out[some] = (marks >= kernel.CLOSED) | ((marks == kernel.PENDING) & after)
        if self.has_ranges() or self.pending_ranges:
            places = self.order().of_keys(keys)[which]
            out |= self.within(places)
            for low, high, time in self.pending_ranges:
                out |= self.order().inside(places, low, high) & (times[which] > time)
        return out

    def time_of(self, keys: Keys) -> int | None:
        """When the first of these keys was closed."""
        node = int(self.lists.nodes_of(np.zeros(1, np.int64), keys)[0])
        if node != kernel.NIL and self.lists.lists.mark[node] != kernel.OPEN:
            return int(self.lists.lists.closing[node])
        if self.ranges is None:
            return None
        place = self.order().of_keys(keys)[:1]
        for ranges in (self.ranges, self.merged):
            if ranges and ranges.holds(place)[0]:
                return ranges.time[int(ranges.which(place)[0])]
        return next((t for low, high, t in self.pending_ranges if self.order().inside(place, low, high)[0]), None)

    def closed(self, which: Int64s, keys: Keys) -> Bools:
        """Which of these keys the stream will not bring any more."""
        out = np.zeros(which.size, np.bool_)
        if self.lists.closings:
            some = self.filter.suspects(which, keys)
            out[some] = self.lists.marks(self.lists.nodes_of(which[some], keys)) >= kernel.CLOSED
        if self.has_ranges():
            out |= self.within(self.order().of_keys(keys)[which])
        return out

    def closed_nodes(self, other: ValueLists, nodes: Int64s) -> Bools:
        """Which of these nodes of another stream lie in a range that this one has closed."""
        if not self.has_ranges() or not nodes.size:
            return np.zeros(nodes.size, np.bool_)
        lists = other.lists
        places = self.order().of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])
        return self.within(places)

    # ------------------------------------------------------------ taking effect

    def take_effect(self, progress: int, *, ended: bool = False) -> Effect:
        """Promises that hold from now on: P >= τ for a stream in order, P > τ for one with a delay.

        A stream that has `ended` closes all keys, if they have an order in which to say so.
        """
        reached = progress if self.spec.in_order or progress == AFTER_ALL else progress - 1
        lists = self.lists.lists
        due = lists.closing[self.pending_nodes] <= reached
        nodes, self.pending_nodes = self.pending_nodes[due], self.pending_nodes[~due]
        lists.mark[nodes] = kernel.CLOSED
        nodes, self.closed_now = np.concatenate([nodes, self.closed_now]), np.empty(0, np.int64)
        ready = [r for r in self.pending_ranges if r[2] <= reached]
        self.pending_ranges = [r for r in self.pending_ranges if r[2] > reached]
        if ended and self.spec.has_ordered_key:
            ready.append((*self.order().ends, AFTER_ALL))
        effect = Effect(nodes)
        for low, high, time in ready:
            assert self.ranges is not None, "a pending range has an order"
            effect.intervals += [(a, b, time) for a, b in self.ranges.gaps(low, high)]
            self.ranges.add(low, high, time)
        return effect

    def mark_inside(self, effect: Effect) -> None:
        """Mark the keys that are stored, the batch's own included, and lie in ranges that have just taken effect."""
        lists = self.lists.lists
        for low, high, time in effect.intervals:
            inside = self.index.between(low, high)
            inside = inside[lists.mark[inside] < kernel.CLOSED]
            lists.meta[kernel.CLOSINGS] += int(np.count_nonzero(lists.mark[inside] == kernel.OPEN))
            self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, inside)]
            lists.mark[inside] = kernel.CLOSED
            self.filter.note(lists.word[inside])
            lists.closing[inside] = time
            effect.nodes = np.concatenate([effect.nodes, inside])

    def close_inside(self, keys: Keys, time: int) -> None:
        """Close single keys of a range just closed by themselves, as `mark_inside` does with those stored."""
        which = np.arange(len(keys))
        self.lists.close(which, np.full(len(keys), time, np.int64), keys)
        self.filter.note(keys.words)
        nodes = self.lists.nodes_of(which, keys)
        self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, nodes)]
        self.lists.lists.mark[nodes] = np.maximum(self.lists.lists.mark[nodes], kernel.CLOSED)

    def finished_parts(self, low: Any, high: Any, waiting: Int64s | None = None) -> list[tuple[Any, Any]]:
        """A range just closed, without the keys of which tuples are still held or waited for (and not announced)."""
        lists, words = self.lists.lists, self.order().words
        inside = self.index.between(low, high)
        held = inside[(lists.oldest[inside] >= 0) & (lists.mark[inside] < kernel.ANNOUNCED)]
        if waiting is not None:
            held = np.union1d(held, waiting)
        parts = []
        for place in np.sort(self.index.places(held)).tolist():
            parts.append((low, place - 1 if words else place))
            low = place + 1 if words else place + b"\0"
        parts.append((low, high))
        return [(a, b) for a, b in parts if (a <= b if words else a < b)]

    def closed_parts(self, low: Any, high: Any) -> list[tuple[Any, Any]]:
        """What this stream, too, has closed of a range that the other has."""
        words, parts = self.order().words, []
        for ranges in (self.ranges, self.merged):
            assert ranges is not None
            parts += [(max(low, a), min(high, b)) for a, b in zip(ranges.low, ranges.high, strict=True)]
        return [(a, b) for a, b in parts if (a <= b if words else a < b)]
