"""Streams as folders of Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.workload.arrivals import micros
from watersmeet.workload.tables import TableStream

#: A file's modification time is this plus its number: Spark's file source reads files in that order.
FIRST_MODIFIED = 1_000_000_000


def save(parts: Iterable[pa.Table | pa.RecordBatch], folder: Path) -> list[Path]:
    """Write one file per part; a query with `maxFilesPerTrigger` 1 reads one part a batch, in this order."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, part in enumerate(parts):
        path = folder / f"{number:06d}.parquet"
        pq.write_table(part if isinstance(part, pa.Table) else pa.Table.from_batches([part]), path)
        os.utime(path, (FIRST_MODIFIED + number,) * 2)
        paths.append(path)
    return paths


def save_stream(stream: TableStream, folder: Path, *, seconds: float, per_file: float = 1.0) -> list[Path]:
    """Write the rows that a stream delivers in its first `seconds`, one file for every `per_file` seconds."""
    step, end = micros(per_file), micros(seconds)
    return save((stream.table(start, min(start + step, end)) for start in range(0, end, step)), folder)
