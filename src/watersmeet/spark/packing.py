"""Rows to blobs: before the shuffle every source partition writes one Arrow blob per shard.

Spark's Python state operator walks over its input row by row; packed, it meets a few rows instead of millions.
Every partition sends every shard a blob in every batch, if only an empty one: with it travels the largest event time
that the partition saw, so all shards know the same progress and are called in every batch.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from watersmeet.errors import WatersmeetError
from watersmeet.model import blocks
from watersmeet.model.batches import BEFORE_ALL, NO_TIME, micros, no_rows
from watersmeet.model.lags import Lags
from watersmeet.model.punctuations import Clustered, Ordered
from watersmeet.model.queries import StreamSpec
from watersmeet.spark.kinds import KIND, LATE, NOTE, RESULT, VIOLATION
from watersmeet.spark.measuring import Measuring
from watersmeet.spark.punctuations import TELLER, flag, part
from watersmeet.state.keys import encode
from watersmeet.state.order import Order
from watersmeet.state.shards import split

WHERE = pa.field("watersmeet position", pa.int64())  # the partition of a row, and its number there
ROW_BITS = 40

#: Rows gathered before they are packed, in bytes of Arrow memory; about the largest blob times the shards.
GATHER_BYTES = 64 << 20

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
PACKED_DDL = "shard int, stream int, seen bigint, rows bigint, blob binary, kind int"
#: What a blob holds: rows; keys that the stream has closed; ranges; the newest keys; the largest; heartbeats, ends;
#: ranges that say nothing because an end of theirs is NULL; blocks of keys in their order; lags; late and violating
#: rows of the operator whose output this is.
ROWS, KEYS, RANGES, NEWEST, LARGEST, BEATS, REJECTED, BLOCKS, LAGS, TOLD = range(10)


def blob_schema(kind: int, spec: StreamSpec, measuring: Measuring = Measuring.NOTHING) -> pa.Schema:
    """Columns of a blob of this kind."""
    keys = [spec.schema.field(k) for k in spec.key]
    time, teller = pa.field("time", pa.int64()), pa.field("teller", pa.int32())
    match kind:
        case 0:
            return spec.schema.append(WHERE) if measuring == Measuring.POSITIONS else spec.schema
        case 2:
            low, high = (pa.field(end, keys[0].type) for end in ("low", "high"))
            return pa.schema([low, high, ("low_closed", pa.bool_()), ("high_closed", pa.bool_()), time, teller])
        case 5:
            return pa.schema([time, ("ended", pa.bool_()), teller])
        case 6:
            return pa.schema([pa.field(end, keys[0].type) for end in ("low", "high")] + [time])
        case 7:
            return pa.schema([(name, pa.int64()) for name in ("partition", "first", "last", "least", "largest")])
        case 8:
            return pa.schema([(name, pa.int64()) for name in ("highest", "behind", "count")])
        case 9:
            return pa.schema([("kind", pa.int32()), ("note", pa.string())])
        case _:
            return pa.schema([*keys, time])


@dataclass(frozen=True)
class Signed:
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

    Rows and closed keys go to the shard of their key, everything else to all shards. With `tuples` false all rows that
    are not punctuations are left out: the DataFrame is one of punctuations only. With `passes` it is what another
    operator says: its late and violating rows are no tuples, and go through the first shard.
    """

    spec: StreamSpec
    index: int
    ids: tuple[int, ...]
    signs: tuple[Signed, ...] = ()
    tuples: bool = True
    measuring: Measuring = Measuring.NOTHING
    partition: int | None = None  # else Spark knows it
    passes: bool = False

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent, before = False, 0
        for rows in gather(batches):
            if self.signs:
                rows = yield from self._signs(rows)
            if self.passes:
                rows = yield from self._pass_on(rows)
            if self.tuples:
                sent = True
                before = yield from self._rows(rows, before)
        if not sent:
            yield self._blobs(no_rows(blob_schema(ROWS, self.spec, self.measuring)), None)

    def _rows(self, rows: pa.RecordBatch, before: int) -> Generator[pa.RecordBatch, None, int]:
        """Send rows; how many of the partition's tuples have a position by now."""
        rows = rows.select(self.spec.schema.names).cast(self.spec.schema)
        if self.measuring:
            rows, before = yield from self._measured(rows, before)
        if self.spec.late_share is not None:
            times = micros(rows.column(self.spec.time).drop_null())
            lags = Lags.of(times)
            columns = [lags.highest, lags.behind, lags.count]
            yield self._blobs(_batch(list(map(pa.array, columns)), blob_schema(LAGS, self.spec)), None, LAGS)
        seen = _latest(rows.column(self.spec.time))
        yield self._blobs(rows, seen)
        yield from self._promises(rows, seen)
        return before

    def _measured(
        self, rows: pa.RecordBatch, before: int
    ) -> Generator[pa.RecordBatch, None, tuple[pa.RecordBatch, int]]:
        """Send what the rows show of the order of keys; rows without a key or a time are in no order."""
        keys = encode([rows.column(self.spec.key[0])])
        known = keys.valid & np.asarray(rows.column(self.spec.time).is_valid())
        places = Order(rows.schema.field(self.spec.key[0]).type).of_keys(keys)[known]
        first, last, least, largest = blocks.cut(places)
        partition = self._partition()
        columns = [np.full(first.size, partition), first + before, last + before, least, largest]
        yield self._blobs(_batch(list(map(pa.array, columns)), blob_schema(BLOCKS, self.spec)), None, BLOCKS)
        if self.measuring == Measuring.POSITIONS:
            numbers = before - 1 + np.cumsum(known) + (partition << ROW_BITS)
            rows = rows.append_column(WHERE, pa.array(numbers))
        return rows, before + places.size

    def _partition(self) -> int:
        context = TaskContext.get()
        if self.partition is not None or context is None:
            return self.partition or 0
        return context.partitionId()

    def _promises(self, rows: pa.RecordBatch, seen: int | None) -> Iterator[pa.RecordBatch]:
        if seen is None:
            return
        for promise in self.spec.promises:
            columns = [*(rows.column(k) for k in self.spec.key), rows.column(self.spec.time).cast(pa.int64())]
            keys = _batch(columns, blob_schema(NEWEST, self.spec))
            keys = keys.filter(pa.array(np.logical_and.reduce([c.is_valid() for c in columns])))  # NULL says nothing
            if isinstance(promise, Clustered):
                yield self._blobs(keys.filter(pc.equal(keys.column("time"), pc.max(keys.column("time")))), None, NEWEST)
            if isinstance(promise, Ordered):
                yield self._blobs(keys.filter(_largest(keys.column(0))).sort_by("time").slice(0, 1), None, LARGEST)

    def _pass_on(self, rows: pa.RecordBatch) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Send late and violating rows of the operator before; gives its results. Other punctuations end here."""
        told = pc.is_in(rows.column(KIND), pa.array([LATE, VIOLATION], pa.int8()))
        said = rows.filter(told)
        if said.num_rows:
            yield self._blobs(_batch([said.column(KIND), said.column(NOTE)], blob_schema(TOLD, self.spec)), None, TOLD)
        return rows.filter(pc.equal(rows.column(KIND), RESULT))

    def _signs(self, rows: pa.RecordBatch) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Send the punctuations; gives the rows that are none."""
        plain: pa.Array | None = None
        for sign in self.signs:
            told = rows.column(flag(sign.number))
            plain = pc.invert(told) if plain is None else pc.and_(plain, pc.invert(told))
            said = rows.filter(told)
            if said.num_rows:
                yield from self._sign(sign, said)
        return rows.filter(plain)

    def _sign(self, sign: Signed, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if not self.spec.tellers and sign.kind in ("value", "list", "range"):
            rows = rows.filter(rows.column(self.spec.time).is_valid())  # without a time nothing is promised
        if sign.kind == "range":
            rows = yield from self._reject(sign, rows)
        time = rows.column(self.spec.time).cast(pa.int64())
        if self.spec.tellers:
            time = pc.fill_null(time, BEFORE_ALL)  # said at the end of its batch, and so effective
        seen = None if self.spec.tellers else pc.max(time).as_py()
        tellers = rows.column(TELLER) if self.spec.tellers else pa.nulls(rows.num_rows, pa.int32())
        match sign.kind:
            case "value":
                columns = [rows.column(part(sign.number, n)) for n in range(len(self.spec.key))]
                yield self._blobs(_batch([*columns, time], blob_schema(KEYS, self.spec)), seen, KEYS)
            case "list":
                lists = rows.column(part(sign.number, 0))
                times = time.take(pc.list_parent_indices(lists))
                yield self._blobs(_batch([pc.list_flatten(lists), times], blob_schema(KEYS, self.spec)), seen, KEYS)
            case "range":
                ends = [rows.column(part(sign.number, n)) for n in (0, 1)]
                closed = [pa.repeat(end, rows.num_rows) for end in (sign.low_closed, sign.high_closed)]
                yield self._blobs(_batch([*ends, *closed, time, tellers], blob_schema(RANGES, self.spec)), seen, RANGES)
            case "heartbeat":
                beats = rows.column(part(sign.number, 0)).cast(pa.int64())
                ended = pa.repeat(False, rows.num_rows)
                yield self._blobs(_batch([beats, ended, tellers], blob_schema(BEATS, self.spec)), None, BEATS)
            case _:
                beats, ended = pa.nulls(rows.num_rows, pa.int64()), pa.repeat(True, rows.num_rows)
                yield self._blobs(_batch([beats, ended, tellers], blob_schema(BEATS, self.spec)), None, BEATS)

    def _reject(self, sign: Signed, rows: pa.RecordBatch) -> Generator[pa.RecordBatch, None, pa.RecordBatch]:
        """Send ranges without an end that they need to the first shard, to be told of; gives the others."""
        ends = [rows.column(part(sign.number, n)) for n in (0, 1)]
        needed = [end.is_null() for end, needs in zip(ends, sign.needs, strict=True) if needs]
        bad = reduce(pc.or_, needed) if needed else pa.repeat(False, rows.num_rows)
        said = _batch([*ends, rows.column(self.spec.time).cast(pa.int64())], blob_schema(REJECTED, self.spec))
        if pc.any(bad).as_py():
            yield self._blobs(said.filter(bad), None, REJECTED)
        return rows.filter(pc.invert(bad))

    def _blobs(self, rows: pa.RecordBatch, seen: int | None, kind: int = ROWS) -> pa.RecordBatch:
        """One blob for each shard, in one batch."""
        shards = len(self.ids)
        if kind == RANGES and self.spec.tellers:  # about the keys of the shard that says it
            pieces = [rows.filter(pc.equal(rows.column("teller"), id)) for id in self.ids]
        elif kind in (REJECTED, TOLD):
            pieces = [rows] + [rows.slice(0, 0)] * (shards - 1)
        else:
            pieces = self._split(rows) if kind in (ROWS, KEYS) else [rows] * shards
        return _batch(
            [
                self.ids,
                [self.index] * shards,
                [NO_TIME if seen is None else seen] * shards,
                [p.num_rows for p in pieces],
                [p.serialize().to_pybytes() for p in pieces],
                [kind] * shards,
            ],
            PACKED,
        )

    def _split(self, rows: pa.RecordBatch) -> list[pa.RecordBatch]:
        """Rows by the shard of their key."""
        return split(rows, lambda: encode([rows.column(k) for k in self.spec.key]).words, len(self.ids))


def _latest(times: pa.Array) -> int | None:
    latest: int | None = pc.max(times).cast(pa.int64()).as_py()
    return latest


def _largest(keys: pa.Array) -> pa.Array:
    """Where the largest of these stands, NaN being larger than everything."""
    nan = pc.is_nan(keys) if pa.types.is_floating(keys.type) else None
    return nan if nan is not None and pc.any(nan).as_py() else pc.equal(keys, pc.max(keys))


def _batch(columns: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        c.cast(f.type) if isinstance(c, pa.Array) else pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)
    ]
    return pa.record_batch(arrays, schema=schema)


def gather(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches of a partition in larger pieces."""
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if batch.num_rows:
            held.append(batch)
            size += batch.get_total_buffer_size()
        if size >= GATHER_BYTES:
            yield one(held)
            held, size = [], 0
    if held:
        yield one(held)


def one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Several batches as one."""
    if len(batches) == 1:
        return batches[0]
    try:
        return pa.concat_batches(batches)
    except pa.ArrowInvalid as error:  # joining tables instead would leave a second batch, and its rows behind
        raise WatersmeetError(
            "a shard has more than 2 GiB of text or bytes in one column in one batch.",
            hint="take smaller batches (maxFilesPerTrigger, maxOffsetsPerTrigger and their like), or more shards.",
        ) from error
