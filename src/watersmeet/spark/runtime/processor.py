"""The stateful processor: loads a shard's state, runs the join, saves the state. No matching is done here."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import (
    ExpiredTimerInfo,
    StatefulProcessor,
    StatefulProcessorHandle,
    TimerValues,
)

from watersmeet.errors import ViolationError
from watersmeet.joins import Join, Operator
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.hash_join import HashJoin
from watersmeet.model.batches import Batch
from watersmeet.model.json_values import plain_rows
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.spark.progress.other_shards import LISTED, with_sums
from watersmeet.spark.progress.shard_report import about_arrivals, about_states
from watersmeet.spark.progress.shard_statistics import watch
from watersmeet.spark.runtime.lazy_processor import declare
from watersmeet.spark.runtime.order_detail import order_detail_of
from watersmeet.spark.runtime.output_rows import OutputRows, detail, punctuation_json
from watersmeet.spark.runtime.routed_batch import RoutedBatch
from watersmeet.spark.runtime.row_kinds import LATE, PUNCTUATION, STATS, VIOLATION
from watersmeet.spark.runtime.store import SparkStore
from watersmeet.spark.runtime.unpacking import Unpacker
from watersmeet.spark.runtime.working_state import WorkingState
from watersmeet.state.durable import log
from watersmeet.state.hot_keys.phases import HOT_KEYS, as_json
from watersmeet.state.segments import slices, tables, together
from watersmeet.state.shards import ShardKeys


@dataclass
class Timings:
    """Microseconds that each part of a batch took."""

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
        streaming: bool = True,
        join: Operator | None = None,
        on_violation: str = "drop",
        memory: int | None = None,
        splits: bool = False,
    ) -> None:
        self.query = query
        self.ids = ids
        self.ended = ended
        self.streaming = streaming
        self.join = join or Join(query, HashJoin())
        self.on_violation = on_violation
        self.splits = splits  # whether keys may be split: the reports have what decides about it
        self.memory = memory  # bytes of the working state of one shard, beyond which rows are spilled
        self.output_rows = OutputRows(query.schema)
        self.unpackers: list[Unpacker] = []  # of the batch
        self.passed_on: list[tuple[int, str]] = []  # kind and detail of late and violating rows of upstream operators

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        self.header, self.segments = declare(handle)

    @property
    def follows_clock(self) -> bool:
        """Whether a stream follows the clock when it is silent: shards are then called in batches without rows, too."""
        return self.streaming and any(s.idle_clock is not None for s in self.query.streams)

    def handleInputRows(  # type: ignore[override]  # Spark's name; frames only: `run` uses the pandas variant
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: TimerValues
    ) -> Iterator[pd.DataFrame]:
        if self.follows_clock:
            self._set_timer(timerValues.getCurrentProcessingTimeInMs())
        yield from self._step(int(key[0]), rows, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: TimerValues, expiredTimerInfo: ExpiredTimerInfo
    ) -> Iterator[pd.DataFrame]:
        """A batch in which no source has rows: nothing else would call the shard."""
        self.handle.registerTimer(timerValues.getCurrentProcessingTimeInMs() + 1)
        yield from self._step(int(key[0]), iter(()), timerValues)

    def _set_timer(self, now: int) -> None:
        """Have the shard called in the next batch, whether or not it has rows, and not once more in this one."""
        for expiry in list(self.handle.listTimers()):
            self.handle.deleteTimer(expiry)
        if not self.ended:
            self.handle.registerTimer(now + 1)

    def _step(self, shard: int, rows: Iterator[pd.DataFrame], timer_values: TimerValues) -> Iterator[pd.DataFrame]:
        timings = Timings()
        number = self.ids.index(shard)  # the shard's number for users and other operators
        store = SparkStore(self.header, self.segments)
        batches = self._decode(rows)
        if self.follows_clock:
            clock = timer_values.getCurrentProcessingTimeInMs() * 1000
            batches = [replace(batch, clock=clock) for batch in batches]
        timings.lap("decode_us")
        header = self._load_header(store, shard)
        mine = ShardKeys(number, len(self.ids))
        routed = RoutedBatch(self.query, header, mine, self.unpackers)
        batches = routed.batches(batches)
        with WorkingState(self.join, header, store, mine, self.memory) as working:
            collector = watch(self.join, working.join, ended=self.ended)
            timings.lap("load_us")
            for results in together(working.join.step(batches)):
                timings.lap("join_us")
                for some in tables(results):
                    yield self.output_rows.results(some)
                timings.lap("emit_us")
            timings.lap("join_us")
            if self.on_violation == "error":
                _refuse_violations(working.join)
                _refuse_rejected(self.query, batches)
            seen = {}
            if collector:
                seen = collector.after(header.batches, batches)
                timings.lap("watch_us")
            arrivals = routed.without_copies(working.join, about_arrivals(working.join, batches))
            loads = routed.loads(working.join) if self.splits else []
            working.join.ended, working.join.hot_keys = self.ended, as_json(routed.table)
            header = log.commit(working.join, header, working.store)
            working.keep(header.token)
            timings.lap("save_us")
            counters = working.join.counters
            counters.state_bytes = sum(s.bytes for s in working.join.streams)
            counters.spilled_bytes = sum(s.segments.spilled for s in working.join.streams)
            for kind, parts in ((LATE, working.join.late), (VIOLATION, working.join.violations)):
                for spec, rows_out in zip(self.query.streams, parts, strict=False):
                    for some in slices(rows_out):
                        yield self.output_rows.details(kind, [detail(number, spec.name, r) for r in plain_rows(some)])
            for spec, batch in zip(self.query.streams, batches, strict=False):
                if batch.rejected is not None:
                    rejected = [f'{{"punctuation":{row}}}' for row in plain_rows(_timed(batch.rejected, spec))]
                    yield self.output_rows.details(VIOLATION, [detail(number, spec.name, row) for row in rejected])
            punctuations = [detail(number, None, punctuation_json(p)) for p in working.join.output_punctuations()]
            if punctuations:
                yield self.output_rows.details(PUNCTUATION, punctuations)
            for kind in sorted({kind for kind, _ in self.passed_on}):
                yield self.output_rows.details(kind, [text for of, text in self.passed_on if of == kind])
            stats: dict[str, Any] = {
                **counters.as_dict(),
                **timings.parts,
                **working.found,
                "bytes_written": store.written,
            }
            stats["shard"] = number
            stats["worker_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            stats |= seen | working.join.measured()
            stats |= {"watermarks": working.join.reached(), "streams": about_states(working.join, arrivals)}
            if self.splits:
                stats[HOT_KEYS] = routed.report(working.join, loads)
            if len(self.ids) > LISTED:
                stats = with_sums(stats)
            yield self.output_rows.details(STATS, [json.dumps(stats)])

    def _decode(self, rows: Iterator[pd.DataFrame]) -> list[Batch]:
        """The batch of each stream from the blobs of all source partitions."""
        order_detail = order_detail_of(self.join)
        self.unpackers = unpackers = [Unpacker(spec, order_detail) for spec in self.query.streams]
        for frame in rows:
            for stream, seen, count, blob, kind in zip(
                frame["stream"], frame["seen"], frame["rows"], frame["blob"], frame["kind"], strict=True
            ):
                unpackers[int(stream)].put(int(kind), int(seen), int(count), blob)
        self.passed_on = [row for unpacker in unpackers for row in unpacker.passed_on()]
        return [unpacker.batch(ended=self.ended) for unpacker in unpackers]

    def _load_header(self, store: SparkStore, shard: int) -> log.Header:
        """The shard's header; a new one if it has none.

        A shard has none before the first batch that had any source partition. If the number of shards has changed
        since, other shards may have none either. Shard 0 always has one: its check fails, and so does the batch.
        """
        data = store.read_header()
        if data is None:
            return log.begin(self.query, shard, len(self.ids), self.ids)
        header = log.Header.unpack(data)
        header.check(self.query, shard, len(self.ids), self.ids)
        header.refuse_ended()
        return header

    def close(self) -> None:
        pass


def _refuse_violations(join: RunningJoin[Any]) -> None:
    for i, (spec, rows) in enumerate(zip(join.query.streams, join.violations, strict=False)):
        if rows.num_rows:
            row, when = json.loads(plain_rows(rows.slice(0, 1))[0]), join.violated_at(i)
            closed_at = "" if when is None else f" (at {datetime.fromtimestamp(0, UTC) + timedelta(microseconds=when)})"
            raise ViolationError(
                f"stream `{spec.name}` brought a tuple with {', '.join(f'{k} = {row[k]}' for k in spec.key)} at "
                f"{row[spec.time]}, against a punctuation{closed_at} by which no more of these would come.",
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
    """Rejected punctuations, with times of the type, and if it is free the name, of the stream's time column."""
    time = rejected.column(2).cast(spec.schema.field(spec.time).type)
    return rejected.set_column(2, "time" if spec.time in rejected.schema.names[:2] else spec.time, time)
