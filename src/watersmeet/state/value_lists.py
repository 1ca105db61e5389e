"""Time list and value lists of one stream (spec section 4), growing as needed."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import lists as kernel
from watersmeet.kernels.lists import Lists
from watersmeet.state.arrays import AnyArray, Arrays, HeapArrays
from watersmeet.state.keys import Int64s, Keys

Int32s = npt.NDArray[np.int32]

SLOT_FIELDS: dict[str, type] = {"time": np.int64} | dict.fromkeys(
    ("earlier", "later", "older", "newer", "node", "segment", "row"), np.int32
)
NODE_FIELDS: dict[str, type] = {
    "word": np.int64,
    "at": np.int64,
    "length": np.int32,
    "oldest": np.int32,
    "newest": np.int32,
}
#: Pairs that one probe hands out at a time.
CHUNK = 1 << 18


class ValueLists:
    """All stored tuples of one stream, reachable by time and by key.

    Holds times, links and keys; a tuple's row stands in segment `segment[slot]` as row `row[slot]`.
    Insertion costs O(1) per tuple plus the disorder, a probe O(1) plus what it looks at, expiry O(1) per tuple.
    """

    def __init__(self, name: str = "", arrays: Arrays | None = None) -> None:
        self.name = name
        self.arrays = arrays or HeapArrays()
        self.looked_at = 0  # stored tuples that probes have looked at, ever
        found = {field: self.arrays.attach(f"{name}.{field}", kind) for field, kind in self._kinds().items()}
        if found["meta"] is not None:
            self.lists = Lists(**found)  # type: ignore[arg-type]  # a folder with one array has all
            return
        sizes = {"meta": kernel.META, "table": 64, "arena": 64}
        made: dict[str, AnyArray] = {
            field: self.arrays.allocate(f"{name}.{field}", sizes.get(field, 64), kind)
            for field, kind in self._kinds().items()
        }
        self.lists = Lists(**made)
        self.lists.table[:] = kernel.NIL
        for place in (kernel.SLOT_FREE, kernel.SLOT_FREE_TAIL, kernel.NODE_FREE, kernel.HEAD, kernel.TAIL):
            self.lists.meta[place] = kernel.NIL

    @staticmethod
    def _kinds() -> dict[str, type]:
        return {"meta": np.int64, **SLOT_FIELDS, **NODE_FIELDS, "table": np.int32, "arena": np.uint8}

    def __len__(self) -> int:
        return int(self.lists.meta[kernel.LIVE])

    @property
    def keys(self) -> int:
        """Distinct keys stored."""
        return int(self.lists.meta[kernel.NODES])

    @property
    def slots(self) -> int:
        """Slots ever used; those beyond are untouched."""
        return int(self.lists.meta[kernel.SLOT_TOP])

    @property
    def bytes(self) -> int:
        """Bytes that the stored tuples take in the lists (not what is reserved for more)."""
        meta = self.lists.meta
        slot = sum(np.dtype(kind).itemsize for kind in SLOT_FIELDS.values())
        node = sum(np.dtype(kind).itemsize for kind in NODE_FIELDS.values()) + 8
        return int(len(self) * slot + self.keys * node + meta[kernel.ARENA_TOP] - meta[kernel.ARENA_DEAD])

    def insert(self, which: Int64s, times: Int64s, keys: Keys, segment: int) -> Int64s:
        """Store the tuples `which` of a batch whose rows are segment `segment`. Returns their slots, in that order."""
        self._make_room(which.size, keys)
        ordered = np.argsort(times[which], kind="stable")
        slots = np.empty(which.size, np.int64)
        kernel.insert(self.lists, which[ordered], times, keys.words, keys.data, keys.offsets, slots)
        self.lists.segment[slots] = segment
        self.lists.row[slots] = which[ordered]
        placed = np.empty_like(slots)
        placed[ordered] = slots
        return placed

    def probe(self, which: Int64s, times: Int64s, keys: Keys, back: int, ahead: int) -> Iterator[tuple[Int64s, Int64s]]:
        """Pairs (row of the batch, slot) with one key and ``time - back <= stored time <= time + ahead``, in chunks."""
        cursor = np.array([0, kernel.NIL, 0])
        rows = np.empty(CHUNK, np.int64)
        slots = np.empty(CHUNK, np.int64)
        while cursor[0] < which.size:
            n = kernel.probe(
                self.lists, which, times, keys.words, keys.data, keys.offsets, back, ahead, cursor, rows, slots
            )
            self.looked_at += int(cursor[2])
            cursor[2] = 0
            if n:
                yield rows[:n], slots[:n]

    def expire_before(self, time: int, left: Int64s) -> int:
        """Forget all tuples older than `time`; `left` counts the living rows of each segment. Returns how many went."""
        return int(kernel.expire(self.lists, time, left))

    def living(self) -> Int64s:
        """Slots of all stored tuples, oldest first. For tests; walks the whole state."""
        slots = np.flatnonzero(self.lists.node[: self.slots] != kernel.NIL)
        return slots[np.argsort(self.lists.time[slots], kind="stable")]

    def _make_room(self, n: int, keys: Keys) -> None:
        meta = self.lists.meta
        self._grow(SLOT_FIELDS, len(self) + n)
        self._grow(NODE_FIELDS, self.keys + n)
        need = int(meta[kernel.ARENA_TOP]) + int(keys.data.size)
        if need > self.lists.arena.size:
            if meta[kernel.ARENA_DEAD] * 2 > meta[kernel.ARENA_TOP]:
                fresh = np.empty_like(self.lists.arena)
                kernel.pack_arena(self.lists, fresh)
                self.lists.arena[:] = fresh
                need = int(meta[kernel.ARENA_TOP]) + int(keys.data.size)
            self._grow({"arena": np.uint8}, need)
        if (self.keys + n) * 2 > self.lists.table.size:
            cells = 1 << int((self.keys + n) * 2 - 1).bit_length()
            table = self.arrays.allocate(f"{self.name}.table", cells, np.int32)
            self.lists = self.lists._replace(table=table)
            kernel.fill_table(self.lists)

    def _grow(self, fields: dict[str, type], need: int) -> None:
        have = getattr(self.lists, next(iter(fields))).size
        if need > have:
            larger = max(need, have + have // 2)
            self.lists = self.lists._replace(
                **{f: self.arrays.grow(f"{self.name}.{f}", getattr(self.lists, f), larger) for f in fields}
            )
