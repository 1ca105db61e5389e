"""The nodes of a stream in the order of their keys, so that a range finds what it closes without a scan.

One sorted run of all nodes known, and beside it those born since; the run is merged anew when the others are a quarter
of it, which costs O(log) comparisons per node over its life. A node that is free, or has another key now, is
recognised by its rank and skipped.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from watersmeet.kernels import value_lists as kernel
from watersmeet.state.key_order import Order, Orders
from watersmeet.state.keys import Int64s
from watersmeet.state.value_lists import ValueLists


class OrderedIndex:
    """Over the nodes of `lists`; from its creation on, the lists collect new nodes for it."""

    def __init__(self, lists: ValueLists, order: Order) -> None:
        self.lists = lists
        self.order = order
        self._look_anew()

    def between(self, low: Any, high: Any) -> Int64s:
        """Nodes whose keys lie in the interval (ends as `Order.interval` gives them)."""
        self._absorb()
        found = [nodes[self.order.cut(ranks, low, high)] for ranks, nodes in (self.run, self.young)]
        nodes = np.unique(np.concatenate(found))
        nodes = nodes[self.lists.lists.length[nodes] != kernel.NIL]
        found_now: Int64s = nodes[self.order.inside(self.ranks(nodes), low, high)]  # by the keys that they have now
        return found_now

    def ranks(self, nodes: Int64s) -> Orders:
        lists = self.lists.lists
        return self.order.of_parts(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes])

    def _look_anew(self) -> None:
        lists = self.lists.lists
        top = int(lists.meta[kernel.NODE_TOP])
        self._run(np.flatnonzero(lists.length[:top] != kernel.NIL))
        lists.meta[kernel.BORN] = 0

    def _absorb(self) -> None:
        meta = self.lists.lists.meta
        if meta[kernel.BORN] == kernel.NIL:  # there are so many new nodes that the lists have stopped collecting them
            self._look_anew()
            return
        born = np.unique(self.lists.lists.born[: meta[kernel.BORN]].astype(np.int64))
        if born.size * 4 > self.run[1].size + 1024:
            both = np.unique(np.concatenate([self.run[1], born]))
            self._run(both[self.lists.lists.length[both] != kernel.NIL])
            meta[kernel.BORN] = 0
        else:
            self.young = self._sorted(born)

    def _run(self, nodes: Int64s) -> None:
        self.run = self._sorted(nodes)
        self.young = self._sorted(np.empty(0, np.int64))

    def _sorted(self, nodes: Int64s) -> tuple[Orders, Int64s]:
        nodes = nodes[self.lists.lists.length[nodes] != kernel.NIL]
        ranks = self.ranks(nodes)
        order = np.argsort(ranks, kind="stable")
        return ranks[order], nodes[order]
