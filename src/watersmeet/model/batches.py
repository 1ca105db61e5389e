"""What arrives: the rows of one stream in one micro-batch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.model.blocks import Blocks
from watersmeet.model.lags import Lags
from watersmeet.model.punctuations import Closings

Int64s = npt.NDArray[np.int64]

#: The progress of a stream that has shown nothing yet, and of one that has ended.
BEFORE_ALL = -(1 << 62)
AFTER_ALL = 1 << 62
#: How a missing event time reads: late on every stream, whatever it has shown.
NO_TIME = BEFORE_ALL - 1


@dataclass(frozen=True, slots=True)
class Batch:
    """New rows of one stream, and what the whole stream (not just this shard) has shown so far.

    `seen` is the largest event time on the stream up to and including this batch, None if it brought none;
    `ended` says that nothing will follow. `closings` are its punctuations. `newest` (the keys of the batch's newest
    tuples, and their time) and `largest` (the largest key, and the first time with it) are told where the stream
    promises clusters or an order; NULL keys and rows without a time count for neither. `rejected` are punctuations
    (low, high, time) that say nothing: an end of the range they close is NULL. Where `rows` are a part of the stream's,
    and the join goes by the disorder of the whole, `order` shows its keys and `positions` where the rows stand in it;
    `lags` show how far behind its rows came.
    """

    rows: pa.RecordBatch
    seen: int | None = None
    ended: bool = False
    closings: Closings | None = None
    newest: tuple[pa.RecordBatch, int] | None = None
    largest: tuple[Any, int] | None = None
    rejected: pa.RecordBatch | None = None
    order: Blocks | None = None
    positions: Int64s | None = None
    lags: Lags | None = None

    @classmethod
    def of(cls, rows: pa.RecordBatch, time: str, *, ended: bool = False, closings: Closings | None = None) -> Batch:
        """A batch that is the whole of its stream's news: `seen` is read off rows and punctuations."""
        newest = pc.max(rows.column(time)).cast(pa.int64()).as_py() if rows.num_rows else None
        said = [] if closings is None else [*closings.times.tolist(), *(time for _, time in closings.ranges)]
        return cls(rows, max([t for t in [newest, *said] if t is not None], default=None), ended, closings)


def no_rows(schema: pa.Schema) -> pa.RecordBatch:
    """A batch of this schema without rows."""
    return pa.record_batch([pa.nulls(0, f.type) for f in schema], schema=schema)


def micros(column: pa.Array) -> Int64s:
    """Event times as microseconds, in an array of their own; a NULL reads as `NO_TIME`."""
    whole = column.cast(pa.int64()) if column.type != pa.int64() else column
    if whole.null_count:
        whole = pc.fill_null(whole, NO_TIME)
    times: Int64s = whole.to_numpy(zero_copy_only=False).copy()  # Arrow's own is read-only: another type to a kernel
    return times
