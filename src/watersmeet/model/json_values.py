"""Values as JSON: times as Arrow writes them, binary in base64, all that JSON lacks as a string."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import pyarrow as pa
import pyarrow.types as pt


def plain_column(column: pa.Array) -> list[Any]:
    """The values of a column. Times are formatted by Arrow, because Python cannot represent all of them."""
    kind = column.type
    if pt.is_timestamp(kind) or pt.is_date(kind) or pt.is_time(kind):
        return list(column.cast(pa.string()).to_pylist())
    values: list[Any] = column.to_pylist()
    return values if pt.is_integer(kind) or pt.is_string(kind) or pt.is_boolean(kind) else [plain(v) for v in values]


def plain_rows(rows: pa.RecordBatch) -> list[str]:
    """Each row as a JSON object."""
    names = rows.schema.names
    values = zip(*map(plain_column, rows.columns), strict=True)
    return [json.dumps(dict(zip(names, row, strict=True))) for row in values]


def plain(value: Any) -> Any:
    """A value of Python; NaN and the infinities, for which JSON has no numbers, as Spark writes them."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else json.dumps(value)
        case bytes():
            return base64.b64encode(value).decode()
        case dict():
            return {name: plain(v) for name, v in value.items()}
        case list() | tuple():
            return [plain(v) for v in value]
        case _:
            return str(value)
