"""Types that are written down and read again."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.model.arrow_types import parse_type

KINDS = [
    pa.int8(),
    pa.uint64(),
    pa.float32(),
    pa.bool_(),
    pa.string(),
    pa.binary(),
    pa.large_string(),
    pa.date32(),
    pa.timestamp("us"),
    pa.timestamp("us", "UTC"),
    pa.timestamp("ns", "Europe/Berlin"),
    pa.duration("us"),
    pa.decimal128(38, 10),
    pa.decimal128(5, -2),
    pa.binary(16),
    pa.list_(pa.int64()),
    pa.list_(pa.field("element", pa.string(), nullable=False)),
    pa.large_list(pa.decimal128(10, 2)),
    pa.struct([("a", pa.int64()), ("b b", pa.list_(pa.struct([("c", pa.timestamp("us", "UTC"))])))]),
    pa.struct([pa.field("a", pa.int64(), nullable=False)]),
    pa.struct([]),
    pa.map_(pa.string(), pa.struct([("x", pa.float64()), ("y", pa.decimal128(4, 1))])),
]


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_a_type_is_read_as_it_was_written(kind: pa.DataType) -> None:
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize("text", ["", "int65", "list<element: what>", "dictionary<values=string, indices=int32>"])
def test_what_is_not_known_is_none(text: str) -> None:
    assert parse_type(text) is None
