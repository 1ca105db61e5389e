"""The real processor without a JVM: rows packed as in Spark's map tasks, every shard called in every batch."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import TimerValues
from pyspark.sql.streaming.tws_tester import TwsTester

from lab.joins.oracle import Row, Scenario, row_of, rows_of
from watersmeet.errors import StateError
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.queries import JoinQuery
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.output_rows import OutputRows, OutputUnpacker
from watersmeet.spark.runtime.packing import PACKED, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, LATE, RESULT, STATS
from watersmeet.state.durable.log import Header, MemoryStore
from watersmeet.state.hot_keys.phases import Table


@dataclass
class Output:
    """The output of one or several shards in one batch."""

    results: list[Row] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    stats: list[dict[str, int]] = field(default_factory=list)

    def total(self, counter: str) -> int:
        return sum(row[counter] for row in self.stats)

    def __iadd__(self, other: Output) -> Output:
        self.results += other.results
        self.late += other.late
        self.stats += other.stats
        return self


def packed(
    query: JoinQuery,
    ids: tuple[int, ...],
    rows: Sequence[pa.RecordBatch],
    chance: Random,
    hot_keys: Table | None = None,
) -> pa.Table:
    """Blobs of all streams for all shards: rows dealt out to a few source partitions, blobs in any order."""
    blobs: list[pa.RecordBatch] = []
    for i, (spec, stream) in enumerate(zip(query.streams, rows, strict=True)):
        # A source without new rows has no partitions; then the other source's blobs call the shards.
        partitions = chance.randint(0 if not stream.num_rows and (i == 0 or blobs) else 1, 3)
        homes = [chance.randrange(partitions) for _ in range(stream.num_rows)]
        for partition in range(partitions):
            mine = stream.take(pa.array([n for n, home in enumerate(homes) if home == partition], pa.int64()))
            cut = chance.randint(0, mine.num_rows)  # a partition comes as several Arrow batches
            blobs += Packer(spec, i, ids, hot_keys=hot_keys or {})(iter([mine.slice(0, cut), mine.slice(cut)]))
    table = pa.Table.from_batches(blobs, PACKED)
    order = list(range(table.num_rows))
    chance.shuffle(order)
    return table.take(pa.array(order, pa.int64()))


def frames_of(blobs: pa.Table, shard: int, chance: Random) -> Iterator[pd.DataFrame]:
    """A shard's blobs in the form that Spark's worker gives them: through pandas, in one frame or several."""
    rows = [row for row in blobs.to_pandas().itertuples(index=False) if row.shard == shard]
    while rows:
        some = chance.randint(1, len(rows))
        yield pd.DataFrame(rows[:some])
        rows = rows[some:]


def table_of(frame: pd.DataFrame, rows: OutputRows) -> pa.Table:
    """A frame of output with the names of its columns, which Spark takes by position."""
    return pa.Table.from_pandas(frame, preserve_index=False).rename_columns(rows.names)


def read(frames: Sequence[pd.DataFrame], query: JoinQuery) -> Output:
    """The output in the frames; packed results are unpacked."""
    out = Output()
    for frame in frames:
        table = table_of(frame, OutputRows(query.schema))
        if "blob" in table.column_names:
            table = pa.Table.from_batches(list(OutputUnpacker(query.schema)(iter(table.to_batches()))))
        assert table.schema.types == [pa.int8(), pa.string(), *query.schema.types]
        assert table.column_names == [KIND, DETAIL, *query.schema.names]
        kinds = set(table.column(KIND).to_pylist())
        assert len(kinds) == 1, "a frame is of one kind"
        details = [json.loads(detail) for detail in table.column(DETAIL).to_pylist() if detail is not None]
        if kinds == {RESULT}:
            assert not details
            out.results += rows_of(table.select(query.schema.names))
        else:
            assert table.select(query.schema.names).to_pylist() == [dict.fromkeys(query.schema.names)] * len(details)
            (out.late if kinds == {LATE} else out.stats).extend(details)
            assert kinds <= {LATE, STATS}
    return out


class Task:
    """One attempt at one shard's part of a batch, on a copy of its state: the writes count if the task commits."""

    def __init__(
        self,
        query: JoinQuery,
        ids: tuple[int, ...],
        shard: int,
        store: MemoryStore,
        ended: bool,
        processor: ShardProcessor | None = None,
        **options: Any,
    ) -> None:
        self.query, self.shard = query, shard
        self.processor = processor or ShardProcessor(query, ids, ended=ended, **options)
        self.clock = -1
        if self.processor.follows_clock:  # a millisecond a batch
            self.clock = 0
            with suppress(StateError):  # a damaged header is refused by the processor
                self.clock = 0 if store.header is None else header_of(store).batches
        self.tester = TwsTester(self.processor, timeMode="None" if self.clock < 0 else "ProcessingTime")
        if store.header is not None:
            self.tester.updateValueState("header", shard, (store.header,))
        self.tester.updateMapState("segments", shard, {(id,): (data,) for id, data in store.segments.items()})
        self.tester.handle.setGroupingKey(shard)

    def run(self, blobs: pa.Table, chance: Random) -> Iterator[pd.DataFrame]:
        """The output frames, one by one: the task can be abandoned or disturbed between any two of them."""
        frames = frames_of(blobs, self.shard, chance)
        return self.processor.handleInputRows((self.shard,), frames, TimerValues(self.clock, -1))

    def store(self) -> MemoryStore:
        """The shard's state if the task committed now."""
        made = MemoryStore()
        header = self.tester.peekValueState("header", self.shard)
        made.header = header[0] if header else None
        made.segments = {id: data for (id,), (data,) in self.tester.peekMapState("segments", self.shard).items()}
        return made


class Shards:
    """All shards of a query, batch after batch, without failures."""

    def __init__(self, query: JoinQuery, shards: int, *, ended: bool = False, **options: Any) -> None:
        self.query, self.ended, self.options = query, ended, options
        self.ids = shard_ids(shards, shards)
        self.stores = {id: MemoryStore() for id in self.ids}
        shutil.rmtree(worker_cache.application_cache().root)  # working states of finished runs are useless

    def step(self, rows: Sequence[pa.RecordBatch], chance: Random, hot_keys: Table | None = None) -> Output:
        out = Output()
        blobs = packed(self.query, self.ids, rows, chance, hot_keys)
        for shard in self.ids:
            task = Task(self.query, self.ids, shard, self.stores[shard], self.ended, **self.options)
            out += read(list(task.run(blobs, chance)), self.query)
            self.stores[shard] = task.store()
        return out

    def headers(self) -> list[Header]:
        return [header_of(store) for store in self.stores.values()]


def header_of(store: MemoryStore) -> Header:
    assert store.header is not None
    return Header.unpack(store.header)


def rows_at(scenario: Scenario, step: int) -> list[pa.RecordBatch]:
    return [scenario.rows(i, side.batches[step]) for i, side in enumerate(scenario.sides)]


def late_at(scenario: Scenario, step: int) -> list[tuple[str, Row]]:
    """Rows of the step that are late, each with its stream's name."""
    out = []
    for i, side in enumerate(scenario.sides):
        admitted = {t.row for t in side.admitted()[step]}
        out += [("ab"[i], row_of(scenario, t)) for t in side.batches[step] if t.row not in admitted]
    return out


def late_rows(scenario: Scenario, details: Sequence[dict[str, Any]]) -> list[tuple[str, Any, int]]:
    """Stream, event time and number of late rows, from their details."""
    out = []
    for detail in details:
        name, row = detail["stream"], detail["row"]
        spec = next(s for s in scenario.query().streams if s.name == name)
        assert list(row) == spec.schema.names
        out.append((name, micros_of(row[f"{name}_ts"]), row[f"{name}_n"]))
    return out


def micros_of(time: Any) -> int | None:
    """Microseconds of an event time in a late row's JSON: a number, or the time in ISO form."""
    if not isinstance(time, str):
        return time  # type: ignore[no-any-return]
    when = datetime.fromisoformat(time)
    since = (when if when.tzinfo else when.replace(tzinfo=UTC)) - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def keyless(t: Tuple) -> bool:
    return None in t.key
