"""Time list and value lists of one stream (spec section 4), growing as needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import closed_keys as closed_keys
from watersmeet.kernels import value_lists as kernel
from watersmeet.state.arrays import AnyArray, Arrays, HeapArrays
from watersmeet.state.index import Int32s, by_time
from watersmeet.state.keys import Bools, Int64s, Keys

#: Pairs that one probe hands out at a time.
CHUNK = 1 << 18


_NONE = np.empty(0, np.int64)
#: Given to a probe that ignores closed keys.
UNASKED: Bools = np.empty(0, np.bool_)


class ValueLists:
    """All stored tuples of one stream, reachable by time and by key.

    Holds times, links and keys; a tuple's row stands in segment `segment[slot]` as row `row[slot]`.
    Insertion costs O(1) per tuple plus the disorder, a probe O(1) plus what it looks at, expiry O(1) per tuple.
    """

    def __init__(self, name: str = "", arrays: Arrays | None = None) -> None:
        self.name = name
        self.arrays = arrays or HeapArrays()
        self.looked_at = 0  # stored tuples that probes have looked at, ever
        found = {part: self.arrays.attach(f"{name}.{part}", kind) for part, kind in kernel.ARRAYS.items()}
        if found["meta"] is not None:
            self._parts: dict[str, AnyArray] = found  # type: ignore[assignment]  # a folder with one array has all
            self.lists = kernel.views(self._parts)
            self.lists.meta[kernel.BORN] = kernel.NIL  # an ordered index of another process is out of date
            return
        self._parts = {
            part: self.arrays.allocate(f"{name}.{part}", kernel.META if part == "meta" else 64, kind)
            for part, kind in kernel.ARRAYS.items()
        }
        self.lists = kernel.views(self._parts)
        kernel.clear(self.lists)

    def __len__(self) -> int:
        return int(self.lists.meta[kernel.LIVE])

    @property
    def keys(self) -> int:
        """Distinct keys that have a tuple or are closed."""
        return int(self.lists.meta[kernel.NODES])

    @property
    def slots(self) -> int:
        """Slots ever used; those beyond are untouched."""
        return int(self.lists.meta[kernel.SLOT_TOP])

    @property
    def segment(self) -> Int32s:
        return self.lists.segment

    @property
    def row(self) -> Int32s:
        return self.lists.row

    def alive(self, slots: Int64s) -> Bools:
        """Which of these slots hold a tuple."""
        used: Bools = self.lists.node[slots] != kernel.NIL
        return used

    @property
    def bytes(self) -> int:
        """Bytes that the stored tuples take in the lists (not what is reserved for more)."""
        meta = self.lists.meta
        node = kernel.NODE.itemsize + 2 * self.lists.table.itemsize  # at most half of the table is used
        keys = self.keys * node + meta[kernel.ARENA_TOP] - meta[kernel.ARENA_DEAD]
        return int(len(self) * kernel.SLOT.itemsize + keys)

    def insert(self, which: Int64s, times: Int64s, keys: Keys, segment: int) -> tuple[Int64s, Int64s]:
        """Store the tuples `which` of a batch whose rows are segment `segment`; gives them by time, and their slots."""
        self._make_room(which.size, keys)
        which = by_time(times, which)
        slots = np.empty(which.size, np.int64)
        kernel.insert(self.lists, which, times, keys.words, keys.data, keys.offsets, segment, slots)
        if self._watched:
            self._add_born(self.lists.node[slots])
        return which, slots

    def probe(
        self,
        which: Int64s,
        times: Int64s,
        keys: Keys,
        back: int,
        ahead: int,
        track: bool = False,
        closed: Bools = UNASKED,
    ) -> Iterator[Int32s]:
        """Pairs with one key and ``time - back <= stored time <= time + ahead``, in chunks.

        Each chunk is four rows: the batch's rows; the slots of the stored tuples; their segments, and their rows there.
        `closed` receives which of the keys `which` are closed; it is complete after the last chunk.
        """
        cursor = np.zeros(kernel.PROBE_CURSOR, np.int64)
        out = np.empty((4, CHUNK), np.int32)
        while cursor[0] < which.size:
            n = kernel.probe(
                self.lists, which, times, keys.words, keys.data, keys.offsets, back, ahead, track, closed, cursor, out
            )
            self.looked_at += int(cursor[2])
            cursor[2] = 0
            if n:
                yield out[:, :n]

    def expire_before(self, time: int, left: Int64s) -> int:
        """Expire all tuples older than `time`; `left` counts the living rows of each segment. Returns how many went."""
        return int(kernel.expire(self.lists, time, left, _NONE, _NONE))

    def expire_ringing(self, time: int, left: Int64s) -> tuple[int, Int64s]:
        """The same; also returns the closed nodes that lost their last tuple."""
        ring = np.empty(self.closed_keys + 1, np.int64)  # one more than can ring: the kernel stops when it is full
        n = int(kernel.expire(self.lists, time, left, _NONE, ring))
        return n, ring[: self.lists.meta[kernel.RUNG]]

    def expire(self, time: int, left: Int64s) -> tuple[Int64s, Int64s]:
        """The same; returns the slots that went, and the closed nodes that lost their last tuple."""
        gone, ring = np.empty(len(self) + 1, np.int64), np.empty(self.closed_keys + 1, np.int64)
        n = int(kernel.expire(self.lists, time, left, gone, ring))
        return gone[:n], ring[: self.lists.meta[kernel.RUNG]]

    def discard(self, slots: Int64s, left: Int64s) -> None:
        """Evict these tuples."""
        closed_keys.discard(self.lists, slots, left)

    def close(self, which: Int64s, times: Int64s, keys: Keys) -> tuple[Int64s, Int64s, int]:
        """Mark the keys `which` as closed by this stream at these times.

        Gives the nodes of those that were open before, and of those that are now closed at an earlier time; and how
        many of the former have a stored tuple that is newer.
        """
        self._make_room(which.size, keys, tuples=False)
        nodes = np.empty(which.size, np.int64)
        fresh, sooner, contradicted = closed_keys.close(
            self.lists, which, times, keys.words, keys.data, keys.offsets, nodes
        )
        if self._watched:
            self._add_born(nodes[:fresh])
        return nodes[:fresh], nodes[which.size - sooner :], contradicted

    def nodes_of(self, which: Int64s, keys: Keys) -> Int64s:
        """The node of each of these keys, NIL where there is none."""
        nodes = np.empty(which.size, np.int64)
        closed_keys.lookup(self.lists, which, keys.words, keys.data, keys.offsets, nodes)
        return nodes

    def counterparts(self, nodes: Int64s, other: ValueLists) -> Int64s:
        """The nodes in `other` of the keys of these nodes, NIL where there is none."""
        out = np.empty(nodes.size, np.int64)
        closed_keys.counterparts(self.lists, nodes, other.lists, out)
        return out

    def purge(self, nodes: Int64s, left: Int64s) -> Int64s:
        """Purge all tuples of these nodes; returns the slots that went."""
        gone = np.empty(len(self), np.int64)
        return gone[: closed_keys.purge(self.lists, nodes, left, gone)]

    def purge_counterparts(self, closer: ValueLists, nodes: Int64s, left: Int64s) -> Int64s:
        """Purge all tuples of the keys that these nodes have in `closer`; returns the slots that went."""
        gone = np.empty(len(self), np.int64)
        return gone[: closed_keys.purge_counterparts(closer.lists, nodes, self.lists, left, gone)]

    def finish(
        self, nodes: Int64s, other: ValueLists, others_closed: npt.NDArray[np.bool_], padded: tuple[bool, bool]
    ) -> Int64s:
        """Of these closed nodes those that can be propagated now; marks them as propagated.

        `padded`: whether unmatched rows of this stream, and of the other, are results.
        """
        out = np.empty(nodes.size, np.int64)
        return out[: closed_keys.finish(self.lists, nodes, other.lists, others_closed, *padded, out)]

    def marks(self, nodes: Int64s) -> npt.NDArray[np.uint8]:
        """The marks of these nodes: OPEN, PENDING, CLOSED or PROPAGATED; OPEN for NIL."""
        return np.where(nodes == kernel.NIL, kernel.OPEN, self.lists.mark[nodes])

    def reopen(self, nodes: Int64s) -> None:
        """Remove the marks of these nodes."""
        closed_keys.reopen_all(self.lists, nodes)

    @property
    def closed_keys(self) -> int:
        """Single closed keys in the stream's punctuation set."""
        return int(self.lists.meta[kernel.CLOSED_KEYS])

    def marked(self) -> Int64s:
        """Nodes of all single closed keys. Walks all nodes."""
        top = self.lists.meta[kernel.NODE_TOP]
        return np.flatnonzero((self.lists.mark[:top] != kernel.OPEN) & (self.lists.length[:top] != kernel.NIL))

    def oldest_time(self) -> int | None:
        """Event time of the oldest stored tuple."""
        head = self.lists.meta[kernel.HEAD]
        return None if head == kernel.NIL else int(self.lists.time[head])

    def living(self) -> Int64s:
        """Slots of all stored tuples, oldest first. For tests; walks the whole state."""
        slots = np.flatnonzero(self.lists.node[: self.slots] != kernel.NIL)
        return slots[np.argsort(self.lists.time[slots], kind="stable")]

    @property
    def _watched(self) -> bool:
        """Whether there is an ordered index, which reads the list of new nodes."""
        return bool(self.lists.meta[kernel.BORN] != kernel.NIL)

    def _add_born(self, nodes: AnyArray) -> None:
        """Add nodes that may be new to the list that the ordered index reads."""
        meta, some = self.lists.meta, np.unique(nodes)
        self._grow("born", int(meta[kernel.BORN]) + some.size)
        self.lists.born[meta[kernel.BORN] : meta[kernel.BORN] + some.size] = some
        meta[kernel.BORN] += some.size

    def _make_room(self, n: int, keys: Keys, *, tuples: bool = True) -> None:
        meta = self.lists.meta.tolist()  # plain numbers: arithmetic on elements of an array is slow
        nodes = meta[kernel.NODES] + n
        if tuples:
            self._grow("slots", (meta[kernel.LIVE] + n) * 5 // 4)  # one in five is free
        if meta[kernel.BORN] > 1024 + 2 * meta[kernel.NODES]:
            self.lists.meta[kernel.BORN] = kernel.NIL  # to walk all nodes is cheaper than so long a list
        self._grow("nodes", nodes * 5 // 4)
        need = meta[kernel.ARENA_TOP] + keys.data.size
        if need > self.lists.arena.size:
            if meta[kernel.ARENA_DEAD] * 2 > meta[kernel.ARENA_TOP]:
                fresh = np.empty_like(self.lists.arena)
                kernel.pack_arena(self.lists, fresh)
                self.lists.arena[:] = fresh
                need = int(self.lists.meta[kernel.ARENA_TOP]) + keys.data.size
            self._grow("arena", need)
        if nodes * 2 > self.lists.table.size:
            cells = 1 << (nodes * 2 - 1).bit_length()
            self._parts["table"] = self.arrays.allocate(f"{self.name}.table", cells, np.int32)
            self.lists = kernel.views(self._parts)
            kernel.fill_table(self.lists)

    def _grow(self, part: str, need: int) -> None:
        have = self._parts[part].size
        if need > have:
            self._parts[part] = self.arrays.grow(f"{self.name}.{part}", self._parts[part], max(need, have + have // 2))
            self.lists = kernel.views(self._parts)

    def keys_of(self, nodes: Int64s) -> Keys:
        """The keys of these nodes."""
        lengths = self.lists.length[nodes].astype(np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        data = np.empty(int(offsets[-1]), np.uint8)
        closed_keys.gather(self.lists.arena, self.lists.at[nodes], self.lists.length[nodes], data)
        return Keys(self.lists.word[nodes], data, offsets, np.ones(nodes.size, np.bool_))
