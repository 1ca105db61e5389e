"""Bounds on the punctuation set.

Keys of which nothing is stored merge into ranges where they are neighbours; beyond a bound the oldest are dropped,
which is safe (a later tuple of such a key is stored and expires with its window) and counted.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.errors import StateError
from watersmeet.kernels import value_lists as kernel
from watersmeet.state.key_order import Order
from watersmeet.state.keys import Int64s
from watersmeet.state.punctuations.closed_keys import ClosedKeys, Effect
from watersmeet.state.punctuations.neighbours import Mine, Runs

#: Single closed keys of a stream that are kept, per shard, at most.
MOST_KEYS = 1 << 20
#: Ranges likewise.
MOST_RANGES = 1 << 14
#: Neighbours are merged from so many single keys on, whenever there are twice as many as the last time and they are a
#: good part of all keys, which merging walks.
MERGED_FROM = 1 << 10
#: They are merged into ranges of at least so many keys; at the bound into ranges of any length.
LONG_RUN = 8


class Retention:
    """Keeps the closed keys of one stream within bounds; with `may_drop` drops those beyond, else fails."""

    def __init__(self, keys: ClosedKeys, *, may_drop: bool = True) -> None:
        self.keys = keys
        self.may_drop = may_drop
        self.mine: Mine | None = None  # which words are keys of this shard; None: all are
        self.unmerged = 0  # single closed keys that stayed when neighbours were last merged
        self.dropped = 0
        self.rewrite = False  # store all closed keys anew, because some were merged or dropped

    @property
    def size(self) -> int:
        """The size of the punctuation set: single closed keys, and ranges."""
        return self.keys.lists.closed_keys + sum(
            len(ranges) for ranges in (self.keys.ranges, self.keys.merged) if ranges is not None
        )

    # ------------------------------------------------------------ dropping closed keys

    def release(self, effect: Effect) -> None:
        """Drop single closed keys without stored tuples that a range covers."""
        if not self.keys.ranges:
            return  # keys in merged ranges have no marks any more
        lists = self.keys.lists.lists
        inside = [self.keys.index.between(low, high) for low, high, _ in effect.intervals]
        nodes = np.unique(np.concatenate([effect.nodes, *inside]))
        nodes = nodes[(lists.oldest[nodes] == kernel.NIL) & (lists.mark[nodes] >= kernel.CLOSED)]
        nodes = nodes[self.keys.closed_nodes(self.keys.lists, nodes)]
        self.keys.fresh = self.keys.fresh[~np.isin(self.keys.fresh, nodes)]
        self.keys.lists.reopen(nodes)

    def trim(self) -> bool:
        """Keep the punctuation set within its bounds: first merge neighbours, then drop the oldest half.

        Returns whether a closed key was dropped.
        """
        before = self.dropped
        if self.keys.lists.closed_keys > MOST_KEYS:
            self._trim_keys()
        elif self.keys.lists.closed_keys > max(MERGED_FROM, 2 * self.unmerged, self.keys.lists.keys // 4):
            self._merge_neighbours(LONG_RUN)
            self.unmerged = self.keys.lists.closed_keys
        for ranges in (self.keys.ranges, self.keys.merged):
            if ranges is not None and len(ranges) > MOST_RANGES:
                self._must(self.may_drop, f"{MOST_RANGES} ranges of keys")
                by_age = np.argsort(np.array(ranges.time), kind="stable").tolist()
                self.dropped += len(by_age) // 2
                ranges.keep(sorted(by_age[len(by_age) // 2 :]))
                self.rewrite = True
        return self.dropped > before

    def _merge_neighbours(self, at_least: int) -> Int64s:
        """Turn runs of at least so many neighbouring keys into ranges; returns the nodes without tuples that stay."""
        lists = self.keys.lists.lists
        nodes = self.keys.lists.marked()
        idle = nodes[(lists.oldest[nodes] == kernel.NIL) & (lists.mark[nodes] >= kernel.CLOSED)]
        covered = self.keys.closed_nodes(self.keys.lists, idle)  # also closed by a range
        self.keys.lists.reopen(idle[covered])
        idle = idle[~covered]
        self.rewrite = True
        return self._merge(idle, at_least) if len(self.keys.kinds) == 1 and self._mergeable() else idle

    def _trim_keys(self) -> None:
        lists = self.keys.lists.lists
        idle = self._merge_neighbours(2)
        self._must(
            self.may_drop or self.keys.lists.closed_keys <= MOST_KEYS, f"{MOST_KEYS} keys that do not merge into ranges"
        )
        if self.may_drop and self.keys.lists.closed_keys > MOST_KEYS * 3 // 4:
            oldest = idle[np.argsort(lists.closed_at[idle], kind="stable")][: max(1, MOST_KEYS // 2)]
            self.keys.lists.reopen(oldest)
            self.dropped += int(oldest.size)

    def _must(self, holds: bool, many: str) -> None:
        if not holds:
            raise StateError(
                f"stream `{self.keys.spec.name}` has closed more than {many}, and a join without a window must "
                "keep them all.",
                hint="give the streams a window, or close longer ranges of keys.",
            )

    def _mergeable(self) -> bool:
        order = Order(self.keys.kinds[0])
        return order.words and not pa.types.is_floating(self.keys.kinds[0])

    def _merge(self, idle: Int64s, at_least: int) -> Int64s:
        self.keys.order()
        assert self.keys.merged is not None
        lists, known = self.keys.lists.lists, self.keys.merged
        low = np.concatenate([lists.word[idle], np.array(known.low, np.int64)])
        high = np.concatenate([lists.word[idle], np.array(known.high, np.int64)])
        time = np.concatenate([lists.closed_at[idle], np.array(known.time, np.int64)])
        order = np.argsort(low)
        runs = Runs.of(low[order], high[order], time[order], self.mine)
        single = order < idle.size
        size = runs.stops - runs.starts
        ranged = np.add.reduceat(~single, runs.starts) > 0 if size.size else np.zeros(0, np.bool_)
        chosen = ranged | (size >= at_least)
        while np.count_nonzero(chosen) > MOST_RANGES // 2 and chosen[~ranged].any() and at_least > 2:
            at_least *= 2  # ranges cost more than marks: only long ones, if there are many
            chosen = ranged | (size >= at_least)
        gone = np.repeat(chosen, size) & single
        known.replace(*runs.united(chosen))
        self.keys.lists.reopen(idle[order[gone]])
        return idle[order[single & ~gone]]
