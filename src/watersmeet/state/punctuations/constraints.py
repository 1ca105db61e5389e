"""Constraints of a stream (unique, clustered, ordered): which keys its tuples themselves close."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch, micros
from watersmeet.model.punctuations import Clustered, Ordered, Unique
from watersmeet.state.key_order import from_json, to_json
from watersmeet.state.keys import Bools, Int64s, Keys, encode
from watersmeet.state.punctuations.closed_keys import ClosedKeys
from watersmeet.state.punctuations.clusters import Closers, Clusters
from watersmeet.state.row_order import row_ranks, value_ranks
from watersmeet.state.segments import pack
from watersmeet.state.stream_state import Arrivals


class Constraints:
    """Follows the constraints of one stream and closes keys by them."""

    def __init__(self, keys: ClosedKeys) -> None:
        self.keys = keys
        self.newest = BEFORE_ALL  # largest time of a tuple, and its keys
        self.newest_keys: pa.RecordBatch | None = None
        self.open_keys: pa.RecordBatch | None = None  # this shard's keys whose clusters go on, and since when they do
        self.open_since: Int64s = np.empty(0, np.int64)
        self.largest: Any = None  # rank of the largest key seen

    def add_largest(self, batch: Batch, watermark: int) -> None:
        """Close keys of an ordered stream: each key shown closes those below it. Late ones close nothing.

        In a stream in order all ranges closed before this batch are effective, so that only keys larger than all
        before close more.
        """
        for constraint in self.keys.spec.constraints:
            if not isinstance(constraint, Ordered) or batch.largest is None:
                continue
            column = batch.largest.keys.column(0)
            which, since = batch.largest.rises(self.keys.order().ranks(column), watermark)
            if self.keys.spec.timeless:
                which, since = which[-1:], self.keys.since(since[-1:])
            order_ranks = self.keys.order().of_keys(encode([column.take(pa.array(which))]))
            if self.keys.spec.in_order and self.largest is not None:
                more = np.fromiter((key_rank > self.largest for key_rank in order_ranks), np.bool_, len(order_ranks))
                which, since, order_ranks = which[more], since[more], order_ranks[more]
            if not which.size:
                continue
            intervals = self.keys.order().below_each(column.take(pa.array(which)), constraint.slack)
            self.keys.pending_ranges += [
                (*i, time) for i, time in zip(intervals, since.tolist(), strict=True) if i is not None
            ]
            last = int(order_ranks[-1]) if self.keys.order().words else order_ranks[-1]
            self.largest = last if self.largest is None else max(self.largest, last)

    def add_tuples(self, arrivals: Arrivals, valid: Bools, batch: Batch, watermark: int) -> Bools:
        """Close keys of a unique or clustered stream by its tuples, of which `valid` have no violation so far.

        Returns which of them repeat the key of a unique stream (of equal keys the first by (ts, the stream's `order_by`
        column if it has one, row bytes) stays), and which come after the end of their cluster.
        """
        violations = np.zeros(arrivals.which.size, np.bool_)
        for constraint in self.keys.spec.constraints:
            match constraint:
                case Unique():
                    violations |= self._repeated(arrivals, valid)
                case Clustered():
                    violations |= self._end_clusters(arrivals, valid & ~violations, batch, watermark)
                case Ordered():
                    continue  # see `add_largest`
        return violations

    def _repeated(self, arrivals: Arrivals, valid: Bools) -> Bools:
        which, keys = arrivals.which[valid], arrivals.keys
        _, inverse, counts = np.unique(keys.words[which], return_inverse=True, return_counts=True)
        twins = counts[inverse] > 1
        rank = np.zeros(which.size, np.int64)
        rows = arrivals.rows.take(pa.array(which[twins]))
        rank[twins] = row_ranks(rows)
        chosen = np.zeros(which.size, np.int64)
        if self.keys.spec.order_by is not None:
            chosen[twins] = value_ranks(rows.column(self.keys.spec.order_by))
        order = np.lexsort((rank, chosen, arrivals.times[which]))
        self.keys.lists.close(which[order], arrivals.times, keys)
        self.keys.filter.add(keys.words[which])
        nodes, first = np.unique(self.keys.lists.nodes_of(which[order], keys), return_index=True)
        self.keys.pending_nodes = self.keys.pending_nodes[~np.isin(self.keys.pending_nodes, nodes)]
        self.keys.closed_now = np.concatenate([self.keys.closed_now, nodes])
        self.keys.fresh = np.concatenate([self.keys.fresh, nodes])
        repeated = np.ones(which.size, np.bool_)
        repeated[order[first]] = False
        out = np.zeros(arrivals.which.size, np.bool_)
        out[valid] = repeated
        return out

    def _end_clusters(self, arrivals: Arrivals, valid: Bools, batch: Batch, watermark: int) -> Bools:
        """Close keys whose clusters have ended; returns which tuples come after the end of theirs."""
        before, now = [], []
        if self.newest_keys is not None:
            before.append(Closers.at(self.newest_keys, self.newest))
        if batch.newest is not None and batch.newest[1] >= watermark:
            keys, time = batch.newest
            now.append(Closers.at(keys, time))
            if batch.different is not None and not self.keys.spec.timeless:
                now.append(Closers.within(batch.different, watermark, time))
            if time >= self.newest:
                again = [self.newest_keys] if time == self.newest and self.newest_keys is not None else []
                self.newest, self.newest_keys = time, _different([keys, *again])
        out = np.zeros(arrivals.which.size, np.bool_)
        if self.newest_keys is None:
            return out  # all that came was late
        which = arrivals.which[valid]
        came = pa.record_batch(
            [arrivals.rows.column(k).take(pa.array(which)) for k in self.keys.spec.key], self.keys.spec.key
        )
        known = came if self.open_keys is None else _joined([came, self.open_keys])
        clusters = Clusters.of(known, np.concatenate([arrivals.times[which], self.open_since]), [before, now])
        ended = clusters.ends < AFTER_ALL
        last = np.flatnonzero(clusters.ends == self.newest)  # more of the newest time may come, of all its keys
        ended[last] = ~_in(clusters.keys.take(pa.array(last)), self.newest_keys)
        self.keys.close(encode(clusters.keys.filter(pa.array(ended)).columns), self.keys.since(clusters.ends[ended]))
        self.open_keys, self.open_since = clusters.keys.filter(pa.array(~ended)), clusters.begins[~ended]
        if not self.keys.spec.timeless:
            out[valid] = arrivals.times[which] > clusters.ends_of_each[: which.size]
        return out

    def metadata(self) -> dict[str, Any]:
        return {
            "newest": self.newest,
            "newest_keys": packed(self.newest_keys),
            "open_keys": packed(self._open()),
            "largest": to_json(self.largest),
        }

    def _open(self) -> pa.RecordBatch | None:
        keys = self.open_keys
        return None if keys is None else keys.append_column("since", pa.array(self.open_since))

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        self.newest, self.largest = metadata["newest"], from_json(metadata["largest"])
        self.newest_keys, self.open_keys = unpacked(metadata["newest_keys"]), unpacked(metadata["open_keys"])
        if self.open_keys is not None:
            self.open_since = np.full(self.open_keys.num_rows, self.newest, np.int64)
            if self.open_keys.num_columns > len(self.keys.spec.key):  # else it was written before these were stored
                self.open_since = micros(self.open_keys.column(len(self.keys.spec.key)))
            self.open_keys = self.open_keys.select(list(range(len(self.keys.spec.key))))


def _in(rows: pa.RecordBatch, others: pa.RecordBatch) -> Bools:
    """Which of these keys stand among the others, of which there are few."""
    keys, few = encode(rows.columns), encode(others.columns)
    have = {_exact(few, i) for i in range(len(few))}
    out = np.isin(keys.words, few.words)
    for i in np.flatnonzero(out).tolist():
        out[i] = _exact(keys, i) in have
    return out


def _different(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Different keys among these, of which there are few."""
    rows = _joined(parts)
    keys = encode(rows.columns)
    first = {_exact(keys, i): i for i in reversed(range(len(keys)))}
    return rows.take(pa.array(sorted(first.values()), pa.int64()))


def _joined(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    return pa.concat_batches(parts) if len(parts) > 1 else parts[0]


def _exact(keys: Keys, i: int) -> tuple[int, bytes]:
    return int(keys.words[i]), keys.data[keys.offsets[i] : keys.offsets[i + 1]].tobytes()


def packed(rows: pa.RecordBatch | None) -> str | None:
    return None if rows is None else base64.b64encode(pack(rows)).decode()


def unpacked(text: str | None) -> pa.RecordBatch | None:
    if text is None:
        return None
    try:
        rows = pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()
        rows.validate(full=True)  # as of segments
    except (OSError, pa.ArrowMemoryError) as error:  # raised by Arrow for other bytes
        raise ValueError(f"no Arrow stream: {error}") from error
    return rows
