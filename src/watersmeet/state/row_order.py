"""The order of rows and of values, where times are equal."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError
from watersmeet.state.key_order import Order
from watersmeet.state.keys import Int64s, encode


def row_ranks(rows: pa.RecordBatch) -> Int64s:
    """Ranks of rows in the order of their bytes, which breaks ties of times; equal rows have equal ranks."""
    keys = encode([_comparable(column) for column in rows.columns])
    if not keys.data.size:
        return np.unique(keys.words, return_inverse=True)[1]
    whole = keys.data.tobytes()
    texts = [whole[a:b] for a, b in zip(keys.offsets[:-1].tolist(), keys.offsets[1:].tolist(), strict=True)]
    order_ranks = {text: i for i, text in enumerate(sorted(set(texts)))}
    return np.array([order_ranks[text] for text in texts], np.int64)


def value_ranks(column: pa.Array) -> Int64s:
    """Ranks of values in Spark's ascending order: NULL first, NaN last."""
    keys = encode([column])
    order_ranks = Order(column.type).of_keys(keys)
    ranks: Int64s = np.full(len(keys), -1, np.int64)
    ranks[keys.valid] = np.unique(order_ranks[keys.valid], return_inverse=True)[1]
    return ranks


def _comparable(column: pa.Array) -> pa.Array:
    if pt.is_floating(column.type):  # as a key -0.0 is 0.0, and all NaN are one; their bytes differ
        return column.view({16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[column.type.bit_width])
    try:
        encode([column.slice(0, 0)])
    except ColumnError:  # a map, or something with maps in it
        return pa.array(map(repr, column.to_pylist()), pa.string())
    return column
