"""Rows that a condition leaves out are not sent to the join, and still show how far their stream is."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa

from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.runtime.packing import Packer
from watersmeet.spark.runtime.unpacking import Unpacker

SECOND = 1_000_000
SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us"))])


def test_rows_that_take_no_part_move_the_watermark() -> None:
    spec = StreamSpec("a", SCHEMA, "at", ("k",), TimeWindow(SECOND))
    at = [datetime(1970, 1, 1) + timedelta(seconds=n) for n in range(4)]
    takes_part = pa.array([True, False, True, None])
    rows = pa.record_batch([pa.array([1, 2, 3, 4]), pa.array(at, pa.timestamp("us")), takes_part], [*SCHEMA.names, "p"])
    unpacker = Unpacker(spec)
    for blob in Packer(spec, 0, (0,), takes_part="p")(iter([rows])):
        for row in blob.to_pylist():
            unpacker.put(row["kind"], row["seen"], row["rows"], row["blob"])
    batch = unpacker.batch(ended=False)
    assert batch.rows.column("k").to_pylist() == [1, 3]
    assert batch.rows.schema == SCHEMA
    assert batch.seen == 3 * SECOND, "the last row of the stream, which takes no part"
