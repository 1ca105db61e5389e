"""Nested loops over the windows of several streams, tuple by tuple. Pure-Python twin: ``joins/reference.py``.

All tuples of a batch stand in the lists before it begins; `ranks` tells when each took part: 0 before the batch, and
entry e of the batch is rank e + 1. An entry is one new tuple, or all new tuples of one stream; it is combined with
tuples of lower rank, level by level in the order of its plan, one stream at each.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compiling import kernel, part
from watersmeet.kernels.lists import NIL, TAIL, find
from watersmeet.kernels.multiway import limit_of

# Places in `cursor`: the entry, the level (NIL: the entry begins), combinations of this call, tuples looked at so far.
AT, LEVEL, FOUND, PROBED = range(4)
CURSOR = 4
#: A level at which no tuple has been looked at yet.
FRESH = -2


@part
def same_key(a, n, b, m):
    """Whether node n of a and node m of b are of one key."""
    if a.word[n] != b.word[m] or a.length[n] != b.length[m]:
        return False
    at, there, j = a.at[n], b.at[m], 0
    while j < a.length[n] and a.arena[at + j] == b.arena[there + j]:
        j += 1
    return j == a.length[n]


@part
def first(lists, indexed, outer, n):
    """The newest tuple of the key that node n of the outermost level's stream has; of all, where there is no index."""
    if not indexed:
        return np.int64(lists.meta[TAIL])
    found = lists.table[find(lists, outer.word[n], outer.arena, outer.at[n], outer.length[n])]
    return np.int64(lists.newest[found]) if found != NIL else np.int64(NIL)


@kernel
def combine(streams, limits, ranks, reaches, steady, indexed, origins, slots, plans, cursor, levels, out):
    """Run the entries, or what is left of them, until `out` is full; returns how many combinations are in it.

    Entry e is tuple slots[e] of stream origins[e] or, if that is NIL, all tuples of rank e + 1 of that stream.
    plans[e] is the order of the streams. `steady[k]`: limits of stream k do not increase from newest to oldest.
    `levels` keeps, per level, the tuple at hand, the newest time and the least limit so far. A combination is a column
    of `out`: a slot per stream, and the entry. Done when cursor[AT] == origins.size.
    """
    count = len(streams)
    cursor[FOUND] = 0
    while cursor[AT] < origins.size:
        e = cursor[AT]
        origin, mine, rank = origins[e], slots[e], e + 1
        if cursor[LEVEL] == NIL:
            cursor[LEVEL] = 0
            levels[0, 0] = FRESH
        while cursor[LEVEL] >= 0:
            d = cursor[LEVEL]
            if d == count - 1 and cursor[FOUND] == out.shape[1]:
                return cursor[FOUND]
            k = plans[e, d]
            lists = streams[k]
            single = k == origin and mine != NIL
            by_key = d > 0 and indexed[k] and not single
            if d > 0:
                outermost = plans[e, 0]
                outer, key = streams[outermost], streams[outermost].node[levels[0, 0]]
                newest, least = levels[1, d - 1], levels[2, d - 1]
            else:
                outer, key = lists, np.int32(NIL)
                newest, least = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)
                if mine != NIL:  # what it needs is known before its level is reached
                    newest = streams[origin].time[mine]
                    least = limit_of(streams[origin], limits[origin], reaches[origin], mine)
            s = levels[0, d]
            if single:
                s = mine if s == FRESH else np.int64(NIL)
            elif s == FRESH:
                s = first(lists, by_key, outer, key)
            else:
                s = np.int64(lists.older[s]) if by_key else np.int64(lists.earlier[s])
            while s != NIL:
                if k == origin:
                    present = ranks[k][s] == rank
                else:
                    present = ranks[k][s] < rank
                if present:
                    if not single:
                        cursor[PROBED] += 1
                    end = limit_of(lists, limits[k], reaches[k], s)
                    if end >= newest and lists.time[s] <= least:
                        if d == 0 or by_key or same_key(outer, key, lists, lists.node[s]):
                            levels[1, d] = max(newest, lists.time[s])
                            levels[2, d] = min(least, end)
                            break
                    elif end < newest and (by_key or steady[k]):
                        s = np.int64(NIL)
                        break
                if single:
                    s = np.int64(NIL)
                else:
                    s = np.int64(lists.older[s]) if by_key else np.int64(lists.earlier[s])
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
