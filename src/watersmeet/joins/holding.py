"""Tuples that a window-oblivious join holds back: in memory until they can be sorted, apart while others lag.

Apart is where the durable form is, if there is one at hand (`Held.attach`): then a piece leaves memory with the batch
that parks it, and is read from the store when it is due. Otherwise it is a file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.joins.buffers import pieces
from watersmeet.model.batches import no_rows
from watersmeet.model.queries import StreamSpec
from watersmeet.state.keys import Int64s, encode
from watersmeet.state.log import Delta, Entry
from watersmeet.state.order import Order
from watersmeet.state.placed import BEYOND
from watersmeet.state.shelf import ReadEntry, Shelf

#: Rows that are put apart, and come back, together: a join reads ahead by no more than these.
PIECE = 1 << 16
#: Pieces of fewer rows than half of that are merged when there are more than so many.
MOST_SMALL = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows that are apart, the least of their places, and how large they are."""

    name: str
    low: int
    rows: int
    bytes: int


class Held:
    """Of one stream the tuples that wait in memory, and pieces of those that are parked apart."""

    def __init__(self, i: int, spec: StreamSpec, shelf: Shelf) -> None:
        self.i = i
        self.spec = spec
        self.key_order = Order.of([spec.schema.field(spec.key[0]).type])
        self.shelf = shelf
        self.waiting = no_rows(spec.schema)
        self.pieces: list[Piece] = []
        self._durable: list[str] = []  # names of the pieces that the log has, in its order
        self._made = 0
        self._entries: Sequence[Entry] = ()  # where they stand in a store, in the same order
        self._read: ReadEntry | None = None
        self._fresh: dict[str, pa.RecordBatch] = {}  # pieces of this batch, on their way to the store

    def attach(self, entries: Sequence[Entry], read: ReadEntry) -> None:
        """Keep pieces in a store, for one batch: those of before are the entries."""
        self._entries, self._read = entries, read

    @property
    def parked(self) -> int:
        """Tuples that are apart."""
        return sum(p.rows for p in self.pieces)

    @property
    def least(self) -> int:
        """The least place that is held back."""
        waiting = int(self.places(self.waiting).min()) if self.waiting.num_rows else BEYOND
        return min([waiting, *(p.low for p in self.pieces)])

    def places(self, rows: pa.RecordBatch) -> Int64s:
        places: Int64s = self.key_order.of_keys(encode([rows.column(self.spec.key[0])]))
        return places

    def sort(self, rows: pa.RecordBatch, until: int) -> pa.RecordBatch:
        """Let these and earlier rows wait, but for those up to a place, which come out in order."""
        rows = pa.concat_batches([self.waiting, rows])
        places = self.places(rows)
        ready = np.flatnonzero(places <= until)
        self.waiting = rows.take(pa.array(np.flatnonzero(places > until)))
        return rows.take(pa.array(ready[np.argsort(places[ready], kind="stable")]))

    def park(self, rows: pa.RecordBatch, until: int) -> pa.RecordBatch:
        """Put rows beyond a place apart; gives the others, and all pieces in which some have come within it."""
        places = self.places(rows)
        near = [rows.take(pa.array(np.flatnonzero(places <= until)))]
        near += self._take([p for p in self.pieces if p.low <= until])
        self._put(rows.take(pa.array(np.flatnonzero(places > until))), PIECE)
        self._merge([p for p in self.pieces if p.rows < PIECE // 2])
        return pa.concat_batches(near)

    def _merge(self, small: list[Piece]) -> None:
        """Where there are many small pieces, make those of the most frequent size (within a factor of four) into a
        quarter as many, in order: few keys stand in each, and a row is put O(log PIECE) times."""
        if len(small) > MOST_SMALL:
            sizes = [p.rows.bit_length() // 2 for p in small]
            most = max(sorted(set(sizes)), key=sizes.count)
            some = [p for p, size in zip(small, sizes, strict=True) if size == most]
            rows = pa.concat_batches(self._take(some))
            self._put(rows, min(PIECE, -(-4 * rows.num_rows // len(some))))

    def _put(self, rows: pa.RecordBatch, most: int) -> None:
        places = self.places(rows)
        order = np.argsort(places, kind="stable")
        for at in range(0, order.size, most):
            some = order[at : at + most]
            apart = rows.take(pa.array(some))
            piece = Piece(f"{self.i}.{self._made}", int(places[some[0]]), int(some.size), apart.nbytes)
            self._made += 1
            if self._read is None:
                self.shelf.put(piece.name, apart)
            else:
                self._fresh[piece.name] = apart
            self.pieces.append(piece)

    def _take(self, some: Sequence[Piece]) -> list[pa.RecordBatch]:
        """Rows of these pieces, which are apart no longer."""
        out = []
        for piece in some:
            out.append(self._rows_of(piece.name))
            self._drop(piece.name)
        gone = {p.name for p in some}
        self.pieces = [p for p in self.pieces if p.name not in gone]
        return out

    def _rows_of(self, name: str) -> pa.RecordBatch:
        if self._read is None:
            return self.shelf.read(name)
        return self._fresh[name] if name in self._fresh else self._read(self._entries[self._durable.index(name)])

    def _drop(self, name: str) -> None:
        if self._read is None:
            self.shelf.remove(name)
        else:
            self._fresh.pop(name, None)

    def drop_beyond(self, place: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Nothing beyond a place can match any more, of what is held and of these rows, which it gives."""
        for piece in self.pieces:
            if piece.low > place:
                self._drop(piece.name)
        self.pieces = [p for p in self.pieces if p.low <= place]
        self.waiting, rows = (r.take(pa.array(np.flatnonzero(self.places(r) <= place))) for r in (self.waiting, rows))
        return rows

    # ------------------------------------------------------------ the durable form

    def notes(self) -> dict[str, Any]:
        return {"made": self._made, "pieces": [[p.name, p.low, p.rows, p.bytes] for p in self.pieces]}

    def recall(self, notes: dict[str, Any]) -> None:
        self._made = notes["made"]
        self.pieces = [Piece(*p) for p in notes["pieces"]]
        self._durable = [p.name for p in self.pieces]
        if self.shelf.holds(f"{self.i}.waiting"):
            self.waiting = self.shelf.read(f"{self.i}.waiting")

    def deltas(self, entries: Sequence[Entry]) -> list[Delta]:
        """Pieces parked and taken back since the last time, and what waits (which is written anew)."""
        here = {p.name for p in self.pieces}
        listed = [e.id for e in entries if (e.kind, e.stream) == ("parked", self.i)]
        gone = tuple(id for id, name in zip(listed, self._durable, strict=True) if name not in here)
        out = [Delta("parked", self.i, no_rows(self.spec.schema), removed=gone)] if gone else []
        known = set(self._durable)
        out += [Delta("parked", self.i, self._rows_of(p.name)) for p in self.pieces if p.name not in known]
        self._durable, self._fresh = [p.name for p in self.pieces], {}
        if self.waiting.num_rows or pieces(entries, "waiting", self.i):
            out.append(Delta("waiting", self.i, self.waiting, whole=True))
        if self.shelf.shared:
            self.shelf.put(f"{self.i}.waiting", self.waiting)
        return out

    def replay(self, delta: Delta) -> None:
        """Pieces come in the order in which they are listed."""
        if delta.kind == "waiting":
            self.waiting = delta.rows
        else:
            self.shelf.put(next(p.name for p in self.pieces if not self.shelf.holds(p.name)), delta.rows)
