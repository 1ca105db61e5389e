"""Which keys, and rows without a key, belong to which shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from watersmeet.errors import ColumnError
from watersmeet.kernels.hashing import split_rows
from watersmeet.state.keys import Bools, Int64s, encode


def split(rows: pa.RecordBatch, words: Callable[[], Int64s], shards: int) -> list[pa.RecordBatch]:
    """Rows by the shard of their keys, in their order; `words` computes the words of their keys, if needed."""
    n = rows.num_rows
    if shards == 1 or not n:
        return [rows] + [rows.slice(0, 0)] * (shards - 1)
    order, starts = np.empty(n, np.int64), np.zeros(shards + 1, np.int64)
    split_rows(words(), shards, order, starts)
    rows = rows.take(pa.array(order))
    return [rows.slice(a, b - a) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]


def row_words(rows: pa.RecordBatch) -> Int64s:
    """A word for each row, of all columns that can be compared: equal rows have one word."""
    return encode([column for column in rows.columns if _has_words(column.type)]).words


@cache
def _has_words(kind: pa.DataType) -> bool:
    try:
        return len(encode([pa.nulls(0, kind)])) == 0
    except ColumnError:
        return False


@dataclass(frozen=True)
class ShardKeys:
    """Which words are keys of shard `index` of `shards`, as `split` divides them."""

    index: int
    shards: int

    def __call__(self, words: Int64s) -> Bools:
        order, starts = np.empty(words.size, np.int64), np.zeros(self.shards + 1, np.int64)
        split_rows(words, self.shards, order, starts)
        mine = np.zeros(words.size, np.bool_)
        mine[order[starts[self.index] : starts[self.index + 1]]] = True
        return mine
