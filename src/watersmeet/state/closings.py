"""What one stream has promised: keys and ranges of keys that it will not bring any more.

A promise made at event time τ is *pending* while tuples with ts <= τ may still come, and *effective* from then on. Single
keys are marks on the nodes of the stream's value lists, ranges stand in `Ranges`. Keys of which nothing is stored merge
into ranges where they are neighbours; beyond a bound the oldest are forgotten, which is safe (a later tuple of such a key
is stored and leaves by its window) and counted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL
from watersmeet.model.punctuations import Closings, Range
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import Unbounded
from watersmeet.state.keys import Int64s, Keys, decode, encode
from watersmeet.state.order import Order, Ranges
from watersmeet.state.ordered_index import OrderedIndex
from watersmeet.state.value_lists import ValueLists

#: Single keys that a stream may have closed and be remembered for, per shard.
REMEMBERED = 1 << 20
#: Ranges likewise.
REMEMBERED_RANGES = 1 << 14

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Effect:
    """Promises that became effective: nodes of the stream's own lists, and intervals of its key's order."""

    nodes: Int64s
    intervals: list[tuple[Any, Any, int]] = field(default_factory=list)  # low, high, time


class Promises:
    """The closings of one stream, over its value lists."""

    def __init__(self, spec: StreamSpec, lists: ValueLists) -> None:
        self.spec = spec
        self.lists = lists
        self.kinds = [spec.schema.field(k).type for k in spec.key]
        self.pending_nodes: Int64s = np.empty(0, np.int64)
        self.pending_ranges: list[tuple[Any, Any, int]] = []
        self.ranges: Ranges | None = None
        self.forgotten = 0
        self.lies = 0  # promises that came after a tuple which breaks them
        self.fresh: list[pa.RecordBatch] = []  # single closings to be made durable
        self.rewrite = False  # or all of them, because some were merged or forgotten
        self._index: OrderedIndex | None = None

    # ------------------------------------------------------------ hearing

    def hear(self, closings: Closings) -> None:
        """Take promises down as pending."""
        if closings.keys.num_rows:
            self.close(encode(closings.keys.columns), closings.times)
        for pattern, time in closings.ranges:
            interval = self.order().interval(pattern)
            if interval is not None:
                self.pending_ranges.append((*interval, time))

    def close(self, keys: Keys, times: Int64s) -> None:
        """Close single keys at these times, but for those in a range that is closed already."""
        if self.ranges is not None and len(self.ranges):
            open_ = ~self.ranges.holds(self.order().of_keys(keys))
            keys = Keys(keys.words, keys.data, keys.offsets, keys.valid & open_)
        nodes = self.lists.close(times, keys)
        lists = self.lists.lists
        newest = lists.newest[nodes]
        self.lies += int(np.count_nonzero((newest >= 0) & (lists.time[newest] > lists.closing[nodes])))
        self.pending_nodes = np.concatenate([self.pending_nodes, nodes])
        if nodes.size:
            self.fresh.append(self.closed_keys(nodes))

    def close_below(self, place: Any, time: int) -> None:
        """Close every key before `place` in the order."""
        order = self.order()
        if order.words and place <= np.iinfo(np.int64).min:
            return
        low = self.order().interval(Range(None, None))
        assert low is not None, "everything is an interval"
        self.pending_ranges.append((low[0], place - 1 if order.words else place, time))

    def order(self) -> Order:
        if self.ranges is None:
            self.ranges = Ranges(Order.of(self.kinds))
        return self.ranges.order

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
            nodes = self.lists.nodes_of(which, keys)
            marks = self.lists.marks(nodes)
            after = times[which] > self.lists.lists.closing[nodes]
            out |= (marks >= kernel.CLOSED) | ((marks == kernel.PENDING) & after)
        if self.ranges is not None and (len(self.ranges) or self.pending_ranges):
            places = self.order().of_keys(keys)[which]
            out |= self.ranges.holds(places)
            for low, high, time in self.pending_ranges:
                inside = (places >= low) & ((places <= high) if self.order().words else (places < high))
                out |= inside.astype(np.bool_) & (times[which] > time)
        return out

    def closed(self, which: Int64s, keys: Keys) -> Bools:
        """Which of these keys the stream will not bring any more."""
        out = np.zeros(which.size, np.bool_)
        if self.lists.closings:
            out |= self.lists.marks(self.lists.nodes_of(which, keys)) >= kernel.CLOSED
        if self.ranges is not None and len(self.ranges):
            out |= self.ranges.holds(self.order().of_keys(keys)[which])
        return out

    def closed_nodes(self, other: ValueLists, nodes: Int64s) -> Bools:
        """Which of these nodes of another stream lie in a range that this one has closed."""
        if self.ranges is None or not len(self.ranges) or not nodes.size:
            return np.zeros(nodes.size, np.bool_)
        lists = other.lists
        places = self.order().of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])
        return self.ranges.holds(places)

    # ------------------------------------------------------------ taking effect

    def take_effect(self, progress: int) -> Effect:
        """Promises that hold from now on: P >= τ for a stream in order, P > τ for one with a delay."""
        reached = progress if self.spec.delay == 0 or progress == AFTER_ALL else progress - 1
        lists = self.lists.lists
        due = lists.closing[self.pending_nodes] <= reached
        nodes, self.pending_nodes = self.pending_nodes[due], self.pending_nodes[~due]
        lists.mark[nodes] = kernel.CLOSED
        ready = [r for r in self.pending_ranges if r[2] <= reached]
        self.pending_ranges = [r for r in self.pending_ranges if r[2] > reached]
        for low, high, time in ready:
            assert self.ranges is not None, "a pending range has an order"
            self.ranges.add(low, high, time)
        return Effect(nodes, ready)

    def mark_inside(self, effect: Effect) -> None:
        """Mark the keys that are stored, the batch's own included, and lie in ranges that have just taken effect."""
        lists = self.lists.lists
        for low, high, time in effect.intervals:
            inside = self.index.between(low, high)
            inside = inside[lists.mark[inside] < kernel.CLOSED]
            lists.meta[kernel.CLOSINGS] += int(np.count_nonzero(lists.mark[inside] == kernel.OPEN))
            self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, inside)]
            lists.mark[inside] = kernel.CLOSED
            lists.closing[inside] = time
            effect.nodes = np.concatenate([effect.nodes, inside])

    # ------------------------------------------------------------ forgetting

    def trim(self) -> None:
        """Keep what is remembered within its bound: first merge neighbours, then forget the oldest half."""
        if self.lists.closings <= REMEMBERED:
            return
        lists = self.lists.lists
        nodes = self.lists.marked()
        idle = nodes[(lists.oldest[nodes] == kernel.NIL) & (lists.mark[nodes] == kernel.ANNOUNCED)]
        if len(self.kinds) == 1 and self._mergeable():
            idle = self._merge(idle)
        self.rewrite = True
        if self.lists.closings > REMEMBERED * 3 // 4:
            if isinstance(self.spec.window, Unbounded):
                raise StateError(
                    f"stream `{self.spec.name}` has closed more than {REMEMBERED} keys that do not merge into ranges, and "
                    "a join without a window must remember them all.",
                    hint="give the streams a window, or close ranges of keys.",
                )
            oldest = idle[np.argsort(lists.closing[idle], kind="stable")][: max(1, REMEMBERED // 2)]
            self.lists.forget(oldest)
            self.forgotten += int(oldest.size)

    def _mergeable(self) -> bool:
        order = Order(self.kinds[0])
        return order.words and not pa.types.is_floating(self.kinds[0])

    def _merge(self, idle: Int64s) -> Int64s:
        """Turn runs of neighbouring keys into ranges; the nodes that stay."""
        self.order()
        assert self.ranges is not None
        words = self.lists.lists.word[idle]
        by_word = np.argsort(words)
        idle, words = idle[by_word], words[by_word]
        edges = np.flatnonzero(np.diff(words) != 1) + 1
        starts = np.concatenate([[0], edges])
        stops = np.concatenate([edges, [idle.size]])
        keep = np.ones(idle.size, np.bool_)
        for a, b in zip(starts.tolist(), stops.tolist(), strict=True):
            if b - a > 1:
                times = self.lists.lists.closing[idle[a:b]]
                self.ranges.add(int(words[a]), int(words[b - 1]), int(times.max()))
                keep[a:b] = False
        self.lists.forget(idle[~keep])
        return idle[keep]

    # ------------------------------------------------------------ durable form

    def closed_keys(self, nodes: Int64s) -> pa.RecordBatch:
        """Keys of these nodes and the times of their closings, as rows."""
        lists = self.lists.lists
        columns = decode(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes], self.kinds)
        names = [*self.spec.key, "closed at"]
        return pa.record_batch([*columns, pa.array(lists.closing[nodes])], names=names)
