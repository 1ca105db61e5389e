"""The papers' window joins, one tuple after the other, over circular buffers. Twin: ``joins/reference/definition.py``.

New tuples of both streams are merged by (time, stream, arrival). For each one, tuples past their window expire, the
other stream's bucket of its key is probed, and the tuple is inserted into its own stream's bucket. An entry of the
merged order is ``row * 2 + stream``.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet.kernels.baselines.circular_buffers import (
    LIVE,
    NIL,
    bucket_of,
    expire,
    expire_bucket,
    first_from,
    push,
    take_slot,
)
from watersmeet.kernels.compile import kernel

# How much of a stream's state an arriving tuple checks for tuples to expire.
NOTHING, BUCKET, EVERYTHING = range(3)

# Places in `cursor`: where the next call continues, matches of this call, work of the batch so far, samples of the
# state's size.
(AT, NEXT, STOP, FOUND, PROBED, CHECKED, INSERTED, EXPIRED, DUE, SAMPLED) = range(10)
CURSOR = 10


class ArrivalArrays(NamedTuple):
    """One stream's arrivals of a batch."""

    times: np.ndarray  # int64, per row
    words: np.ndarray  # int64
    data: np.ndarray  # uint8
    offsets: np.ndarray  # int64, per row and one more
    slots: np.ndarray  # int64, per row; output: the tuple's slot, NIL if it is not stored
    left: np.ndarray  # int64, per segment: stored rows
    segment: int  # number of the segment that holds the batch
    reach: int  # of the stream's window
    before: int  # the stream's watermark before the batch
    after: int  # the stream's watermark after the batch


@kernel
def watermark_at(arrivals, time):
    """The stream's watermark when the merge has come to `time`.

    The rest of the batch is not older than `time`, and later batches are not older than the watermark after this one.
    """
    return max(arrivals.before, min(time, arrivals.after))


@kernel
def expire_scope(rings, arrivals, g, before, scope, cursor):
    """Expire the tuples older than `before` in bucket g or in all buckets, as `scope` has it."""
    if scope == BUCKET:
        cursor[CHECKED] += 1
        cursor[EXPIRED] += expire_bucket(rings, g, before, arrivals.left)
    elif scope == EVERYTHING:
        cursor[CHECKED] += rings.start.size
        cursor[EXPIRED] += expire(rings, before, arrivals.left)


@kernel
def same_bytes(rings, s, data, start, length):
    same = rings.length[s] == length
    at, j = rings.at[s], 0
    while same and j < length:
        same = rings.arena[at + j] == data[start + j]
        j += 1
    return same


@kernel
def scan(rings, g, word, data, start, length, entry, cursor, out):
    """Write to `out` the matches of one key among the tuples NEXT to STOP of bucket g, until it is full."""
    first, mask, begin = rings.head[g], rings.room[g] - 1, rings.start[g]
    for j in range(cursor[NEXT], cursor[STOP]):
        p = begin + ((first + j) & mask)
        if rings.word[p] == word:
            s = rings.slot[p]
            if same_bytes(rings, s, data, start, length):
                n = cursor[FOUND]
                if n == out.shape[1]:
                    cursor[NEXT] = j
                    return
                out[0, n] = entry
                out[1, n] = rings.segment[s]
                out[2, n] = rings.row[s]
                cursor[FOUND] = n + 1
    cursor[NEXT] = cursor[STOP]


@kernel
def arrive(own, other, mine, theirs, entry, scopes, cursor, out):
    """One tuple: expire, probe, insert. If NEXT stays before STOP, `out` is full and the tuple is not done."""
    i = entry >> 1
    t, word, start = mine.times[i], mine.words[i], mine.offsets[i]
    length = mine.offsets[i + 1] - start
    g = bucket_of(word, own.start.size)
    alive = watermark_at(theirs, t) - mine.reach  # own tuples from here on may still match
    if cursor[NEXT] == NIL:
        expire_scope(other, theirs, g, watermark_at(mine, t) - theirs.reach, scopes[0], cursor)
        expire_scope(own, mine, g, alive, scopes[1], cursor)
        cursor[NEXT] = first_from(other, g, t - theirs.reach)
        cursor[STOP] = first_from(other, g, t + mine.reach + 1)
        cursor[PROBED] += cursor[STOP] - cursor[NEXT]
    scan(other, g, word, mine.data, start, length, entry, cursor, out)
    if cursor[NEXT] < cursor[STOP]:
        return
    cursor[NEXT] = NIL
    if t >= alive:
        s = take_slot(own, mine.data, start, length, mine.segment, i)
        push(own, g, t, word, s)
        mine.slots[i] = s
        mine.left[mine.segment] += 1
        cursor[INSERTED] += 1


@kernel
def join(a, b, from_a, from_b, order, scopes, every, cursor, samples, out):
    """Run the rest of the batch until `out` is full; returns the number of matches in it.

    A match is a column of `out`: entry of the new tuple, segment and row of the stored one. (Not its slot, which may be
    freed and reused before the end of the call.) Done when cursor[AT] == order.size. When the merge passes a multiple
    of `every` (0: never), `samples` receives that time and the number of stored tuples of both sides.
    """
    cursor[FOUND] = 0
    while cursor[AT] < order.size:
        entry = order[cursor[AT]]
        from_first = (entry & 1) == 0
        if every and cursor[NEXT] == NIL:
            t = from_a.times[entry >> 1] if from_first else from_b.times[entry >> 1]
            if t >= cursor[DUE]:
                samples[cursor[SAMPLED], 0] = t - t % every
                samples[cursor[SAMPLED], 1] = a.meta[LIVE]
                samples[cursor[SAMPLED], 2] = b.meta[LIVE]
                cursor[SAMPLED] += 1
                cursor[DUE] = t - t % every + every
        if from_first:
            arrive(a, b, from_a, from_b, entry, scopes, cursor, out)
        else:
            arrive(b, a, from_b, from_a, entry, scopes, cursor, out)
        if cursor[NEXT] != NIL:
            break
        cursor[AT] += 1
    return cursor[FOUND]
