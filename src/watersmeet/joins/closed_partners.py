"""Punctuations of streams that are joined without equality, taken together: which tuples no result to come can have."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from watersmeet.joins.base import RunningJoin
from watersmeet.kernels.value_lists import NIL
from watersmeet.model.batches import AFTER_ALL, Batch
from watersmeet.model.linear_bounds import Attribute, Bound, Intervals, bounds_of, with_implied
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Unbounded
from watersmeet.state.arrays import Arrays
from watersmeet.state.durable.parts import DurablePart, Metadata
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.punctuations.closed_values import ClosedValues
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

_NONE = np.empty(0, np.int64)


class ClosedPartners:
    """The values that streams have closed of their compared columns, and the rules over them (spec section 11).

    A result to come has a tuple to come. So a tuple is *useless* when each other stream has closed all values with
    which the predicate may be true, or has ended; one such stream is not enough, as its stored tuples may match a new
    one of a third stream. A tuple is *hopeless* if there are no such values at all.
    """

    def __init__(self, query: JoinQuery, streams: Sequence[StreamState[ValueLists]], arrays: Arrays | None) -> None:
        self.streams = streams
        may_drop = not any(isinstance(s.window, Unbounded) for s in query.streams)
        self.closed = [
            None if s.compared is None else ClosedValues(i, s, arrays, may_drop=may_drop)
            for i, s in enumerate(query.streams)
        ]
        self.bounds = partner_bounds(query)
        self._changed = [False] * len(streams)  # which streams closed values in this batch

    def admit(self, join: RunningJoin[ValueLists], i: int, arrivals: Arrivals, batch: Batch) -> None:
        """Add what a batch of stream i declares, and take out the tuples that violate it."""
        closed, violating = self.closed[i], np.zeros(arrivals.which.size, np.bool_)
        if closed is not None:
            violating = closed.admit(arrivals, batch, join.watermarks[i])
        violations = batch.rows.take(pa.array(arrivals.which[violating]))
        arrivals.which = arrivals.which[~violating]
        if join.copied(i):
            violations = violations.slice(0, 0)
        join.violations.append(violations)
        join.counters.violations += violations.num_rows

    def take_effect(self, watermarks: Sequence[int]) -> None:
        """Let the punctuations take effect that the watermarks have reached."""
        each = list(zip(self.closed, watermarks, strict=True))
        self._changed = [(c is not None and c.take_effect(p)) or p == AFTER_ALL for c, p in each]

    def hopeless(self, i: int, rows: pa.RecordBatch) -> Bools:
        """Which rows of stream i match nothing, whatever may come."""
        out = np.zeros(rows.num_rows, np.bool_)
        for some in self.bounds[i].values():
            intervals = Intervals.of(some, rows, largest=np.inf if len(some[0].attribute.terms) > 1 else 0.0)
            out |= ~intervals.valid if all(bound.nan for bound in some) else intervals.empty
        return out

    def useless(self, i: int, arrivals: Arrivals, watermarks: Sequence[int]) -> Int64s:
        """Slots of useless tuples of stream i: of all stored ones if others closed anything, else of new ones."""
        if any(changed for j, changed in enumerate(self._changed) if j != i):
            return self._useless(i, watermarks)
        return self._useless(i, watermarks, arrivals.slots[self.streams[i].lists.alive(arrivals.slots)])

    def _useless(self, i: int, watermarks: Sequence[int], slots: Int64s | None = None) -> Int64s:
        others = [(j, self.closed[j]) for j, p in enumerate(watermarks) if j != i and p < AFTER_ALL]
        closed = [(j, c) for j, c in others if c is not None and c.any]
        if not others or len(closed) < len(others):  # the end of all others expires all
            return _NONE
        lists = self.streams[i].lists
        if slots is None:
            slots = np.flatnonzero(lists.lists.node[: lists.slots] != NIL)
        slots = slots[np.argsort(lists.segment[slots], kind="stable")]
        for j, values in closed:
            if slots.size:
                slots = slots[self._without_partners(i, slots, j, values)]
        return slots

    def _without_partners(self, i: int, slots: Int64s, j: int, closed: ClosedValues) -> Bools:
        """Which of these tuples of stream i, grouped by segment, could match closed values of stream j only."""
        state, out = self.streams[i], np.zeros(slots.size, np.bool_)
        for attribute, some in self.bounds[i].items():
            if attribute.stream == j and attribute.column == closed.column:
                columns = list(dict.fromkeys(c for bound in some for c, _ in bound.terms))
                rows = state.segments.take(state.lists.segment[slots], state.lists.row[slots], columns)
                out |= closed.contains(Intervals.of(some, rows), some)
        return out

    def trim(self) -> int:
        """Drop closed values beyond the bounds; tuples that these had purged must not come back. Counts the others."""
        sets = [closed.set for closed in self.closed if closed is not None]
        for dropping in sets:
            dropped = dropping.retention.trim()
            for i, stream in enumerate(self.streams):
                stream.rewrite_due |= dropped and i != dropping.stream
        return sum(each.retention.size for each in sets)

    def time_of(self, i: int, row: pa.RecordBatch) -> int | None:
        """When stream i closed the value of this row."""
        closed = self.closed[i]
        return None if closed is None else closed.time_of(row)

    # ------------------------------------------------------------ the durable form

    @property
    def parts(self) -> list[DurablePart]:
        sets = [closed.set for closed in self.closed if closed is not None]
        rewrites = Metadata("rewrite_due", lambda: [s.rewrite_due for s in self.streams], self._load_rewrite_due)
        return [*sets, *([rewrites] if sets else [])]

    def _load_rewrite_due(self, rewrite_due: list[bool]) -> None:
        for stream, due in zip(self.streams, rewrite_due, strict=True):
            stream.rewrite_due = due

    def restored(self, watermarks: Sequence[int]) -> None:
        """All parts are read: drop the useless tuples."""
        for closed, watermark in zip(self.closed, watermarks, strict=True):
            if closed is not None:
                closed.set.all_effective(watermark)
        for i, stream in enumerate(self.streams):
            stream.lists.discard(self._useless(i, watermarks), stream.segments.left)


def partner_bounds(query: JoinQuery) -> list[dict[Attribute, list[Bound]]]:
    """For each stream the bounds that its rows set, by the attribute of another."""
    out: list[dict[Attribute, list[Bound]]] = [{} for _ in query.streams]
    for bound in with_implied(bounds_of(query.where, [s.schema.names for s in query.streams]), len(query.streams)):
        out[bound.by].setdefault(bound.attribute, []).append(bound)
    return out


def may_purge(query: JoinQuery, i: int) -> bool:
    """Whether tuples of stream i can be useless: each other stream closes values of a column that they bound."""
    bounded = {(a.stream, a.column) for a in partner_bounds(query)[i]}
    others = [(j, s.compared) for j, s in enumerate(query.streams) if j != i]
    return all(column is not None and (j, column) in bounded for j, column in others)
