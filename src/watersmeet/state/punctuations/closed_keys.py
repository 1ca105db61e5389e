"""Keys that a stream will not bring any more: marks on the nodes of its value lists, and ranges.

A key closed at event time τ is *pending* while tuples with ts <= τ may still come, and *effective* from then on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.kernels import closed_keys as punctuating
from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.instants import shift_for
from watersmeet.model.queries import StreamSpec
from watersmeet.state.key_order import Order, Orders, Ranges
from watersmeet.state.keys import Int64s, Keys, boxed_kinds, decode, encode_key, unboxed
from watersmeet.state.punctuations.closed_key_filter import ClosedKeyFilter
from watersmeet.state.punctuations.ordered_index import OrderedIndex
from watersmeet.state.value_lists import ValueLists

Bools = npt.NDArray[np.bool_]
#: The largest event time among the tuples stored of each of these nodes, where there are some.
Latest = Callable[[Int64s], Int64s]
#: Ends of a range in the order of keys, and a time.
Interval = tuple[Any, Any, int]
#: Pending ranges from the least key on, at most; beyond that one per slice of time is kept.
MOST_STEPS = 1 << 10


@dataclass(slots=True)
class Effect:
    """Punctuations that became effective: nodes of the stream's own lists, and intervals of its key's order."""

    nodes: Int64s
    intervals: list[tuple[Any, Any, int]] = field(default_factory=list)  # low, high, time


class ClosedKeys:
    """The closed keys of one stream, over its value lists."""

    def __init__(self, spec: StreamSpec, lists: ValueLists, latest: Latest | None = None) -> None:
        self.spec = spec
        self.lists = lists
        self.latest = latest
        self.filter = ClosedKeyFilter(lists)
        self.kinds = boxed_kinds([spec.schema.field(k).type for k in spec.key], spec.null_safe)
        self.pending_nodes: Int64s = np.empty(0, np.int64)
        self.pending_ranges: list[tuple[Any, Any, int]] = []
        self.ranges: Ranges | None = None  # closed by range punctuations
        self.merged: Ranges | None = None  # merged from single closed keys that are neighbours
        self.contradicted = 0  # punctuations that came after a tuple which violates them
        self.fresh: Int64s = np.empty(0, np.int64)  # nodes of single closed keys to be made durable
        self.closed_now: Int64s = np.empty(0, np.int64)  # by unique tuples of this batch: it is effective at once
        self._index: OrderedIndex | None = None

    def encoded(self, columns: Sequence[pa.Array]) -> Keys:
        """Keys of this stream with these key columns."""
        return encode_key(columns, self.spec.null_safe)

    def close(self, keys: Keys, times: Int64s) -> None:
        """Close single keys at these times, but for those in a range that is closed already."""
        if self.has_ranges():
            open_ = ~self.within(self.order().of_keys(keys))
            keys = Keys(keys.words, keys.data, keys.offsets, keys.valid & open_)
        nodes, sooner, contradicted = self.lists.close(keys.valid.nonzero()[0], times, keys)
        self.filter.add(keys.words, times)
        if self.latest is None and not self.spec.timeless:
            self.contradicted += contradicted
        else:
            self.count_contradicted(nodes, self.lists.lists.closed_at[nodes])
        self.pending_nodes = np.concatenate([self.pending_nodes, nodes])
        self.fresh = np.concatenate([self.fresh, nodes, sooner])

    def count_contradicted(self, nodes: Int64s, times: Int64s | int) -> None:
        """Count the keys that are closed at these times and of which a later tuple is stored."""
        held = (self.lists.lists.newest[nodes] != kernel.NIL) & (np.asarray(times) > BEFORE_ALL)
        if not held.any():
            return
        self.contradicted += int(
            np.count_nonzero((self.latest or self._newest)(nodes[held]) > np.broadcast_to(times, nodes.shape)[held])
        )

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

    def within(self, ranks: Orders) -> Bools:
        """Which of these ranks are in a closed range."""
        inside = [ranges.holds(ranks) for ranges in (self.ranges, self.merged) if ranges]
        return inside[0] if len(inside) == 1 else inside[0] | inside[1] if inside else np.zeros(len(ranks), np.bool_)

    @property
    def index(self) -> OrderedIndex:
        """The stream's nodes by key, from the first range on."""
        if self._index is None:
            self._index = OrderedIndex(self.lists, self.order())
        return self._index

    def since(self, times: Int64s) -> Int64s:
        """The times from which on punctuations hold: before all, where time orders nothing."""
        return np.full_like(times, BEFORE_ALL) if self.spec.timeless else times

    # ------------------------------------------------------------ lookups

    def violations(self, which: Int64s, times: Int64s, keys: Keys) -> Bools:
        """Which of these tuples of the stream itself violate its punctuations."""
        if self.lists.closed_keys:
            out = self.filter.marked(which, keys, kernel.CLOSED, times)
        else:
            out = np.zeros(which.size, np.bool_)
        if self.has_ranges():
            out |= self.in_ranges(which, keys)
        if self.pending_ranges:
            ranks = self.order().of_keys(keys)[which]
            steps, others = self._steps(self.pending_ranges)
            out |= self._below_steps(steps, ranks, times[which])
            for low, high, time in others:
                out |= self.order().inside(ranks, low, high) & (times[which] > time)
        return out

    def _steps(self, ranges: list[Interval]) -> tuple[list[Interval], list[Interval]]:
        """Ranges from the least key on, by time, those that close more than earlier ones (*steps*); and all others.

        An ordered stream may have closed thousands of steps; they are looked up by time.
        """
        if not ranges:
            return [], []
        least, steps = self.order().ends[0], list[Interval]()
        for low, high, time in sorted((r for r in ranges if r[0] == least), key=itemgetter(2)):
            if not steps or high > steps[-1][1]:
                steps.append((low, high, time))
        return steps, [r for r in ranges if r[0] != least]

    def _below_steps(self, steps: list[Interval], ranks: Orders, times: Int64s) -> Bools:
        """Which tuples have keys that a step before their time has closed."""
        if not steps:
            return np.zeros(len(ranks), np.bool_)
        highs = np.empty(len(steps), np.int64 if self.order().words else object)
        highs[:] = [high for _, high, _ in steps]
        at = np.searchsorted(np.array([time for *_, time in steps], np.int64), times) - 1
        high = highs[np.maximum(at, 0)]
        inside = ranks <= high if self.order().words else np.array(ranks < high, np.bool_)
        return (at >= 0) & inside

    def time_of(self, keys: Keys) -> int | None:
        """When the first of these keys was closed."""
        node = int(self.lists.nodes_of(np.zeros(1, np.int64), keys)[0])
        if node != kernel.NIL and self.lists.lists.mark[node] != kernel.OPEN:
            return int(self.lists.lists.closed_at[node])
        if self.ranges is None:
            return None
        rank = self.order().of_keys(keys)[:1]
        for ranges in (self.ranges, self.merged):
            if ranges and ranges.holds(rank)[0]:
                return ranges.time[int(ranges.which(rank)[0])]
        return next((t for low, high, t in self.pending_ranges if self.order().inside(rank, low, high)[0]), None)

    def closed(self, which: Int64s, keys: Keys) -> Bools:
        """Which of these keys the stream will not bring any more."""
        if self.lists.closed_keys:
            out = self.filter.marked(which, keys, kernel.CLOSED)
        else:
            out = np.zeros(which.size, np.bool_)
        if self.has_ranges():
            out |= self.in_ranges(which, keys)
        return out

    def in_ranges(self, which: Int64s, keys: Keys) -> Bools:
        """Which of these keys lie in a closed range."""
        ranks = self.order().of_keys(keys)
        if all(ranges.is_beyond(ranks) for ranges in (self.ranges, self.merged) if ranges):
            return np.zeros(which.size, np.bool_)
        return self.within(ranks[which])

    def closed_nodes(self, other: ValueLists, nodes: Int64s) -> Bools:
        """Which of these nodes of another stream lie in a range that this one has closed."""
        if not self.has_ranges() or not nodes.size:
            return np.zeros(nodes.size, np.bool_)
        lists = other.lists
        ranks = self.order().of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])
        return self.within(ranks)

    # ------------------------------------------------------------ taking effect

    def take_effect(self, watermark: int, *, ended: bool = False) -> Effect:
        """Punctuations that hold from now on: P >= τ for a stream in order, P > τ for one with a delay.

        A stream that has `ended` closes all keys, if they have an order.
        """
        self.filter.settle()
        reached = watermark if self.spec.in_order or watermark == AFTER_ALL else watermark - 1
        lists = self.lists.lists
        due = lists.closed_at[self.pending_nodes] <= reached
        nodes, self.pending_nodes = self.pending_nodes[due], self.pending_nodes[~due]
        nodes, self.closed_now = np.concatenate([nodes, self.closed_now]), np.empty(0, np.int64)
        lists.mark[nodes] = kernel.CLOSED
        ready = self._ready(reached) if self.pending_ranges else []
        if ended and self.spec.has_ordered_key:
            ready.append((*self.order().ends, AFTER_ALL))
        effect = Effect(nodes)
        for low, high, time in ready:
            assert self.ranges is not None, "a pending range has an order"
            effect.intervals += [(a, b, time) for a, b in self.ranges.gaps(low, high)]
            self.ranges.add(low, high, time)
        return effect

    def _ready(self, reached: int) -> list[Interval]:
        """Take out the pending ranges that hold from now on."""
        steps, others = self._steps([r for r in self.pending_ranges if r[2] <= reached])
        ready = [*steps[-1:], *others]
        steps, others = self._steps([r for r in self.pending_ranges if r[2] > reached])
        self.pending_ranges = [*_thinned(steps), *others]
        return ready

    def mark_inside(self, effect: Effect) -> None:
        """Mark the keys that are stored, the batch's own included, and lie in ranges that have just taken effect."""
        lists = self.lists.lists
        for low, high, time in effect.intervals:
            inside = self.index.between(low, high)
            inside = inside[lists.mark[inside] < kernel.CLOSED]
            lists.meta[kernel.CLOSED_KEYS] += int(np.count_nonzero(lists.mark[inside] == kernel.OPEN))
            self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, inside)]
            lists.mark[inside] = kernel.CLOSED
            self.filter.add(lists.word[inside])
            lists.closed_at[inside] = time
            effect.nodes = np.concatenate([effect.nodes, inside])

    def close_inside(self, keys: Keys, time: int) -> None:
        """Close single keys of a range that was just closed, as `mark_inside` does with stored ones."""
        which = np.arange(len(keys))
        self.lists.close(which, np.full(len(keys), time, np.int64), keys)
        self.filter.add(keys.words)
        nodes = self.lists.nodes_of(which, keys)
        self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, nodes)]
        self.lists.lists.mark[nodes] = np.maximum(self.lists.lists.mark[nodes], kernel.CLOSED)

    def finished_parts(self, low: Any, high: Any, pending: Int64s | None = None) -> list[tuple[Any, Any]]:
        """A range just closed, without the keys (not propagated yet) that have stored or pending tuples."""
        lists, words = self.lists.lists, self.order().words
        inside = self.index.between(low, high)
        held = inside[(lists.oldest[inside] >= 0) & (lists.mark[inside] < kernel.PROPAGATED)]
        if pending is not None:
            held = np.union1d(held, pending)
        parts = []
        for rank in np.sort(self.index.ranks(held)).tolist():
            parts.append((low, rank - 1 if words else rank))
            low = rank + 1 if words else rank + b"\0"
        parts.append((low, high))
        return [(a, b) for a, b in parts if (a <= b if words else a < b)]

    def closed_parts(self, low: Any, high: Any) -> list[tuple[Any, Any]]:
        """The parts of a range closed by the other stream that this one has closed, too."""
        words, parts = self.order().words, []
        for ranges in (self.ranges, self.merged):
            assert ranges is not None
            parts += [(max(low, a), min(high, b)) for a, b in zip(ranges.low, ranges.high, strict=True)]
        return [(a, b) for a, b in parts if (a <= b if words else a < b)]

    # ------------------------------------------------------------ as rows

    def rows_of(self, nodes: Int64s) -> pa.RecordBatch:
        """Keys of these nodes, when they were closed, and whether that is effective, as rows."""
        lists = self.lists.lists
        facts = [pa.array(lists.closed_at[nodes]), pa.array(lists.mark[nodes] >= kernel.CLOSED)]
        columns = [*self.keys_of(nodes).columns, *facts]
        return pa.record_batch(columns, names=[*self.spec.key, "closed at", "effective"])

    def keys_of(self, nodes: Int64s) -> pa.RecordBatch:
        """Keys of these nodes, as rows."""
        lists = self.lists.lists
        if len(self.kinds) == 1 and (pt.is_string(self.kinds[0]) or pt.is_binary(self.kinds[0])):
            columns = [_texts(lists.arena, lists.at[nodes], lists.length[nodes]).cast(self.kinds[0])]
        else:
            columns = decode(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes], self.kinds)
            columns = unboxed(columns, self.spec.null_safe)
        return pa.record_batch(columns, names=list(self.spec.key))


def _texts(data: npt.NDArray[np.uint8], starts: Int64s, lengths: npt.NDArray[np.int32]) -> pa.Array:
    """Pieces of `data` as one binary column."""
    offsets = np.zeros(starts.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    punctuating.gather(data, starts, lengths, out)
    return pa.Array.from_buffers(pa.large_binary(), starts.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])


def _thinned(steps: list[Interval]) -> list[Interval]:
    """At most MOST_STEPS of these steps: the last one of every slice of time, which closes the most."""
    shift = shift_for(np.array([time for *_, time in steps], np.int64), most=MOST_STEPS)
    return list({time >> shift: (low, high, time) for low, high, time in steps}.values())
