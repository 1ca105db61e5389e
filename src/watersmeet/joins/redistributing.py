"""The state of all shards of an operator, divided anew among another number of shards.

Everything that is remembered of a key goes to the key's new shard; what is known of whole streams (progress, closed
ranges) all shards know alike. So the new shards hold what they would hold had there always been as many of them, but
for two things that never change a result: a window-oblivious join measures the disorder of its streams afresh, and
what was learnt about orders is learnt again.
"""

from __future__ import annotations

import secrets
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import StateCorruptError, StateMismatchError
from watersmeet.joins.closed_anew import ClosedAnew
from watersmeet.joins.oblivious import RunningWOJoin
from watersmeet.joins.reopening import operator_of, query_of, schemas_of
from watersmeet.model.grouping import GroupedQuery
from watersmeet.model.queries import JoinQuery, digest_of
from watersmeet.model.windows import RowsWindow
from watersmeet.state import segments
from watersmeet.state.groups import GONE, keys_of
from watersmeet.state.keys import Bools, Int64s, encode
from watersmeet.state.log import Entry, Header, Store, Version, read
from watersmeet.state.segments import pack
from watersmeet.state.shards import split

#: The column in which rows carry, on their way, whether they have matched.
_MARK = "watersmeet matched"
#: Deltas that tell of single rows in segments, and those that are measured afresh.
_ABOUT_ROWS, _MEASURED = ("matched", GONE), ("maxima", "tail")


def redistribute(old: Sequence[Store], new: Sequence[Store], ids: Sequence[int], tellers: Sequence[int] = ()) -> None:
    """Write the state of the stores `old`, in the order of their shards, into `new`, whose shards are called `ids`.

    `tellers` are, by stream, the shards of the joins whose output they are (0 for none), if those change as well.
    """
    headers = [_header(store) for store in old]
    first = headers[0]
    for header in headers:
        if (header.digest, header.progress, header.ids) != (first.digest, first.progress, first.ids):
            raise StateCorruptError(
                f"shards {first.shard} and {header.shard} of the state are not of one batch of one query.",
                hint="restore the checkpoint from a copy; nothing was changed.",
            )
    schemas: dict[int, pa.Schema] = {}
    for header, store in zip(headers, old, strict=True):
        schemas |= schemas_of(header, store)
    _Redistribution(headers, query_of(first, schemas), list(old), list(new), list(ids), list(tellers)).run()


def needs_one_shard(query: JoinQuery) -> bool:
    """Whether rows of a whole stream are counted, which one shard only can do."""
    return any(isinstance(s.window, RowsWindow) and not s.window.per_key for s in query.streams)


def _header(store: Store) -> Header:
    data = store.read_header()
    if data is None:
        raise StateCorruptError("a shard of the state has no header.", hint="restore the checkpoint from a copy.")
    return Header.unpack(data)


@dataclass
class _Pile:
    """Rows for one stream of one new shard, until there are enough of them for a segment."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class _Redistribution:
    def __init__(
        self,
        headers: list[Header],
        query: JoinQuery,
        old: list[Store],
        new: list[Store],
        ids: list[int],
        tellers: list[int],
    ) -> None:
        self.headers, self.query, self.old, self.new, self.ids = headers, query, old, new, ids
        self.shards = len(ids)
        if self.shards > 1 and needs_one_shard(query):
            raise StateMismatchError(
                f"the rows of a whole stream are counted, which one shard only can do; asked for {self.shards}.",
                hint="count rows per key: wm.rows(n, per_key=True).",
            )
        if "held" in headers[0].notes:
            raise StateMismatchError(
                f'the join holds tuples back (strategy "{headers[0].notes["strategy"][0]}"); when it may let them go '
                "depends on what each shard has measured, which cannot be divided anew.",
                hint="go on with the number of shards as it is, or start from a new checkpoint.",
            )
        self.tellers = tellers
        self.marked = () if query.how == "semi" else query.preserved
        self.entries: list[list[Entry]] = [[] for _ in ids]
        self.piles: dict[tuple[int, str, int], _Pile] = {}
        self.matched: dict[tuple[int, int], list[pa.RecordBatch]] = {}

    def run(self) -> None:
        for header, store in zip(self.headers, self.old, strict=True):
            gone = self._marks(header, store)
            for entry in header.segments:
                if entry.kind not in (*_ABOUT_ROWS, *_MEASURED):
                    self._divide(entry, read(entry, store).rows, gone)
        notes = self._notes()
        for place, kind, stream in list(self.piles):
            self._write(place, kind, stream)
        for (place, stream), marks in self.matched.items():
            self._put(place, "matched", stream, pa.concat_batches(marks))
        for place, (id, store) in enumerate(zip(self.ids, self.new, strict=True)):
            store.write_header(self._new_header(place, id, notes[place]).pack())

    # ------------------------------------------------------------ rows

    def _marks(self, header: Header, store: Store) -> dict[int, Int64s]:
        """Of each segment the rows that are told of: matched, or (of a semi join, of groups) gone."""
        told = [read(e, store).rows for e in header.segments if e.kind in _ABOUT_ROWS]
        if not told:
            return {}
        ids, rows = (np.concatenate([np.asarray(part.column(c)) for part in told]) for c in (0, 1))
        return {int(id): rows[ids == id].astype(np.int64) for id in np.unique(ids)}

    def _divide(self, entry: Entry, rows: pa.RecordBatch, marks: dict[int, Int64s]) -> None:
        kind = entry.kind
        if entry.kind == "rows":
            marked = np.zeros(rows.num_rows, np.bool_)
            marked[marks.get(entry.id, np.empty(0, np.int64))] = True
            if entry.stream in self.marked:
                rows = rows.append_column(_MARK, pa.array(marked))
            elif marked.any():
                rows = rows.filter(pa.array(~marked))
        if entry.kind == "limits":  # of the one shard that there can be
            self._pile(0, kind, entry.stream, rows)
            return
        for place, part in enumerate(split(rows, lambda: self._words(entry.stream, rows), self.shards)):
            self._pile(place, kind, entry.stream, part)

    def _words(self, stream: int, rows: pa.RecordBatch) -> Int64s:
        """Words of the keys by which rows of a stream of the state are divided."""
        specs = self.query.streams
        waits = "every" in self.headers[0].notes or any(isinstance(s.window, RowsWindow) for s in specs)
        if "said" not in self.headers[0].notes and stream < len(specs) * (1 + waits):
            return encode([rows.column(k) for k in specs[stream % len(specs)].key]).words
        query = self.query
        assert isinstance(query, GroupedQuery), "what is no stream are groups"
        by = query.group_by.by
        if "said" in self.headers[0].notes:  # behind a shuffle by all of them
            return keys_of([rows.column(f"g{n}") for n in range(len(by))]).words
        return encode([rows.column(f"g{by.index(k)}") for k in specs[0].key]).words

    def _pile(self, place: int, kind: str, stream: int, rows: pa.RecordBatch) -> None:
        if not rows.num_rows:
            return
        pile = self.piles.setdefault((place, kind, stream), _Pile())
        pile.rows.append(rows)
        pile.bytes += rows.nbytes
        if pile.bytes >= segments.SEGMENT_BYTES and kind in ("rows", "closings"):  # others are read as one
            self._write(place, kind, stream)

    def _write(self, place: int, kind: str, stream: int) -> None:
        pile = self.piles.pop((place, kind, stream))
        rows = pa.concat_batches(pile.rows)
        marked: Bools | None = None
        if _MARK in rows.schema.names:
            marked = np.asarray(rows.column(_MARK))
            rows = rows.drop_columns([_MARK])
        id = self._put(place, kind, stream, rows)
        if marked is not None and marked.any():
            at = np.flatnonzero(marked).astype(np.int32)
            columns = [pa.array(np.full(at.size, id, np.int64)), pa.array(at)]
            marks = pa.record_batch(columns, names=["segment", "row"])
            self.matched.setdefault((place, stream), []).append(marks)

    def _put(self, place: int, kind: str, stream: int, rows: pa.RecordBatch) -> int:
        data, entries = pack(rows), self.entries[place]
        entry = Entry(len(entries), stream, data.size, zlib.crc32(memoryview(data)), kind)
        self.new[place].write_segment(entry.id, data)
        entries.append(entry)
        return entry.id

    # ------------------------------------------------------------ what is known beside the rows

    def _new_header(self, place: int, id: int, notes: dict[str, Any]) -> Header:
        first, token, entries = self.headers[0], secrets.token_hex(16), self.entries[place]
        query = dict(first.query)
        if any(self.tellers):
            streams = zip(query["streams"], self.tellers, strict=True)
            query["streams"] = [s | ({"tellers": tellers} if tellers else {}) for s, tellers in streams]
        return Header(
            digest_of(query),
            query,
            id,
            self.shards,
            list(first.progress),
            token,
            len(entries),
            max(header.batches for header in self.headers),
            entries,
            [Version(token, [e.id for e in entries], rewritten=True)],
            notes,
            list(self.ids),
        )

    def _notes(self) -> list[dict[str, Any]]:
        """The notes of every new shard; closings that were known as ranges may become rows."""
        first = self.headers[0].notes
        shared: dict[str, Any] = {name: first[name] for name in ("heard", "delays", "order", "every") if name in first}
        if "counted" in first:
            shared["counted"] = [max(c) for c in zip(*(h.notes["counted"] for h in self.headers), strict=True)]
        if "said" in first:
            heard = [tuple(progress) for h in self.headers for _, progress in h.notes["said"]]
            least = [min(p) for p in zip(*heard, strict=True)]
            shared["said"] = [[id, least] for id in self.ids] if heard else []
        if "floor" in first:
            shared |= self._oblivious()
        out = [dict(shared) for _ in self.ids]
        if "promises" in first:
            for note in out:
                note["promises"] = []
            for i, spec in enumerate(self.query.streams):
                closed = ClosedAnew(self.query, spec, [h.notes["promises"][i] for h in self.headers])
                for note, promises in zip(out, closed.notes(self.shards), strict=True):
                    note["promises"].append(promises)
                for rows in closed.single:
                    for place, part in enumerate(split(rows, _keys(rows, spec.key), self.shards)):
                        self._pile(place, "closings", i, part)
        return out

    def _oblivious(self) -> dict[str, Any]:
        """Floors that hold for whatever comes from the old shards; nothing measured yet, nothing parked."""
        first = self.headers[0]
        fresh = operator_of(first, self.query).start()
        assert isinstance(fresh, RunningWOJoin), "it has floors"
        floors = zip(*(h.notes["floor"] for h in self.headers), strict=True)
        buffers = fresh.buffers.notes()
        return {"floor": [min(f) for f in floors], "strategy": first.notes["strategy"], "buffers": buffers}


def _keys(rows: pa.RecordBatch, key: Sequence[str]) -> Callable[[], Int64s]:
    return lambda: encode([rows.column(k) for k in key]).words
