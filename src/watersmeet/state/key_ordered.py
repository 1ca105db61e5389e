"""The state of a stream that evicts tuples by their keys, not by their times."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import BEFORE_ALL, micros
from watersmeet.model.queries import StreamSpec
from watersmeet.state.key_order import Order
from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.segments import Segment
from watersmeet.state.stream_state import StreamState
from watersmeet.state.value_lists import ValueLists

#: The least rank, the largest one, and one above all ranks: no tuple has to stay.
FIRST = int(np.iinfo(np.int64).min)
LAST = int(np.iinfo(np.int64).max)
BEYOND = LAST + 1


class KeyOrderedState(StreamState[ValueLists]):
    """The state of a stream that uses the rank of a key in place of the time: tuples with low ranks are old."""

    def __init__(self, spec: StreamSpec, lists: ValueLists) -> None:
        super().__init__(spec, lists)
        self.key_order = Order.of([spec.schema.field(spec.key[0]).type])

    def ranks(self, keys: Keys) -> Int64s:
        ranks: Int64s = self.key_order.of_keys(keys)
        return ranks

    def latest(self, nodes: Int64s) -> Int64s:
        """The largest event time among the tuples of each of these keys; it is read from the rows."""
        lists = self.lists.lists
        out = np.full(nodes.size, BEFORE_ALL, np.int64)
        slots = lists.newest[nodes].astype(np.int64)
        while (there := np.flatnonzero(slots != kernel.NIL)).size:
            time = self.take(slots[there], [self.spec.time]).column(0).combine_chunks()
            out[there] = np.maximum(out[there], micros(time))
            slots[there] = lists.older[slots[there]]
        return out

    def restore(self, segment: Segment, alive_from: int) -> None:
        _, keys = self.read(segment.rows)
        ranks = self.ranks(keys)
        which = np.flatnonzero(ranks >= alive_from)
        number = self.segments.add(segment, which.size)
        self.lists.insert(which, ranks, keys, number)

    def expire_before(self, time: int) -> int:
        if time <= LAST:
            return super().expire_before(time)
        gone = self.lists.living()
        self.lists.discard(gone, self.segments.left)
        return int(gone.size)
