"""Stored rows for a changed query: columns added, dropped and ordered anew, split keys divided into their parts.

Of a key that is split every shard has a part: rows of the first stream are in one part each, rows of the second are
copied to all. A row is whole again without its part, or as its copy in part 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.model.queries import StreamSpec

#: The beginning of the name of the column that holds the part of a split key.
PART = "watersmeet part"


@dataclass(frozen=True)
class SplitKeys:
    """Keys that are split: the column with the part, and the parts of each value."""

    column: str
    parts: Mapping[Any, Sequence[int]]


def without_part(columns: Iterable[str]) -> list[str]:
    """Columns without the part of a split key."""
    return [c for c in columns if not c.startswith(PART)]


def convert(rows: pa.RecordBatch, stream: int, spec: StreamSpec, split: SplitKeys | None) -> pa.RecordBatch:
    """Rows of a stream as `spec` has them; columns that the engine has added to stored rows stay."""
    part = next((c for c in rows.schema.names if c.startswith(PART)), None)
    if part is not None and (split is None or part != split.column):
        if stream > 0:
            rows = rows.filter(pc.equal(rows.column(part), 0))
        rows = rows.drop_columns([part])
    if split is not None and split.column not in rows.schema.names:
        rows = _divided(rows, stream, spec, split)
    columns = {
        f.name: rows.column(f.name) if f.name in rows.schema.names else pa.nulls(rows.num_rows, f.type)
        for f in spec.schema
    }
    own = {c: rows.column(c) for c in rows.schema.names if c.startswith("watersmeet ") and c not in columns}
    return pa.record_batch(list((columns | own).values()), names=[*columns, *own])


def _divided(rows: pa.RecordBatch, stream: int, spec: StreamSpec, split: SplitKeys) -> pa.RecordBatch:
    """Rows with their part; those of the second stream once for each part of their key."""
    key = rows.column(spec.key[0])
    if pt.is_floating(key.type):
        key = pc.add(key, 0.0)  # minus zero is zero
    values = pa.array(list(split.parts), key.type)
    found = pc.fill_null(pc.index_in(key, value_set=values), -1).to_numpy(zero_copy_only=False)
    parts = [np.asarray(p, np.int64) for p in split.parts.values()]
    if stream == 0:
        chosen = np.zeros(rows.num_rows, np.int64)
        for n, of_value in enumerate(parts):
            mine = np.flatnonzero(found == n)
            chosen[mine] = of_value[np.arange(mine.size) % of_value.size]
    else:
        counts = np.array([*(p.size for p in parts), 1])[found]  # the last one: not split
        rows = rows.take(pa.array(np.repeat(np.arange(rows.num_rows), counts)))
        chosen = np.concatenate([np.zeros(0, np.int64), *(parts[n] if n >= 0 else [0] for n in found.tolist())])
    return rows.append_column(split.column, pa.array(chosen).cast(spec.schema.field(split.column).type))
