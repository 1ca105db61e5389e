"""What one stream has promised, in punctuations and by what is known of it: unique, clustered, ordered."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import ColumnError
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import BEFORE_ALL, Batch
from watersmeet.model.punctuations import Closings, Clustered, Ordered, Unique
from watersmeet.model.queries import StreamSpec
from watersmeet.state.closings import Bools, Latest
from watersmeet.state.keys import Int64s, Keys, encode
from watersmeet.state.order import Order, from_json, to_json
from watersmeet.state.remembered import RememberedKeys
from watersmeet.state.segments import pack
from watersmeet.state.stream_state import Arrivals
from watersmeet.state.value_lists import ValueLists


class Promises(RememberedKeys):
    """The promises of one stream, which become closings of keys."""

    def __init__(
        self, spec: StreamSpec, lists: ValueLists, latest: Latest | None = None, *, forgets: bool = True
    ) -> None:
        super().__init__(spec, lists, latest, forgets=forgets)
        self.newest = BEFORE_ALL  # largest time of a tuple, its keys, and those of them that are this shard's
        self.newest_keys: pa.RecordBatch | None = None
        self.open_keys: pa.RecordBatch | None = None
        self.largest: Any = None  # largest key seen, as a place in the order

    def admit(self, arrivals: Arrivals, batch: Batch, progress: int) -> Bools:
        """Take down what a batch promises; tells which of its tuples come against the stream's word."""
        # what a join says of its output stands behind the rows of the batch, and so does what has no time
        behind = self.spec.tellers > 0 or self.spec.timeless
        if not behind:
            self.hear(batch, progress)
        broken = self.broken(arrivals.which, arrivals.times, arrivals.keys)
        if behind:
            self.hear(batch, progress)
        return broken | self.hear_tuples(arrivals, ~broken, batch, progress)

    def hear(self, batch: Batch, progress: int) -> None:
        """Take promises down as pending; the largest key shown is one, too."""
        if batch.closings is not None:
            self.hear_closings(batch.closings)
        self.hear_largest(batch, progress)

    def hear_closings(self, closings: Closings) -> None:
        """Take punctuations down as pending."""
        if closings.keys.num_rows:
            self.close(encode(closings.keys.columns), self._since(closings.times))
        for pattern, time in closings.ranges:
            interval = self.order().interval(pattern)
            if interval is not None:
                since = BEFORE_ALL if self.spec.timeless else time
                self._count_lies(self.index.between(*interval), since)
                self.pending_ranges.append((*interval, since))

    def _since(self, times: Int64s) -> Int64s:
        """The times from which on promises hold: before all, where time orders nothing."""
        return np.full_like(times, BEFORE_ALL) if self.spec.timeless else times

    def hear_largest(self, batch: Batch, progress: int) -> None:
        """What the largest key shown promises, on a stream that is ordered; a late tuple promises nothing."""
        for promise in self.spec.promises:
            if not isinstance(promise, Ordered) or batch.largest is None or batch.largest[1] < progress:
                continue
            value, time = batch.largest
            place = self.order().place(value)
            if self.largest is None or place > self.largest:
                self.largest = place
                interval = self.order().below(value, promise.slack)
                if interval is not None:
                    self.pending_ranges.append((*interval, BEFORE_ALL if self.spec.timeless else time))

    def hear_tuples(self, arrivals: Arrivals, honest: Bools, batch: Batch, progress: int) -> Bools:
        """What the tuples themselves promise, on a stream that is unique or clustered.

        Tells which of them repeat the key of a unique stream: of equal keys the first by (ts, the stream's `order_by`
        column if it has one, row bytes) stays.
        """
        broken = np.zeros(arrivals.which.size, np.bool_)
        for promise in self.spec.promises:
            match promise:
                case Unique():
                    broken |= self._repeated(arrivals, honest)
                case Clustered():
                    self._end_clusters(arrivals, honest & ~broken, batch, progress)
                case Ordered():
                    continue  # see `hear_largest`
        return broken

    def _repeated(self, arrivals: Arrivals, honest: Bools) -> Bools:
        which, keys = arrivals.which[honest], arrivals.keys
        _, inverse, counts = np.unique(keys.words[which], return_inverse=True, return_counts=True)
        twins = counts[inverse] > 1
        rank = np.zeros(which.size, np.int64)
        rows = arrivals.rows.take(pa.array(which[twins]))
        rank[twins] = row_ranks(rows)
        chosen = np.zeros(which.size, np.int64)
        if self.spec.order_by is not None:
            chosen[twins] = value_ranks(rows.column(self.spec.order_by))
        order = np.lexsort((rank, chosen, arrivals.times[which]))
        self.lists.close(which[order], arrivals.times, keys)
        self.filter.note(keys.words[which])
        nodes, first = np.unique(self.lists.nodes_of(which[order], keys), return_index=True)
        self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, nodes)]
        self.lists.lists.mark[nodes] = kernel.CLOSED  # at once, whatever the delay
        self.closed_now = np.concatenate([self.closed_now, nodes])
        self.fresh = np.concatenate([self.fresh, nodes])
        repeated = np.ones(which.size, np.bool_)
        repeated[order[first]] = False
        out = np.zeros(arrivals.which.size, np.bool_)
        out[honest] = repeated
        return out

    def _end_clusters(self, arrivals: Arrivals, honest: Bools, batch: Batch, progress: int) -> None:
        """Close every key seen but those at the largest time of a tuple, known to all shards."""
        if batch.newest is not None and batch.newest[1] >= max(self.newest, progress):
            keys, time = batch.newest
            again = [self.newest_keys] if time == self.newest and self.newest_keys is not None else []
            self.newest, self.newest_keys = time, _different([keys, *again])
        if self.newest_keys is None:
            return  # all that came was late
        columns = [arrivals.rows.column(k).take(pa.array(arrivals.which[honest])) for k in self.spec.key]
        came = pa.record_batch(columns, names=list(self.spec.key))
        ours = _joined([came, *([self.open_keys] if self.open_keys is not None else [])])
        newest = _in(ours, self.newest_keys)
        self.open_keys = _different([ours.filter(pa.array(newest))])
        ended = ours.filter(pa.array(~newest))
        self.close(encode(ended.columns), self._since(np.full(ended.num_rows, self.newest, np.int64)))

    def notes(self) -> dict[str, Any]:
        return super().notes() | {
            "newest": self.newest,
            "newest_keys": packed(self.newest_keys),
            "open_keys": packed(self.open_keys),
            "largest": to_json(self.largest),
        }

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        self.newest, self.largest = notes["newest"], from_json(notes["largest"])
        self.newest_keys, self.open_keys = unpacked(notes["newest_keys"]), unpacked(notes["open_keys"])


def row_ranks(rows: pa.RecordBatch) -> Int64s:
    """Places of rows in the order of their bytes, equal rows alike: what breaks a tie of times."""
    keys = encode([_comparable(column) for column in rows.columns])
    if not keys.data.size:
        return np.unique(keys.words, return_inverse=True)[1]
    whole = keys.data.tobytes()
    texts = [whole[a:b] for a, b in zip(keys.offsets[:-1].tolist(), keys.offsets[1:].tolist(), strict=True)]
    places = {text: i for i, text in enumerate(sorted(set(texts)))}
    return np.array([places[text] for text in texts], np.int64)


def value_ranks(column: pa.Array) -> Int64s:
    """Places of values in Spark's ascending order: NULL first, NaN last."""
    keys = encode([column])
    places = Order(column.type).of_keys(keys)
    ranks: Int64s = np.full(len(keys), -1, np.int64)
    ranks[keys.valid] = np.unique(places[keys.valid], return_inverse=True)[1]
    return ranks


def _comparable(column: pa.Array) -> pa.Array:
    try:
        encode([column.slice(0, 0)])
    except ColumnError:  # a map, or something with maps in it
        return pa.array(map(repr, column.to_pylist()), pa.string())
    return column


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
        return pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()
    except (OSError, pa.ArrowMemoryError) as error:  # by which Arrow says that these bytes are none of its own
        raise ValueError(f"no Arrow stream: {error}") from error
