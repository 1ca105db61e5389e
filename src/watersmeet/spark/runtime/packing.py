"""Rows to blobs: before the shuffle every source partition writes one Arrow blob per shard.

Spark's Python state operator reads its input row by row; packed, it reads a few rows instead of millions.
Every partition sends every shard a blob in every batch, even an empty one, with the largest event time that the
partition saw. So all shards have the same watermarks and are called in every batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql import DataFrame

from watersmeet.errors import WatersmeetError
from watersmeet.model import blocks, instants
from watersmeet.model.batches import BEFORE_ALL, NO_TIME, micros, no_rows
from watersmeet.model.lags import Lags
from watersmeet.model.punctuations import Clustered, Ordered
from watersmeet.model.queries import StreamSpec
from watersmeet.spark.punctuations import CLOSES_KEYS, UPSTREAM_SHARD, flag, part
from watersmeet.spark.runtime.order_detail import OrderDetail
from watersmeet.spark.runtime.origins import ORIGIN
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, LATE, RESULT, VIOLATION
from watersmeet.spark.runtime.table_in_force import in_force, text_of
from watersmeet.state.hot_keys.phases import Table
from watersmeet.state.hot_keys.routes import routed
from watersmeet.state.key_order import Order
from watersmeet.state.keys import Int64s, Keys, encode, encode_key, numbered
from watersmeet.state.segments import of_any_length
from watersmeet.state.shards import row_words, split

WHERE = pa.field("watersmeet position", pa.int64())  # the row's partition and its number in it
ROW_BITS = 40

#: Rows gathered before they are packed, in bytes of Arrow memory.
GATHER_BYTES = 64 << 20
#: A blob has at most about so many bytes where Spark puts few rows into an Arrow batch (`session.limit_batches`): as
#: many blobs as that stay below Arrow's 2 GiB.
BLOB_BYTES = 1 << 20

#: `seen` is `NO_TIME` where there was none: a NULL would make pandas read the whole column as floats.
PACKED = pa.schema(
    [
        ("shard", pa.int32()),
        ("stream", pa.int32()),
        ("seen", pa.int64()),
        ("rows", pa.int64()),
        ("blob", pa.binary()),
        ("kind", pa.int32()),
    ]
)
#: The column of times beside the key columns of a stream; the prefix is reserved.
TIME = "watersmeet time"
PACKED_DDL = "shard int, stream int, seen bigint, rows bigint, blob binary, kind int"


class Blob(IntEnum):
    """What a blob holds."""

    ROWS = 0
    KEYS = 1  # closed keys
    RANGES = 2
    NEWEST = 3  # keys with the newest event time
    LARGEST = 4  # the largest keys by event time
    BEATS = 5  # heartbeats, ends
    REJECTED = 6  # ranges that close nothing, because an end is NULL
    BLOCKS = 7  # the order of keys, in blocks
    LAGS = 8
    PASSED_ON = 9  # late and violating rows of the upstream operator
    DIFFERENT = 10  # different keys by event time
    TABLE = 11  # the table of hot keys by which ROUTED rows and COPIES were sent
    ROUTED = 12  # rows, in place of ROWS
    COPIES = 13  # rows that every shard gets


def blob_schema(kind: int, spec: StreamSpec, order_detail: OrderDetail = OrderDetail.NOTHING) -> pa.Schema:
    """Columns of a blob of this kind."""
    keys = [spec.schema.field(k) for k in spec.punctuated]
    time, upstream_shard = pa.field(TIME, pa.int64()), pa.field("upstream_shard", pa.int32())
    match kind:
        case Blob.TABLE:
            return pa.schema([("table", pa.string())])
        case Blob.ROWS | Blob.ROUTED | Blob.COPIES:
            return spec.schema.append(WHERE) if order_detail == OrderDetail.POSITIONS else spec.schema
        case Blob.RANGES:
            low, high = (pa.field(end, keys[0].type) for end in ("low", "high"))
            return pa.schema([low, high, ("low_closed", pa.bool_()), ("high_closed", pa.bool_()), time, upstream_shard])
        case Blob.BEATS:
            return pa.schema([time, ("ended", pa.bool_()), upstream_shard])
        case Blob.REJECTED:
            return pa.schema([pa.field(end, keys[0].type) for end in ("low", "high")] + [time])
        case Blob.BLOCKS:
            return pa.schema([(name, pa.int64()) for name in ("partition", "first", "last", "least", "largest")])
        case Blob.LAGS:
            return pa.schema([(name, pa.int64()) for name in ("highest", "behind", "count")])
        case Blob.PASSED_ON:
            return pa.schema([("kind", pa.int32()), ("detail", pa.string())])
        case Blob.LARGEST | Blob.DIFFERENT:
            return pa.schema([*keys, time, ("shift", pa.int64())])
        case _:
            return pa.schema([*keys, time])


def with_partition(df: DataFrame) -> DataFrame:
    """The same rows in one partition, which is there without rows, too: the packer runs once, and calls every shard.

    Spark gives a source without rows no partition. It would drop a shuffle right behind such a source, so rows pass a
    function before it.
    """

    def unchanged(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return batches

    return df.mapInArrow(unchanged, df.schema).repartition(1)


@dataclass(frozen=True)
class PackedRule:
    """A kind of punctuation among the rows; its columns are called as in `punctuations.flag` and `.part`.

    A range that `needs` its lower or upper end is rejected where that is NULL; otherwise NULL leaves the end unbounded.
    """

    number: int
    kind: str
    low_closed: bool = True
    high_closed: bool = True
    needs: tuple[bool, bool] = (False, False)


@dataclass(frozen=True)
class Packer:
    """Packs rows and punctuations of stream number `index` for the shards `ids`. A function for `mapInArrow`.

    Rows and closed keys go to the shard of their key, everything else, and all of a stream that is `copied`, to all
    shards. With `tuples` false all rows that are not punctuations are left out: the DataFrame is one of punctuations
    only. With `passes` it is the output of another operator: its late and violating rows are no tuples, and go through
    the first shard. A `beat` is a heartbeat that comes with the rows; of these no delay is measured then. With `splits`
    rows of hot keys go by the table that is in force for the batch.
    """

    spec: StreamSpec
    index: int
    ids: tuple[int, ...]
    rules: tuple[PackedRule, ...] = ()
    tuples: bool = True
    order_detail: OrderDetail = OrderDetail.NOTHING
    partition: int | None = None  # None: that of Spark's task
    passes: bool = False
    takes_part: str | None = None  # the column that is true for rows that are tuples of the join
    copied: bool = False  # every shard has all rows
    beat: int | None = None
    splits: bool = False
    hot_keys: Table = field(default_factory=dict)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        if self.splits:
            yield from replace(self, splits=False, hot_keys=in_force())(batches)
            return
        if self.hot_keys:
            yield self._blobs(_batch([[text_of(self.hot_keys)]], blob_schema(Blob.TABLE, self.spec)), None, Blob.TABLE)
        sent, before = False, 0
        for rows in gather(batches):
            if self.rules:
                rows = yield from self._rules(rows)
            if self.passes:
                rows = yield from self._pass_on(rows)
            if self.tuples:
                sent = True
                before = yield from self._rows(rows, before)
        if not sent:
            yield from self._tuples(no_rows(blob_schema(Blob.ROWS, self.spec, self.order_detail)), None)
        if self.beat is not None:
            yield self._blobs(
                _batch([[self.beat], [False], [None]], blob_schema(Blob.BEATS, self.spec)), None, Blob.BEATS
            )

    def _rows(self, rows: pa.RecordBatch, before: int) -> Generator[pa.RecordBatch, None, int]:
        """Send rows; returns how many of the partition's tuples have a position by now.

        Rows that take no part show the stream's times, disorder and order of keys, as others do; they are no tuples.
        """
        takes_part = None if self.takes_part is None else rows.column(self.takes_part)
        origins = rows.column(ORIGIN) if ORIGIN in rows.schema.names else pa.repeat(0, rows.num_rows)
        rows = rows.select(self.spec.schema.names).cast(self.spec.schema)
        if self.order_detail:
            rows, before = yield from self._measured(rows, before)
        if self.spec.late_share is not None and self.beat is None:
            times = rows.column(self.spec.time)
            lags = Lags.of_files(micros(times.drop_null()), origins.filter(times.is_valid()).to_numpy())
            columns = [lags.highest, lags.behind, lags.count]
            yield self._blobs(_batch(list(map(pa.array, columns)), blob_schema(Blob.LAGS, self.spec)), None, Blob.LAGS)
        seen = _latest(rows.column(self.spec.time))
        rows = rows if takes_part is None else rows.filter(takes_part)
        yield from self._tuples(rows, seen)
        yield from self._constraints(rows, seen)
        return before

    def _tuples(self, rows: pa.RecordBatch, seen: int | None) -> Iterator[pa.RecordBatch]:
        """Send rows to the shards of their keys, those of hot keys by the table."""
        if not self.hot_keys:
            yield self._blobs(rows, seen)
            return
        rows, words, copies = routed(rows, self._key(rows), self.index, self.hot_keys)
        yield self._packed(split(rows, lambda: words, len(self.ids)), seen, Blob.ROUTED)
        if copies.num_rows:
            yield self._blobs(copies, None, Blob.COPIES)

    def _measured(
        self, rows: pa.RecordBatch, before: int
    ) -> Generator[pa.RecordBatch, None, tuple[pa.RecordBatch, int]]:
        """Send the order of keys; rows without a key or a time have no position in it."""
        keys = encode([rows.column(self.spec.key[0])])
        known = keys.valid & np.asarray(rows.column(self.spec.time).is_valid())
        ranks = Order(rows.schema.field(self.spec.key[0]).type).of_keys(keys)[known]
        first, last, least, largest = blocks.cut(ranks)
        partition = self._partition()
        columns = [np.full(first.size, partition), first + before, last + before, least, largest]
        yield self._blobs(_batch(list(map(pa.array, columns)), blob_schema(Blob.BLOCKS, self.spec)), None, Blob.BLOCKS)
        if self.order_detail == OrderDetail.POSITIONS:
            numbers = before - 1 + np.cumsum(known) + (partition << ROW_BITS)
            rows = rows.append_column(WHERE, pa.array(numbers))
        return rows, before + ranks.size

    def _partition(self) -> int:
        context = TaskContext.get()
        if self.partition is not None or context is None:
            return self.partition or 0
        return context.partitionId()

    def _constraints(self, rows: pa.RecordBatch, seen: int | None) -> Iterator[pa.RecordBatch]:
        if seen is None:
            return
        for constraint in self.spec.constraints:
            closed = self.spec.punctuated
            columns = [*(rows.column(k) for k in closed), rows.column(self.spec.time).cast(pa.int64())]
            keys = _batch(columns, blob_schema(Blob.NEWEST, self.spec))
            keys = keys.filter(
                pa.array(np.logical_and.reduce([np.asarray(c.is_valid()) for c in columns]))
            )  # NULL closes nothing
            times, values = micros(keys.column(len(closed))), keys.columns[: len(closed)]
            if isinstance(constraint, Clustered):
                yield self._blobs(keys.filter(pa.array(times == times.max(initial=NO_TIME))), None, Blob.NEWEST)
                yield self._instants(keys, *instants.two_of_each(times, numbered(encode(values))), Blob.DIFFERENT)
            if isinstance(constraint, Ordered):
                ranks = Order(values[0].type).ranks(values[0])
                yield self._instants(keys, *instants.largest_of_each(times, ranks), Blob.LARGEST)

    def _instants(self, keys: pa.RecordBatch, chosen: Int64s, shift: int, kind: int) -> pa.RecordBatch:
        some = keys.take(pa.array(chosen))
        columns = [*some.columns, pa.repeat(pa.scalar(shift, pa.int64()), some.num_rows)]
        return self._blobs(_batch(columns, blob_schema(kind, self.spec)), None, kind)

    def _pass_on(self, rows: pa.RecordBatch) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Send late and violating rows of the upstream operator; returns its results. Other punctuations end here."""
        passed_on = rows.filter(pc.is_in(rows.column(KIND), pa.array([LATE, VIOLATION], pa.int8())))
        if passed_on.num_rows:
            yield self._blobs(
                _batch([passed_on.column(KIND), passed_on.column(DETAIL)], blob_schema(Blob.PASSED_ON, self.spec)),
                None,
                Blob.PASSED_ON,
            )
        return rows.filter(pc.equal(rows.column(KIND), RESULT))

    def _rules(self, rows: pa.RecordBatch) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Send the punctuations; returns the rows that are none."""
        plain: pa.Array | None = None
        for rule in self.rules:
            flags = rows.column(flag(rule.number))
            plain = pc.invert(flags) if plain is None else pc.and_(plain, pc.invert(flags))
            punctuations = rows.filter(flags)
            if punctuations.num_rows:
                yield from self._punctuations(rule, punctuations)
        return rows.filter(plain)

    def _punctuations(self, rule: PackedRule, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Send the punctuations of one rule."""
        if not self.spec.upstream_shards and rule.kind in (*CLOSES_KEYS, "empty"):
            rows = rows.filter(rows.column(self.spec.time).is_valid())  # without a time a punctuation closes nothing
        if rule.kind == "range":
            rows = yield from self._reject(rule, rows)
        time = rows.column(self.spec.time).cast(pa.int64())
        if self.spec.upstream_shards:
            time = pc.fill_null(time, BEFORE_ALL)  # propagated at the end of its batch, and effective at once
        seen = None if self.spec.upstream_shards else pc.max(time).as_py()
        upstream_shards = (
            rows.column(UPSTREAM_SHARD) if self.spec.upstream_shards else pa.nulls(rows.num_rows, pa.int32())
        )
        match rule.kind:
            case "value":
                columns = [rows.column(part(rule.number, n)) for n in range(len(self.spec.punctuated))]
                yield self._blobs(_batch([*columns, time], blob_schema(Blob.KEYS, self.spec)), seen, Blob.KEYS)
            case "list":
                lists = rows.column(part(rule.number, 0))
                times = time.take(pc.list_parent_indices(lists))
                yield self._blobs(
                    _batch([pc.list_flatten(lists), times], blob_schema(Blob.KEYS, self.spec)), seen, Blob.KEYS
                )
            case "range":
                ends = [rows.column(part(rule.number, n)) for n in (0, 1)]
                closed = [pa.repeat(end, rows.num_rows) for end in (rule.low_closed, rule.high_closed)]
                yield self._blobs(
                    _batch([*ends, *closed, time, upstream_shards], blob_schema(Blob.RANGES, self.spec)),
                    seen,
                    Blob.RANGES,
                )
            case "empty":
                yield self._blobs(no_rows(blob_schema(Blob.KEYS, self.spec)), seen, Blob.KEYS)
            case "heartbeat":
                beats = rows.column(part(rule.number, 0)).cast(pa.int64())
                ended = pa.repeat(False, rows.num_rows)
                yield self._blobs(
                    _batch([beats, ended, upstream_shards], blob_schema(Blob.BEATS, self.spec)), None, Blob.BEATS
                )
            case _:
                beats, ended = pa.nulls(rows.num_rows, pa.int64()), pa.repeat(True, rows.num_rows)
                yield self._blobs(
                    _batch([beats, ended, upstream_shards], blob_schema(Blob.BEATS, self.spec)), None, Blob.BEATS
                )

    def _reject(self, rule: PackedRule, rows: pa.RecordBatch) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Send ranges without an end that they need to the first shard, as violations; returns the others."""
        ends = [rows.column(part(rule.number, n)) for n in (0, 1)]
        needed = [end.is_null() for end, needs in zip(ends, rule.needs, strict=True) if needs]
        bad = reduce(pc.or_, needed) if needed else pa.repeat(False, rows.num_rows)
        ranges = _batch([*ends, rows.column(self.spec.time).cast(pa.int64())], blob_schema(Blob.REJECTED, self.spec))
        if pc.any(bad).as_py():
            yield self._blobs(ranges.filter(bad), None, Blob.REJECTED)
        return rows.filter(pc.invert(bad))

    def _blobs(self, rows: pa.RecordBatch, seen: int | None, kind: int = Blob.ROWS) -> pa.RecordBatch:
        """One blob for each shard, in one batch."""
        shards = len(self.ids)
        if self.beat is not None and self.spec.late_share is not None:
            seen = None
        if kind == Blob.RANGES and self.spec.upstream_shards:  # about keys of the upstream shard only
            pieces = [rows.filter(pc.equal(rows.column("upstream_shard"), shard)) for shard in range(shards)]
        elif kind in (Blob.REJECTED, Blob.PASSED_ON):
            pieces = [rows] + [rows.slice(0, 0)] * (shards - 1)
        else:
            divided = kind in (Blob.ROWS, Blob.KEYS) and not self.copied
            pieces = self._split(rows) if divided else [rows] * shards
        return self._packed(pieces, seen, kind)

    def _packed(self, pieces: Sequence[pa.RecordBatch], seen: int | None, kind: int) -> pa.RecordBatch:
        """One blob for each shard, of these rows; several where they are many bytes of any length."""
        ids: Sequence[int] = self.ids
        if any(map(of_any_length, pieces[0].schema.types)):
            ids, pieces = _cut(ids, pieces)
        n = len(ids)
        return _batch(
            [
                ids,
                [self.index] * n,
                [NO_TIME if seen is None else seen] * n,
                [p.num_rows for p in pieces],
                blobs_of(pieces),
                [kind] * n,
            ],
            PACKED,
        )

    def _split(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows by the shard of their key or, without a key, by a hash of the row."""
        words = (lambda: self._key(rows).words) if self.spec.key else lambda: row_words(rows)
        return split(rows, words, len(self.ids))

    def _key(self, rows: pa.RecordBatch) -> Keys:
        return encode_key([rows.column(k) for k in self.spec.key], self.spec.null_safe)


def _cut(ids: Sequence[int], pieces: Sequence[pa.RecordBatch]) -> tuple[list[int], list[pa.RecordBatch]]:
    """The pieces in parts of about `BLOB_BYTES`, and the shard of each part. Every shard has one at least."""
    ids_of_parts: list[int] = []
    parts: list[pa.RecordBatch] = []
    for id, piece in zip(ids, pieces, strict=True):
        step = max(1, piece.num_rows * BLOB_BYTES // max(BLOB_BYTES, piece.nbytes))
        some = [piece.slice(at, step) for at in range(0, piece.num_rows, step)] or [piece]
        ids_of_parts += [id] * len(some)
        parts += [piece] if len(some) == 1 else some
    return ids_of_parts, parts


def blobs_of(pieces: Sequence[pa.RecordBatch]) -> list[bytes]:
    """The blobs of all shards: empty without rows, and made once if all shards get the same rows."""
    first = _blob(pieces[0])
    return [first if piece is pieces[0] else _blob(piece) for piece in pieces]


def _blob(rows: pa.RecordBatch) -> bytes:
    return rows.serialize().to_pybytes() if rows.num_rows else b""


def _latest(times: pa.Array) -> int | None:
    latest: int | None = pc.max(times).cast(pa.int64()).as_py()
    return latest


def _batch(columns: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        c.cast(f.type) if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a partition in larger pieces."""
    gathered: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            gathered.append(batch)
            size += batch.get_total_buffer_size()
        if size >= GATHER_BYTES:
            yield one(gathered)
            gathered, size = [], 0
    if gathered:
        yield one(gathered)


def one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:  # a table instead would have a second batch, whose rows would be lost
        raise WatersmeetError(
            "a shard has more than 2 GiB of text or bytes in one column in one batch.",
            hint="take smaller batches (maxFilesPerTrigger, maxOffsetsPerTrigger and their like), or more shards.",
        ) from error
