"""Closings that are remembered: within bounds, and over a restart.

Keys of which nothing is stored merge into ranges where they are neighbours; beyond a bound the oldest are forgotten,
which is safe (a later tuple of such a key is stored and leaves by its window) and counted.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import StateError
from watersmeet.kernels import closings as punctuating
from watersmeet.kernels import lists as kernel
from watersmeet.model.queries import StreamSpec
from watersmeet.state.closings import ClosedKeys, Effect, Latest
from watersmeet.state.keys import Int64s, decode, encode
from watersmeet.state.merging import Mine, Runs
from watersmeet.state.order import Order, Ranges, from_json, to_json
from watersmeet.state.value_lists import ValueLists

#: Single keys that a stream may have closed and be remembered for, per shard.
REMEMBERED = 1 << 20
#: Ranges likewise.
REMEMBERED_RANGES = 1 << 14
#: Neighbours are merged from so many single keys on, whenever there are twice as many as the last time and they are a
#: good part of all keys, which are looked through for it, and ...
MERGED_FROM = 1 << 10
#: ... into ranges of at least so many; at the bound into any.
LONG_RUN = 8
#: Durable closings are written anew when they have come to stand in so many segments.
MOST_PIECES = 32


class RememberedKeys(ClosedKeys):
    """The closings of one stream; `forgets` those beyond the bounds, or stops there."""

    def __init__(
        self, spec: StreamSpec, lists: ValueLists, latest: Latest | None = None, *, forgets: bool = True
    ) -> None:
        super().__init__(spec, lists, latest)
        self.forgets = forgets
        self.mine: Mine | None = None  # tells which words are keys of this shard; None: all are
        self.unmerged = 0  # single closings that stayed when neighbours were last merged
        self.forgotten = 0
        self.rewrite = False  # make all closings durable anew, because some were merged or forgotten

    @property
    def remembered(self) -> int:
        """How many closings are remembered: single keys, and ranges."""
        return self.lists.closings + sum(len(ranges) for ranges in (self.ranges, self.merged) if ranges is not None)

    # ------------------------------------------------------------ forgetting

    def release(self, effect: Effect) -> None:
        """Let go of single closings that a range says as well, of keys of which nothing is stored any more."""
        if not self.ranges:
            return  # what was merged has no marks any more
        lists = self.lists.lists
        inside = [self.index.between(low, high) for low, high, _ in effect.intervals]
        nodes = np.unique(np.concatenate([effect.nodes, *inside]))
        nodes = nodes[(lists.oldest[nodes] == kernel.NIL) & (lists.mark[nodes] >= kernel.CLOSED)]
        nodes = nodes[self.closed_nodes(self.lists, nodes)]
        self.fresh = self.fresh[~np.isin(self.fresh, nodes)]
        self.lists.forget(nodes)

    def trim(self) -> bool:
        """Keep what is remembered within its bounds: first merge neighbours, then forget the oldest half.

        Tells whether anything was forgotten.
        """
        before = self.forgotten
        if self.lists.closings > REMEMBERED:
            self._trim_keys()
        elif self.lists.closings > max(MERGED_FROM, 2 * self.unmerged, self.lists.keys // 4):
            self._merge_neighbours(LONG_RUN)
            self.unmerged = self.lists.closings
        for ranges in (self.ranges, self.merged):
            if ranges is not None and len(ranges) > REMEMBERED_RANGES:
                self._must(self.forgets, f"{REMEMBERED_RANGES} ranges of keys")
                by_age = np.argsort(np.array(ranges.time), kind="stable").tolist()
                self.forgotten += len(by_age) // 2
                ranges.keep(sorted(by_age[len(by_age) // 2 :]))
                self.rewrite = True
        return self.forgotten > before

    def _merge_neighbours(self, at_least: int) -> Int64s:
        """Turn runs of at least so many neighbouring keys into ranges; nodes without tuples that stay."""
        self.filter.reset()
        lists = self.lists.lists
        nodes = self.lists.marked()
        idle = nodes[(lists.oldest[nodes] == kernel.NIL) & (lists.mark[nodes] >= kernel.CLOSED)]
        covered = self.closed_nodes(self.lists, idle)  # a range says it as well
        self.lists.forget(idle[covered])
        idle = idle[~covered]
        self.rewrite = True
        return self._merge(idle, at_least) if len(self.kinds) == 1 and self._mergeable() else idle

    def _trim_keys(self) -> None:
        lists = self.lists.lists
        idle = self._merge_neighbours(2)
        self._must(
            self.forgets or self.lists.closings <= REMEMBERED, f"{REMEMBERED} keys that do not merge into ranges"
        )
        if self.forgets and self.lists.closings > REMEMBERED * 3 // 4:
            oldest = idle[np.argsort(lists.closing[idle], kind="stable")][: max(1, REMEMBERED // 2)]
            self.lists.forget(oldest)
            self.forgotten += int(oldest.size)

    def _must(self, holds: bool, many: str) -> None:
        if not holds:
            raise StateError(
                f"stream `{self.spec.name}` has closed more than {many}, and a join without a window must "
                "remember them all.",
                hint="give the streams a window, or close longer ranges of keys.",
            )

    def _mergeable(self) -> bool:
        order = Order(self.kinds[0])
        return order.words and not pa.types.is_floating(self.kinds[0])

    def _merge(self, idle: Int64s, at_least: int) -> Int64s:
        self.order()
        assert self.merged is not None
        lists, known = self.lists.lists, self.merged
        low = np.concatenate([lists.word[idle], np.array(known.low, np.int64)])
        high = np.concatenate([lists.word[idle], np.array(known.high, np.int64)])
        time = np.concatenate([lists.closing[idle], np.array(known.time, np.int64)])
        order = np.argsort(low)
        runs = Runs.of(low[order], high[order], time[order], self.mine)
        single = order < idle.size
        size = runs.stops - runs.starts
        ranged = np.add.reduceat(~single, runs.starts) > 0 if size.size else np.zeros(0, np.bool_)
        chosen = ranged | (size >= at_least)
        while np.count_nonzero(chosen) > REMEMBERED_RANGES // 2 and chosen[~ranged].any() and at_least > 2:
            at_least *= 2  # ranges are dearer than marks: only long ones, if there are many
            chosen = ranged | (size >= at_least)
        gone = np.repeat(chosen, size) & single
        known.replace(*runs.united(chosen))
        self.lists.forget(idle[order[gone]])
        return idle[order[single & ~gone]]

    # ------------------------------------------------------------ durable form

    def closed_keys(self, nodes: Int64s) -> pa.RecordBatch:
        """Keys of these nodes, the times of their closings, and whether these are effective, as rows."""
        lists = self.lists.lists
        facts = [pa.array(lists.closing[nodes]), pa.array(lists.mark[nodes] >= kernel.CLOSED)]
        columns = [*self.keys_of(nodes).columns, *facts]
        return pa.record_batch(columns, names=[*self.spec.key, "closed at", "effective"])

    def keys_of(self, nodes: Int64s) -> pa.RecordBatch:
        """Keys of these nodes, as rows."""
        lists = self.lists.lists
        if len(self.kinds) == 1 and (pt.is_string(self.kinds[0]) or pt.is_binary(self.kinds[0])):
            columns = [_texts(lists.arena, lists.at[nodes], lists.length[nodes]).cast(self.kinds[0])]
        else:
            columns = decode(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes], self.kinds)
        return pa.record_batch(columns, names=list(self.spec.key))

    def deltas(self, known: int) -> list[tuple[pa.RecordBatch, bool]]:
        """Closings since the last time, or all of them where these stand in many pieces or some were forgotten."""
        nodes, self.fresh = _distinct(self.fresh, self.lists.keys), np.empty(0, np.int64)
        if self.rewrite or (known >= MOST_PIECES and nodes.size):
            self.rewrite = False
            return [(self.closed_keys(self.lists.marked()), True)]
        return [(self.closed_keys(nodes), False)] if nodes.size else []

    def replay(self, rows: pa.RecordBatch) -> None:
        """Take closings up again."""
        count = len(self.kinds)
        keys = encode(rows.columns[:count])
        times = rows.column(count).to_numpy(zero_copy_only=False).copy()
        which = np.arange(rows.num_rows)
        self.lists.close(which, times, keys)
        self.filter.reset()
        nodes, effective = self.lists.nodes_of(which, keys), np.asarray(rows.column(count + 1))
        marks = self.lists.lists.mark
        marks[nodes[effective]] = np.maximum(marks[nodes[effective]], kernel.CLOSED)
        pending = np.union1d(self.pending_nodes, nodes)
        self.pending_nodes = pending[marks[pending] == kernel.PENDING]

    def all_effective(self, progress: int) -> Effect:
        """Everything that is effective, after all was read again."""
        self.take_effect(progress)
        nodes = self.lists.marked()
        nodes = nodes[self.lists.lists.mark[nodes] >= kernel.CLOSED]
        return Effect(nodes, _intervals(self.ranges) + _intervals(self.merged))

    def notes(self) -> dict[str, Any]:
        """What is remembered beside single closings, as JSON."""
        return {
            "ranges": [[to_json(low), to_json(high), time] for low, high, time in _intervals(self.ranges)],
            **({"merged": _intervals(self.merged)} if self.merged else {}),
            "pending": [[to_json(low), to_json(high), time] for low, high, time in self.pending_ranges],
            "forgotten": self.forgotten,
            "unmerged": self.unmerged,
            "lies": self.lies,
        }

    def recall(self, notes: dict[str, Any]) -> None:
        self.filter.reset()
        merged = notes.get("merged", [])
        if self.ranges is not None or notes["ranges"] or notes["pending"] or merged:
            self.ranges, self.merged = Ranges(self.order()), Ranges(self.order())
            for low, high, time in notes["ranges"]:
                self.ranges.add(from_json(low), from_json(high), time)
            for low, high, time in merged:
                self.merged.add(low, high, time)
        self.pending_ranges = [(from_json(low), from_json(high), time) for low, high, time in notes["pending"]]
        self.forgotten, self.lies, self.unmerged = notes["forgotten"], notes["lies"], notes.get("unmerged", 0)
        lists = self.lists.lists
        top = int(lists.meta[kernel.NODE_TOP])
        self.pending_nodes = np.flatnonzero((lists.mark[:top] == kernel.PENDING) & (lists.length[:top] != kernel.NIL))


def _intervals(ranges: Ranges | None) -> list[tuple[Any, Any, int]]:
    return [] if ranges is None else list(zip(ranges.low, ranges.high, ranges.time, strict=True))


def _distinct(nodes: Int64s, of: int) -> Int64s:
    """The same nodes, each once, in order; where they are a good part of all there are, without sorting them."""
    if nodes.size * 256 < of:
        return np.unique(nodes)
    there = np.zeros(int(nodes.max(initial=-1)) + 1, np.bool_)
    there[nodes] = True
    return np.flatnonzero(there)


def _texts(data: npt.NDArray[np.uint8], starts: Int64s, lengths: npt.NDArray[np.int32]) -> pa.Array:
    """Pieces of `data` as one binary column."""
    offsets = np.zeros(starts.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    out = np.empty(int(offsets[-1]), np.uint8)
    punctuating.gather(data, starts, lengths, out)
    return pa.Array.from_buffers(pa.large_binary(), starts.size, [None, pa.py_buffer(offsets), pa.py_buffer(out)])
