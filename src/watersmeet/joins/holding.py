"""Tuples that a window-oblivious join holds back: in memory until they can be sorted, on disk while others lag."""

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
from watersmeet.state.shelf import Shelf

#: Rows that go to disk, and come back, together: a join reads ahead by no more than these.
PIECE = 1 << 16


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows on the shelf, the least of their places, and how large they are."""

    name: str
    low: int
    rows: int
    bytes: int


class Held:
    """Of one stream the tuples that wait in memory, and pieces of those that are parked on disk."""

    def __init__(self, i: int, spec: StreamSpec, shelf: Shelf) -> None:
        self.i = i
        self.spec = spec
        self.key_order = Order.of([spec.schema.field(spec.key[0]).type])
        self.shelf = shelf
        self.waiting = no_rows(spec.schema)
        self.pieces: list[Piece] = []
        self._durable: list[str] = []  # names of the pieces that the log has, in its order
        self._made = 0

    @property
    def parked(self) -> int:
        """Tuples on disk."""
        return sum(p.rows for p in self.pieces)

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
        """Put rows beyond a place on disk; gives the others, and all pieces in which some have come within it."""
        places = self.places(rows)
        far = np.flatnonzero(places > until)
        far = far[np.argsort(places[far], kind="stable")]
        near = [rows.take(pa.array(np.flatnonzero(places <= until)))]
        due = [p for p in self.pieces if p.low <= until]
        self.pieces = [p for p in self.pieces if p.low > until]
        for piece in due:
            near.append(self.shelf.read(piece.name))
            self.shelf.remove(piece.name)
        for at in range(0, far.size, PIECE):
            some = far[at : at + PIECE]
            apart = rows.take(pa.array(some))
            piece = Piece(f"{self.i}.{self._made}", int(places[some[0]]), int(some.size), apart.nbytes)
            self._made += 1
            self.shelf.put(piece.name, apart)
            self.pieces.append(piece)
        return pa.concat_batches(near)

    def clear(self) -> None:
        """Nothing held can match any more."""
        for piece in self.pieces:
            self.shelf.remove(piece.name)
        self.waiting, self.pieces = no_rows(self.spec.schema), []

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
        out += [Delta("parked", self.i, self.shelf.read(p.name)) for p in self.pieces if p.name not in known]
        self._durable = [p.name for p in self.pieces]
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
