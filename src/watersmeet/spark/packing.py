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

from watersmeet.errors import WatersmeetError
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, NO_TIME, Batch, micros, no_rows
from watersmeet.model.punctuations import Closings, Clustered, Ordered, Range
from watersmeet.model.queries import StreamSpec
from watersmeet.spark.punctuations import TELLER, flag, part
from watersmeet.state.keys import encode
from watersmeet.state.shards import split

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
#: ranges that say nothing because an end of theirs is NULL.
ROWS, KEYS, RANGES, NEWEST, LARGEST, BEATS, REJECTED = range(7)


def blob_schema(kind: int, spec: StreamSpec) -> pa.Schema:
    """Columns of a blob of this kind."""
    keys = [spec.schema.field(k) for k in spec.key]
    time, teller = pa.field("time", pa.int64()), pa.field("teller", pa.int32())
    match kind:
        case 0:
            return spec.schema
        case 2:
            low, high = (pa.field(end, keys[0].type) for end in ("low", "high"))
            return pa.schema([low, high, ("low_closed", pa.bool_()), ("high_closed", pa.bool_()), time, teller])
        case 5:
            return pa.schema([time, ("ended", pa.bool_()), teller])
        case 6:
            return pa.schema([pa.field(end, keys[0].type) for end in ("low", "high")] + [time])
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
    are not punctuations are left out: the DataFrame is one of punctuations only.
    """

    spec: StreamSpec
    index: int
    ids: tuple[int, ...]
    signs: tuple[Signed, ...] = ()
    tuples: bool = True

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sent = False
        for rows in gather(batches):
            if self.signs:
                rows = yield from self._signs(rows)
            if self.tuples:
                sent = True
                yield from self._rows(rows)
        if not sent:
            yield self._blobs(no_rows(self.spec.schema), None)

    def _rows(self, rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        rows = rows.select(self.spec.schema.names).cast(self.spec.schema)
        seen = _latest(rows.column(self.spec.time))
        yield self._blobs(rows, seen)
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
        elif kind == REJECTED:
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


def _by_key_then_first(shown: tuple[Any, int]) -> tuple[Any, ...]:
    key, time = shown
    return (True, -time) if key != key else (False, key, -time)


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


def unpack(blob: bytes, spec: StreamSpec, kind: int = ROWS) -> pa.RecordBatch:
    """The rows of a blob."""
    return pa.ipc.read_record_batch(pa.py_buffer(blob), blob_schema(kind, spec))


class Inbox:
    """Collects the blobs of one stream, from all source partitions and in any order, into its batch."""

    def __init__(self, spec: StreamSpec) -> None:
        self.spec = spec
        self.seen = NO_TIME
        self.held: dict[int, list[pa.RecordBatch]] = {}

    def put(self, kind: int, seen: int, rows: int, blob: bytes) -> None:
        self.seen = max(self.seen, seen)
        if rows:
            self.held.setdefault(kind, []).append(unpack(blob, self.spec, kind))

    def batch(self, *, ended: bool) -> Batch:
        """What all of them said together."""
        largest = max(self._tuples(LARGEST), default=None, key=_by_key_then_first)
        return Batch(
            self._all(ROWS),
            self.seen if self.seen != NO_TIME else None,
            ended,
            self._closings(),
            self._newest(),
            largest,
            self._all(REJECTED) if REJECTED in self.held else None,
        )

    def _all(self, kind: int) -> pa.RecordBatch:
        held = self.held.get(kind)
        return one(held) if held else no_rows(blob_schema(kind, self.spec))

    def _tuples(self, kind: int) -> list[tuple[Any, ...]]:
        return list(zip(*(c.to_pylist() for c in self._all(kind).columns), strict=True))

    def _newest(self) -> tuple[pa.RecordBatch, int] | None:
        keys = self._all(NEWEST)
        if not keys.num_rows:
            return None
        time = pc.max(keys.column("time")).as_py()
        return keys.filter(pc.equal(keys.column("time"), time)).select(list(self.spec.key)), time

    def _closings(self) -> Closings | None:
        if not self.held.keys() & {KEYS, RANGES, BEATS}:
            return None
        keys = self._all(KEYS)
        ranges = tuple((Range(low, high, a, b), time) for low, high, a, b, time, _ in self._tuples(RANGES))
        beat = self._beat()
        return Closings(
            keys.select(list(self.spec.key)),
            micros(keys.column("time")),
            ranges,
            beat if beat != AFTER_ALL else None,
            beat == AFTER_ALL,
        )

    def _beat(self) -> int | None:
        """The latest heartbeat; of a join's output the one that all of its shards have reached."""
        beats = [(AFTER_ALL if ended else time, teller) for time, ended, teller in self._tuples(BEATS)]
        if not self.spec.tellers:
            return max((time for time, _ in beats if time is not None), default=None)
        told: dict[int, int] = {}
        for time, teller in beats:
            told[teller] = max(time, told.get(teller, BEFORE_ALL))
        return min(told.values()) if len(told) == self.spec.tellers else None
