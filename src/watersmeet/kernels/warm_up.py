"""Compile, or load from the disk cache, every kernel for its one signature."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import asof, closed_keys, hashing, hyperloglog, multiway, sorted_index, sorting, value_lists
from watersmeet.kernels.baselines import circular_buffers, tuple_at_a_time

Int64s = npt.NDArray[np.int64]


def warm_up(*, multiway_joins: bool = False, baselines: bool = False, sorted_indexes: bool = False) -> None:
    """Call each kernel once on next to nothing. Takes about ten seconds the first time, then a fraction of one.

    Kernels of multi-way joins, circular buffers and sorted indexes only where needed. (Nested loops over several
    streams are compiled on first use, for as many streams as there are.)
    """
    if baselines:
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
    sorting.ends_of_runs(pairs[2], one.copy())
    empty = value_lists.views({name: np.zeros(16, kind) for name, kind in value_lists.ARRAYS.items()})
    value_lists.clear(empty)
    value_lists.insert(empty, one, one, one, data, two, 0, one.copy())
    cursor = np.zeros(value_lists.PROBE_CURSOR, np.int64)
    closed = np.zeros(1, np.bool_)
    value_lists.probe(empty, one, one, one, data, two, 0, 0, False, closed, cursor, np.zeros((4, 1), np.int32))
    value_lists.fill_table(empty)
    value_lists.pack_arena(empty, np.zeros(16, np.uint8))
    nodes, left = one.copy(), np.zeros(16, np.int64)
    closed_keys.close(empty, one, one, one, data, two, nodes)
    closed_keys.lookup(empty, one, one, data, two, nodes)
    closed_keys.counterparts(empty, nodes, empty, one.copy())
    closed_keys.finish(empty, nodes, empty, np.zeros(1, np.bool_), False, False, one.copy())
    value_lists.expire(empty, 1, left, none, none)
    closed_keys.purge(empty, nodes, left, one.copy())
    closed_keys.purge_counterparts(empty, nodes, empty, left, one.copy())
    closed_keys.discard(empty, none, left)
    closed_keys.reopen_all(empty, nodes)
    closed_keys.gather(data, none, np.zeros(0, np.int32), data)
    bits = np.zeros(1, np.uint64)
    closed_keys.set_bits(bits, one)
    closed_keys.marked(empty, bits, one, one, one, one, one, data, two, np.uint8(1), closed)
    value_lists.insert(empty, none, one, one, data, two, 0, none)
    hyperloglog.observe(one, one, one, 1, 0, one.copy(), np.zeros((2, 1 << hyperloglog.PLACE_BITS), np.uint8))
    _warm_up_asof(empty, none, left)
    if sorted_indexes:
        floats, slots = np.zeros(1), np.zeros(1, np.int32)
        sorted_index.merge(floats[:0], slots[:0], np.zeros(0, np.bool_), floats, slots, floats.copy(), slots.copy())
        stored = (empty.time, empty.node, empty.segment, empty.row)
        cursor = np.array([0, -1, 0])
        sorted_index.pairs(
            floats, slots, 0, floats, floats, np.zeros(1, np.bool_), one, one, *stored, 0, 0, cursor, pairs
        )
    if multiway_joins:
        cursor = np.array([0, value_lists.NIL, 0])
        multiway.extend(empty, none, 0, none, none, none, cursor, none, none, none, none)
        multiway.push_out(empty, none, none, one, none, 1, none)
        multiway.limits_by_key(empty, none, none, 1, 0)


def _warm_up_asof(empty: value_lists.Lists, none: Int64s, left: Int64s) -> None:
    rule, slots = (True, True, True, 0), np.zeros((3, 1), np.int32)
    where = (*rule, left, slots, none, np.zeros(2, np.int64))
    asof.answer_before(empty, empty, 0, *where)
    asof.answer_nodes(empty, empty, none, True, 0, *where)
    asof.evict(empty, empty, none, True, 0, *rule, left, none)
    asof.ties(empty, none, none)
    asof.between(empty, value_lists.UNPASSED, 0, 0, none)
    asof.newest_nodes(empty, 0, none)
    asof.slots_of(empty, none, none)


def _warm_up_circular() -> None:
    one, two, data = np.zeros(1, np.int64), np.zeros(2, np.int64), np.zeros(1, np.uint8)
    a, b = (
        circular_buffers.Rings(
            **{
                f: np.zeros(1 if f in circular_buffers.BUCKET_FIELDS else 64, k)
                for f, k in circular_buffers.KINDS.items()
            }
        )
        for _ in range(2)
    )
    for rings in (a, b):
        rings.meta[circular_buffers.SLOT_FREE] = circular_buffers.NIL
        rings.meta[circular_buffers.FREE_RING :] = circular_buffers.NIL
        circular_buffers.reserve(rings, one, one)
    circular_buffers.insert(a, one, one, one, data, two, 0, one.copy())
    arrivals = tuple_at_a_time.ArrivalArrays(one, one, data, two, one.copy(), one.copy(), 0, 1, 0, 0)
    cursor, out = np.zeros(tuple_at_a_time.CURSOR, np.int64), np.zeros((3, 4), np.int64)
    cursor[tuple_at_a_time.NEXT] = circular_buffers.NIL
    tuple_at_a_time.join(a, b, arrivals, arrivals, two[:1], two, 0, cursor, np.zeros((0, 3), np.int64), out)
    circular_buffers.stale(a, 0)
    circular_buffers.expire(a, 1, one.copy())
    circular_buffers.pack_arena(a, np.zeros(64, np.uint8))
