"""Values as JSON has them."""

from __future__ import annotations

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.model.json_values import plain, plain_column, plain_rows


@pytest.mark.parametrize(
    ("kind", "value", "as_json"),
    [
        (pa.int64(), 3, 3),
        (pa.string(), "ä", "ä"),
        (pa.bool_(), True, True),
        (pa.float64(), 1.5, 1.5),
        (pa.float64(), float("nan"), "NaN"),
        (pa.float32(), -float("inf"), "-Infinity"),
        (pa.binary(), b"\xff", "/w=="),
        (pa.decimal128(5, 2), Decimal("1.10"), "1.10"),
        (pa.date32(), date(2024, 2, 29), "2024-02-29"),
        (pa.timestamp("us"), datetime(2024, 1, 1, 12), "2024-01-01 12:00:00.000000"),
        (pa.timestamp("us", "UTC"), datetime(2024, 1, 1, 12), "2024-01-01 12:00:00.000000Z"),
        (pa.duration("us"), timedelta(days=1), "1 day, 0:00:00"),
        (pa.list_(pa.float64()), [1.0, float("inf"), None], [1.0, "Infinity", None]),
        (pa.struct([("x", pa.binary())]), {"x": b"a"}, {"x": "YQ=="}),
    ],
    ids=str,
)
def test_every_kind_of_value_has_a_form_in_json(kind: pa.DataType, value: Any, as_json: Any) -> None:
    column = pa.array([value, None], kind)
    assert plain_column(column) == [as_json, None]
    row = plain_rows(pa.record_batch([column], names=["v"]))
    assert [json.loads(text) for text in row] == [{"v": as_json}, {"v": None}]


def test_times_that_python_does_not_know_are_reported_all_the_same() -> None:
    assert plain_column(pa.array([2932897], pa.int32()).view(pa.date32())) == ["10000-01-01"]


def test_single_values() -> None:
    assert plain((1, b"a", Decimal(2))) == [1, "YQ==", "2"]
