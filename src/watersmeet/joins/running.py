"""What running joins have in common: progress, late rows, the shape of a result."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from watersmeet.errors import WindowError
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, NO_TIME, Batch, micros
from watersmeet.model.lags import Lags
from watersmeet.model.outputs import Counters
from watersmeet.model.plain import plain_column
from watersmeet.model.predicates import Predicate
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow
from watersmeet.state.index import Int32s, by_time
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.lateness import MeasuredDelay
from watersmeet.state.log import Delta, Entry
from watersmeet.state.order import Order
from watersmeet.state.segments import of_any_length, pieces, widths
from watersmeet.state.shelf import ReadEntry
from watersmeet.state.stream_state import Arrivals, IndexT, StreamState

#: Rows of a batch, by their places.
Rows = Int32s | Int64s


def check_windows(query: JoinQuery) -> None:
    """Refuse windows of rows, for joins that know time only."""
    for stream in query.streams:
        if isinstance(stream.window, RowsWindow):
            raise WindowError(
                f"stream `{stream.name}` has a window of {stream.window.rows} rows; this join knows windows of time.",
                hint='use algorithm="general_lazy", which counts rows, for two streams or more.',
            )


class RunningJoin(ABC, Generic[IndexT]):
    """A join at work: state of each stream, progress of each stream, counters of the last step."""

    def __init__(self, query: JoinQuery, streams: list[StreamState[IndexT]]) -> None:
        self.query = query
        self.streams = streams
        self.progress = [BEFORE_ALL] * len(query.streams)
        self.delays = [None if s.late_share is None else MeasuredDelay(s.late_share) for s in query.streams]
        self.heard = [BEFORE_ALL] * len(query.streams)  # how far the others were when each last showed something
        self.apart: frozenset[str] = frozenset()  # kinds of deltas that stay in the store until they are asked for
        self.counters = Counters()
        self.late: list[pa.RecordBatch] = []
        self.violations: list[pa.RecordBatch] = []
        self.arrivals: list[Arrivals] = []
        self.remarks: dict[str, Any] = {}  # what others want remembered with the state, as JSON has it
        self.announced: list[pa.RecordBatch] = []  # keys of which no result can come any more, and ...
        self.announced_ranges: list[tuple[Any, Any]] = []  # ... intervals of them; only some joins know any

    @abstractmethod
    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        """Join one micro-batch, one `Batch` per stream; yields results in bounded tables.

        When it is exhausted the state is that after the batch, `late` holds each stream's late rows and
        `counters` the work. `arrivals` are to be settled (see `state.log`) before the next step.
        """

    def alive_from(self, i: int) -> int:
        """Tuples of stream i with an event time before this cannot match anything that may still come."""
        others = (p for j, p in enumerate(self.progress) if j != i)
        return min(others) - self.query.streams[i].window.reach

    def output_progress(self) -> int:
        """No result to come is older than this."""
        return min(self.progress)

    def reached(self) -> list[int]:
        """Progress of each stream, as far as the results of what it brought before have come out."""
        return self.progress

    def measured(self) -> dict[str, Any]:
        """What the join has measured of its streams and goes by, as JSON; times are microseconds."""
        return {"delays": [d and d.delay for d in self.delays]} if any(self.delays) else {}

    def output_punctuations(self) -> list[str]:
        """What the last step lets the output promise, each as JSON."""
        return []

    def promised_at(self, i: int) -> int | None:
        """Event time of the punctuation that the first of `violations[i]` came against."""
        return None

    def owns(self, mine: Callable[[Int64s], Bools]) -> None:
        """Say which words of keys ever come to this join, one of several that divide them. Not all care."""

    def attach(self, entries: Sequence[Entry], read: ReadEntry) -> None:
        """Say where the durable form stands, before it is taken up: what joins keep `apart` they read when needed."""

    def notes(self) -> dict[str, Any]:
        """Rows and progress are all there is to remember, unless a join says otherwise; so for the next four."""
        patient = all(s.idle_after is None for s in self.query.streams)
        delays = [d and d.notes() for d in self.delays]
        said = {
            "heard": None if patient else list(self.heard),
            "remarks": self.remarks,
            "delays": any(delays) and delays,
        }
        return {name: value for name, value in said.items() if value}

    def recall(self, notes: dict[str, Any]) -> None:
        self.remarks = notes.get("remarks", {})
        self.heard = list(notes.get("heard", self.heard))
        for delay, note in zip(self.delays, notes.get("delays", []), strict=False):
            if delay is not None:
                delay.recall(note)

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        return []

    def replay(self, delta: Delta) -> None:
        raise AssertionError(f"this join writes no deltas, and read one of {delta.kind}")

    def restored(self) -> None:
        return

    def _begin(self, batches: Sequence[Batch]) -> None:
        """Judge what is late by the progress so far, then let every stream make its progress."""
        self.counters = Counters()
        self.late = []
        self.arrivals = [self._admit(i, batch) for i, batch in enumerate(batches)]
        for i, batch in enumerate(batches):
            self._advance(i, batch)
            self.counters.violations += 0 if batch.rejected is None else batch.rejected.num_rows
        self._pass_idle(batches)

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        """Set late rows and rows without a key apart."""
        times, keys = self.streams[i].read(batch.rows)
        on_time = times >= self.progress[i]
        joinable = on_time & keys.valid
        self.late.append(batch.rows.filter(pa.array(~on_time)))
        self.counters.rows_in += times.size
        self.counters.late += self.late[-1].num_rows
        self.counters.null_keys += int(np.count_nonzero(on_time & ~keys.valid))
        return Arrivals(batch.rows, times, keys, by_time(times, np.flatnonzero(joinable)))

    def _advance(self, i: int, batch: Batch) -> None:
        if batch.seen is not None and not self.query.streams[i].tellers:
            delay = self._delay(i, batch, batch.seen)
            if delay is not None:
                self.progress[i] = max(self.progress[i], batch.seen - delay)
        said = batch.closings
        if said is not None and said.heartbeat is not None:
            self.progress[i] = max(self.progress[i], said.heartbeat)
        if batch.ended or (said is not None and said.ended):
            self.progress[i] = AFTER_ALL

    def _delay(self, i: int, batch: Batch, seen: int) -> int | None:
        """How far behind `seen` tuples of stream i may still come; None: nobody knows yet."""
        measured = self.delays[i]
        if measured is None:
            return self.query.streams[i].delay
        lags = batch.lags
        if lags is None:
            times = micros(batch.rows.column(self.query.streams[i].time))
            lags = Lags.of(times[times != NO_TIME])
        measured.observe(lags, seen)
        return measured.delay

    def _pass_idle(self, batches: Sequence[Batch]) -> None:
        """Take the progress of streams that are idle from that of the others, all of them as they stand now.

        That is said in event time, so a batch that is run again, on whatever shard, comes to the same. An ended stream
        has no time that goes on.
        """
        told = list(self.progress)
        for i, (spec, batch) in enumerate(zip(self.query.streams, batches, strict=True)):
            if spec.idle_after is None:
                continue
            others = max((p for j, p in enumerate(told) if j != i and p < AFTER_ALL), default=BEFORE_ALL)
            beats = batch.closings is not None and batch.closings.heartbeat is not None
            if batch.seen is not None or beats or self.heard[i] == BEFORE_ALL:
                self.heard[i] = max(self.heard[i], others)
            elif others - self.heard[i] > spec.idle_after:
                self.progress[i] = max(told[i], others - spec.idle_after)
                self.counters.idle += 1

    def _holds(self, i: int, rows: Rows, numbers: Int32s, places: Int32s) -> Bools | None:
        """For which pairs of new rows of stream i with stored ones the predicate is true; None: there is none."""
        where = self.query.where
        if where is None:
            return None
        some = self._pieces(i, rows, numbers, places)
        return np.concatenate([self._true_of(where, i, rows[s], numbers[s], places[s]) for s in some])

    def _true_of(self, where: Predicate, i: int, rows: Rows, numbers: Int32s, places: Int32s) -> Bools:
        own, other = self.query.streams[i], self.query.streams[1 - i]
        names = dict(zip(self.query.streams[0].key, own.key, strict=True)) | {c: c for c in own.payload}
        mine = [c for c in where.columns if c in names]
        theirs = [c for c in where.columns if c not in names]
        taken = self.arrivals[i].rows.select([names[c] for c in mine]).take(pa.array(rows))
        columns = list(taken.columns)
        if theirs:
            assert set(theirs) <= set(other.payload), "a column of the pair is a key or stands in one stream"
            stored = self.streams[1 - i].segments.take(numbers, places, theirs)
            columns += [c.combine_chunks() for c in stored.columns]
        # a column that counts the pairs: the predicate may name none
        pairs = pa.record_batch([*columns, pa.array(rows)], names=[*mine, *theirs, "row of the batch"])
        return where.holds(pairs)

    def _fitting(self, i: int, rows: Rows, numbers: Int32s, places: Int32s) -> Iterator[pa.Table]:
        """Results of those pairs for which the predicate, if there is one, is true."""
        holds = self._holds(i, rows, numbers, places)
        if holds is not None:
            rows, numbers, places = rows[holds], numbers[holds], places[holds]
        yield from self._results(i, rows, numbers, places)

    def _results(self, i: int, rows: Rows, numbers: Int32s, places: Int32s) -> Iterator[pa.Table]:
        """New rows of stream i beside the stored ones of the other they match, which are grouped by segment number."""
        if not rows.size:
            return
        self.counters.results += rows.size
        for some in self._pieces(i, rows, numbers, places):
            mine = self.arrivals[i].rows.take(pa.array(rows[some]))
            yield self._combine(mine, self.streams[1 - i].segments.take(numbers[some], places[some], self._asked(i)), i)

    def _asked(self, i: int) -> Sequence[str]:
        """Columns that the stored tuple gives to a result found by one of stream i."""
        other = self.query.streams[1 - i]
        return [*other.key, *other.payload] if i == 1 else other.payload

    def _pieces(self, i: int, rows: Rows, numbers: Int32s, places: Int32s) -> Iterator[slice]:
        """Pairs in pieces that are bounded in bytes, too; their number is bounded already."""
        if not any(of_any_length(column.type) for column in self.query.schema):
            yield slice(0, rows.size)
            return
        theirs = self.streams[1 - i].segments.widths(numbers, places, self._asked(i))
        yield from pieces(widths(self.arrivals[i].rows, rows) + theirs)

    def _combine(self, mine: pa.RecordBatch, theirs: pa.Table, i: int) -> pa.Table:
        """Columns of the result; key values are those of the first stream's tuple."""
        first, second = self.query.streams
        sides = (mine, theirs) if i == 0 else (theirs, mine)
        names = [(0, c) for c in first.key] + [(0, c) for c in first.payload] + [(1, c) for c in second.payload]
        schema = self.query.schema
        return pa.table([sides[side].column(c) for side, c in names], names=schema.names)


def spell_punctuations(
    announced: Sequence[pa.RecordBatch],
    ranges: Sequence[tuple[Any, Any]],
    order: Callable[[], Order] | None,
    progress: int,
) -> list[str]:
    """Finished keys, intervals of them (in `order`), and how far the output has come, each as JSON."""
    said = []
    for rows in announced:
        said += [json.dumps({"key": key}) for key in zip(*map(plain_column, rows.columns), strict=True)]
    for low, high in ranges:
        assert order is not None, "an interval has an order"
        said.append(json.dumps({"range": order().spell(low, high)}))
    if progress > BEFORE_ALL:
        said.append(json.dumps({"heartbeat": progress}) if progress < AFTER_ALL else json.dumps({"end": True}))
    return said
