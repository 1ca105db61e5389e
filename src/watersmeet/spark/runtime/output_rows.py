"""How rows leave the operator: results as columns, everything else as JSON in `detail`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.types as pt
from pandas.arrays import ArrowExtensionArray

from watersmeet.model.punctuations import End, Heartbeat, Pattern, Range, Value
from watersmeet.spark.runtime import packing
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, RESULT


class OutputRows:
    """How rows leave the operator: as columns, or as Arrow blobs where a column is nested.

    Flat columns leave as Arrow-backed pandas columns, which nothing converts on the way; PySpark would take nested
    ones apart value by value, so those leave packed and are unpacked by `OutputUnpacker` on the other side.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.packed = any(pt.is_nested(column.type) for column in schema)

    @property
    def names(self) -> list[str]:
        """The columns of a frame, which has their positions in place of names."""
        return [KIND, DETAIL, "blob"] if self.packed else [KIND, DETAIL, *self.schema.names]

    def results(self, table: pa.Table) -> pd.DataFrame:
        n = 1 if self.packed else table.num_rows
        head = [pa.repeat(pa.scalar(RESULT, pa.int8()), n), pa.nulls(n, pa.string())]
        if self.packed:
            blob = packing.one(table.to_batches()).serialize().to_pybytes()
            return _arrow_frame([*head, pa.array([blob], pa.binary())])
        return _arrow_frame([*head, *(table.column(name).combine_chunks() for name in self.schema.names)])

    def details(self, kind: int, details: list[str]) -> pd.DataFrame:
        """Rows that are not results: all of their content is JSON in `detail`."""
        n = len(details)
        head = [pa.repeat(pa.scalar(kind, pa.int8()), n), pa.array(details, pa.string())]
        body = [pa.nulls(n, pa.binary())] if self.packed else [pa.nulls(n, c.type) for c in self.schema]
        return _arrow_frame([*head, *body])


def _arrow_frame(columns: Sequence[pa.Array]) -> pd.DataFrame:
    """A frame around Arrow arrays.

    Of Series pandas would compare the indexes and copy each, six times the work. By names PySpark would look for each
    column; columns that are numbered are taken by position.
    """
    return pd.DataFrame(dict(enumerate(map(ArrowExtensionArray, columns))), copy=False)


@dataclass(frozen=True)
class OutputUnpacker:
    """Unpacks what a packed `OutputRows` wrote. A function for `mapInArrow`."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for kind, detail, blob in zip(*(batch.column(i) for i in range(3)), strict=True):
                if blob.is_valid:
                    rows = pa.ipc.read_record_batch(blob.as_buffer(), self.schema)
                    columns, n = rows.columns, rows.num_rows
                else:
                    columns, n = [pa.nulls(1, f.type) for f in self.schema], 1
                yield pa.record_batch(
                    [pa.repeat(kind, n), pa.repeat(detail, n), *columns], names=[KIND, DETAIL, *self.schema.names]
                )


def detail(shard: int, stream: str | None, row: str) -> str:
    """The detail of a row of a stream, or of a punctuation of the output; `row` is JSON already."""
    return f'{{"shard":{shard},"stream":{json.dumps(stream)},"row":{row}}}'


def punctuation_json(pattern: Pattern) -> str:
    """A punctuation of the output. Ends of a range that are missing are unbounded; `below` is an end that is open."""
    match pattern:
        case Value(key):
            return json.dumps({"key": key})
        case Heartbeat(until):
            return json.dumps({"heartbeat": until})
        case End():
            return json.dumps({"end": True})
        case Range(low, high):
            ends: dict[str, Any] = {"low": low, "high" if pattern.high_closed else "below": high}
            return json.dumps({"range": {name: end for name, end in ends.items() if end is not None}})
    raise AssertionError(f"no join propagates {pattern}")
