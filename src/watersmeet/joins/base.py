"""The common part of running joins: watermarks, late rows, punctuations, durable parts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Generic

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, NO_TIME, Batch, micros
from watersmeet.model.counters import Counters
from watersmeet.model.json_values import plain_column
from watersmeet.model.lags import Lags
from watersmeet.model.punctuations import End, Heartbeat, Pattern, Value
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import alive_from
from watersmeet.state.durable.log import ENDED
from watersmeet.state.durable.parts import DurablePart, Metadata
from watersmeet.state.hot_keys.phases import HOT_KEYS
from watersmeet.state.index import by_time
from watersmeet.state.key_order import Order
from watersmeet.state.keys import Int64s, encode_key
from watersmeet.state.punctuations.neighbours import Mine
from watersmeet.state.punctuations.punctuation_set import PunctuationSet
from watersmeet.state.segments import of_any_length
from watersmeet.state.shards import ShardKeys
from watersmeet.state.statistics.lateness import MeasuredDelay
from watersmeet.state.stream_state import Arrivals, IndexT, StreamState


class RunningJoin(ABC, Generic[IndexT]):
    """A join at work: the state and the watermark of each stream, and the counters of the last step.

    With `decides_on_arrival` rows that fail the part of `where` that is about their own stream are not stored: they
    match nothing. (Where rows are counted they must be.) They declare what they declare all the same.
    """

    decides_on_arrival = False

    def __init__(self, query: JoinQuery, streams: list[StreamState[IndexT]]) -> None:
        self.query = query
        self.varies = any(of_any_length(column.type) for column in query.schema)  # whether results differ in size
        self.operator: dict[str, Any] = {}  # name and options, as the state's header has them
        self.streams = streams
        self.watermarks = [BEFORE_ALL] * len(query.streams)
        self.delays = [
            None if s.late_share is None else MeasuredDelay(s.late_share, i) for i, s in enumerate(query.streams)
        ]
        self.last_active = [BEFORE_ALL] * len(query.streams)  # watermark of the others when each stream last had a row
        self.last_shown = [BEFORE_ALL] * len(query.streams)  # timestamp of the batch in which each stream last had one
        self.idle = [False] * len(query.streams)  # streams whose watermark followed the others in the last batch
        streams_of = range(len(query.streams))
        self.own_conditions = [query.own_condition(i) if self.decides_on_arrival else None for i in streams_of]
        self.counters = Counters()
        self.late: list[pa.RecordBatch] = []
        self.violations: list[pa.RecordBatch] = []
        self.arrivals: list[Arrivals] = []
        self.ended = False  # whether the last step was the last one of all streams
        self.collector_metadata: dict[str, Any] = {}  # metadata of the statistics collector, as JSON
        self.gaps: dict[str, Any] = {}  # what changes of the query have left, as JSON; see `checkpoints.gaps`
        self.hot_keys: list[Any] = []  # the table of hot keys by which the last batch was routed, as JSON
        self.punctuation_sets: list[PunctuationSet] = []  # of each stream; empty: the join ignores punctuations
        self.first_shard = True  # the one that counts rows which all shards have
        self.propagated: list[pa.RecordBatch] = []  # keys without further results
        self.propagated_ranges: list[tuple[Any, Any]] = []  # intervals of such keys

    @abstractmethod
    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        """Join one micro-batch, one `Batch` per stream; yields results in bounded tables.

        When the iterator is exhausted, the state is that after the batch, `late` holds the late rows of each stream
        and `counters` the work. `arrivals` must be settled (see `state.durable.log`) before the next step.
        """

    def alive_from(self, i: int) -> int:
        """Tuples of stream i with an event time before this cannot match anything that may still come."""
        others = (p for j, p in enumerate(self.watermarks) if j != i)
        return alive_from(self.query.streams[i].window, min(others))

    def output_watermark(self) -> int:
        """No result to come is older than this."""
        return min(self.watermarks)

    def reached(self) -> list[int]:
        """Watermark of each stream, limited to the times whose results have been emitted."""
        return self.watermarks

    def measured(self) -> dict[str, Any]:
        """Measured statistics of the streams that the join uses, as JSON; times are microseconds."""
        return {"delays": [d and d.delay for d in self.delays]} if any(self.delays) else {}

    def output_punctuations(self) -> list[Pattern]:
        """The punctuations that the last step propagates."""
        if not self.punctuation_sets:
            return []
        order = self.punctuation_sets[0].keys.order if self.propagated_ranges else None
        return punctuations(self.propagated, self.propagated_ranges, order, self.output_watermark())

    def violated_at(self, i: int) -> int | None:
        """Event time of the punctuation that the first of `violations[i]` violates."""
        if not self.punctuation_sets:
            return None
        row = self.violations[i].slice(0, 1)
        spec = self.query.streams[i]
        key = encode_key([row.column(k) for k in spec.key], spec.null_safe)
        time = self.punctuation_sets[i].keys.time_of(key)
        return None if time == BEFORE_ALL else time

    def owns(self, mine: Mine) -> None:
        """Set the predicate for the key words of this shard; `mine` is true for keys that are routed here."""
        self.first_shard = not isinstance(mine, ShardKeys) or mine.index == 0
        for punctuation_set in self.punctuation_sets:
            punctuation_set.retention.mine = mine

    def copied(self, i: int) -> bool:
        """Whether rows of stream i are copies, which the first shard has and counts, too."""
        return self.query.is_theta and not self.first_shard and i != self.query.spread

    def count(self, i: int, n: int | np.integer[Any]) -> int:
        """So many rows of stream i, unless another shard counts them."""
        return 0 if self.copied(i) else int(n)

    def parts(self) -> list[DurablePart]:
        """The durable parts beside the tuples of the streams."""
        measured = [delay for delay in self.delays if delay is not None]
        return [*measured, *self.punctuation_sets, *self._own_parts(), *self._shared_metadata()]

    def check_operator(self, stored: dict[str, Any]) -> None:
        """Refuse the state of an operator that this one cannot continue (default: accept all)."""

    def _own_parts(self) -> list[DurablePart]:
        """Durable parts of a subclass (default: none)."""
        return []

    def _shared_metadata(self) -> Iterator[DurablePart]:
        if any(s.idle_after is not None for s in self.query.streams):
            yield Metadata("last_active", lambda: list(self.last_active), partial(setattr, self, "last_active"))
        if any(s.idle_clock is not None for s in self.query.streams):
            yield Metadata("last_shown", lambda: list(self.last_shown), partial(setattr, self, "last_shown"))
        if self.punctuation_sets:
            yield Metadata("rewrite_due", lambda: [s.rewrite_due for s in self.streams], self._load_rewrite_due)
        yield Metadata(ENDED, lambda: self.ended or None, partial(setattr, self, "ended"))
        yield Metadata("gaps", lambda: self.gaps or None, partial(setattr, self, "gaps"))
        yield Metadata(HOT_KEYS, lambda: self.hot_keys or None, partial(setattr, self, HOT_KEYS))
        collector = partial(setattr, self, "collector_metadata")
        yield Metadata("collector_metadata", lambda: self.collector_metadata or None, collector)

    def _load_rewrite_due(self, rewrite_due: list[bool]) -> None:
        """Load the flags of streams whose dead rows leave their segments with the next batch."""
        for stream, due in zip(self.streams, rewrite_due, strict=True):
            stream.rewrite_due = due

    def restored(self) -> None:
        """All parts are read: evict the tuples that watermarks and punctuations make useless."""

    def _begin(self, batches: Sequence[Batch]) -> None:
        """Find late rows by the watermarks so far, then advance the watermarks."""
        self.counters = Counters()
        self.late, self.violations = [], []
        self.arrivals = [self._admit(i, batch) for i, batch in enumerate(batches)]
        for i, arrivals in enumerate(self.arrivals):
            self._decide(i, arrivals)
        for i, batch in enumerate(batches):
            self._advance(i, batch)
            self.counters.violations += 0 if batch.rejected is None else batch.rejected.num_rows
        self._follow_clock(batches)
        self._pass_idle(batches)

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        """Separate late rows, rows without a key, and rows that violate a punctuation of their own stream."""
        times, keys = self.streams[i].read(batch.rows)
        on_time = times >= self.watermarks[i]
        joinable = on_time & keys.valid
        self.late.append(batch.rows.slice(0, 0) if on_time.all() else batch.rows.filter(pa.array(~on_time)))
        if self.copied(i):
            self.late[-1] = self.late[-1].slice(0, 0)
        self.counters.rows_in += self.count(i, times.size)
        self.counters.late += self.late[-1].num_rows
        self.counters.null_keys += int(np.count_nonzero(on_time & ~keys.valid))
        arrivals = Arrivals(batch.rows, times, keys, by_time(times, np.flatnonzero(joinable)))
        if self.punctuation_sets:
            violating = self.punctuation_sets[i].admit(arrivals, batch, self.watermarks[i])
            self.violations.append(batch.rows.slice(0, 0))
            if violating.any():
                self.violations[-1] = batch.rows.take(pa.array(arrivals.which[violating]))
                self.counters.violations += self.violations[-1].num_rows
                arrivals.which = arrivals.which[~violating]
        return arrivals

    def _decide(self, i: int, arrivals: Arrivals) -> None:
        """Take out the rows that fail the condition on their own stream.

        Where it has no value for one of them (a division by zero) pairs decide: the row may have no partner.
        """
        condition = self.own_conditions[i]
        if condition is None or not arrivals.which.size:
            return
        called, which = self.query.called(i), pa.array(arrivals.which)
        columns = [arrivals.rows.column(called[c]).take(which) for c in condition.columns]
        # a column that counts the rows: the condition may name none
        rows = pa.record_batch([*columns, which], names=[*condition.columns, "watersmeet row"])
        try:
            holds = condition.holds(rows)
        except QueryError:
            return
        self._fail(i, arrivals, arrivals.which[~holds])
        arrivals.which = arrivals.which[holds]

    def _fail(self, i: int, arrivals: Arrivals, which: Int64s) -> None:
        """Rows of the batch match nothing, whatever comes (default: they are dropped)."""

    def _advance(self, i: int, batch: Batch) -> None:
        if batch.seen is not None and not self.query.streams[i].upstream_shards:
            delay = self._delay(i, batch, batch.seen)
            if delay is not None:
                self.watermarks[i] = max(self.watermarks[i], batch.seen - delay)
        given = batch.punctuations
        if given is not None and given.heartbeat is not None:
            self.watermarks[i] = max(self.watermarks[i], given.heartbeat)
        if batch.ended or (given is not None and given.ended):
            self.watermarks[i] = AFTER_ALL

    def _delay(self, i: int, batch: Batch, seen: int) -> int | None:
        """How far behind `seen` tuples of stream i may still come; None: not measured yet."""
        measured = self.delays[i]
        if measured is None:
            return self.query.streams[i].delay
        lags = batch.lags
        if lags is None:
            times = micros(batch.rows.column(self.query.streams[i].time))
            lags = Lags.of(times[times != NO_TIME])
        measured.observe(lags, seen)
        return measured.delay

    def _follow_clock(self, batches: Sequence[Batch]) -> None:
        """Advance the watermarks of streams that have shown nothing for `idle_clock` behind the batch's timestamp."""
        for i, (spec, batch) in enumerate(zip(self.query.streams, batches, strict=True)):
            if spec.idle_clock is None or batch.clock is None:
                continue
            if _is_active(batch):
                self.last_shown[i] = batch.clock
            elif self.last_shown[i] <= batch.clock - spec.idle_clock:
                measured = self.delays[i]
                delay = spec.delay if measured is None else measured.delay or 0
                self.watermarks[i] = max(self.watermarks[i], batch.clock - spec.idle_clock - delay)
                self.counters.idle += 1

    def _pass_idle(self, batches: Sequence[Batch]) -> None:
        """Advance the watermarks of idle streams behind those of the others.

        Idleness is measured in event time, so a batch that is run again, on any shard, gives the same watermarks.
        Streams that have ended do not count among the others.
        """
        before = list(self.watermarks)
        self.idle = [False] * len(before)
        for i, (spec, batch) in enumerate(zip(self.query.streams, batches, strict=True)):
            if spec.idle_after is None:
                continue
            others = max((p for j, p in enumerate(before) if j != i and p < AFTER_ALL), default=BEFORE_ALL)
            if _is_active(batch) or self.last_active[i] == BEFORE_ALL:
                self.last_active[i] = max(self.last_active[i], others)
            elif others - self.last_active[i] > spec.idle_after:
                self.watermarks[i] = max(before[i], others - spec.idle_after)
                self.idle[i] = self.watermarks[i] > before[i]
                self.counters.idle += 1

    def insert(self, i: int, which: Int64s) -> None:
        """Store these rows of the batch of stream i."""
        self.streams[i].insert(self.arrivals[i], which)
        self.counters.inserted += self.count(i, which.size)


def _is_active(batch: Batch) -> bool:
    """Whether the stream has shown a row, a punctuation or a heartbeat."""
    return batch.seen is not None or (batch.punctuations is not None and batch.punctuations.heartbeat is not None)


def punctuations(
    propagated: Sequence[pa.RecordBatch],
    ranges: Sequence[tuple[Any, Any]],
    order: Callable[[], Order] | None,
    watermark: int,
) -> list[Pattern]:
    """Finished keys, intervals of them (in `order`) and the output watermark as patterns; values are JSON values."""
    out: list[Pattern] = []
    for rows in propagated:
        out += map(Value, zip(*map(plain_column, rows.columns), strict=True))
    for low, high in ranges:
        assert order is not None, "an interval has an order"
        out.append(order().pattern(low, high))
    if watermark > BEFORE_ALL:
        out.append(Heartbeat(watermark) if watermark < AFTER_ALL else End())
    return out
