"""The punctuation set of a stream: the keys that it has closed, how many of them stay known, and its constraints."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.model.punctuations import BatchPunctuations
from watersmeet.model.queries import StreamSpec
from watersmeet.state.durable.parts import Change, DurablePart
from watersmeet.state.key_order import Ranges, from_json, to_json
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.punctuations.bounds import Retention
from watersmeet.state.punctuations.closed_keys import ClosedKeys, Effect, Latest
from watersmeet.state.punctuations.constraints import Constraints
from watersmeet.state.stream_state import Arrivals
from watersmeet.state.value_lists import ValueLists


class PunctuationSet(DurablePart):
    """What stream number `stream` has declared by punctuations and constraints, as closed keys."""

    kind = "closed_keys"

    def __init__(
        self, stream: int, spec: StreamSpec, lists: ValueLists, latest: Latest | None = None, *, may_drop: bool = True
    ) -> None:
        self.stream = stream
        self.keys = ClosedKeys(spec, lists, latest)
        self.retention = Retention(self.keys, may_drop=may_drop)
        self.constraints = Constraints(self.keys)

    def admit(self, arrivals: Arrivals, batch: Batch, watermark: int) -> Bools:
        """Add what a batch declares; returns which of its tuples are violations."""
        # punctuations of a join's output stand behind the rows of the batch, and so do those without a time
        behind = self.keys.spec.upstream_shards > 0 or self.keys.spec.timeless
        if not behind:
            self.add(batch, watermark)
        violations = self.keys.violations(arrivals.which, arrivals.times, arrivals.keys)
        if behind:
            self.add(batch, watermark)
        if self.keys.spec.constraints:
            violations |= self.constraints.add_tuples(arrivals, ~violations, batch, watermark)
        return violations

    def add(self, batch: Batch, watermark: int) -> None:
        """Add a batch's punctuations as pending, and what its largest key closes."""
        if batch.punctuations is not None:
            self.add_punctuations(batch.punctuations)
        self.constraints.add_largest(batch, watermark)

    def add_punctuations(self, punctuations: BatchPunctuations) -> None:
        """Add punctuations as pending."""
        if punctuations.keys.num_rows:
            self.keys.close(self.keys.encoded(punctuations.keys.columns), self.keys.since(punctuations.times))
        for pattern, time in punctuations.ranges:
            interval = self.keys.order().interval(pattern)
            if interval is not None:
                since = BEFORE_ALL if self.keys.spec.timeless else time
                self.keys.count_contradicted(self.keys.index.between(*interval), since)
                self.keys.pending_ranges.append((*interval, since))

    # ------------------------------------------------------------ the durable form

    def changes(self, rewrite: bool) -> Change | None:
        """Keys closed since the last time, or all of them where some were merged or dropped."""
        keys = self.keys
        nodes, keys.fresh = _distinct(keys.fresh, keys.lists.keys), np.empty(0, np.int64)
        if self.retention.rewrite or (rewrite and nodes.size):
            self.retention.rewrite = False
            return Change([keys.rows_of(keys.lists.marked())], whole=True)
        return Change([keys.rows_of(nodes)]) if nodes.size else None

    def replay(self, rows: pa.RecordBatch) -> None:
        """Close keys as stored."""
        lists, count = self.keys.lists, len(self.keys.kinds)
        keys = self.keys.encoded(rows.columns[:count])
        times = rows.column(count).to_numpy(zero_copy_only=False).copy()
        which = np.arange(rows.num_rows)
        lists.close(which, times, keys)
        self.keys.filter.reset()
        nodes, effective = lists.nodes_of(which, keys), np.asarray(rows.column(count + 1))
        marks = lists.lists.mark
        marks[nodes[effective]] = np.maximum(marks[nodes[effective]], kernel.CLOSED)
        pending = np.union1d(self.keys.pending_nodes, nodes)
        self.keys.pending_nodes = pending[marks[pending] == kernel.PENDING]

    def all_effective(self, watermark: int) -> Effect:
        """Everything that is effective, after all segments were read."""
        keys = self.keys
        keys.take_effect(watermark)
        nodes = keys.lists.marked()
        nodes = nodes[keys.lists.lists.mark[nodes] >= kernel.CLOSED]
        return Effect(nodes, _intervals(keys.ranges) + _intervals(keys.merged))

    def metadata(self) -> dict[str, Any]:
        """All but the single closed keys."""
        keys = self.keys
        return {
            "ranges": [[to_json(low), to_json(high), time] for low, high, time in _intervals(keys.ranges)],
            **({"merged": _intervals(keys.merged)} if keys.merged else {}),
            "pending": [[to_json(low), to_json(high), time] for low, high, time in keys.pending_ranges],
            "dropped": self.retention.dropped,
            "unmerged": self.retention.unmerged,
            "contradicted": keys.contradicted,
        } | self.constraints.metadata()

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        keys = self.keys
        keys.filter.reset()
        merged = metadata.get("merged", [])
        if keys.ranges is not None or metadata["ranges"] or metadata["pending"] or merged:
            keys.ranges, keys.merged = Ranges(keys.order()), Ranges(keys.order())
            for low, high, time in metadata["ranges"]:
                keys.ranges.add(from_json(low), from_json(high), time)
            for low, high, time in merged:
                keys.merged.add(low, high, time)
        keys.pending_ranges = [(from_json(low), from_json(high), time) for low, high, time in metadata["pending"]]
        keys.contradicted = metadata["contradicted"]
        self.retention.dropped, self.retention.unmerged = metadata["dropped"], metadata["unmerged"]
        lists = keys.lists.lists
        top = int(lists.meta[kernel.NODE_TOP])
        keys.pending_nodes = np.flatnonzero((lists.mark[:top] == kernel.PENDING) & (lists.length[:top] != kernel.NIL))
        self.constraints.load_metadata(metadata)


def _intervals(ranges: Ranges | None) -> list[tuple[Any, Any, int]]:
    return [] if ranges is None else list(zip(ranges.low, ranges.high, ranges.time, strict=True))


def _distinct(nodes: Int64s, of: int) -> Int64s:
    """The same nodes, each once, in order; where they are a good part of all there are, without sorting them."""
    if nodes.size * 256 < of:
        return np.unique(nodes)
    there = np.zeros(int(nodes.max(initial=-1)) + 1, np.bool_)
    there[nodes] = True
    return np.flatnonzero(there)
