"""Rows of any length are sent in several small blobs, so that Spark can put many of these into one Arrow batch."""

from __future__ import annotations

from datetime import datetime

import pyarrow as pa
import pytest

from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.runtime.packing import BLOB_BYTES, Packer
from watersmeet.spark.runtime.unpacking import Unpacker

SCHEMA = pa.schema([("k", pa.int64()), ("at", pa.timestamp("us")), ("text", pa.string())])


@pytest.mark.parametrize("shards", [1, 3])
@pytest.mark.parametrize(("rows", "width"), [(0, 0), (5, 0), (9, 300_000), (400, 10_000), (3, 3_000_000)])
def test_long_texts_are_cut_into_blobs(shards: int, rows: int, width: int) -> None:
    spec = StreamSpec("a", SCHEMA, "at", ("k",), TimeWindow(1))
    texts = [f"{n:04d}" + "x" * width for n in range(rows)]
    at = pa.array([datetime(1970, 1, 1)] * rows, pa.timestamp("us"))
    batch = pa.record_batch([pa.array(range(rows), pa.int64()), at, pa.array(texts, pa.string())], schema=SCHEMA)
    ids = tuple(range(shards))
    unpackers = {id: Unpacker(spec) for id in ids}
    largest, blobs = max(BLOB_BYTES, width), dict.fromkeys(ids, 0)
    for sent in Packer(spec, 0, ids)(iter([batch])):
        for row in sent.to_pylist():
            assert len(row["blob"]) < largest + 10_000, "a row, or so many as fit"
            unpackers[row["shard"]].put(row["kind"], row["seen"], row["rows"], row["blob"])
            blobs[row["shard"]] += 1
    received = [unpacker.batch(ended=False).rows for unpacker in unpackers.values()]
    assert sorted(text for some in received for text in some.column("text").to_pylist()) == texts
    assert all(blobs.values()), "every shard is called"
    assert sum(blobs.values()) <= shards + rows * width // BLOB_BYTES + 1
