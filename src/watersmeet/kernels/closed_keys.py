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

#: Later than all times.
NEVER = np.int64((1 << 63) - 1)


@kernel
def close(lists, order, times, words, data, offsets, nodes):
    """Mark the keys `order` as PENDING at their times; a key without a node gets one. Returns the numbers (f, s, c).

    nodes[:f] are the nodes of keys that were open before; the last s of `nodes` are those of pending keys that are now
    closed earlier: of two times the earlier counts. Of the f keys c have a stored tuple that is newer.
    """
    fresh = 0
    sooner = 0
    for k in range(order.size):
        if k % GROUP == 0:
            prefetch_keys(lists, order, words, k, min(k + GROUP, order.size), True)
        i = order[k]
        start = offsets[i]
        length = offsets[i + 1] - start
        cell = find(lists, words[i], data, start, length)
        n = np.int64(lists.table[cell])
        if n == NIL:
            n = new_node(lists, cell, words[i], data, start, length)
        if lists.mark[n] == OPEN:
            lists.mark[n] = PENDING
            lists.closed_at[n] = times[i]
            lists.meta[CLOSED_KEYS] += 1
            nodes[fresh] = n
            fresh += 1
        elif lists.mark[n] == PENDING and times[i] < lists.closed_at[n]:
            lists.closed_at[n] = times[i]
            sooner += 1
            nodes[nodes.size - sooner] = n
    contradicted = 0
    for k in range(fresh):
        newest = lists.newest[nodes[k]]
        contradicted += newest != NIL and lists.time[newest] > lists.closed_at[nodes[k]]
    return fresh, sooner, contradicted


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


@part
def take_out(lists, n, left, gone, count):
    """Unlink all tuples of node n and write their slots to gone[count:]; returns where the next ones go."""
    s = np.int64(lists.oldest[n])
    while s != NIL:
        up = np.int64(lists.newer[s])
        unlink(lists, s, left)
        gone[count] = s
        count += 1
        s = up
    return count


@kernel
def purge(lists, nodes, left, gone):
    """Purge all tuples of these nodes (NIL is skipped) and write their slots to `gone`, which has room for all tuples.

    Returns how many were purged. A node without a mark is removed with its last tuple.
    """
    count = 0
    for k in range(nodes.size):
        if nodes[k] != NIL:
            count = take_out(lists, nodes[k], left, gone, count)
    return count


@kernel
def purge_counterparts(closer, nodes, lists, left, gone):
    """The same for the nodes in `lists` of the keys that these nodes have in `closer`."""
    count = 0
    for k in range(nodes.size):
        if k % GROUP == 0:
            prefetch_counterparts(closer, nodes, lists, k, min(k + GROUP, nodes.size))
        n = nodes[k]
        m = np.int64(lists.table[find(lists, closer.word[n], closer.arena, closer.at[n], closer.length[n])])
        if m != NIL:
            count = take_out(lists, m, left, gone, count)
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


@part
def _shift(bits):
    """How far to shift a product so that it is the place of a bit."""
    shift = 58
    while np.int64(1) << (58 - shift) < bits.size:
        shift -= 1
    return np.uint64(shift)


@part
def _bit(word, shift):
    """The place of a key's bit: the highest bits of a product, which depend on all bits of the word."""
    return np.uint64(word) * np.uint64(0x9E3779B97F4A7C15) >> shift


@part
def set_bit(bits, shift, word):
    """Set a key's bit."""
    b = _bit(word, shift)
    bits[b >> np.uint64(6)] |= np.uint64(1) << (b & np.uint64(63))


@kernel
def set_bits(bits, words):
    """Set the bits of these words. `bits` has a power of two of elements."""
    shift = _shift(bits)
    for k in range(words.size):
        set_bit(bits, shift, words[k])


@kernel
def marked(lists, bits, new_words, new_times, order, times, words, data, offsets, least, out):
    """out[k] = whether the key of row order[k] has at least the mark `least`. Returns how many were looked up.

    With `times`, unless empty, also whether it is PENDING and the row is later than its punctuation. Only keys whose
    bit is set are looked up, or all of them if there are no `bits`. The bits of new punctuations, by time, are set on
    the way: before the first row that is later, if `order` is by time.
    """
    looked_up = order.size
    if bits.size:
        looked_up = 0
        new = 0
        shift = _shift(bits)
        due = new_times[0] if new_times.size and times.size else NEVER
        if not times.size:
            new = new_words.size
            for j in range(new):
                set_bit(bits, shift, new_words[j])
        for k in range(order.size):
            i = order[k]
            if times.size and times[i] > due:
                while new < new_words.size and new_times[new] < times[i]:
                    set_bit(bits, shift, new_words[new])
                    new += 1
                due = new_times[new] if new < new_words.size else NEVER
            b = _bit(words[i], shift)
            hit = bits[b >> np.uint64(6)] >> (b & np.uint64(63)) & np.uint64(1)
            out[k] = hit
            looked_up += np.int64(hit)
        for j in range(new, new_words.size):
            set_bit(bits, shift, new_words[j])
        if not looked_up:
            return looked_up
    for k in range(order.size):
        if not bits.size and k % GROUP == 0:
            prefetch_keys(lists, order, words, k, min(k + GROUP, order.size), False)
        if bits.size and not out[k]:
            continue
        i = order[k]
        start = offsets[i]
        n = np.int64(lists.table[find(lists, words[i], data, start, offsets[i + 1] - start)])
        out[k] = n != NIL and (
            lists.mark[n] >= least or (lists.mark[n] == PENDING and times.size > 0 and times[i] > lists.closed_at[n])
        )
    return looked_up
