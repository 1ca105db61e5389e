"""What one stream has promised: keys and ranges of keys that it will not bring any more.

A promise made at event time τ is *pending* while tuples with ts <= τ may still come, and *effective* from then on.
Single keys are marks on the nodes of the stream's value lists, ranges stand in `Ranges`. Keys of which nothing is
stored merge into ranges where they are neighbours; beyond a bound the oldest are forgotten, which is safe (a later
tuple of such a key is stored and leaves by its window) and counted.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError, StateError
from watersmeet.kernels import closings as punctuating
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.punctuations import Closings, Clustered, Ordered, Unique
from watersmeet.model.queries import StreamSpec
from watersmeet.state.closed_filter import ClosedFilter
from watersmeet.state.keys import Int64s, Keys, decode, encode
from watersmeet.state.order import ABOVE, Order, Ranges
from watersmeet.state.ordered_index import OrderedIndex
from watersmeet.state.segments import pack
from watersmeet.state.stream_state import Arrivals
from watersmeet.state.value_lists import ValueLists

#: Single keys that a stream may have closed and be remembered for, per shard.
REMEMBERED = 1 << 20
#: Ranges likewise.
REMEMBERED_RANGES = 1 << 14
#: Durable closings are written anew when they have come to stand in so many segments.
MOST_PIECES = 32

Bools = npt.NDArray[np.bool_]


@dataclass(slots=True)
class Effect:
    """Promises that became effective: nodes of the stream's own lists, and intervals of its key's order."""

    nodes: Int64s
    intervals: list[tuple[Any, Any, int]] = field(default_factory=list)  # low, high, time


class Promises:
    """The closings of one stream, over its value lists."""

    def __init__(self, spec: StreamSpec, lists: ValueLists, *, forgets: bool = True) -> None:
        self.spec = spec
        self.lists = lists
        self.filter = ClosedFilter(lists)
        self.forgets = forgets  # beyond the bounds; else it stops there
        self.kinds = [spec.schema.field(k).type for k in spec.key]
        self.pending_nodes: Int64s = np.empty(0, np.int64)
        self.pending_ranges: list[tuple[Any, Any, int]] = []
        self.ranges: Ranges | None = None
        self.forgotten = 0
        self.lies = 0  # promises that came after a tuple which breaks them
        self.fresh: Int64s = np.empty(0, np.int64)  # single closings to be made durable
        self.rewrite = False  # or all of them, because some were merged or forgotten
        self.closed_now: Int64s = np.empty(0, np.int64)  # by unique tuples, in this batch
        self.newest = BEFORE_ALL  # largest time of a tuple, its keys, and those of them that are this shard's
        self.newest_keys: pa.RecordBatch | None = None
        self.open_keys: pa.RecordBatch | None = None
        self.largest: Any = None  # largest key seen, as a place in the order
        self._index: OrderedIndex | None = None

    # ------------------------------------------------------------ hearing

    def admit(self, arrivals: Arrivals, batch: Batch, progress: int) -> Bools:
        """Take down what a batch promises; tells which of its tuples come against the stream's word."""
        told = self.spec.tellers > 0  # what a join says of its output stands behind the rows of the batch
        if batch.closings is not None and not told:
            self.hear(batch.closings)
        self.hear_largest(batch, progress)
        broken = self.broken(arrivals.which, arrivals.times, arrivals.keys)
        if batch.closings is not None and told:
            self.hear(batch.closings)
        return broken | self.hear_tuples(arrivals, ~broken, batch, progress)

    def hear(self, closings: Closings) -> None:
        """Take promises down as pending."""
        if closings.keys.num_rows:
            self.close(encode(closings.keys.columns), closings.times)
        for pattern, time in closings.ranges:
            interval = self.order().interval(pattern)
            if interval is not None:
                self._count_lies(self.index.between(*interval), time)
                self.pending_ranges.append((*interval, time))

    def close(self, keys: Keys, times: Int64s) -> None:
        """Close single keys at these times, but for those in a range that is closed already."""
        if self.ranges is not None and len(self.ranges):
            open_ = ~self.ranges.holds(self.order().of_keys(keys))
            keys = Keys(keys.words, keys.data, keys.offsets, keys.valid & open_)
        nodes, sooner = self.lists.close(np.flatnonzero(keys.valid), times, keys)
        self.filter.note(keys.words)
        self._count_lies(nodes, self.lists.lists.closing[nodes])
        self.pending_nodes = np.concatenate([self.pending_nodes, nodes])
        self.fresh = np.concatenate([self.fresh, nodes, sooner])

    def _count_lies(self, nodes: Int64s, times: Int64s | int) -> None:
        """Of keys that are closed at these times, those of which a later tuple is stored."""
        newest = self.lists.lists.newest[nodes]
        self.lies += int(np.count_nonzero((newest >= 0) & (self.lists.lists.time[newest] > times)))

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
                    self.pending_ranges.append((*interval, time))

    def hear_tuples(self, arrivals: Arrivals, honest: Bools, batch: Batch, progress: int) -> Bools:
        """What the tuples themselves promise, on a stream that is unique or clustered.

        Tells which of them repeat the key of a unique stream: of equal keys the first by (ts, row bytes) stays.
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
        rank[twins] = row_ranks(arrivals.rows.take(pa.array(which[twins])))
        order = np.lexsort((rank, arrivals.times[which]))
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
        self.close(encode(ended.columns), np.full(ended.num_rows, self.newest, np.int64))

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
            some = self.filter.suspects(which, keys)
            nodes = self.lists.nodes_of(which[some], keys)
            marks = self.lists.marks(nodes)
            after = times[which[some]] > self.lists.lists.closing[nodes]
            out[some] = (marks >= kernel.CLOSED) | ((marks == kernel.PENDING) & after)
        if self.ranges is not None and (len(self.ranges) or self.pending_ranges):
            places = self.order().of_keys(keys)[which]
            out |= self.ranges.holds(places)
            for low, high, time in self.pending_ranges:
                out |= self.order().inside(places, low, high) & (times[which] > time)
        return out

    def time_of(self, keys: Keys) -> int | None:
        """When the first of these keys was closed."""
        node = int(self.lists.nodes_of(np.zeros(1, np.int64), keys)[0])
        if node != kernel.NIL and self.lists.lists.mark[node] != kernel.OPEN:
            return int(self.lists.lists.closing[node])
        if self.ranges is None:
            return None
        place = self.order().of_keys(keys)[:1]
        at = int(self.ranges.which(place)[0]) if len(self.ranges) else -1
        waiting = (t for low, high, t in self.pending_ranges if self.order().inside(place, low, high)[0])
        return self.ranges.time[at] if at >= 0 else next(waiting, None)

    def closed(self, which: Int64s, keys: Keys) -> Bools:
        """Which of these keys the stream will not bring any more."""
        out = np.zeros(which.size, np.bool_)
        if self.lists.closings:
            some = self.filter.suspects(which, keys)
            out[some] = self.lists.marks(self.lists.nodes_of(which[some], keys)) >= kernel.CLOSED
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
        nodes, self.closed_now = np.concatenate([nodes, self.closed_now]), np.empty(0, np.int64)
        ready = [r for r in self.pending_ranges if r[2] <= reached]
        self.pending_ranges = [r for r in self.pending_ranges if r[2] > reached]
        effect = Effect(nodes)
        for low, high, time in ready:
            assert self.ranges is not None, "a pending range has an order"
            effect.intervals += [(a, b, time) for a, b in self.ranges.gaps(low, high)]
            self.ranges.add(low, high, time)
        return effect

    def mark_inside(self, effect: Effect) -> None:
        """Mark the keys that are stored, the batch's own included, and lie in ranges that have just taken effect."""
        lists = self.lists.lists
        for low, high, time in effect.intervals:
            inside = self.index.between(low, high)
            inside = inside[lists.mark[inside] < kernel.CLOSED]
            lists.meta[kernel.CLOSINGS] += int(np.count_nonzero(lists.mark[inside] == kernel.OPEN))
            self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, inside)]
            lists.mark[inside] = kernel.CLOSED
            self.filter.note(lists.word[inside])
            lists.closing[inside] = time
            effect.nodes = np.concatenate([effect.nodes, inside])

    # ------------------------------------------------------------ forgetting

    def trim(self) -> bool:
        """Keep what is remembered within its bounds: first merge neighbours, then forget the oldest half.

        Tells whether anything was forgotten.
        """
        before = self.forgotten
        if self.lists.closings > REMEMBERED:
            self._trim_keys()
        if self.ranges is not None and len(self.ranges) > REMEMBERED_RANGES:
            self._must(self.forgets, f"{REMEMBERED_RANGES} ranges of keys")
            by_age = np.argsort(np.array(self.ranges.time), kind="stable").tolist()
            self.forgotten += len(by_age) // 2
            self.ranges.keep(sorted(by_age[len(by_age) // 2 :]))
            self.rewrite = True
        return self.forgotten > before

    def _trim_keys(self) -> None:
        self.filter.reset()
        lists = self.lists.lists
        nodes = self.lists.marked()
        idle = nodes[(lists.oldest[nodes] == kernel.NIL) & (lists.mark[nodes] >= kernel.CLOSED)]
        covered = self.closed_nodes(self.lists, idle)  # a range says it as well
        self.lists.forget(idle[covered])
        idle = idle[~covered]
        if len(self.kinds) == 1 and self._mergeable():
            idle = self._merge(idle)
        self.rewrite = True
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
        several = stops - starts > 1
        for a, b in zip(starts[several].tolist(), stops[several].tolist(), strict=True):
            times = self.lists.lists.closing[idle[a:b]]
            self.ranges.add(int(words[a]), int(words[b - 1]), int(times.max()))
            keep[a:b] = False
        self.lists.forget(idle[~keep])
        return idle[keep]

    def close_inside(self, keys: Keys, time: int) -> None:
        """Close single keys of a range just closed by themselves, as `mark_inside` does with those stored."""
        which = np.arange(len(keys))
        self.lists.close(which, np.full(len(keys), time, np.int64), keys)
        self.filter.note(keys.words)
        nodes = self.lists.nodes_of(which, keys)
        self.pending_nodes = self.pending_nodes[~np.isin(self.pending_nodes, nodes)]
        self.lists.lists.mark[nodes] = np.maximum(self.lists.lists.mark[nodes], kernel.CLOSED)

    def finished_parts(
        self, low: Any, high: Any, waiting: npt.NDArray[np.int64] | None = None
    ) -> list[tuple[Any, Any]]:
        """A range just closed, without the keys of which tuples are still held or waited for (and not announced)."""
        lists, words = self.lists.lists, self.order().words
        inside = self.index.between(low, high)
        held = inside[(lists.oldest[inside] >= 0) & (lists.mark[inside] < kernel.ANNOUNCED)]
        if waiting is not None:
            held = np.union1d(held, waiting)
        parts = []
        for place in np.sort(self.index.places(held)).tolist():
            parts.append((low, place - 1 if words else place))
            low = place + 1 if words else place + b"\0"
        parts.append((low, high))
        return [(a, b) for a, b in parts if (a <= b if words else a < b)]

    def closed_parts(self, low: Any, high: Any) -> list[tuple[Any, Any]]:
        """What this stream, too, has closed of a range that the other has."""
        r = self.ranges
        if r is None:
            return []
        parts = [(max(low, a), min(high, b)) for a, b in zip(r.low, r.high, strict=True)]
        return [(a, b) for a, b in parts if (a <= b if r.order.words else a < b)]

    # ------------------------------------------------------------ durable form

    def closed_keys(self, nodes: Int64s) -> pa.RecordBatch:
        """Keys of these nodes, the times of their closings, and whether these are effective, as rows."""
        lists = self.lists.lists
        if len(self.kinds) == 1 and (pt.is_string(self.kinds[0]) or pt.is_binary(self.kinds[0])):
            columns = [_texts(lists.arena, lists.at[nodes], lists.length[nodes]).cast(self.kinds[0])]
        else:
            columns = decode(lists.word[nodes], lists.arena, lists.at[nodes], lists.length[nodes], self.kinds)
        facts = [pa.array(lists.closing[nodes]), pa.array(lists.mark[nodes] >= kernel.CLOSED)]
        return pa.record_batch([*columns, *facts], names=[*self.spec.key, "closed at", "effective"])

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
        r = self.ranges
        return Effect(nodes, list(zip(r.low, r.high, r.time, strict=True)) if r is not None else [])

    def notes(self) -> dict[str, Any]:
        """What is remembered beside single closings, as JSON."""
        r = self.ranges
        ranges = list(zip(r.low, r.high, r.time, strict=True)) if r is not None else []
        return {
            "ranges": [[_json(low), _json(high), time] for low, high, time in ranges],
            "pending": [[_json(low), _json(high), time] for low, high, time in self.pending_ranges],
            "newest": self.newest,
            "newest_keys": _packed(self.newest_keys),
            "open_keys": _packed(self.open_keys),
            "largest": _json(self.largest),
            "forgotten": self.forgotten,
            "lies": self.lies,
        }

    def recall(self, notes: dict[str, Any]) -> None:
        self.filter.reset()
        if self.ranges is not None or notes["ranges"] or notes["pending"]:
            self.ranges = Ranges(self.order())
            for low, high, time in notes["ranges"]:
                self.ranges.add(_place(low), _place(high), time)
        self.pending_ranges = [(_place(low), _place(high), time) for low, high, time in notes["pending"]]
        self.newest, self.forgotten, self.lies = notes["newest"], notes["forgotten"], notes["lies"]
        self.newest_keys, self.open_keys = _unpacked(notes["newest_keys"]), _unpacked(notes["open_keys"])
        self.largest = _place(notes["largest"])
        lists = self.lists.lists
        top = int(lists.meta[kernel.NODE_TOP])
        self.pending_nodes = np.flatnonzero((lists.mark[:top] == kernel.PENDING) & (lists.length[:top] != kernel.NIL))


def _distinct(nodes: Int64s, of: int) -> Int64s:
    """The same nodes, each once, in order; where they are a good part of all there are, without sorting them."""
    if nodes.size * 8 < of:
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


def row_ranks(rows: pa.RecordBatch) -> Int64s:
    """Places of rows in the order of their bytes, equal rows alike: what breaks a tie of times."""
    keys = encode([_comparable(column) for column in rows.columns])
    if not keys.data.size:
        return np.unique(keys.words, return_inverse=True)[1]
    whole = keys.data.tobytes()
    texts = [whole[a:b] for a, b in zip(keys.offsets[:-1].tolist(), keys.offsets[1:].tolist(), strict=True)]
    places = {text: i for i, text in enumerate(sorted(set(texts)))}
    return np.array([places[text] for text in texts], np.int64)


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


def _json(place: Any) -> Any:
    if isinstance(place, bytes):
        return {"bytes": base64.b64encode(place).decode()}
    return {"above": True} if place is ABOVE else None if place is None else int(place)


def _place(value: Any) -> Any:
    if isinstance(value, dict):
        return ABOVE if "above" in value else base64.b64decode(value["bytes"])
    return value


def _packed(rows: pa.RecordBatch | None) -> str | None:
    return None if rows is None else base64.b64encode(pack(rows)).decode()


def _unpacked(text: str | None) -> pa.RecordBatch | None:
    return None if text is None else pa.ipc.open_stream(base64.b64decode(text)).read_next_batch()
