"""Buckets of circular buffers, in flat arrays. Pure-Python twin: ``joins/reference/definition.py``.

A *slot* is a stored tuple; it keeps its number while it is stored. Each *bucket* has a *ring*: a circular buffer of
the bucket's tuples by (time, arrival). Rings stand in one pool, each a power of two long. A bucket whose ring is full
moves to one twice as long; another bucket may reuse the old ring.

::

    pool   │··▒▒▒▒··│▒▒····▒▒│        when, word, slot of each place; ▒ = used
            bucket 0  bucket 1        bucket 1 wraps: its oldest tuple stands at ``head``, towards the end

The time and word (see `value_lists`) of a tuple stand in the ring itself, so a scan reads nothing else until a word
is equal.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet.kernels.compile import allocating, kernel

NIL = -1

# Places in `meta`, the only mutable scalars; from FREE_RING on, the first free ring of each length.
(LIVE, SLOT_TOP, SLOT_FREE, ARENA_TOP, ARENA_DEAD, POOL_TOP, FREE_RING) = range(7)
META = FREE_RING + 41


class Rings(NamedTuple):
    """The arrays of one stream's state: per bucket, per place of the pool, per slot."""

    meta: np.ndarray  # int64[META]
    start: np.ndarray  # int64, per bucket: offset of its ring in the pool
    room: np.ndarray  # int64: places in its ring, a power of two or 0
    head: np.ndarray  # int64: position of its oldest tuple in the ring
    held: np.ndarray  # int64: number of its tuples
    when: np.ndarray  # int64, per place: the tuple's time; free rings are chained through their first place
    word: np.ndarray  # int64: its key, or the hash of it
    slot: np.ndarray  # int32
    at: np.ndarray  # int64, per slot: offset of the key's bytes in the arena
    length: np.ndarray  # int32: number of the key's bytes; NIL: the slot is free
    segment: np.ndarray  # int32: the segment that holds its row
    row: np.ndarray  # int32: the number of its row in the segment; free slots are chained through it
    arena: np.ndarray  # uint8: bytes of keys that do not fit a word


BUCKET_FIELDS = ("start", "room", "head", "held")
PLACE_FIELDS = ("when", "word", "slot")
SLOT_FIELDS = ("at", "length", "segment", "row")
KINDS: dict[str, type] = dict.fromkeys(Rings._fields, np.int64) | {
    "slot": np.int32,
    "length": np.int32,
    "segment": np.int32,
    "row": np.int32,
    "arena": np.uint8,
}


@kernel
def bucket_of(word, buckets):
    """The bucket of a key, by multiplicative hashing with the golden ratio: consecutive numbers spread evenly."""
    h = (np.uint64(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    return np.int64((h * np.uint64(buckets)) >> np.uint64(32))


@kernel
def place(rings, g, j):
    """Place in the pool of bucket g's tuple number j, the oldest being 0."""
    return rings.start[g] + ((rings.head[g] + j) & (rings.room[g] - 1))


@kernel
def first_from(rings, g, time):
    """Number of tuples in bucket g that are older than `time`."""
    low, high = np.int64(0), rings.held[g]
    while low < high:
        middle = (low + high) >> 1
        if rings.when[place(rings, g, middle)] < time:
            low = middle + 1
        else:
            high = middle
    return low


@kernel
def take_slot(rings, data, start, length, segment, row):
    """A slot for a tuple with this key and this row. The caller has made room."""
    meta = rings.meta
    s = meta[SLOT_FREE]
    if s != NIL:
        meta[SLOT_FREE] = rings.row[s]
    else:
        s = meta[SLOT_TOP]
        meta[SLOT_TOP] += 1
    rings.at[s] = meta[ARENA_TOP]
    rings.length[s] = length
    for j in range(length):
        rings.arena[meta[ARENA_TOP] + j] = data[start + j]
    meta[ARENA_TOP] += length
    rings.segment[s] = segment
    rings.row[s] = row
    meta[LIVE] += 1
    return s


@kernel
def move(rings, g, j, to):
    p, q = place(rings, g, j), place(rings, g, to)
    rings.when[q] = rings.when[p]
    rings.word[q] = rings.word[p]
    rings.slot[q] = rings.slot[p]


@kernel
def put(rings, g, j, time, word, s):
    p = place(rings, g, j)
    rings.when[p] = time
    rings.word[p] = word
    rings.slot[p] = s


@kernel
def push(rings, g, time, word, s):
    """Insert a tuple into the ring, in order of time; only newer tuples move."""
    j = rings.held[g]
    while j > 0 and rings.when[place(rings, g, j - 1)] > time:
        move(rings, g, j - 1, j)
        j -= 1
    put(rings, g, j, time, word, s)
    rings.held[g] += 1


@allocating
def insert(rings, order, times, words, data, offsets, segment, slots):
    """Store the tuples `order` (ascending in time); slots[k] is the slot of tuple order[k].

    Merges into each ring from the newest end, so a stored tuple moves at most once.
    """
    buckets = rings.start.size
    fresh = np.zeros(buckets, np.int64)  # tuples still to be inserted into the bucket
    for k in range(order.size):
        fresh[bucket_of(words[order[k]], buckets)] += 1
    old = rings.held.copy()  # stored tuples of the bucket that have not moved
    for g in range(buckets):
        rings.held[g] += fresh[g]
    for k in range(order.size - 1, -1, -1):
        i = order[k]
        g = bucket_of(words[i], buckets)
        while old[g] > 0 and rings.when[place(rings, g, old[g] - 1)] > times[i]:
            old[g] -= 1
            move(rings, g, old[g], old[g] + fresh[g])
        fresh[g] -= 1
        slots[k] = take_slot(rings, data, offsets[i], offsets[i + 1] - offsets[i], segment, i)
        put(rings, g, old[g] + fresh[g], times[i], words[i], slots[k])


@kernel
def expire_bucket(rings, g, before, left):
    """Expire the tuples of one bucket with ``time < before``; left[s] falls by the number in segment s."""
    meta = rings.meta
    gone = 0
    while rings.held[g] > 0:
        p = rings.start[g] + rings.head[g]
        if rings.when[p] >= before:
            break
        s = rings.slot[p]
        left[rings.segment[s]] -= 1
        meta[ARENA_DEAD] += rings.length[s]
        rings.length[s] = NIL
        rings.row[s] = meta[SLOT_FREE]
        meta[SLOT_FREE] = s
        rings.head[g] = (rings.head[g] + 1) & (rings.room[g] - 1)
        rings.held[g] -= 1
        gone += 1
    meta[LIVE] -= gone
    return gone


@kernel
def expire(rings, before, left):
    """Expire the tuples of all buckets with ``time < before``."""
    gone = 0
    for g in range(rings.start.size):
        if rings.held[g] and rings.when[rings.start[g] + rings.head[g]] < before:
            gone += expire_bucket(rings, g, before, left)
    return gone


@kernel
def stale(rings, before):
    """The number of stored tuples with ``time < before``."""
    n = 0
    for g in range(rings.start.size):
        n += first_from(rings, g, before)
    return n


@allocating
def reserve(rings, words, which):
    """Make every ring long enough for the tuples `which`; returns how many places the pool lacks.

    If any are lacking, the caller enlarges the pool and calls again.
    """
    meta = rings.meta
    buckets = rings.start.size
    need = rings.held.copy()
    for k in range(which.size):
        need[bucket_of(words[which[k]], buckets)] += 1
    missing = 0
    for g in range(buckets):
        if need[g] <= rings.room[g]:
            continue
        size = 3
        while (1 << size) < need[g]:
            size += 1
        length = np.int64(1) << size
        start = meta[FREE_RING + size]
        if start != NIL:
            meta[FREE_RING + size] = rings.when[start]
        elif meta[POOL_TOP] + length <= rings.when.size:
            start = meta[POOL_TOP]
            meta[POOL_TOP] += length
        else:
            missing += length
            continue
        move_ring(rings, g, start, length)
    return missing


@kernel
def move_ring(rings, g, start, length):
    """Move a bucket's tuples to the ring of `length` places at `start` and free the old ring."""
    for j in range(rings.held[g]):
        p = place(rings, g, j)
        rings.when[start + j] = rings.when[p]
        rings.word[start + j] = rings.word[p]
        rings.slot[start + j] = rings.slot[p]
    if rings.room[g]:
        size = 0
        while (1 << size) < rings.room[g]:
            size += 1
        rings.when[rings.start[g]] = rings.meta[FREE_RING + size]
        rings.meta[FREE_RING + size] = rings.start[g]
    rings.start[g] = start
    rings.room[g] = length
    rings.head[g] = 0


@kernel
def pack_arena(rings, fresh):
    """Copy the bytes of stored keys into a fresh arena, with which the caller replaces the old one."""
    top = 0
    for s in range(rings.meta[SLOT_TOP]):
        length = rings.length[s]
        if length == NIL:
            continue
        at = rings.at[s]
        for j in range(length):
            fresh[top + j] = rings.arena[at + j]
        rings.at[s] = top
        top += length
    rings.meta[ARENA_TOP] = top
    rings.meta[ARENA_DEAD] = 0
