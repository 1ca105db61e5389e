"""The stored tuples of one stream in buckets, each a circular buffer in the order of time."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.baselines import circular_buffers as kernel
from watersmeet.kernels.baselines.circular_buffers import BUCKET_FIELDS, KINDS, PLACE_FIELDS, SLOT_FIELDS, Rings
from watersmeet.state.arrays import AnyArray, Arrays, HeapArrays
from watersmeet.state.index import Int32s, by_time
from watersmeet.state.keys import Bools, Int64s, Keys


class CircularBuffers:
    """All stored tuples of one stream, found by the bucket of their key; of one bucket, by time.

    Expiry costs O(1) per bucket looked into and per tuple, insertion O(1) plus the bucket's disorder; a probe scans
    the bucket's tuples inside the window. With one bucket that is a nested loop, with very many a hash table.
    """

    def __init__(self, buckets: int, name: str = "", arrays: Arrays | None = None) -> None:
        self.name = f"{name}.rings{buckets}"  # another number of buckets does not find these arrays
        self.arrays = arrays or HeapArrays()
        found = {field: self.arrays.attach(f"{self.name}.{field}", kind) for field, kind in KINDS.items()}
        if found["meta"] is not None:
            self.rings = Rings(**found)  # type: ignore[arg-type]  # a folder with one array has all
            return
        sizes = {"meta": kernel.META} | dict.fromkeys(BUCKET_FIELDS, buckets)
        made: dict[str, AnyArray] = {
            field: self.arrays.allocate(f"{self.name}.{field}", sizes.get(field, 64), kind)
            for field, kind in KINDS.items()
        }
        self.rings = Rings(**made)
        self.rings.meta[kernel.SLOT_FREE] = kernel.NIL
        self.rings.meta[kernel.FREE_RING :] = kernel.NIL

    def __len__(self) -> int:
        return int(self.rings.meta[kernel.LIVE])

    @property
    def buckets(self) -> int:
        return int(self.rings.start.size)

    @property
    def slots(self) -> int:
        """Slots ever used; those beyond are untouched."""
        return int(self.rings.meta[kernel.SLOT_TOP])

    @property
    def segment(self) -> Int32s:
        return self.rings.segment

    @property
    def row(self) -> Int32s:
        return self.rings.row

    @property
    def bytes(self) -> int:
        """Bytes that the stored tuples take in the buffers (not what is reserved for more)."""
        meta = self.rings.meta
        each = sum(getattr(self.rings, f).itemsize for f in PLACE_FIELDS + SLOT_FIELDS)
        return int(len(self) * each + meta[kernel.ARENA_TOP] - meta[kernel.ARENA_DEAD])

    def alive(self, slots: Int64s) -> Bools:
        """Which of these slots hold a tuple."""
        used: Bools = self.rings.length[slots] != kernel.NIL
        return used

    def insert(self, which: Int64s, times: Int64s, keys: Keys, segment: int) -> tuple[Int64s, Int64s]:
        """Store the tuples `which` of a batch whose rows are segment `segment`; gives them by time, and their slots."""
        self.make_room(which, keys)
        which = by_time(times, which)
        slots = np.empty(which.size, np.int64)
        kernel.insert(self.rings, which, times, keys.words, keys.data, keys.offsets, segment, slots)
        return which, slots

    def expire_before(self, time: int, left: Int64s) -> int:
        """Expire all tuples older than `time`; `left` counts the living rows of each segment. Returns how many went."""
        return int(kernel.expire(self.rings, time, left))

    def older_than(self, time: int) -> int:
        """How many tuples are older than `time`, and still stored."""
        return int(kernel.stale(self.rings, time))

    def living(self) -> Int64s:
        """Slots of all stored tuples, oldest first. For tests; walks the whole state."""
        rings = self.rings
        positions = [
            rings.start[g] + ((rings.head[g] + np.arange(rings.held[g])) & (rings.room[g] - 1))
            for g in range(self.buckets)
        ]
        every = np.concatenate(positions)
        slots: Int64s = rings.slot[every[np.argsort(rings.when[every], kind="stable")]].astype(np.int64)
        return slots

    def make_room(self, which: Int64s, keys: Keys) -> None:
        """Reserve what the tuples `which` will need, so that a kernel can store them one by one."""
        meta = self.rings.meta
        self._grow(SLOT_FIELDS, len(self) + which.size)
        need = int(meta[kernel.ARENA_TOP]) + int(keys.data.size)
        if need > self.rings.arena.size:
            if meta[kernel.ARENA_DEAD] * 2 > meta[kernel.ARENA_TOP]:
                fresh = np.empty_like(self.rings.arena)
                kernel.pack_arena(self.rings, fresh)
                self.rings.arena[:] = fresh
                need = int(meta[kernel.ARENA_TOP]) + int(keys.data.size)
            self._grow(("arena",), need)
        while missing := int(kernel.reserve(self.rings, keys.words, which)):
            self._grow(PLACE_FIELDS, self.rings.when.size + missing)

    def _grow(self, fields: tuple[str, ...], need: int) -> None:
        have = getattr(self.rings, fields[0]).size
        if need > have:
            larger = max(need, have + have // 2)
            self.rings = self.rings._replace(
                **{f: self.arrays.grow(f"{self.name}.{f}", getattr(self.rings, f), larger) for f in fields}
            )
