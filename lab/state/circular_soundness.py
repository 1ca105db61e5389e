"""The invariants of circular buffers."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.baselines import circular_buffers
from watersmeet.state.circular_buffers import CircularBuffers

NIL = circular_buffers.NIL
Stored = tuple[int, int, int, int]  # time, word of the key, segment, row


def rings_of(buffers: CircularBuffers) -> list[list[Stored]]:
    """The tuples of each bucket, oldest first."""
    rings, out = buffers.rings, []
    for g in range(buffers.buckets):
        places = [rings.start[g] + (rings.head[g] + j) % max(1, rings.room[g]) for j in range(rings.held[g])]
        slots = [rings.slot[p] for p in places]
        columns = rings.when[places], rings.word[places], rings.segment[slots], rings.row[slots]
        out.append(list(zip(*(c.tolist() for c in columns), strict=True)))
    return out


def assert_sound(buffers: CircularBuffers) -> None:
    """Check all invariants of the arrays."""
    rings, meta = buffers.rings, buffers.rings.meta
    buckets = rings_of(buffers)
    for g, held in enumerate(buckets):
        assert [t for t, *_ in held] == sorted(t for t, *_ in held)
        assert all(circular_buffers.bucket_of(word, buffers.buckets) == g for _, word, _, _ in held)
    assert sum(map(len, buckets)) == len(buffers) == buffers.living().size == len(set(buffers.living().tolist()))
    assert buffers.alive(buffers.living()).all()
    # slots: living or on the chain of free ones
    free, s = [], int(meta[circular_buffers.SLOT_FREE])
    while s != NIL:
        free.append(s)
        s = int(rings.row[s])
    assert sorted([*free, *buffers.living().tolist()]) == list(range(buffers.slots))
    assert not buffers.alive(np.array(free, np.int64)).any()
    # pool: rings of the buckets and free rings cover it once
    taken = [(int(a), int(n)) for a, n in zip(rings.start, rings.room, strict=True) if n]
    for size in range(circular_buffers.META - circular_buffers.FREE_RING):
        at = int(meta[circular_buffers.FREE_RING + size])
        while at != NIL:
            taken.append((at, 1 << size))
            at = int(rings.when[at])
    ends = [0, *(a + n for a, n in sorted(taken))]
    assert [a for a, _ in sorted(taken)] == ends[:-1]
    assert ends[-1] == meta[circular_buffers.POOL_TOP] <= rings.when.size
    # arena: bytes of living keys, and dead ones that are counted
    assert rings.length[buffers.living()].sum() == meta[circular_buffers.ARENA_TOP] - meta[circular_buffers.ARENA_DEAD]
    assert meta[circular_buffers.ARENA_TOP] <= rings.arena.size
