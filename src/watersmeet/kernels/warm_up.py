"""Compile, or load from the disk cache, every kernel for its one signature."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels import circular, closings, hashing, lists, multiway, sketch, sorting, tuple_at_a_time

#: The joins over circular buffers; their kernels are warmed for those who use them.
CIRCULAR = ("nested_loop", "windowed_hash")
#: Those of several streams. (Their nested loops are compiled on first use, for as many streams as there are.)
SEVERAL = ("naive_multiway", "eager", "lazy", "general_lazy", "hybrid", "wo_join")


def warm_up(*algorithms: str) -> None:
    """Call each kernel once on next to nothing. Takes about ten seconds the first time, then a fraction of one."""
    if set(algorithms) & set(CIRCULAR):
        _warm_up_circular()
    none, one = np.zeros(0, np.int64), np.zeros(1, np.int64)
    data, two = np.zeros(1, np.uint8), np.zeros(2, np.int64)
    hashing.hash_rows(data, two, -1, one.copy())
    hashing.frame_column(data, two, np.ones(1, np.bool_), one.copy(), np.zeros(8, np.uint8))
    hashing.split_rows(one, 1, one.copy(), two.copy())
    sorting.ascending(one, one)
    sorting.by_time(one, one, one.copy())
    pairs = np.zeros((4, 1), np.int32)
    sorting.by_segment(*pairs, two.copy(), pairs.copy())
    empty = lists.views({name: np.zeros(16, kind) for name, kind in lists.ARRAYS.items()})
    lists.clear(empty)
    lists.insert(empty, one, one, one, data, two, 0, one.copy())
    cursor = np.zeros(lists.PROBE_CURSOR, np.int64)
    lists.probe(empty, one, one, one, data, two, 0, 0, False, cursor, np.zeros((4, 1), np.int32))
    lists.fill_table(empty)
    lists.pack_arena(empty, np.zeros(16, np.uint8))
    nodes, left = one.copy(), np.zeros(16, np.int64)
    closings.close(empty, one, one, one, data, two, nodes)
    closings.lookup(empty, one, one, data, two, nodes)
    closings.counterparts(empty, nodes, empty, one.copy())
    closings.finish(empty, nodes, empty, np.zeros(1, np.bool_), False, False, one.copy())
    lists.expire(empty, 1, left, none, none)
    closings.purge(empty, nodes, left, one.copy(), one.copy())
    closings.discard(empty, none, left)
    closings.forget(empty, nodes)
    closings.gather(data, none, np.zeros(0, np.int32), data)
    bits = np.zeros(1, np.uint64)
    closings.note(bits, one)
    closings.suspects(bits, one, one, one.copy())
    lists.insert(empty, none, one, one, data, two, 0, none)
    sketch.observe(one, one, one, 1, 0, one.copy(), np.zeros((2, 1 << sketch.PLACE_BITS), np.uint8))
    if set(algorithms) & set(SEVERAL):
        cursor = np.array([0, lists.NIL, 0])
        multiway.extend(empty, none, 0, none, none, none, cursor, none, none, none, none)
        multiway.push_out(empty, none, none, one, none, 1, none)
        multiway.limits_by_key(empty, none, none, 1, 0)


def _warm_up_circular() -> None:
    one, two, data = np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.uint8)
    a, b = (
        circular.Rings(**{f: np.zeros(1 if f in circular.BUCKET_FIELDS else 64, k) for f, k in circular.KINDS.items()})
        for _ in range(2)
    )
    for rings in (a, b):
        rings.meta[circular.SLOT_FREE] = circular.NIL
        rings.meta[circular.FREE_RING :] = circular.NIL
        circular.reserve(rings, one, one)
    circular.insert(a, one, one, one, data, two, 0, one.copy())
    news = tuple_at_a_time.News(one, one, data, two, one.copy(), one.copy(), 0, 1, 0, 0)
    cursor, out = np.zeros(tuple_at_a_time.CURSOR, np.int64), np.zeros((3, 4), np.int64)
    cursor[tuple_at_a_time.NEXT] = circular.NIL
    tuple_at_a_time.join(a, b, news, news, two[:1], two, 0, cursor, np.zeros((0, 3), np.int64), out)
    circular.stale(a, 0)
    circular.expire(a, 1, one.copy())
    circular.pack_arena(a, np.zeros(64, np.uint8))
