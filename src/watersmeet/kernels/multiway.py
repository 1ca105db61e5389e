"""Combinations of several streams over their value lists. Pure-Python twin: ``joins/reference.py``.

A tuple has a *limit*, the last instant at which it is in its window: its time plus its stream's reach or, where rows
are counted, an entry of its own in `limits` (else that array is empty). Tuples make a result iff none is newer than
the least of their limits. Along a value list, from newest to oldest, neither times nor limits increase.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compiling import kernel, part
from watersmeet.kernels.lists import NIL


@part
def limit_of(lists, limits, reach, s):
    return limits[s] if limits.size else lists.time[s] + reach


@kernel
def extend(lists, limits, reach, nodes, newest, least, cursor, out_part, out_slot, out_newest, out_least):
    """Partial combinations, each with every stored tuple of its key that fits: pairs (combination, slot).

    Combination p is of the key nodes[p], its newest tuple has time newest[p], the least of its limits is least[p].
    Fills the output as far as it goes and returns how many; `cursor` = (next combination, next slot, tuples looked at)
    lets the next call go on from there. Done when cursor[0] == nodes.size. Newest tuples come first. Where they have
    room, `out_newest` and `out_least` get the newest time and the least limit of what was found.
    """
    found = 0
    looked = 0
    p = cursor[0]
    s = cursor[1]
    while p < nodes.size:
        if s == NIL:
            s = np.int64(lists.newest[nodes[p]])
            while s != NIL and lists.time[s] > least[p]:
                looked += 1
                s = np.int64(lists.older[s])
        while s != NIL:
            limit = limit_of(lists, limits, reach, s)
            if limit < newest[p]:
                break
            if found == out_part.size:
                cursor[0] = p
                cursor[1] = s
                cursor[2] += looked
                return found
            looked += 1
            out_part[found] = p
            out_slot[found] = s
            if out_newest.size:
                out_newest[found] = max(newest[p], lists.time[s])
                out_least[found] = min(least[p], limit)
            found += 1
            s = np.int64(lists.older[s])
        s = np.int64(NIL)
        p += 1
    cursor[0] = p
    cursor[1] = NIL
    cursor[2] += looked
    return found


@kernel
def push_out(lists, limits, nodes, starts, times, rows, out):
    """New tuples of a key push the oldest of its last `rows` out of the window: their limits become known.

    Group g is the key nodes[g] (NIL: nothing is stored of it) with new tuples at times[starts[g]:starts[g + 1]], which
    are not stored yet. Notes the slots in `out` and returns how many.
    """
    count = 0
    for g in range(nodes.size):
        if nodes[g] == NIL:
            continue
        came = starts[g + 1] - starts[g]
        s = np.int64(lists.newest[nodes[g]])
        behind = 0  # stored tuples behind s
        while s != NIL and behind < rows:
            if rows - behind <= came:
                limits[s] = times[starts[g] + rows - behind - 1] - 1
                out[count] = s
                count += 1
            behind += 1
            s = np.int64(lists.older[s])
    return count


@kernel
def limits_by_key(lists, limits, nodes, rows, endless):
    """The limits of all tuples of these nodes, anew from the tuples behind them."""
    for k in range(nodes.size):
        s = np.int64(lists.newest[nodes[k]])
        pusher = s
        behind = 0
        while s != NIL:
            if behind < rows:
                limits[s] = endless
            else:
                limits[s] = lists.time[pusher] - 1
                pusher = np.int64(lists.older[pusher])
            behind += 1
            s = np.int64(lists.older[s])
