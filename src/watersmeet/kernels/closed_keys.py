"""Punctuations over value lists: close keys, purge their tuples, find the punctuations to propagate.

Pure-Python twin: `joins.reference`. A key's node carries the mark of its own stream's punctuation, so a probe
that finds the node has the mark as well.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import kernel, part
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.prefetch import GROUP, prefetch
from watersmeet.kernels.value_lists import (
    CLOSED,
    CLOSED_KEYS,
    NIL,
    OPEN,
    PENDING,
    PROPAGATED,
    drop_node,
    find,
    new_node,
    prefetch_keys,
    unlink,
)


@kernel
def close(lists, order, times, words, data, offsets, nodes):
    """Mark the keys `order` as PENDING at their times; a key without a node gets one.

    nodes[k] is the node of order[k], or NIL if it has a mark already. Of two times the earlier counts; if that is the
    new one, nodes[k] is NIL - 1 - node.
    """
    for k in range(order.size):
        if k % GROUP == 0:
            prefetch_keys(lists, order, words, k, min(k + GROUP, order.size), False)
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
            lists.closed_at[n] = times[i]
            lists.meta[CLOSED_KEYS] += 1
            nodes[k] = n
        elif lists.mark[n] == PENDING and times[i] < lists.closed_at[n]:
            lists.closed_at[n] = times[i]
            nodes[k] = NIL - 1 - n


@kernel
def reopen(lists, n):
    """Remove a key's mark; without a tuple its node is removed, too."""
    lists.mark[n] = OPEN
    lists.meta[CLOSED_KEYS] -= 1
    if lists.oldest[n] == NIL:
        drop_node(lists, n)


@kernel
def reopen_all(lists, nodes):
    """Remove the marks of these nodes."""
    for k in range(nodes.size):
        reopen(lists, nodes[k])


@kernel
def lookup(lists, order, words, data, offsets, nodes):
    """nodes[k] = the node of key order[k], or NIL."""
    for k in range(order.size):
        if k % GROUP == 0:
            prefetch_keys(lists, order, words, k, min(k + GROUP, order.size), False)
        i = order[k]
        start = offsets[i]
        nodes[k] = lists.table[find(lists, words[i], data, start, offsets[i + 1] - start)]


@part
def prefetch_counterparts(lists, nodes, other, start, stop):
    """Prefetch these nodes, and the cells and nodes of their keys in `other`."""
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
            prefetch_counterparts(lists, nodes, other, k, min(k + GROUP, nodes.size))
        n = nodes[k]
        out[k] = other.table[find(other, lists.word[n], lists.arena, lists.at[n], lists.length[n])]


@kernel
def purge(lists, nodes, left, gone):
    """Purge all tuples of these nodes (NIL is skipped) and write their slots to `gone`, which has room for all tuples.

    Returns how many were purged. A node without a mark is removed with its last tuple.
    """
    count = 0
    for k in range(nodes.size):
        n = nodes[k]
        if n == NIL:
            continue
        s = np.int64(lists.oldest[n])
        while s != NIL:
            up = np.int64(lists.newer[s])
            unlink(lists, s, left)
            gone[count] = s
            count += 1
            s = up
    return count


@kernel
def discard(lists, slots, left):
    """Evict these tuples."""
    for k in range(slots.size):
        unlink(lists, slots[k], left)


@kernel
def finish(lists, nodes, other, others_closed, own_padded, other_padded, out):
    """Of the CLOSED nodes given, those whose key can give no more results and is not propagated yet.

    A key can give no more results when the other stream has closed it as well (`others_closed[k]`, or its node's mark),
    or when this stream holds no tuple of it, unless the other's unmatched rows are results, too. The nodes become
    PROPAGATED on both sides. Returns their number n; out[:n] are the nodes.
    """
    count = 0
    for k in range(nodes.size):
        if k % GROUP == 0:
            prefetch_counterparts(lists, nodes, other, k, min(k + GROUP, nodes.size))
        n = nodes[k]
        if lists.mark[n] != CLOSED:
            continue
        m = other.table[find(other, lists.word[n], lists.arena, lists.at[n], lists.length[n])]
        both = others_closed[k] or (m != NIL and other.mark[m] >= CLOSED)
        if not both and (other_padded or lists.oldest[n] != NIL):
            continue
        if m != NIL and other.mark[m] >= CLOSED:
            known = other.mark[m] == PROPAGATED
            other.mark[m] = PROPAGATED
        else:
            # the other's range was propagated when it took effect, except for keys of which it then held tuples
            known = others_closed[k] and not own_padded
        lists.mark[n] = PROPAGATED
        if not known:
            out[count] = n
            count += 1
    return count


@kernel
def gather(data, starts, lengths, out):
    """Copy the pieces of `data` that begin at `starts` into `out`, one after the other."""
    at = 0
    for k in range(starts.size):
        for b in range(starts[k], starts[k] + lengths[k]):
            out[at] = data[b]
            at += 1


@kernel
def _bit(word, bits):
    """The position of a key's bit. Uses other bits of the hash than the table and the choice of a shard do."""
    return (mix(word) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20) & np.uint64(bits - 1)


@kernel
def set_bits(bits, words):
    """Set the bits of these words."""
    for k in range(words.size):
        b = _bit(words[k], bits.size * 64)
        bits[b >> np.uint64(6)] |= np.uint64(1) << (b & np.uint64(63))


@kernel
def suspects(bits, order, words, out):
    """Write to `out` the positions k for which the bit of words[order[k]] is set; returns their number."""
    count = 0
    for k in range(order.size):
        b = _bit(words[order[k]], bits.size * 64)
        out[count] = k
        count += np.int64(bits[b >> np.uint64(6)] >> (b & np.uint64(63)) & np.uint64(1))
    return count
