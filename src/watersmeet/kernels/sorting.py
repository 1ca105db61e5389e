"""Rows in order of time, pairs by segment. Pure-Python twin: ``sorted``, with the time or the segment as key."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import allocating, kernel

#: Steps that a row may move on average inside its bucket; beyond that another sort is faster.
PATIENCE = 8


@kernel
def ascending(times, which):
    """Whether the rows `which` stand in order of time."""
    for k in range(1, which.size):  # noqa: SIM110  # Numba compiles no generators
        if times[which[k]] < times[which[k - 1]]:
            return False
    return True


@allocating
def by_time(times, which, out):
    """Put the rows `which` into `out` in order of time, a stable sort. Returns whether it was done.

    False, with `out` in no order, where times bunch so much that this would be slow, or where their range does not
    fit 64 bits. Streams are nearly in order and nearly even: rows go to as many buckets of time as there are rows,
    and then move a few places at most.
    """
    n = which.size
    low = times[which[0]]
    high = low
    for k in range(n):
        low = min(low, times[which[k]])
        high = max(high, times[which[k]])
    if high - low < 0:
        return False
    shift = 0
    while (high - low) >> shift > n:
        shift += 1
    starts = np.zeros(((high - low) >> shift) + 2, np.int64)
    for k in range(n):
        starts[((times[which[k]] - low) >> shift) + 1] += 1
    for b in range(1, starts.size):
        starts[b] += starts[b - 1]
    for k in range(n):
        b = (times[which[k]] - low) >> shift
        out[starts[b]] = which[k]
        starts[b] += 1
    steps = 0
    for k in range(1, n):
        i = out[k]
        j = k
        while j > 0 and times[out[j - 1]] > times[i]:
            out[j] = out[j - 1]
            j -= 1
        out[j] = i
        steps += k - j
        if steps > PATIENCE * n:
            return False
    return True


@kernel
def by_segment(rows, slots, segments, places, starts, out):
    """Put the columns of pairs into those of `out`, ordered by segment (stable).

    `starts` is zeroed and has one element more than there are segments.
    """
    for k in range(segments.size):
        starts[segments[k] + 1] += 1
    for s in range(1, starts.size):
        starts[s] += starts[s - 1]
    for k in range(segments.size):
        at = starts[segments[k]]
        starts[segments[k]] = at + 1
        out[0, at] = rows[k]
        out[1, at] = slots[k]
        out[2, at] = segments[k]
        out[3, at] = places[k]


@kernel
def ends_of_runs(values, ends):
    """Write to `ends` where each run of equal values ends; equal ones stand together. Returns the number of runs.

    Looks at O(log length) values of each run.
    """
    count = 0
    start = 0
    while start < values.size:
        value = values[start]
        step = 1
        while start + step < values.size and values[start + step] == value:
            step *= 2
        low = start + step // 2  # the run holds this
        high = min(start + step, values.size)  # and not this
        while high - low > 1:
            middle = (low + high) // 2
            if values[middle] == value:
                low = middle
            else:
                high = middle
        ends[count] = high
        count += 1
        start = high
    return count
