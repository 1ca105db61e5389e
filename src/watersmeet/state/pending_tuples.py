"""Tuples that have arrived and do not take part yet (see `RunningMultiway.horizon`)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.stream_state import StreamState
from watersmeet.state.value_lists import ValueLists

#: Stands for a missing key among pending tuples; no key has these bytes.
NO_KEY = bytes.fromhex("77617465726d6565 6e6f206b6579 a55a c33c f00d")


class PendingState(StreamState[ValueLists]):
    """Tuples of a stream that wait for the horizon. Those without a key, which count as well, get the key `NO_KEY`."""

    def read(self, rows: pa.RecordBatch) -> tuple[Int64s, Keys]:
        times, keys = super().read(rows)
        if keys.valid.all():
            return times, keys
        lengths = np.where(keys.valid, np.diff(keys.offsets), len(NO_KEY))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        data = np.empty(int(offsets[-1]), np.uint8)
        own = np.repeat(keys.valid, lengths)
        data[own] = keys.data[np.repeat(keys.valid, np.diff(keys.offsets))]
        data[~own] = np.tile(np.frombuffer(NO_KEY, np.uint8), int(np.count_nonzero(~keys.valid)))
        return times, Keys(np.where(keys.valid, keys.words, 0), data, offsets, keys.valid)

    def release(self, horizon: int) -> list[pa.RecordBatch]:
        """Remove the tuples before the horizon; returns their rows."""
        slots, _ = self.lists.expire(horizon, self.segments.left)
        return self.take(slots, self.spec.schema.names).to_batches() if slots.size else []

    def nodes(self) -> Int64s:
        """Nodes of the keys that have pending tuples."""
        nodes: Int64s = np.unique(self.lists.lists.node[self.lists.living()]).astype(np.int64)
        none = np.zeros(1, np.int64)
        no_key = Keys(none, np.frombuffer(NO_KEY, np.uint8).copy(), np.array([0, len(NO_KEY)]), none == 0)
        keyed: Int64s = nodes[nodes != self.lists.nodes_of(none, no_key)]
        return keyed
