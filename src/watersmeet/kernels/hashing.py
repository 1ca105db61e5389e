"""Hashing and splitting of keys. Pure-Python twin: ``tests/kernels/twins.py``."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import allocating, kernel, part


@part
def mix(word):
    """Spread a 64-bit word over all its bits (the finaliser of SplitMix64)."""
    h = np.uint64(word)
    h ^= h >> np.uint64(30)
    h *= np.uint64(0xBF58476D1CE4E5B9)
    h ^= h >> np.uint64(27)
    h *= np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@kernel
def hash_rows(data, offsets, mask, out):
    """out[i] = hash of the bytes data[offsets[i]:offsets[i+1]]: FNV-1a, mixed once more, under `mask`."""
    for i in range(out.size):
        h = np.uint64(0xCBF29CE484222325)
        for j in range(offsets[i], offsets[i + 1]):
            h = (h ^ np.uint64(data[j])) * np.uint64(0x100000001B3)
        out[i] = np.int64(mix(h) & np.uint64(mask))


@kernel
def frame_column(data, offsets, valid, cursor, out):
    """Append each row's value at its place in `out`: one byte (0 for NULL), four of length, then the bytes."""
    for i in range(cursor.size):
        at = cursor[i]
        if not valid[i]:
            out[at] = 0
            cursor[i] = at + 1
            continue
        length = offsets[i + 1] - offsets[i]
        out[at] = 1
        for b in range(4):
            out[at + 1 + b] = np.uint8((length >> (8 * b)) & 255)
        at += 5
        for j in range(offsets[i], offsets[i + 1]):
            out[at] = data[j]
            at += 1
        cursor[i] = at


@allocating
def split_rows(words, shards, order, starts):
    """Order rows by shard, keeping their order inside each: rows of shard s are order[starts[s]:starts[s + 1]].

    The shard comes from the high bits of the mixed word, the place in a table of nodes from the low ones.
    """
    n = words.size
    shard = np.empty(n, np.int32)
    starts[:] = 0
    for i in range(n):
        s = np.int32((mix(words[i]) >> np.uint64(32)) % np.uint64(shards))
        shard[i] = s
        starts[s + 1] += 1
    for s in range(shards):
        starts[s + 1] += starts[s]
    at = starts.copy()
    for i in range(n):
        s = shard[i]
        order[at[s]] = i
        at[s] += 1
