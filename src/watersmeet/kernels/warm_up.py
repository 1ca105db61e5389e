"""Compile, or load from the disk cache, every kernel for its one signature."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels import closings, hashing, lists
from watersmeet.kernels.lists import KINDS


def warm_up() -> None:
    """Call each kernel once on next to nothing. Takes about ten seconds the first time, then a fraction of one."""
    none, one = np.zeros(0, np.int64), np.zeros(1, np.int64)
    data, two = np.zeros(1, np.uint8), np.zeros(2, np.int64)
    hashing.hash_rows(data, two, -1, one.copy())
    hashing.frame_column(data, two, np.ones(1, np.bool_), one.copy(), np.zeros(8, np.uint8))
    hashing.split_rows(one, 1, one.copy(), two.copy())
    empty = lists.Lists(**{f: np.zeros(16, KINDS[f]) for f in lists.Lists._fields})
    lists.clear(empty)
    lists.insert(empty, one, one, one, data, two, one.copy())
    lists.probe(empty, one, one, one, data, two, 0, 0, False, np.array([0, lists.NIL, 0]), one.copy(), one.copy())
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
    lists.insert(empty, none, one, one, data, two, none)
