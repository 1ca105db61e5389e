"""Rows of stored tuples: Arrow segments, one per stream and batch, dropped whole when their last row dies."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import StateCorruptError
from watersmeet.kernels.sorting import ends_of_runs
from watersmeet.state.keys import Int64s

#: No value that is handed to a state store is larger than about this.
SEGMENT_BYTES = 16 << 20
#: Results leave in tables in which texts, bytes and nested values take at most about this.
TABLE_BYTES = 64 << 20
#: Tables of results with fewer bytes than this leave with the next one: each costs the worker half a millisecond.
SMALL_TABLE = 256 << 10

#: Rows of at most so many bytes become durable uncompressed.
UNCOMPRESSED = 1 << 10


@dataclass(frozen=True, slots=True)
class Segment:
    """Rows that became durable together. `id` is their key in the state store and never used twice.

    `size` is that of the rows in memory, `checksum` that of the durable bytes, which are compressed.
    """

    id: int
    rows: pa.RecordBatch
    size: int
    checksum: int

    @property
    def count(self) -> int:
        """How many rows it has, living or dead."""
        return int(self.rows.num_rows)


@dataclass(frozen=True, slots=True)
class SpilledSegment:
    """The same with its rows in a file on a disk, which is mapped anew for each use and unmapped after it."""

    id: int
    path: Path
    size: int
    checksum: int
    count: int

    @property
    def rows(self) -> pa.RecordBatch:
        return map_rows(self.path)


def map_rows(path: Path) -> pa.RecordBatch:
    """Rows of a file that `keep` has written, mapped: only the pages that are used are read."""
    with pa.memory_map(str(path)) as file:
        return pa.ipc.open_stream(file.read_buffer()).read_next_batch()


def keep(rows: pa.RecordBatch, path: Path) -> None:
    """Write rows uncompressed, to be mapped."""
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema) as writer:
        writer.write_batch(rows)


def pack(rows: pa.RecordBatch) -> pa.Buffer:
    """Rows as a compressed Arrow IPC stream: self-describing, readable by any Arrow tool.

    Few rows are not compressed: they would hardly get smaller, and it takes longer than all else.
    """
    sink = pa.BufferOutputStream()
    # no threads: other shards have the other cores, and to wake one takes as long as to compress a small column
    options = pa.ipc.IpcWriteOptions(compression=_codec() if rows.nbytes > UNCOMPRESSED else None, use_threads=False)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        writer.write_batch(rows)
    return sink.getvalue()


@cache
def _codec() -> pa.Codec:
    return pa.Codec("zstd", 1)


def unpack(id: int, data: pa.Buffer | bytes, checksum: int, *, verify: bool = True) -> Segment:
    """The segment that was packed into `data`, or an error if these are not the bytes that were written."""
    view = memoryview(data)
    if verify and zlib.crc32(view) != checksum:
        raise StateCorruptError(
            f"segment {id} of the state is not what was written (checksum {zlib.crc32(view):08x}, not {checksum:08x}).",
            hint="restore the checkpoint from a copy; nothing was changed.",
        )
    try:
        rows = pa.ipc.open_stream(data).read_next_batch()
        if verify:  # a checksum may fit what somebody else wrote, and kernels follow offsets wherever they lead
            rows.validate(full=True)
    except (pa.ArrowException, OSError, StopIteration) as error:
        raise StateCorruptError(
            f"segment {id} of the state is not an Arrow stream.",
            hint="restore the checkpoint from a copy; nothing was changed.",
        ) from error
    return Segment(id, rows, rows.nbytes, checksum)


def slices(rows: pa.RecordBatch | pa.Table) -> Iterable[pa.RecordBatch]:
    """The rows in pieces of at most about SEGMENT_BYTES."""
    pieces = max(1, -(-rows.get_total_buffer_size() // SEGMENT_BYTES))
    step = max(1, -(-rows.num_rows // pieces))
    for at in range(0, rows.num_rows, step):
        piece = rows.slice(at, step)
        yield pa.concat_batches(piece.to_batches()) if isinstance(piece, pa.Table) else piece


def of_any_length(kind: pa.DataType) -> bool:
    """Whether two values of this type may differ in size."""
    kinds = (pt.is_string, pt.is_large_string, pt.is_binary, pt.is_large_binary, pt.is_nested)
    return any(of(kind) for of in kinds)


def widths(rows: pa.RecordBatch, which: npt.NDArray[Any]) -> Int64s:
    """Bytes of these rows in columns of any length; of nested ones by their average."""
    out = np.zeros(which.size, np.int64)
    for column in rows.columns if which.size else ():
        if pt.is_nested(column.type):
            out += column.nbytes // len(column)
        elif of_any_length(column.type):
            large = pt.is_large_string(column.type) or pt.is_large_binary(column.type)
            ends = np.frombuffer(column.buffers()[1], np.int64 if large else np.int32)[column.offset :]
            out += ends[which + 1] - ends[which]
    return out


def pieces(widths: Int64s) -> Iterator[slice]:
    """Slices of rows of these widths, none of which has many more bytes than TABLE_BYTES, but one row at least."""
    edges = np.flatnonzero(np.diff(np.cumsum(widths) // TABLE_BYTES)) + 1
    yield from map(slice, [0, *edges.tolist()], [*edges.tolist(), widths.size])


def tables(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows in parts that share their buffers, of at most about TABLE_BYTES if rows are alike."""
    step = max(1, rows.num_rows * TABLE_BYTES // max(TABLE_BYTES, rows.nbytes))
    for at in range(0, rows.num_rows, step):
        yield rows.slice(at, step)


def together(results: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The same rows; small tables one with the next."""
    waiting: list[pa.Table] = []
    for table in results:
        waiting.append(table)
        if sum(t.nbytes for t in waiting) >= SMALL_TABLE:
            yield pa.concat_tables(waiting) if len(waiting) > 1 else table
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting)


class Bound(Protocol):
    """A bound of memory, which may spill segments when one is added (`state.durable.memory_bound`)."""

    def fit(self) -> None: ...


class Segments:
    """The segments of one stream, each under a small number that the lists point to.

    `left[number]` is how many of its rows are still stored. Numbers are used again, ids are not.
    """

    def __init__(self) -> None:
        self.parts: dict[int, Segment | SpilledSegment] = {}
        self.left: Int64s = np.zeros(16, np.int64)
        self.bound: Bound | None = None
        self.in_memory = 0  # bytes of the rows that are not spilled, living or dead

    def add(self, segment: Segment, left: int) -> int:
        """Keep a segment of which `left` rows live; returns its number."""
        number = next(n for n in range(len(self.parts) + 1) if n not in self.parts)
        self.put(number, segment, left)
        return number

    def put(self, number: int, segment: Segment | SpilledSegment, left: int) -> None:
        """Keep a segment under the number that the lists already know it by."""
        while number >= self.left.size:
            self.left = np.concatenate([self.left, np.zeros_like(self.left)])
        self.parts[number] = segment
        self.left[number] = left
        self.in_memory += _in_memory(segment)
        if self.bound is not None:
            self.bound.fit()

    def replace(self, number: int, spilled: SpilledSegment) -> None:
        """The rows of a segment are spilled."""
        self.in_memory -= _in_memory(self.parts[number])
        self.parts[number] = spilled

    def drop(self, number: int) -> Segment | SpilledSegment:
        part = self.parts.pop(number)
        self.in_memory -= _in_memory(part)
        return part

    def empty(self) -> list[int]:
        """Segments without a living row."""
        return [number for number in self.parts if self.left[number] <= 0]

    @property
    def bytes(self) -> int:
        """Bytes of living rows, dead ones in half-dead segments not counted."""
        return sum(s.size * int(self.left[n]) // max(1, s.count) for n, s in self.parts.items())

    @property
    def spilled(self) -> int:
        """Bytes of spilled rows, living or dead."""
        return sum(s.size for s in self.parts.values()) - self.in_memory

    def take(self, numbers: npt.NDArray[np.int32], rows: npt.NDArray[np.int32], columns: Sequence[str]) -> pa.Table:
        """The given rows; `numbers` must be grouped (all of one segment together)."""
        ends = np.empty(len(self.parts), np.int64)
        stops = ends[: ends_of_runs(numbers, ends)].tolist()
        pieces = [
            self.parts[int(numbers[a])].rows.select(list(columns)).take(pa.array(rows[a:b]))
            for a, b in zip([0, *stops], stops, strict=False)
        ]
        return pa.Table.from_batches(pieces)

    def widths(self, numbers: npt.NDArray[np.int32], rows: npt.NDArray[np.int32], columns: Sequence[str]) -> Int64s:
        """Bytes of the given rows in columns of any length."""
        out = np.zeros(numbers.size, np.int64)
        for number in np.unique(numbers):
            of = numbers == number
            out[of] = widths(self.parts[int(number)].rows.select(list(columns)), rows[of])
        return out


def _in_memory(part: Segment | SpilledSegment) -> int:
    return part.size if isinstance(part, Segment) else 0
