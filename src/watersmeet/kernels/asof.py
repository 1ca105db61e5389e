"""As-of joins over value lists: answer left tuples that are final, evict right tuples that are no answer any more.

Pure-Python twin: `joins.reference.asof`. The right lists hold at most one tuple of a key and time, its *version*.
`back` and `ahead`: whether candidates stand before, and after, a left tuple; `exact`: whether at its own time; `reach`:
how far away at most.
"""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import kernel, part
from watersmeet.kernels.prefetch import GROUP, prefetch
from watersmeet.kernels.value_lists import CLOSED, HEAD, NIL, SLOT_TOP, TAIL, find, unlink


@part
def newest_until(lists, n, time):
    """The newest tuple of node n that is not after `time`, or NIL. Looks from both ends of the list."""
    up, down = np.int64(lists.oldest[n]), np.int64(lists.newest[n])
    before = np.int64(NIL)
    while down != NIL:
        if lists.time[down] <= time:
            return down
        if lists.time[up] > time:
            break
        before = up
        up = np.int64(lists.newer[up])
        down = np.int64(lists.older[down])
    return before


@part
def any_between(lists, n, low, high):
    """Whether node n has a tuple with ``low <= time <= high``. Looks from both ends of the list."""
    up, down = np.int64(lists.oldest[n]), np.int64(lists.newest[n])
    while up != NIL:
        if lists.time[up] >= low:
            return lists.time[up] <= high
        if lists.time[down] <= high:
            return lists.time[down] >= low
        up = np.int64(lists.newer[up])
        down = np.int64(lists.older[down])
    return False


@part
def answer_key(left, right, n, cut, back, ahead, exact, reach, gone, out, ring, counts):
    """Answer the tuples of left node n before `cut`, oldest first, and evict them.

    The columns of `out` from counts[0] on receive the left tuple, its answer, and the other candidate it had; `ring`
    from counts[1] on the node, if it is closed and has lost its last tuple.
    """
    count = counts[0]
    s = np.int64(left.oldest[n])
    if s == NIL or left.time[s] >= cut:
        return
    m = np.int64(right.table[find(right, left.word[n], left.arena, left.at[n], left.length[n])])
    some = m != NIL and right.oldest[m] != NIL
    within = np.int64(0) if exact else np.int64(1)
    down = newest_until(right, m, left.time[s] - within) if some else np.int64(NIL)
    while s != NIL and left.time[s] < cut:
        t = left.time[s]
        b, f = np.int64(NIL), np.int64(NIL)
        if some:
            up = np.int64(right.newer[down]) if down != NIL else np.int64(right.oldest[m])
            while up != NIL and right.time[up] <= t - within:
                down = up
                up = np.int64(right.newer[up])
            if back and down != NIL and t - right.time[down] <= reach:
                b = down
            if ahead:
                f = up
                if exact and down != NIL and right.time[down] == t:
                    f = down
                elif not exact and up != NIL and right.time[up] == t:
                    f = np.int64(right.newer[up])
                if f != NIL and right.time[f] - t > reach:
                    f = np.int64(NIL)
        forward = b == NIL or (f != NIL and right.time[f] - t < t - right.time[b])
        out[0, count] = s
        out[1, count] = f if forward else b
        out[2, count] = b if forward else f
        count += 1
        after = np.int64(left.newer[s])
        last = after == NIL
        unlink(left, s, gone)
        if last and left.mark[n] == CLOSED:
            ring[counts[1]] = n
            counts[1] += 1
        s = after
    counts[0] = count


@kernel
def answer_before(left, right, cut, back, ahead, exact, reach, gone, out, ring, counts):
    """Answer and evict all left tuples before `cut`; gone[g] falls by the number of them in segment g."""
    while left.meta[HEAD] != NIL and left.time[left.meta[HEAD]] < cut:
        n = np.int64(left.node[left.meta[HEAD]])
        answer_key(left, right, n, cut, back, ahead, exact, reach, gone, out, ring, counts)


@kernel
def answer_nodes(left, right, nodes, closed, seen, back, ahead, exact, reach, gone, out, ring, counts):
    """Answer and evict the left tuples of these nodes that are final.

    If the right stream has `closed` their keys, all of them are. Otherwise those up to the newest version that no right
    tuple to come can precede: all of these have times from `seen` on.
    """
    for k in range(nodes.size):
        if k % GROUP == 0:
            for j in range(k, min(k + GROUP, nodes.size)):
                if nodes[j] != NIL:
                    prefetch(left.word, nodes[j])
        n = nodes[k]
        if n == NIL or left.oldest[n] == NIL:
            continue
        cut = np.int64(np.iinfo(np.int64).max)
        if not closed:
            m = np.int64(right.table[find(right, left.word[n], left.arena, left.at[n], left.length[n])])
            if m == NIL or right.oldest[m] == NIL:
                continue
            v = newest_until(right, m, seen - 1)
            if v == NIL:
                continue
            cut = right.time[v] + 1 if exact else right.time[v]
        answer_key(left, right, n, cut, back, ahead, exact, reach, gone, out, ring, counts)


@kernel
def ties(lists, slots, out):
    """Of these tuples those that share key and time with an older one, and that one; returns their number."""
    count = 0
    for k in range(slots.size):
        s = slots[k]
        older = np.int64(lists.older[s])
        if older != NIL and lists.time[older] == lists.time[s]:
            out[count] = s
            out[count + 1] = older
            count += 2
    return count


@kernel
def between(lists, place, low, high, out):
    """Tuples with ``low <= time <= high``, from the slot in meta[place] on, or the newest; returns their number.

    Leaves in meta[place] the first tuple behind them, where the next call begins its search.
    """
    meta = lists.meta
    s = meta[place]
    if s < 0 or s >= meta[SLOT_TOP] or lists.node[s] == NIL:
        s = meta[TAIL]
    while s != NIL and lists.time[s] >= low:
        s = np.int64(lists.earlier[s])
    s = np.int64(lists.later[s]) if s != NIL else meta[HEAD]
    while s != NIL and lists.time[s] < low:
        s = np.int64(lists.later[s])
    count = 0
    while s != NIL and lists.time[s] <= high:
        out[count] = s
        count += 1
        s = np.int64(lists.later[s])
    meta[place] = s
    return count


@kernel
def newest_nodes(lists, low, out):
    """Nodes of the tuples with ``time >= low``, newest first; returns their number."""
    s = lists.meta[TAIL]
    count = 0
    while s != NIL and lists.time[s] >= low:
        out[count] = lists.node[s]
        count += 1
        s = np.int64(lists.earlier[s])
    return count


@kernel
def slots_of(lists, nodes, out):
    """All tuples of these nodes (NIL is skipped); returns their number."""
    count = 0
    for k in range(nodes.size):
        s = np.int64(lists.oldest[nodes[k]]) if nodes[k] != NIL else np.int64(NIL)
        while s != NIL:
            out[count] = s
            count += 1
            s = np.int64(lists.newer[s])
    return count


@part
def awaited(right, x, low, back, exact, reach):
    """Whether version x may be the answer to a left tuple with a time from `low` on."""
    t = right.time[x]
    if not back:
        return t >= low if exact else t > low
    up = right.newer[x]
    preferred = up != NIL and (right.time[up] <= low if exact else right.time[up] < low)
    return not preferred and t + reach >= low


@part
def held(right, left, x, m, back, ahead, exact, reach):
    """Whether version x is the best candidate, on its side, of a stored left tuple of node m."""
    t = right.time[x]
    within = np.int64(0) if exact else np.int64(1)
    if back:
        high = t + reach
        up = right.newer[x]
        if up != NIL:
            high = min(high, right.time[up] - 1 + within)
        if any_between(left, m, t + within, high):
            return True
    if ahead:
        low = t - reach
        down = right.older[x]
        if down != NIL:
            low = max(low, right.time[down] + 1 - within)
        return any_between(left, m, low, t - within)
    return False


@kernel
def evict(right, left, slots, closed, low, back, ahead, exact, reach, gone, out):
    """Evict those of the versions `slots`, and of their neighbours, that can be no answer; returns their number.

    Left tuples to come have times from `low` on; if the left stream has `closed` the keys, none will come. `out`
    receives the slots, gone[g] falls by the number of them in segment g.
    """
    count = 0
    for k in range(slots.size):
        if k % GROUP == 0:
            for j in range(k, min(k + GROUP, slots.size)):
                prefetch(right.time, slots[j])
        s = slots[k]
        if right.node[s] == NIL:
            continue
        n = np.int64(right.node[s])
        x = np.int64(right.older[s]) if right.older[s] != NIL else s
        last = np.int64(right.newer[s]) if right.newer[s] != NIL else s
        m = np.int64(NIL - 1)
        while x != NIL:
            after = np.int64(right.newer[x]) if x != last else np.int64(NIL)
            if closed or not awaited(right, x, low, back, exact, reach):
                if m < NIL:
                    m = np.int64(left.table[find(left, right.word[n], right.arena, right.at[n], right.length[n])])
                if m == NIL or left.oldest[m] == NIL or not held(right, left, x, m, back, ahead, exact, reach):
                    unlink(right, x, gone)
                    out[count] = x
                    count += 1
            x = after
    return count
