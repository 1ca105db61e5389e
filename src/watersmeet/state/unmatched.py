"""Rows without a partner: which stored rows have matched, and what is said of those that leave without.

An outer join pads them with NULLs, an anti join wants nothing else, a semi join wants each matched row once. An inner
join tracks nothing and pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from watersmeet.model.queries import JoinQuery
from watersmeet.state.index import Int32s
from watersmeet.state.keys import Int64s
from watersmeet.state.log import Delta, Entry
from watersmeet.state.segments import slices
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Marks of matched rows are written anew when they have come to stand in so many segments.
MOST_MARKS = 32

Bools = npt.NDArray[np.bool_]


class Unmatched:
    """Over the states of two streams; `query.how` says which of them are watched."""

    def __init__(self, query: JoinQuery, streams: list[StreamState[ValueLists]]) -> None:
        self.query = query
        self.streams = streams
        self.watched = query.preserved
        self.semi = query.how == "semi"
        self.arrivals: Sequence[Arrivals] = ()
        self.matched: list[Bools] = []  # rows of the batch that have matched
        self.out: list[tuple[int, pa.RecordBatch | pa.Table]] = []
        self._unkeyed: list[tuple[int, pa.RecordBatch]] = []
        self._read: list[tuple[int, Int64s, npt.NDArray[np.int32]]] = []
        self._done: list[tuple[Int64s, npt.NDArray[np.int32]]] = []  # rows of a semi join that went at their match

    def tracks(self, i: int) -> bool:
        return i in self.watched

    def begin(self, arrivals: Sequence[Arrivals]) -> None:
        """A batch begins."""
        self.arrivals = arrivals
        self.matched = [np.zeros(a.rows.num_rows if self.tracks(i) else 0, np.bool_) for i, a in enumerate(arrivals)]
        self.out = [] if self.semi else list(self._unkeyed)
        self._unkeyed = []

    def without_key(self, i: int, arrivals: Arrivals, progress: int) -> None:
        """Rows on time whose key is NULL match nothing: they are unmatched at once."""
        if self.tracks(i):
            rows = np.flatnonzero(~arrivals.keys.valid & (arrivals.times >= progress))
            self._unkeyed.append((i, arrivals.rows.take(pa.array(rows))))

    def match_stored(self, i: int, slots: Int32s) -> None:
        """These stored tuples stand in results, which the probe could not know: a predicate had to be asked."""
        if self.tracks(i):
            lists = self.streams[i].lists.lists
            lists.matched[slots] = np.maximum(lists.matched[slots], 1)

    def match(self, i: int, rows: Int32s) -> None:
        """These rows of the batch stand in results; the stored ones were noted by the probe."""
        if self.tracks(i):
            self.matched[i][rows] = True

    def wanted(self, i: int, which: Int64s) -> Bools:
        """Rows that are still needed: a semi join is through with a row at its first match."""
        if self.semi and self.tracks(i):
            wanted: Bools = ~self.matched[i][which]
            return wanted
        return np.ones(which.size, np.bool_)

    def inserted(self, i: int, which: Int64s) -> None:
        """Rows of the batch were stored; what they matched before that goes with them."""
        if self.tracks(i) and which.size:
            slots = self.arrivals[i].slots[-which.size :]
            self.streams[i].lists.lists.matched[slots] = self.matched[i][which]

    def leave_rows(self, i: int, which: Int64s) -> None:
        """Rows of the batch that are not stored."""
        if self.tracks(i):
            said = which[self.matched[i][which] == self.semi]
            self.out.append((i, self.arrivals[i].rows.take(pa.array(said))))

    def leave(self, i: int, slots: Int64s) -> None:
        """Tuples that have just left the state; their slots still hold what they held."""
        if self.tracks(i) and slots.size:
            lists = self.streams[i].lists.lists
            said = slots[(lists.matched[slots] != 0) == self.semi]
            self._say(i, said)

    def take_semi(self, i: int) -> Int64s:
        """Stored rows of a semi join that have found their first match in this batch."""
        lists = self.streams[i].lists
        living = lists.lists.node[: lists.slots] >= 0
        slots = np.flatnonzero(living & (lists.lists.matched[: lists.slots] == 1))
        self._done.append((self._ids(i)[lists.lists.segment[slots]], lists.lists.row[slots]))
        return slots

    def _ids(self, i: int) -> Int64s:
        """Id of each segment by its number; -1 for the batch itself, which is not durable yet."""
        parts = self.streams[i].segments.parts
        ids = np.full(max(parts, default=-1) + 1, -1, np.int64)
        for number, part in parts.items():
            ids[number] = part.id
        return ids

    def _say(self, i: int, slots: Int64s) -> None:
        lists = self.streams[i].lists.lists
        order = slots[np.argsort(lists.segment[slots], kind="stable")]
        if order.size:
            names = self.streams[i].spec.schema.names
            self.out.append((i, self.streams[i].segments.take(lists.segment[order], lists.row[order], names)))

    def tables(self) -> Iterator[pa.Table]:
        """What is to be said of the batch, as results."""
        schema = self.query.schema
        for i, rows in self.out:
            if not rows.num_rows:
                continue
            own = self.query.streams[i]
            names = dict(zip(self.query.streams[0].key, own.key, strict=True)) | {c: c for c in own.payload}
            columns = [
                rows.column(names[f.name]) if f.name in names else pa.nulls(rows.num_rows, f.type) for f in schema
            ]
            whole = pa.table(columns, names=schema.names)
            yield from map(pa.Table.from_batches, ([piece] for piece in slices(whole)))
        self.out = []

    # ------------------------------------------------------------ the durable form

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        """Rows that have matched since, as (segment, row); all of them when rows have moved."""
        out = []
        for i in self.watched:
            known = sum((e.kind, e.stream) == ("matched", i) for e in entries)
            stream = self.streams[i]
            whole = stream.has_shed if self.semi else rewritten or known >= MOST_MARKS
            stream.has_shed = False
            if self.semi and known >= MOST_MARKS and not whole:
                stream.shed = True  # with the next batch the rows that are gone go from the segments, too
            ids, rows = self._gone_rows(whole) if self.semi else self._matched_rows(i, whole)
            if whole or ids.size:
                columns = [pa.array(ids, pa.int64()), pa.array(rows, pa.int32())]
                out.append(Delta("matched", i, pa.record_batch(columns, names=["segment", "row"]), whole))
        return out

    def _matched_rows(self, i: int, whole: bool) -> tuple[Int64s, npt.NDArray[np.int32]]:
        lists = self.streams[i].lists
        top = lists.slots
        marks = lists.lists.matched[:top]
        slots = np.flatnonzero((lists.lists.node[:top] >= 0) & (marks != 0 if whole else marks == 1))
        lists.lists.matched[slots] = 2  # durable
        return self._ids(i)[lists.lists.segment[slots]], lists.lists.row[slots]

    def _gone_rows(self, whole: bool) -> tuple[Int64s, npt.NDArray[np.int32]]:
        done, self._done = self._done, []
        if whole or not done:
            return np.empty(0, np.int64), np.empty(0, np.int32)
        ids, rows = np.concatenate([d[0] for d in done]), np.concatenate([d[1] for d in done])
        return ids[ids >= 0], rows[ids >= 0]

    def replay(self, i: int, rows: pa.RecordBatch) -> None:
        """Marks read again; `restored` applies them."""
        self._read.append((i, np.asarray(rows.column(0)), np.asarray(rows.column(1))))

    def restored(self) -> None:
        """Mark stored rows as matched again; those of a semi join are gone."""
        for i in self.watched:
            stream, lists = self.streams[i], self.streams[i].lists.lists
            living = np.flatnonzero(lists.node[: stream.lists.slots] >= 0)
            have = self._ids(i)[lists.segment[living]] << 32 | lists.row[living]
            marked = [ids.astype(np.int64) << 32 | rows for j, ids, rows in self._read if j == i]
            slots = living[np.isin(have, np.concatenate(marked))] if marked else living[:0]
            lists.matched[slots] = 2
            if self.semi:
                stream.lists.discard(slots, stream.segments.left)
        self._read = []
