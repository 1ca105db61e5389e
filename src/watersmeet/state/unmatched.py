"""Rows without a match: which stored rows have matched, and results for those that leave unmatched.

An outer join pads them with NULLs, an anti join emits only them, a semi join emits each matched row once. An inner
join tracks nothing and pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.model.queries import JoinQuery
from watersmeet.state.durable.parts import Change, DurablePart
from watersmeet.state.gone_rows import GoneRows, as_rows, named, names_of
from watersmeet.state.index import Int32s
from watersmeet.state.keys import Int64s
from watersmeet.state.segments import slices
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Marks of a stored row that has matched: in a result, and stored as such.
MATCHED, DURABLE = 1, 2

Bools = npt.NDArray[np.bool_]


class Unmatched:
    """Over the states of two streams; `query.how` determines which of them are watched."""

    def __init__(self, query: JoinQuery, streams: list[StreamState[ValueLists]]) -> None:
        self.query = query
        self.streams = streams
        self.watched = query.preserved
        self.semi = query.how == "semi"
        self.arrivals: Sequence[Arrivals] = ()
        self.matched: dict[int, Bools] = {}  # rows of the batch that have matched
        self.out: list[tuple[int, pa.RecordBatch | pa.Table]] = []
        self._at_once: list[tuple[int, pa.RecordBatch]] = []
        self.gone = {
            i: GoneRows(i, streams[i].lists, streams[i].segments) for i in self.watched if self.semi
        }  # rows that left at their match
        marked = [] if self.semi else [MatchedRows(i, streams[i]) for i in self.watched]
        self.parts: list[DurablePart] = [*self.gone.values(), *marked]

    def tracks(self, i: int) -> bool:
        return i in self.watched

    def begin(self, arrivals: Sequence[Arrivals]) -> None:
        """A batch begins."""
        self.arrivals = arrivals
        self.matched = {i: np.zeros(arrivals[i].rows.num_rows, np.bool_) for i in self.watched if arrivals}
        self.out = [] if self.semi else list(self._at_once)
        self._at_once = []

    def without_key(self, i: int, arrivals: Arrivals, watermark: int) -> None:
        """Rows on time whose key is NULL match nothing: they are unmatched at once."""
        if self.tracks(i):
            self.without_partner(i, arrivals, np.flatnonzero(~arrivals.keys.valid & (arrivals.times >= watermark)))

    def without_partner(self, i: int, arrivals: Arrivals, which: Int64s) -> None:
        """Rows of the batch that match nothing are unmatched at once."""
        if self.tracks(i):
            self._at_once.append((i, arrivals.rows.take(pa.array(which))))

    def match_stored(self, i: int, slots: Int32s) -> None:
        """Mark stored tuples that stand in results; the probe does not where a predicate decides."""
        if self.tracks(i):
            lists = self.streams[i].lists.lists
            lists.matched[slots] = np.maximum(lists.matched[slots], MATCHED)

    def match(self, i: int, rows: Int32s) -> None:
        """Mark rows of the batch that stand in results; the probe marks the stored ones."""
        if self.tracks(i):
            self.matched[i][rows] = True

    def wanted(self, i: int, which: Int64s) -> Bools:
        """Rows that are still needed: a semi join is finished with a row at its first match."""
        if self.semi and self.tracks(i):
            wanted: Bools = ~self.matched[i][which]
            return wanted
        return np.ones(which.size, np.bool_)

    def inserted(self, i: int, which: Int64s) -> None:
        """Rows of the batch were stored: copy their marks to the slots."""
        if self.tracks(i) and which.size:
            slots = self.arrivals[i].slots[-which.size :]
            self.streams[i].lists.lists.matched[slots] = self.matched[i][which]

    def leave_rows(self, i: int, which: Int64s) -> None:
        """Emit rows of the batch that are not stored, if unmatched (semi: if matched)."""
        if self.tracks(i):
            emitted = which[self.matched[i][which] == self.semi]
            self.out.append((i, self.arrivals[i].rows.take(pa.array(emitted))))

    def leave(self, i: int, slots: Int64s) -> None:
        """The same for tuples that have just left the state; their slots are not reused yet."""
        if self.tracks(i) and slots.size:
            lists = self.streams[i].lists.lists
            self._emit(i, slots[(lists.matched[slots] != 0) == self.semi])

    def take_semi(self, i: int) -> Int64s:
        """Stored rows of a semi join that have found their first match in this batch."""
        lists = self.streams[i].lists
        living = lists.lists.node[: lists.slots] >= 0
        slots = np.flatnonzero(living & (lists.lists.matched[: lists.slots] == MATCHED))
        self.gone[i].add(slots)
        return slots

    def _emit(self, i: int, slots: Int64s) -> None:
        lists = self.streams[i].lists.lists
        order = slots[np.argsort(lists.segment[slots], kind="stable")]
        if order.size:
            names = self.streams[i].spec.schema.names
            self.out.append((i, self.streams[i].segments.take(lists.segment[order], lists.row[order], names)))

    def tables(self) -> Iterator[pa.Table]:
        """The emitted rows of the batch, as results."""
        if not self.out:
            return
        schema = self.query.schema
        for i, rows in self.out:
            if not rows.num_rows:
                continue
            names = self.query.called(i)
            columns = [
                rows.column(names[f.name]) if f.name in names else pa.nulls(rows.num_rows, f.type) for f in schema
            ]
            whole = pa.table(columns, names=schema.names)
            yield from map(pa.Table.from_batches, ([piece] for piece in slices(whole)))
        self.out = []


class MatchedRows(DurablePart):
    """Of the stored rows of one stream those that have matched, by segment and row."""

    kind = "matched"
    about_rows = True

    def __init__(self, stream: int, state: StreamState[ValueLists]) -> None:
        self.stream = stream
        self.state = state
        self._read: list[pa.RecordBatch] = []

    def changes(self, rewrite: bool) -> Change | None:
        lists = self.state.lists
        top = lists.slots
        marks = lists.lists.matched[:top]
        slots = np.flatnonzero((lists.lists.node[:top] >= 0) & (marks != 0 if rewrite else marks == MATCHED))
        lists.lists.matched[slots] = DURABLE
        if not rewrite and not slots.size:
            return None
        return Change([as_rows([names_of(lists, self.state.segments, slots)])], whole=rewrite)

    def replay(self, rows: pa.RecordBatch) -> None:
        self._read.append(rows)

    def restored(self) -> None:
        """Mark the stored rows that had matched."""
        read, self._read = self._read, []
        lists = self.state.lists
        lists.lists.matched[named(lists, self.state.segments, read)] = DURABLE
