"""Batches: the rows of one stream in one micro-batch, and facts about the whole stream."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.model.blocks import Blocks
from watersmeet.model.instants import Instants
from watersmeet.model.lags import Lags
from watersmeet.model.punctuations import BatchPunctuations

Int64s = npt.NDArray[np.int64]

#: The watermark of a stream that has shown nothing yet, and of one that has ended.
BEFORE_ALL = -(1 << 62)
AFTER_ALL = 1 << 62
#: Stands for a missing event time: late on every stream.
NO_TIME = BEFORE_ALL - 1


@dataclass(frozen=True, slots=True)
class Batch:
    """New rows of one stream, and what the whole stream (not just this shard) has shown so far.

    `seen` is the largest event time on the stream up to and including this batch, None if it brought none;
    `ended`: nothing follows. `newest` (the keys of the batch's newest tuples, and their time) and `different` (keys by
    event time, up to two of each) are given for clustered streams, `largest` (the largest keys by event time) for
    ordered ones; NULL keys and rows without a time count for none of them. `rejected` are punctuations
    (low, high, time) without effect: an end of the range they close is NULL. Where `rows` are a part of the stream's,
    and the join depends on the disorder of the whole, `order` has the stream's keys and `positions` those of the rows
    in it; `lags` are the distances by which its rows came behind. `clock` is the batch's timestamp, the same for all
    streams, where one of them has an `idle_clock`.
    """

    rows: pa.RecordBatch
    seen: int | None = None
    ended: bool = False
    punctuations: BatchPunctuations | None = None
    newest: tuple[pa.RecordBatch, int] | None = None
    largest: Instants | None = None
    rejected: pa.RecordBatch | None = None
    order: Blocks | None = None
    positions: Int64s | None = None
    lags: Lags | None = None
    different: Instants | None = None
    clock: int | None = None

    @classmethod
    def of(
        cls, rows: pa.RecordBatch, time: str, *, ended: bool = False, punctuations: BatchPunctuations | None = None
    ) -> Batch:
        """A batch with all that its stream brought: `seen` follows from rows and punctuations."""
        newest = pc.max(rows.column(time)).cast(pa.int64()).as_py() if rows.num_rows else None
        times = (
            [] if punctuations is None else [*punctuations.times.tolist(), *(time for _, time in punctuations.ranges)]
        )
        return cls(rows, max([t for t in [newest, *times] if t is not None], default=None), ended, punctuations)


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
