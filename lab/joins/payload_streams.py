"""Streams with a text key, event times as numbers, and payload columns of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from watersmeet.checkpoints.convert_rows import PART
from watersmeet.model.batches import Batch
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow, Window

#: Kinds of joins whose state suffices for others.
SUFFICIENT = {
    "inner": ("inner",),
    "left": ("left", "inner", "anti", "semi"),
    "right": ("right", "inner"),
    "full": ("full", "left", "right", "inner", "anti", "semi"),
    "semi": ("semi", "anti"),
    "anti": ("anti", "inner", "left", "semi"),
}


def stream(name: str, columns: Sequence[str], window: Window | None = None, key: Sequence[str] = ("k",)) -> StreamSpec:
    """A stream with these payload columns."""
    parts = {c: pa.int32() for c in key if c.startswith(PART)}
    schema = pa.schema(
        [
            ("k", pa.string()),
            (f"{name}_ts", pa.int64()),
            *((c, pa.int64()) for c in columns),
            *parts.items(),
        ]
    )
    return StreamSpec(name, schema, f"{name}_ts", tuple(key), window or TimeWindow(10))


def rows(spec: StreamSpec, tuples: Sequence[dict[str, Any]]) -> Batch:
    """A batch of these tuples, as dictionaries."""
    return Batch.of(pa.RecordBatch.from_pylist(list(tuples), schema=spec.schema), spec.time)
