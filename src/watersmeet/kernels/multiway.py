"""Combinations of several streams over their value lists. Pure-Python twin: ``joins/reference/definition.py``.

A tuple has a *limit*, the last instant at which it is in its window: its time plus its stream's reach or, for row
windows, its element of `limits` (an empty array otherwise). Tuples make a result iff none is newer than the least of
their limits. Along a value list, from newest to oldest, neither times nor limits increase.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import kernel, part
from watersmeet.kernels.value_lists import NIL


@part
def limit_of(lists, limits, reach, s):
    return limits[s] if limits.size else lists.time[s] + reach


@kernel
def extend(lists, limits, reach, nodes, newest, least, cursor, out_part, out_slot, out_newest, out_least):
    """Partial combinations, each with every stored tuple of its key that fits: pairs (combination, slot).

    Combination p has the key nodes[p], its newest tuple has time newest[p], the least of its limits is least[p].
    Fills the output until it is full and returns the number of pairs; `cursor` = (next combination, next slot, tuples
    looked at) is where the next call continues. Done when cursor[0] == nodes.size. Newest tuples come first.
    `out_newest` and `out_least`, unless empty, receive the newest time and the least limit of each result.
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
    """Set the limits of tuples that new tuples of their key push out of a window of `rows` rows.

    Group g is the key nodes[g] (NIL: it has no stored tuple) with new tuples at times[starts[g]:starts[g + 1]], which
    are not stored yet. Writes the slots to `out` and returns their number.
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
    """Compute the limits of all tuples of these nodes from the tuples behind them."""
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
