"""The made streams as Arrow tables, by name: what the Spark source, the benchmarks and the demo read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import Columns
from watersmeet.workload.auctions import AuctionHouse
from watersmeet.workload.drifting import Drifting

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


@dataclass(frozen=True)
class TableStream:
    """A made stream: its columns, its rows per second, and the rows delivered in an interval of stream time."""

    schema: pa.Schema
    rate: float
    columns: Callable[[int, int], Columns]
    convert: Callable[[Columns, pa.Schema], pa.Table]

    def table(self, start: int, end: int) -> pa.Table:
        """The rows delivered in [start, end) microseconds of stream time."""
        return self.convert(self.columns(start, end), self.schema)


def plain_table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """Columns as they are; times of the stream become timestamps from `ORIGIN` on."""
    return pa.table([_array(columns[field.name], field.type) for field in schema], schema=schema)


def bid_table(columns: Columns, schema: pa.Schema) -> pa.Table:
    """Bids with NULL for the bidder and the price of an end marker: nobody bids there."""
    table, bid = plain_table(columns, schema), pa.array(~columns["closed"])
    for name in ("bidder", "price"):
        place = schema.get_field_index(name)
        table = table.set_column(place, schema.field(place), pc.if_else(bid, table[name], None))
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


def _auctions(options: Mapping[str, str]) -> TableStream:
    house = _made(AuctionHouse, options)
    return TableStream(AUCTIONS, house.auctions_per_second, house.auctions, plain_table)


def _bids(options: Mapping[str, str]) -> TableStream:
    house = _made(AuctionHouse, options)
    return TableStream(BIDS, house.bids_per_second, house.bids, bid_table)


def _drifting(side: str, *, wide: bool) -> Callable[[Mapping[str, str]], TableStream]:
    def make(options: Mapping[str, str]) -> TableStream:
        made = _made(Drifting, options)
        columns = made.left if side == "left" else made.right
        return TableStream(WIDE if wide else NARROW, made.rate, columns, wide_table if wide else plain_table)

    return make


STREAMS: dict[str, Callable[[Mapping[str, str]], TableStream]] = {
    "auctions": _auctions,
    "bids": _bids,
    "left": _drifting("left", wide=False),
    "right": _drifting("right", wide=False),
    "wide_left": _drifting("left", wide=True),
    "wide_right": _drifting("right", wide=True),
}

Made = TypeVar("Made", AuctionHouse, Drifting)


def _made(kind: type[Made], options: Mapping[str, str]) -> Made:
    """A workload from options in text, each read as the type of the field's default."""
    known: dict[str, Any] = {field.name: type(field.default) for field in fields(kind)}
    unknown = sorted(set(options) - set(known))
    if unknown:
        raise QueryError(
            f"the workload {kind.__name__} has no option `{'`, `'.join(unknown)}`.",
            hint=f"it takes {', '.join(known)}.",
        )
    return kind(**{name: _number(name, text, known[name]) for name, text in options.items()})


def _number(name: str, text: str, kind: Any) -> Any:
    try:
        return kind(text)
    except ValueError:
        raise QueryError(f"option `{name}` is {text!r}, which is not a number of type {kind.__name__}.") from None
