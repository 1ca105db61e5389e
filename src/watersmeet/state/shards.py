"""Which keys belong to which shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.kernels.hashing import split_rows
from watersmeet.state.keys import Bools, Int64s


def split(rows: pa.RecordBatch, words: Callable[[], Int64s], shards: int) -> list[pa.RecordBatch]:
    """Rows by the shard of their keys, in their order; `words` gives those of the keys, if there is a need."""
    n = rows.num_rows
    if shards == 1 or not n:
        return [rows] + [rows.slice(0, 0)] * (shards - 1)
    order, starts = np.empty(n, np.int64), np.zeros(shards + 1, np.int64)
    split_rows(words(), shards, order, starts)
    rows = rows.take(pa.array(order))
    return [rows.slice(a, b - a) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


@dataclass(frozen=True)
class Home:
    """Tells which words are keys of one of several shards, as `split` divides them."""

    index: int
    shards: int

    def __call__(self, words: Int64s) -> Bools:
        order, starts = np.empty(words.size, np.int64), np.zeros(self.shards + 1, np.int64)
        split_rows(words, self.shards, order, starts)
        mine = np.zeros(words.size, np.bool_)
        mine[order[starts[self.index] : starts[self.index + 1]]] = True
        return mine
