"""Nested loops over the windows of several streams, tuple by tuple. Pure-Python twin: `joins.reference`.

All tuples of a batch are in the lists before the loops begin. `turns` holds the turn of each tuple: 0 before the
batch, e + 1 for entry e of the batch. An entry is one new tuple, or all new tuples of one stream. It is combined with
tuples of earlier turns, level by level in the order of its plan, one stream a level.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet.kernels.compile import kernel, part
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.value_lists import NIL, TAIL

# Places in `cursor`: the entry, the level (NIL: before the first), combinations of this call, tuples looked at and keys
# looked up so far.
AT, LEVEL, FOUND, PROBED, LOOKED_UP = range(5)
CURSOR = 5
#: A level at which no tuple has been looked at yet.
FRESH = -2


class Streams(NamedTuple):
    """The arrays of all streams (see `value_lists.Lists`): each field has one array per stream."""

    meta: tuple[np.ndarray, ...]
    time: tuple[np.ndarray, ...]
    earlier: tuple[np.ndarray, ...]
    older: tuple[np.ndarray, ...]
    node: tuple[np.ndarray, ...]
    newest: tuple[np.ndarray, ...]
    word: tuple[np.ndarray, ...]
    at: tuple[np.ndarray, ...]
    length: tuple[np.ndarray, ...]
    table: tuple[np.ndarray, ...]
    arena: tuple[np.ndarray, ...]


@part
def same_key(streams, a, n, b, m):
    """Whether node n of stream a and node m of stream b have the same key."""
    length = streams.length[a][n]
    if streams.word[a][n] != streams.word[b][m] or length != streams.length[b][m]:
        return False
    at, there, j = streams.at[a][n], streams.at[b][m], 0
    while j < length and streams.arena[a][at + j] == streams.arena[b][there + j]:
        j += 1
    return j == length


@kernel
def newest_of(streams, k, a, n):
    """The newest tuple of stream k with the key of node n of stream a, or NIL."""
    table = streams.table[k]
    mask = table.size - 1
    cell = np.int64(mix(streams.word[a][n]) & np.uint64(mask))
    while table[cell] != NIL:
        if same_key(streams, k, table[cell], a, n):
            return np.int64(streams.newest[k][table[cell]])
        cell = (cell + 1) & mask
    return np.int64(NIL)


@part
def limit_of(streams, limits, reaches, k, s):
    return limits[k][s] if limits[k].size else streams.time[k][s] + reaches[k]


@kernel
def combine(streams, limits, turns, reaches, steady, tidy, indexed, origins, slots, plans, cursor, levels, out):
    """Run the entries that remain until `out` is full; returns the number of combinations in it.

    Entry e is tuple slots[e] of stream origins[e] or, if that is NIL, all tuples of turn e + 1 of that stream.
    plans[e] is the order of the streams. `steady[k]`: limits of stream k do not increase from newest to oldest. With
    `tidy`, a loop over such a stream ends at the end of its window; without, it also visits tuples past their window.
    `levels` holds, per level, the current tuple, the newest time and the least limit so far. A combination is a column
    of `out`: a slot per stream, and the entry. Done when cursor[AT] == origins.size.
    """
    count = plans.shape[1]
    cursor[FOUND] = 0
    while cursor[AT] < origins.size:
        e = cursor[AT]
        origin, mine, turn = origins[e], slots[e], e + 1
        outermost = plans[e, 0]
        if cursor[LEVEL] == NIL:
            cursor[LEVEL] = 0
            levels[0, 0] = FRESH
        while cursor[LEVEL] >= 0:
            d = cursor[LEVEL]
            if d == count - 1 and cursor[FOUND] == out.shape[1]:
                return cursor[FOUND]
            k = plans[e, d]
            single = k == origin and mine != NIL
            by_key = d > 0 and indexed[k] and not single
            key = np.int64(NIL)
            newest, least = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)
            if d > 0:
                key = np.int64(streams.node[outermost][levels[0, 0]])
                newest, least = levels[1, d - 1], levels[2, d - 1]
            elif mine != NIL:  # the new tuple bounds the outer levels before its own level is reached
                newest, least = streams.time[origin][mine], limit_of(streams, limits, reaches, origin, mine)
            links = streams.older[k] if by_key else streams.earlier[k]
            s = levels[0, d]
            if s != FRESH:
                s = np.int64(NIL) if single else np.int64(links[s])
            elif single:
                s = mine
            else:
                s = newest_of(streams, k, outermost, key) if by_key else streams.meta[k][TAIL]
                cursor[LOOKED_UP] += by_key
            while s != NIL:
                present = turns[k][s] == turn if k == origin else turns[k][s] < turn
                if present:
                    time, end = streams.time[k][s], limit_of(streams, limits, reaches, k, s)
                    if tidy and end < newest and (by_key or steady[k]):
                        s = np.int64(NIL)
                        break
                    cursor[PROBED] += not single
                    fits = end >= newest and time <= least
                    if fits and (d == 0 or by_key or same_key(streams, outermost, key, k, streams.node[k][s])):
                        levels[1, d] = max(newest, time)
                        levels[2, d] = min(least, end)
                        break
                s = np.int64(NIL) if single else np.int64(links[s])
            levels[0, d] = s
            if s == NIL:
                cursor[LEVEL] = d - 1
            elif d == count - 1:
                n = cursor[FOUND]
                for level in range(count):
                    out[plans[e, level], n] = levels[0, level]
                out[count, n] = e
                cursor[FOUND] = n + 1
            else:
                cursor[LEVEL] = d + 1
                levels[0, d + 1] = FRESH
        cursor[AT] += 1
        cursor[LEVEL] = NIL
    return cursor[FOUND]
