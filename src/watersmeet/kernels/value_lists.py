"""Time list and value lists of one stream, in flat arrays. Pure-Python twin: ``joins/reference/definition.py``.

A *slot* is a stored tuple, a *node* a key that has some. Links are 32-bit slot or node numbers, NIL ends a list.
A *word* is the 64-bit machine word of a key: the key itself if it fits, else its hash.
A free slot or node is found by next fit (Knuth): the search goes on behind the one taken last. So tuples, and keys,
that come one after the other are neighbours in memory, wherever others have left holes. One in five is kept free, so
that a search passes few that are in use.

::

    time list   head ⇄ slot ⇄ slot ⇄ … ⇄ tail          all tuples, by (time, arrival)
    value list  node ─► oldest ⇄ … ⇄ newest ◄─ node     tuples of one key, by (time, arrival)
    table       open addressing, linear probing, backward-shift deletion: no tombstones

Both lists have one order, so the tuple at the head of the time list is also the head of its value list:
expiry unlinks it from both without a search.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from watersmeet.kernels.compile import kernel, part
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.prefetch import GROUP, prefetch

NIL = -1

# Places in `meta`, the only mutable scalars.
(
    LIVE,
    SLOT_TOP,
    SLOT_NEXT,  # where to look for a free slot
    NODE_TOP,
    NODE_NEXT,  # where to look for a free node
    NODES,
    HEAD,
    TAIL,
    ARENA_TOP,
    ARENA_DEAD,
    CLOSED_KEYS,  # nodes with a mark
    RUNG,  # nodes that the last call of `expire` wrote to `ring`
    BORN,  # nodes in `born`, or NIL when they are not recorded
    UNPASSED,  # as-of join: where to look for tuples that the left watermark has passed; any slot will do
    OUTLIVED,  # as-of join: where to look for tuples beyond the tolerance; any slot will do
) = range(15)
META = 15

#: Length of the cursor of `probe`.
PROBE_CURSOR = 3 + GROUP

# Marks of a node: how far the stream's own punctuation of the key has come.
OPEN, PENDING, CLOSED, PROPAGATED = range(4)


class Lists(NamedTuple):
    """The arrays of one stream's state. Slot arrays share one length, node arrays another; see `SLOT`, `NODE`."""

    meta: np.ndarray  # int64[META]
    time: np.ndarray  # int64, per slot
    earlier: np.ndarray  # int32: time list, towards the head
    later: np.ndarray  # int32: time list, towards the tail
    older: np.ndarray  # int32: value list
    newer: np.ndarray  # int32: value list
    node: np.ndarray  # int32: the tuple's key; NIL: the slot is free
    segment: np.ndarray  # int32: the segment that holds its row
    row: np.ndarray  # int32: the number of its row in the segment
    matched: np.ndarray  # uint8: whether it is part of a result (maintained only for joins that emit unmatched rows)
    word: np.ndarray  # int64, per node: the key, or its hash
    at: np.ndarray  # int64: offset of the key's bytes in the arena
    length: np.ndarray  # int32: number of the key's bytes; NIL: the node is free
    oldest: np.ndarray  # int32
    newest: np.ndarray  # int32
    mark: np.ndarray  # uint8: OPEN, PENDING, CLOSED or PROPAGATED; a marked node outlives its last tuple
    closed_at: np.ndarray  # int64: time of the punctuation that marked it
    born: np.ndarray  # int32: nodes that may be new to the ordered index, if the state has one
    table: np.ndarray  # int32, a power of two: nodes by hash
    arena: np.ndarray  # uint8: bytes of keys that do not fit a word


#: Fields of a slot, and of a node. Each is one record, and the arrays of `Lists` are views of such records:
#: an operation on a tuple or a key waits for memory once, not once per field.
SLOT = np.dtype(
    {
        "names": ["time", "older", "newer", "node", "later", "earlier", "segment", "row", "matched"],
        "formats": [np.int64, *[np.int32] * 7, np.uint8],
        "offsets": [0, 8, 12, 16, 20, 24, 28, 32, 36],
        "itemsize": 40,
    }
)
NODE = np.dtype(
    {
        "names": ["word", "oldest", "newest", "length", "mark", "at", "closed_at"],
        "formats": [np.int64, np.int32, np.int32, np.int32, np.uint8, np.int64, np.int64],
        "offsets": [0, 8, 12, 16, 20, 24, 32],
        "itemsize": 40,
    }
)

#: The arrays that a state allocates, and the types of their elements.
ARRAYS: dict[str, Any] = {
    "meta": np.int64,
    "slots": SLOT,
    "nodes": NODE,
    "born": np.int32,
    "table": np.int32,
    "arena": np.uint8,
}


def views(arrays: dict[str, Any]) -> Lists:
    """The arrays of a state as kernels see them."""
    slots = {field: arrays["slots"][field] for field in SLOT.names or ()}
    nodes = {field: arrays["nodes"][field] for field in NODE.names or ()}
    return Lists(**slots, **nodes, **{name: a for name, a in arrays.items() if name not in ("slots", "nodes")})


@kernel
def clear(lists):
    """Make zeroed arrays a state that holds nothing."""
    lists.table[:] = NIL
    for place in (HEAD, TAIL, BORN):
        lists.meta[place] = NIL


@part
def prefetch_keys(lists, order, words, start, stop, newest):
    """Prefetch the table's cells and the nodes of the keys order[start:stop]; with `newest` also newest tuples."""
    mask = np.uint64(lists.table.size - 1)
    for k in range(start, stop):
        prefetch(lists.table, np.int64(mix(words[order[k]]) & mask))
    for k in range(start, stop):
        n = np.int64(lists.table[np.int64(mix(words[order[k]]) & mask)])
        if n != NIL:
            prefetch(lists.word, n)
    if newest:
        for k in range(start, stop):
            n = np.int64(lists.table[np.int64(mix(words[order[k]]) & mask)])
            if n != NIL and lists.newest[n] != NIL:
                prefetch(lists.time, np.int64(lists.newest[n]))


@part
def find(lists, word, data, start, length):
    """Place in the table of the node with this key, or of the empty cell for it."""
    mask = lists.table.size - 1
    cell = np.int64(mix(word) & np.uint64(mask))
    while True:
        n = lists.table[cell]
        if n == NIL:
            return cell
        if lists.word[n] == word and lists.length[n] == length:
            at = lists.at[n]
            same = True
            for j in range(length):
                if lists.arena[at + j] != data[start + j]:
                    same = False
                    break
            if same:
                return cell
        cell = (cell + 1) & mask


@part
def new_node(lists, cell, word, data, start, length):
    """Make a node for a key that `find` did not find. The caller has made room."""
    meta = lists.meta
    n = meta[NODE_NEXT]
    while True:
        if n == lists.word.size:
            n = 0
        if n == meta[NODE_TOP]:
            meta[NODE_TOP] += 1
            break
        if lists.length[n] == NIL:
            break
        n += 1
    meta[NODE_NEXT] = n + 1
    lists.word[n] = word
    lists.at[n] = meta[ARENA_TOP]
    lists.length[n] = length
    for j in range(length):
        lists.arena[meta[ARENA_TOP] + j] = data[start + j]
    meta[ARENA_TOP] += length
    lists.oldest[n] = NIL
    lists.newest[n] = NIL
    lists.mark[n] = OPEN
    lists.table[cell] = n
    meta[NODES] += 1
    return n


@part
def drop_node(lists, n):
    """Remove a key. Cells behind it in its run move up and leave no tombstone."""
    table = lists.table
    mask = table.size - 1
    cell = np.int64(mix(lists.word[n]) & np.uint64(mask))
    while table[cell] != n:
        cell = (cell + 1) & mask
    gap = cell
    cell = (cell + 1) & mask
    while table[cell] != NIL:
        home = np.int64(mix(lists.word[table[cell]]) & np.uint64(mask))
        if ((cell - home) & mask) >= ((cell - gap) & mask):
            table[gap] = table[cell]
            gap = cell
        cell = (cell + 1) & mask
    table[gap] = NIL
    meta = lists.meta
    meta[ARENA_DEAD] += lists.length[n]
    meta[NODES] -= 1
    lists.length[n] = NIL


@part
def take_slot(lists):
    """A free slot, from now on in use."""
    meta = lists.meta
    s = meta[SLOT_NEXT]
    while True:
        if s == lists.node.size:
            s = 0
        if s == meta[SLOT_TOP]:
            meta[SLOT_TOP] += 1
            break
        if lists.node[s] == NIL:
            break
        s += 1
    meta[SLOT_NEXT] = s + 1
    return s


@kernel
def insert(lists, order, times, words, data, offsets, segment, slots):
    """Store the tuples `order` (ascending in time) of segment `segment`; slots[k] is the slot of tuple order[k].

    Walks back only over stored tuples that are newer than the one inserted: the cost follows a stream's disorder, not
    its state. The caller has made room for that many slots, nodes and key bytes.
    """
    meta = lists.meta
    behind = np.int64(meta[TAIL])
    if order.size:
        first = times[order[0]]
        while behind != NIL and lists.time[behind] > first:
            behind = np.int64(lists.earlier[behind])
    for k in range(order.size):
        if k % GROUP == 0:
            prefetch_keys(lists, order, words, k, min(k + GROUP, order.size), True)
        i = order[k]
        t = times[i]
        start = offsets[i]
        length = offsets[i + 1] - start
        cell = find(lists, words[i], data, start, length)
        n = np.int64(lists.table[cell])
        if n == NIL:
            n = new_node(lists, cell, words[i], data, start, length)
        s = take_slot(lists)
        lists.time[s] = t
        lists.node[s] = n
        lists.segment[s] = segment
        lists.row[s] = i
        lists.matched[s] = 0
        slots[k] = s
        # time list: after `behind`, which only moves forward because `order` ascends
        ahead = np.int64(lists.later[behind]) if behind != NIL else meta[HEAD]
        while ahead != NIL and lists.time[ahead] <= t:
            behind = ahead
            ahead = np.int64(lists.later[ahead])
        lists.earlier[s] = behind
        lists.later[s] = ahead
        if behind != NIL:
            lists.later[behind] = s
        else:
            meta[HEAD] = s
        if ahead != NIL:
            lists.earlier[ahead] = s
        else:
            meta[TAIL] = s
        behind = s
        # value list: from its newest end
        over = np.int64(lists.newest[n])
        above = np.int64(NIL)
        while over != NIL and lists.time[over] > t:
            above = over
            over = np.int64(lists.older[over])
        lists.older[s] = over
        lists.newer[s] = above
        if over != NIL:
            lists.newer[over] = s
        else:
            lists.oldest[n] = s
        if above != NIL:
            lists.older[above] = s
        else:
            lists.newest[n] = s
    meta[LIVE] += order.size


@kernel
def probe(lists, order, times, words, data, offsets, back, ahead, track, closed, cursor, out):
    """Pairs (row, slot) with equal keys and ``time[row] - back <= time[slot] <= time[row] + ahead``.

    Fills the columns of `out` (row; slot; segment of the stored tuple and row there) until they are full and returns
    the number of pairs. `cursor` = (first row of the group, 1 + its next row or 0 before the first, tuples looked at,
    next slot of each row of the group) is where the next call continues. Done when cursor[0] == order.size.
    With `track` the tuples found are marked as matched. `closed`, unless empty, receives whether the key order[k] is
    closed: the node that has its tuples has its mark as well.

    The rows of a group walk down their value lists side by side, so that one waits for memory while others work.
    """
    n_out = 0
    looked = 0
    k = cursor[0]
    while k < order.size:
        rows = min(GROUP, order.size - k)
        if not cursor[1]:
            prefetch_keys(lists, order, words, k, k + rows, True)
            for r in range(rows):
                i = order[k + r]
                start = offsets[i]
                n = lists.table[find(lists, words[i], data, start, offsets[i + 1] - start)]
                cursor[3 + r] = lists.newest[n] if n != NIL else NIL
                if closed.size:
                    closed[k + r] = n != NIL and lists.mark[n] >= CLOSED
            cursor[1] = 1
        first = cursor[1] - 1
        walking = True
        while walking:
            walking = first > 0
            for r in range(first, rows):
                s = cursor[3 + r]
                if s == NIL:
                    continue
                i = order[k + r]
                t = times[i]
                if lists.time[s] < t - back:
                    cursor[3 + r] = NIL
                    continue
                if lists.time[s] <= t + ahead:
                    if n_out == out.shape[1]:
                        cursor[0] = k
                        cursor[1] = r + 1
                        cursor[2] += looked
                        return n_out
                    if track:
                        lists.matched[s] = 1
                    out[0, n_out] = i
                    out[1, n_out] = s
                    out[2, n_out] = lists.segment[s]
                    out[3, n_out] = lists.row[s]
                    n_out += 1
                looked += 1
                s = np.int64(lists.older[s])
                cursor[3 + r] = s
                if s != NIL:
                    prefetch(lists.time, s)
                    walking = True
            first = 0
        cursor[1] = 0
        k += rows
    cursor[0] = k
    cursor[2] += looked
    return n_out


@part
def unlink(lists, s, left):
    """Take tuple s out of both lists and free its slot. A node without a mark goes with its last tuple."""
    meta = lists.meta
    before, after = np.int64(lists.earlier[s]), np.int64(lists.later[s])
    if before != NIL:
        lists.later[before] = after
    else:
        meta[HEAD] = after
    if after != NIL:
        lists.earlier[after] = before
    else:
        meta[TAIL] = before
    n = lists.node[s]
    down, up = lists.older[s], lists.newer[s]
    if down != NIL:
        lists.newer[down] = up
    else:
        lists.oldest[n] = up
    if up != NIL:
        lists.older[up] = down
    else:
        lists.newest[n] = down
    if down == NIL and up == NIL and lists.mark[n] == OPEN:
        drop_node(lists, n)
    left[lists.segment[s]] -= 1
    lists.node[s] = NIL
    meta[LIVE] -= 1


@part
def prefetch_oldest(lists, first, before):
    """Prefetch what the expiry of the next tuples reads: nodes, next tuples, and the cells of keys it removes."""
    mask = np.uint64(lists.table.size - 1)
    count = 0
    s = first
    while s != NIL and count < GROUP and lists.time[s] < before:
        prefetch(lists.word, np.int64(lists.node[s]))
        if lists.newer[s] != NIL:
            prefetch(lists.time, np.int64(lists.newer[s]))
        s = np.int64(lists.later[s])
        count += 1
    s = first
    for _ in range(count):
        if lists.newer[s] == NIL:
            prefetch(lists.table, np.int64(mix(lists.word[lists.node[s]]) & mask))
        s = np.int64(lists.later[s])
    return count


@kernel
def expire(lists, before, left, gone, ring):
    """Expire tuples with ``time < before``; left[g] falls by the number in segment g. Returns how many expired.

    `gone`, unless empty, receives their slots. `ring`, unless empty, receives the closed nodes that lost their last
    tuple: the punctuated ring, keys ready to be propagated. Stops when either is full; the caller calls again.
    """
    meta = lists.meta
    count = 0
    rung = 0
    s = meta[HEAD]
    prefetched = 0
    while s != NIL and lists.time[s] < before:
        if prefetched == 0:
            prefetched = prefetch_oldest(lists, s, before)
        prefetched -= 1
        if (gone.size and count == gone.size) or (ring.size and rung == ring.size):
            break
        n = lists.node[s]
        up = lists.newer[s]
        lists.oldest[n] = up
        if up != NIL:
            lists.older[up] = NIL
        else:
            lists.newest[n] = NIL
            if lists.mark[n] == OPEN:
                drop_node(lists, n)
            elif ring.size and lists.mark[n] == CLOSED:
                ring[rung] = n
                rung += 1
        left[lists.segment[s]] -= 1
        lists.node[s] = NIL
        if gone.size:
            gone[count] = s
        count += 1
        s = np.int64(lists.later[s])
    meta[HEAD] = s
    if s != NIL:
        lists.earlier[s] = NIL
    else:
        meta[TAIL] = NIL
    meta[LIVE] -= count
    meta[RUNG] = rung
    return count


@kernel
def fill_table(lists):
    """Put every node into the (new, larger) table."""
    table = lists.table
    table[:] = NIL
    mask = table.size - 1
    for n in range(lists.meta[NODE_TOP]):
        if lists.length[n] == NIL:
            continue
        cell = np.int64(mix(lists.word[n]) & np.uint64(mask))
        while table[cell] != NIL:
            cell = (cell + 1) & mask
        table[cell] = n


@kernel
def pack_arena(lists, fresh):
    """Copy the bytes of stored keys into a fresh arena, with which the caller replaces the old one."""
    top = 0
    for n in range(lists.meta[NODE_TOP]):
        length = lists.length[n]
        if length == NIL:
            continue
        at = lists.at[n]
        for j in range(length):
            fresh[top + j] = lists.arena[at + j]
        lists.at[n] = top
        top += length
    lists.meta[ARENA_TOP] = top
    lists.meta[ARENA_DEAD] = 0
