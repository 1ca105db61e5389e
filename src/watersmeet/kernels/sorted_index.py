"""Tuples sorted by an attribute: merging new ones in, and the pairs of an interval join, in chunks.

Pure-Python twin: ``[(r, s) for r in rows for s in stored if low[r] <= value[s] <= high[r]]``, with the windows.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import kernel
from watersmeet.kernels.value_lists import NIL

# Places in the cursor of `pairs`.
AT, NEXT, LOOKED_AT = range(3)
CURSOR = 3


@kernel
def merge(values, slots, alive, new_values, new_slots, out_values, out_slots):
    """Merge new entries into those of slots that are alive; both are sorted. Returns how many there are."""
    n = 0
    j = 0
    for i in range(values.size):
        if not alive[slots[i]]:
            continue
        while j < new_values.size and new_values[j] < values[i]:
            out_values[n] = new_values[j]
            out_slots[n] = new_slots[j]
            n += 1
            j += 1
        out_values[n] = values[i]
        out_slots[n] = slots[i]
        n += 1
    while j < new_values.size:
        out_values[n] = new_values[j]
        out_slots[n] = new_slots[j]
        n += 1
        j += 1
    return n


@kernel
def pairs(values, slots, nan, low, high, valid, which, times, stored, node, segment, row, back, ahead, cursor, out):
    """Pairs of rows with entries of their intervals, or NaN (entries from `nan` on), within the windows, and alive.

    ``out`` gets the batch's rows, the slots, their segments, and their rows there. Returns how many pairs there are;
    `cursor` is where to go on.
    """
    n = 0
    while cursor[AT] < which.size:
        i = cursor[AT]
        if not valid[i]:
            cursor[AT] += 1
            continue
        at = cursor[NEXT]
        if at < 0:
            at = np.searchsorted(values[:nan], low[i])
        time = times[which[i]]
        while at < slots.size:
            if at < nan and values[at] > high[i]:
                at = nan
                continue
            cursor[LOOKED_AT] += 1
            slot = slots[at]
            at += 1
            if node[slot] == NIL or stored[slot] < time - back or stored[slot] > time + ahead:
                continue
            out[0, n] = which[i]
            out[1, n] = slot
            out[2, n] = segment[slot]
            out[3, n] = row[slot]
            n += 1
            if n == out.shape[1]:
                cursor[NEXT] = at
                return n
        cursor[AT] += 1
        cursor[NEXT] = -1
    return n
