"""Punctuations over value lists: closing keys, purging what they close, announcing what is finished.

Pure-Python twin: ``joins/reference.py``. A key's node carries the mark of its own stream's punctuation, so a probe
that has found the node has found the mark as well.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compiling import kernel, part
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.lists import (
    ANNOUNCED,
    CLOSED,
    CLOSINGS,
    NIL,
    OPEN,
    PENDING,
    ask_for_keys,
    drop_node,
    find,
    new_node,
    unlink,
)
from watersmeet.kernels.prefetching import GROUP, prefetch


@kernel
def close(lists, order, times, words, data, offsets, nodes):
    """Mark the keys `order` as PENDING at their times, making nodes where there are none.

    nodes[k] is the node of order[k], or NIL if it was marked before: of two times the earlier stands, and if that is
    the new one nodes[k] is NIL - 1 - node.
    """
    for k in range(order.size):
        if k % GROUP == 0:
            ask_for_keys(lists, order, words, k, min(k + GROUP, order.size), False)
        i = order[k]
        start = offsets[i]
        length = offsets[i + 1] - start
        cell = find(lists, words[i], data, start, length)
        n = np.int64(lists.table[cell])
        if n == NIL:
            n = new_node(lists, cell, words[i], data, start, length)
        nodes[k] = NIL
        if lists.mark[n] == OPEN:
            lists.mark[n] = PENDING
            lists.closing[n] = times[i]
            lists.meta[CLOSINGS] += 1
            nodes[k] = n
        elif lists.mark[n] == PENDING and times[i] < lists.closing[n]:
            lists.closing[n] = times[i]
            nodes[k] = NIL - 1 - n


@kernel
def reopen(lists, n):
    """Forget that a key was closed; its node goes if it has no tuple."""
    lists.mark[n] = OPEN
    lists.meta[CLOSINGS] -= 1
    if lists.oldest[n] == NIL:
        drop_node(lists, n)


@kernel
def forget(lists, nodes):
    for k in range(nodes.size):
        reopen(lists, nodes[k])


@kernel
def lookup(lists, order, words, data, offsets, nodes):
    """nodes[k] = the node of key order[k], or NIL."""
    for k in range(order.size):
        if k % GROUP == 0:
            ask_for_keys(lists, order, words, k, min(k + GROUP, order.size), False)
        i = order[k]
        start = offsets[i]
        nodes[k] = lists.table[find(lists, words[i], data, start, offsets[i + 1] - start)]


@part
def ask_for_counterparts(lists, nodes, other, start, stop):
    """Ask for these nodes, and for the cells and nodes that their keys have in `other`."""
    mask = np.uint64(other.table.size - 1)
    for k in range(start, stop):
        prefetch(lists.word, nodes[k])
    for k in range(start, stop):
        prefetch(other.table, np.int64(mix(lists.word[nodes[k]]) & mask))
    for k in range(start, stop):
        n = np.int64(other.table[np.int64(mix(lists.word[nodes[k]]) & mask)])
        if n != NIL:
            prefetch(other.word, n)


@kernel
def counterparts(lists, nodes, other, out):
    """out[k] = the node in `other` of the key that nodes[k] has in `lists`, or NIL."""
    for k in range(nodes.size):
        if k % GROUP == 0:
            ask_for_counterparts(lists, nodes, other, k, min(k + GROUP, nodes.size))
        n = nodes[k]
        out[k] = other.table[find(other, lists.word[n], lists.arena, lists.at[n], lists.length[n])]


@kernel
def purge(lists, nodes, left, cursor, gone):
    """Forget all tuples of these nodes (NIL ones are skipped); notes the slots as far as `gone` has room.

    Returns how many went; cursor[0] is the next node. Nodes without a mark vanish with their last tuple.
    """
    count = 0
    k = cursor[0]
    while k < nodes.size:
        n = nodes[k]
        if n != NIL:
            s = np.int64(lists.oldest[n])
            while s != NIL:
                if count == gone.size:
                    cursor[0] = k
                    return count
                up = np.int64(lists.newer[s])
                unlink(lists, s, left)
                gone[count] = s
                count += 1
                s = up
        k += 1
    cursor[0] = k
    return count


@kernel
def discard(lists, slots, left):
    """Forget these tuples."""
    for k in range(slots.size):
        unlink(lists, slots[k], left)


@kernel
def finish(lists, nodes, other, others_closed, own_padded, other_padded, out):
    """Of the CLOSED nodes given, those whose key can give no result any more and that nobody has announced yet.

    That is so when the other stream has closed the key as well (`others_closed[k]`, or its node's mark), or when this
    one holds no tuple of it, unless the other's unmatched rows are results, too. They become ANNOUNCED, on both sides.
    Returns how many; out[:n] are their nodes.
    """
    count = 0
    for k in range(nodes.size):
        if k % GROUP == 0:
            ask_for_counterparts(lists, nodes, other, k, min(k + GROUP, nodes.size))
        n = nodes[k]
        if lists.mark[n] != CLOSED:
            continue
        m = other.table[find(other, lists.word[n], lists.arena, lists.at[n], lists.length[n])]
        both = others_closed[k] or (m != NIL and other.mark[m] >= CLOSED)
        if not both and (other_padded or lists.oldest[n] != NIL):
            continue
        if m != NIL and other.mark[m] >= CLOSED:
            known = other.mark[m] == ANNOUNCED
            other.mark[m] = ANNOUNCED
        else:
            # a range of the other's was announced when it took effect, but for the keys of which it then held tuples
            known = others_closed[k] and not own_padded
        lists.mark[n] = ANNOUNCED
        if not known:
            out[count] = n
            count += 1
    return count


@kernel
def gather(data, starts, lengths, out):
    """Copy the pieces of `data` that begin at `starts` one after the other into `out`."""
    at = 0
    for k in range(starts.size):
        for b in range(starts[k], starts[k] + lengths[k]):
            out[at] = data[b]
            at += 1


@kernel
def _bit(word, bits):
    """The place of a key's bit; from other bits of its hash than its place in the table and its shard."""
    return (mix(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & np.uint64(bits - 1)


@kernel
def note(bits, words):
    """Set the bits of these words."""
    for k in range(words.size):
        b = _bit(words[k], bits.size * 64)
        bits[b >> np.uint64(6)] |= np.uint64(1) << (b & np.uint64(63))


@kernel
def suspects(bits, order, words, out):
    """Places k for which the bit of words[order[k]] is set; returns how many."""
    count = 0
    for k in range(order.size):
        b = _bit(words[order[k]], bits.size * 64)
        out[count] = k
        count += np.int64(bits[b >> np.uint64(6)] >> (b & np.uint64(63)) & np.uint64(1))
    return count
