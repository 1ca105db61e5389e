"""The stateful processor: loads a shard's state, lets the join run, saves the state. No matching is done here."""

from __future__ import annotations

import json
import resource
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.types as pt
from pyspark.sql.streaming.stateful_processor import (
    MapState,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
    ValueState,
)

from watersmeet.errors import ViolationError
from watersmeet.joins import Join
from watersmeet.joins.hash_join import HashJoin
from watersmeet.joins.running import RunningJoin
from watersmeet.model.batches import Batch
from watersmeet.model.plain import plain_rows
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.spark import packing, worker_cache
from watersmeet.spark.folding import declare
from watersmeet.spark.inbox import Inbox
from watersmeet.spark.kinds import KIND, LATE, NOTE, PUNCTUATION, RESULT, STATS, VIOLATION
from watersmeet.spark.measuring import measuring_of
from watersmeet.spark.shard_report import about_news, about_states
from watersmeet.spark.watching import watch
from watersmeet.state import cache as caches
from watersmeet.state import log
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.segments import slices, tables
from watersmeet.state.shards import Home


class SparkStore:
    """A shard's durable state in Spark's state store: a value for the header, a map for the segments."""

    def __init__(self, header: ValueState, segments: MapState) -> None:
        self._header = header
        self._segments = segments
        self.written = 0
        self.read = 0

    def read_header(self) -> bytes | None:
        row = self._header.get()
        return None if row is None else bytes(row[0])

    def write_header(self, data: bytes) -> None:
        self.written += len(data)
        self._header.update((data,))

    def read_segment(self, id: int) -> bytes | None:
        row = self._segments.getValue((id,))
        if row is None:
            return None
        self.read += len(row[0])
        return bytes(row[0])

    def write_segment(self, id: int, data: pa.Buffer) -> None:
        self.written += data.size
        self._segments.updateValue((id,), (data.to_pybytes(),))

    def remove_segment(self, id: int) -> None:
        self._segments.removeKey((id,))


@dataclass
class Timings:
    """Where a batch's time goes, in microseconds, and how its working state was found."""

    started: float = field(default_factory=time.perf_counter)
    parts: dict[str, int] = field(default_factory=dict)

    def lap(self, part: str) -> None:
        now = time.perf_counter()
        self.parts[part] = self.parts.get(part, 0) + round((now - self.started) * 1e6)
        self.started = now


class ShardProcessor(StatefulProcessor):
    """Runs one query for every shard that Spark hands to this task."""

    def __init__(
        self,
        query: JoinQuery,
        ids: tuple[int, ...],
        *,
        ended: bool,
        join: Join | None = None,
        on_violation: str = "drop",
    ) -> None:
        self.query = query
        self.ids = ids
        self.ended = ended
        self.join = join or HashJoin(query)
        self.on_violation = on_violation
        self.sheet = Sheet(query.schema)
        self.notes: list[tuple[int, str]] = []  # of rows that were late, or violations, in operators before this one

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.header, self.segments = declare(handle)

    def handleInputRows(  # type: ignore[override]  # Spark's name; frames only, as asked for in pipeline
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        shard, timings = int(key[0]), Timings()
        store = SparkStore(self.header, self.segments)
        batches = self._decode(rows)
        timings.lap("decode_us")
        header = self._load_header(store, shard)
        with _Working(self.join, header, store, Home(self.ids.index(shard), len(self.ids))) as working:
            watched = watch(self.join, working.join, ended=self.ended)
            timings.lap("load_us")
            for results in working.join.step(batches):
                timings.lap("join_us")
                for some in tables(results):
                    yield self.sheet.results(some)
                timings.lap("emit_us")
            timings.lap("join_us")
            if self.on_violation == "error":
                _refuse_violations(working.join)
                _refuse_rejected(self.query, batches)
            seen = {}
            if watched:
                seen = watched.after(header.batches, batches)
                timings.lap("watch_us")
            news = about_news(working.join, batches)
            header = log.commit(working.join, header, working.store)
            working.keep(header.token)
            timings.lap("save_us")
            counters = working.join.counters
            counters.state_bytes = sum(s.bytes for s in working.join.streams)
            for kind, parts in ((LATE, working.join.late), (VIOLATION, working.join.violations)):
                for spec, rows_out in zip(self.query.streams, parts, strict=False):
                    for some in slices(rows_out):
                        yield self.sheet.notes(kind, [_note(shard, spec.name, r) for r in plain_rows(some)])
            for spec, batch in zip(self.query.streams, batches, strict=False):
                if batch.rejected is not None:
                    told = [f'{{"punctuation":{row}}}' for row in plain_rows(_timed(batch.rejected, spec))]
                    yield self.sheet.notes(VIOLATION, [_note(shard, spec.name, row) for row in told])
            said = [_note(shard, None, pattern) for pattern in working.join.output_punctuations()]
            if said:
                yield self.sheet.notes(PUNCTUATION, said)
            for kind in sorted({kind for kind, _ in self.notes}):
                yield self.sheet.notes(kind, [note for of, note in self.notes if of == kind])
            stats: dict[str, Any] = {
                **counters.as_dict(),
                **timings.parts,
                **working.found,
                "bytes_written": store.written,
            }
            stats["shard"] = shard
            stats["worker_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            stats |= seen | working.join.measured()
            stats |= {"progress": working.join.reached(), "streams": about_states(working.join, news)}
            yield self.sheet.notes(STATS, [json.dumps(stats)])

    def _decode(self, rows: Iterator[pd.DataFrame]) -> list[Batch]:
        """The batch of each stream from the blobs of all source partitions."""
        measuring = measuring_of(self.join)
        inboxes = [Inbox(spec, measuring) for spec in self.query.streams]
        for frame in rows:
            for stream, seen, count, blob, kind in zip(
                frame["stream"], frame["seen"], frame["rows"], frame["blob"], frame["kind"], strict=True
            ):
                inboxes[int(stream)].put(int(kind), int(seen), int(count), blob)
        self.notes = [note for inbox in inboxes for note in inbox.told()]
        return [inbox.batch(ended=self.ended) for inbox in inboxes]

    def _load_header(self, store: SparkStore, shard: int) -> log.Header:
        """The shard's header; a new one if it has none.

        A shard has none before the first batch that had any source partition. If the division into shards has changed
        since, others may have none either, but not shard 0, which there always is: it refuses, and the batch fails.
        """
        data = store.read_header()
        if data is None:
            return log.begin(self.query, shard, len(self.ids), self.ids)
        header = log.Header.unpack(data)
        header.check(self.query, shard, len(self.ids), self.ids)
        return header

    def close(self) -> None:
        pass


class _Working:
    """The working state of a shard for the length of one batch: found in the cache, caught up, or rebuilt."""

    def __init__(self, join: Join, header: log.Header, store: SparkStore, home: Home) -> None:
        self.home = home
        self.found = {"cache_hit": 0, "caught_up": 0, "rebuilt": 0, "not_kept": 0}
        self.cache = worker_cache.application_cache()
        tokens = [v.token for v in reversed(header.versions)]
        taken = self.cache.take(tokens)
        self.folder = taken[1] if taken else self.cache.fresh()
        try:
            self._find(join, header, store, taken[0] if taken else None)
        except BaseException:
            self.__exit__()
            raise

    def _find(self, join: Join, header: log.Header, store: SparkStore, token: str | None) -> None:
        if token and self._adopt(join, header, store, token):
            return
        if token:
            shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open(join, header, store)
        if header.batches:
            self.found["rebuilt"] = 1
            log.rebuild(self.join, header, self.store)

    def _open(self, join: Join, header: log.Header, store: SparkStore) -> None:
        self.store = store
        self.join = join.start(MappedArrays(self.folder))
        self.join.owns(self.home)
        self.join.attach(header.segments, lambda entry: log.read(entry, store).rows)

    def _adopt(self, join: Join, header: log.Header, store: SparkStore, token: str) -> bool:
        """Go on from a state found in the cache, if it is the header's or can be brought there."""
        if not caches.complete(self.folder):
            return False
        self._open(join, header, store)
        if not caches.load(self.join, self.folder):
            return False
        if token == header.token:
            self.found["cache_hit"] = 1
            return True
        if log.catch_up(self.join, token, header, self.store):
            self.found["caught_up"] = 1
            return True
        return False

    def keep(self, token: str) -> None:
        """Leave the working state to the next batch; if there is no room for it, that one rebuilds it."""
        try:
            caches.save(self.join, self.folder)
            self.cache.keep(self.folder, token)
        except OSError:  # the durable state is written: nothing is lost, and the batch goes on
            self.found["not_kept"] = 1
        self.cache.tidy()

    def __enter__(self) -> _Working:
        return self

    def __exit__(self, *exc: object) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # kept ones have been renamed away


class Sheet:
    """How rows leave the operator: as columns, or as Arrow blobs where a column is nested.

    Flat columns leave as Arrow-backed pandas columns, which nothing converts on the way; PySpark would take nested
    ones apart value by value, so those leave packed and are unpacked by `unpack_sheets` on the other side.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.packed = any(pt.is_nested(column.type) for column in schema)

    def results(self, table: pa.Table) -> pd.DataFrame:
        n = 1 if self.packed else table.num_rows
        head = {KIND: pa.repeat(pa.scalar(RESULT, pa.int8()), n), NOTE: pa.nulls(n, pa.string())}
        if self.packed:
            blob = packing.one(table.to_batches()).serialize().to_pybytes()
            return _arrow_frame(head | {"blob": pa.array([blob], pa.binary())})
        return _arrow_frame(head | {c: table.column(c).combine_chunks() for c in table.column_names})

    def notes(self, kind: int, notes: list[str]) -> pd.DataFrame:
        """Rows that are not results: everything they say stands in `note`."""
        n = len(notes)
        head = {KIND: pa.repeat(pa.scalar(kind, pa.int8()), n), NOTE: pa.array(notes, pa.string())}
        body = {"blob": pa.nulls(n, pa.binary())} if self.packed else {c.name: pa.nulls(n, c.type) for c in self.schema}
        return _arrow_frame(head | body)


def _arrow_frame(columns: dict[str, pa.Array]) -> pd.DataFrame:
    return pd.DataFrame({name: pd.Series(pd.array(c, dtype=pd.ArrowDtype(c.type))) for name, c in columns.items()})


@dataclass(frozen=True)
class SheetReader:
    """Unpacks what a packed `Sheet` wrote. A function for `mapInArrow`."""

    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for kind, note, blob in zip(*(batch.column(i) for i in range(3)), strict=True):
                if blob.is_valid:
                    rows = pa.ipc.read_record_batch(blob.as_buffer(), self.schema)
                    columns, n = rows.columns, rows.num_rows
                else:
                    columns, n = [pa.nulls(1, f.type) for f in self.schema], 1
                yield pa.record_batch(
                    [pa.repeat(kind, n), pa.repeat(note, n), *columns], names=[KIND, NOTE, *self.schema.names]
                )


def _note(shard: int, stream: str | None, row: str) -> str:
    return f'{{"shard":{shard},"stream":{json.dumps(stream)},"row":{row}}}'


def _refuse_violations(join: RunningJoin[Any]) -> None:
    for i, (spec, rows) in enumerate(zip(join.query.streams, join.violations, strict=False)):
        if rows.num_rows:
            row, when = json.loads(plain_rows(rows.slice(0, 1))[0]), join.promised_at(i)
            said = "" if when is None else f" (at {datetime.fromtimestamp(0, UTC) + timedelta(microseconds=when)})"
            raise ViolationError(
                f"stream `{spec.name}` brought a tuple with {', '.join(f'{k} = {row[k]}' for k in spec.key)} at "
                f"{row[spec.time]}, against a punctuation{said} by which no more of these would come.",
                hint='mend the source, or use on_violation="drop" to set such tuples apart.',
            )


def _refuse_rejected(query: JoinQuery, batches: list[Batch]) -> None:
    for spec, batch in zip(query.streams, batches, strict=False):
        if batch.rejected is not None:
            raise ViolationError(
                f"stream `{spec.name}` brought a punctuation without an end of the range that it closes: "
                f"{plain_rows(_timed(batch.rejected, spec))[0]}.",
                hint="leave `low` or `high` out of wm.when to leave that end unbounded, or mend the source.",
            )


def _timed(rejected: pa.RecordBatch, spec: StreamSpec) -> pa.RecordBatch:
    """Punctuations that were rejected, their times of the stream's own type."""
    time = rejected.column("time").cast(spec.schema.field(spec.time).type)
    return rejected.set_column(2, spec.time, time)
