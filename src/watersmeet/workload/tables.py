"""The generated streams as Arrow tables: the input of the Spark source, the benchmarks and the demo."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.workload.arrivals import Columns

ORIGIN = 1_767_225_600_000_000  # stream time 0 is 2026-01-01 00:00 UTC

_TIMESTAMP = pa.timestamp("us", tz="UTC")
AUCTIONS = pa.schema(
    [
        ("item_id", pa.int64()),
        ("seller", pa.int64()),
        ("category", pa.string()),
        ("reserve", pa.float64()),
        ("opened_at", _TIMESTAMP),
    ]
)
BIDS = pa.schema(
    [
        ("item_id", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.float64()),
        ("bid_at", _TIMESTAMP),
        ("closed", pa.bool_()),
    ]
)
NARROW = pa.schema([("key", pa.int64()), ("ts", _TIMESTAMP), ("value", pa.int64())])
WIDE = pa.schema(
    [("key", pa.string()), ("ts", _TIMESTAMP)]
    + [(f"number_{i}", pa.int64()) for i in range(4)]
    + [(f"measure_{i}", pa.float64()) for i in range(3)]
    + [(f"label_{i}", pa.string()) for i in range(3)]
)
PERSONS = pa.schema(
    [
        ("person_id", pa.int64()),
        ("name", pa.string()),
        ("city", pa.string()),
        ("state", pa.string()),
        ("registered_at", _TIMESTAMP),
    ]
)
NEXMARK_AUCTIONS = pa.schema(
    [
        ("auction_id", pa.int64()),
        ("item_name", pa.string()),
        ("initial_bid", pa.int64()),
        ("reserve", pa.int64()),
        ("opened_at", _TIMESTAMP),
        ("expires_at", _TIMESTAMP),
        ("seller", pa.int64()),
        ("category", pa.int64()),
    ]
)
NEXMARK_BIDS = pa.schema(
    [
        ("auction_id", pa.int64()),
        ("bidder", pa.int64()),
        ("price", pa.int64()),
        ("bid_at", _TIMESTAMP),
        ("closed", pa.bool_()),
    ]
)
PUNCTUATED = pa.schema([("key", pa.int64()), ("ts", _TIMESTAMP), ("n", pa.int64()), ("closed", pa.bool_())])
KEYED = pa.schema([("key", pa.int64()), ("ts", _TIMESTAMP)])
SCRAMBLED = pa.schema([("at", _TIMESTAMP), ("epoch", pa.int64()), ("reading", pa.float64())])


@dataclass(frozen=True)
class TableStream:
    """A generated stream: its columns, its rows per second, and the rows delivered in an interval of stream time."""

    schema: pa.Schema
    rate: float
    columns: Callable[[int, int], Columns]
    convert: Callable[[Columns, pa.Schema], pa.Table]
    end: float = inf  # microseconds of stream time; inf if the stream never ends

    def table(self, start: int, end: int) -> pa.Table:
        """The rows delivered in [start, end) microseconds of stream time."""
        return self.convert(self.columns(start, end), self.schema)


def plain_table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """The columns as a table; stream times become timestamps from `ORIGIN` on."""
    return pa.table([_array(columns[field.name], field.type) for field in schema], schema=schema)


def bid_table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """Bids and end markers; an end marker has NULL as bidder and price."""
    return _without(columns, schema, "bidder", "price")


def punctuated_table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """Tuples and punctuations; a punctuation has NULL as number."""
    return _without(columns, schema, "n")


def _without(columns: Columns, schema: pa.Schema, *names: str) -> pa.Table:
    """The table with NULL in these columns of punctuations."""
    table, is_tuple = plain_table(columns, schema), pa.array(~columns["closed"])
    for name in names:
        place = schema.get_field_index(name)
        table = table.set_column(place, schema.field(place), pc.if_else(is_tuple, table[name], None))
    return table


def wide_table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """String keys and ten payload columns in place of one number, all derived from the row's `key` and `value`."""
    key, value = pa.array(columns["key"]), columns["value"]
    wide: dict[str, pa.Array] = {
        "key": pc.binary_join_element_wise("customer", pc.cast(key, pa.string()), "-"),
        "ts": _array(columns["ts"], _TIMESTAMP),
    }
    for i in range(4):
        wide[f"number_{i}"] = pa.array(value * (i + 1))
    for i in range(3):
        wide[f"measure_{i}"] = pa.array(np.sqrt(value + i))
        labels = pa.array([f"label {i} no {n}" for n in range(100)])
        wide[f"label_{i}"] = labels.take(pa.array(value // 100**i % 100))
    return pa.table([wide[name] for name in schema.names], schema=schema)


def _array(values: NDArray[Any], kind: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(kind):
        return pa.array(values + ORIGIN).cast(kind)
    return pa.array(values, kind)
