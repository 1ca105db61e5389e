"""Tuples that a window-oblivious join defers: in memory until they can be sorted, spilled while others lag.

Spilled pieces stand in the store of the durable state, if there is one (`SpilledPieces.attach`): then a piece leaves
memory with the batch that spills it, and is read from the store when it is due. Otherwise it is a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.model.batches import no_rows
from watersmeet.model.queries import StreamSpec
from watersmeet.state.durable.parts import Change, DurablePart, ReadPiece
from watersmeet.state.key_order import Order
from watersmeet.state.key_ordered import BEYOND
from watersmeet.state.keys import Int64s, encode
from watersmeet.state.spill_files import SpillFiles

#: Rows that are spilled and read back together: a join reads ahead by no more than these.
PIECE = 1 << 16
#: Pieces of fewer rows than half of that are merged when there are more than so many.
MOST_SMALL = 64


@dataclass(frozen=True, slots=True)
class Piece:
    """Spilled rows: the least of their ranks, and how many and how large they are."""

    name: str
    low: int
    rows: int
    bytes: int


class DeferredRows(DurablePart):
    """Deferred rows of one stream in memory; all of them are stored anew with every batch."""

    kind = "deferred"

    def __init__(self, stream: int, schema: pa.Schema, spill_files: SpillFiles) -> None:
        self.stream = stream
        self.rows = no_rows(schema)
        self._files = spill_files
        self._name = f"{stream}.deferred"

    def metadata(self) -> int:
        return int(self.rows.num_rows)

    def load_metadata(self, metadata: int) -> None:
        if self._files.holds(self._name):
            self.rows = self._files.read(self._name)

    def changes(self, rewrite: bool) -> Change | None:
        if self._files.shared:
            self._files.put(self._name, self.rows)
        return Change([self.rows], whole=True)

    def replay(self, rows: pa.RecordBatch) -> None:
        self.rows = rows


class SpilledPieces(DurablePart):
    """Pieces of rows of one stream that are out of memory: in the store, if one is attached, or else in files."""

    kind = "spilled"

    def __init__(self, stream: int, spill_files: SpillFiles) -> None:
        self.stream = stream
        self.pieces: list[Piece] = []
        self._files = spill_files
        self._stored: list[str] = []  # names of the pieces that the log has, in its order
        self._made = 0
        self._read: ReadPiece | None = None
        self._fresh: dict[str, pa.RecordBatch] = {}  # pieces of this batch, on their way to the store

    def attach(self, read: ReadPiece) -> None:
        self._read = read

    @property
    def spilled(self) -> bool:  # type: ignore[override]  # an attribute of other parts
        return self._read is not None

    def put(self, rows: pa.RecordBatch, low: int) -> None:
        """Spill rows as one piece, of which the least rank is `low`."""
        piece = Piece(f"{self.stream}.{self._made}", low, rows.num_rows, rows.nbytes)
        self._made += 1
        if self._read is None:
            self._files.put(piece.name, rows)
        else:
            self._fresh[piece.name] = rows
        self.pieces.append(piece)

    def take(self, some: Sequence[Piece]) -> list[pa.RecordBatch]:
        """Rows of these pieces, which are spilled no longer."""
        out = [self.rows_of(piece) for piece in some]
        self.drop(some)
        return out

    def rows_of(self, piece: Piece) -> pa.RecordBatch:
        if self._read is None:
            return self._files.read(piece.name)
        return self._fresh[piece.name] if piece.name in self._fresh else self._read(self._stored.index(piece.name))

    def drop(self, some: Sequence[Piece]) -> None:
        gone = {piece.name for piece in some}
        for name in gone:
            if self._read is None:
                self._files.remove(name)
            else:
                self._fresh.pop(name, None)
        self.pieces = [p for p in self.pieces if p.name not in gone]

    def metadata(self) -> dict[str, Any]:
        return {"made": self._made, "pieces": [[p.name, p.low, p.rows, p.bytes] for p in self.pieces]}

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        self._made = metadata["made"]
        self.pieces = [Piece(*p) for p in metadata["pieces"]]
        for piece in self.pieces:  # the name of a file
            if re.fullmatch(r"[0-9]+\.[0-9]+", piece.name) is None:
                raise ValueError(f"{piece.name!r} is no name of a piece")
        self._stored = [p.name for p in self.pieces]

    def changes(self, rewrite: bool) -> Change | None:
        """Pieces spilled and taken back since the last time."""
        here, stored = {p.name for p in self.pieces}, set(self._stored)
        gone = [number for number, name in enumerate(self._stored) if name not in here]
        new = [self.rows_of(p) for p in self.pieces if p.name not in stored]
        self._stored, self._fresh = [p.name for p in self.pieces], {}
        return Change(new, removed=gone)

    def replay(self, rows: pa.RecordBatch) -> None:
        """Pieces come in the order in which they are listed."""
        self._files.put(next(p.name for p in self.pieces if not self._files.holds(p.name)), rows)


class DeferredTuples:
    """Deferred tuples of one stream: those in memory, and pieces of those that are spilled."""

    def __init__(self, stream: int, spec: StreamSpec, spill_files: SpillFiles) -> None:
        self.spec = spec
        self.key_order = Order.of([spec.schema.field(spec.key[0]).type])
        self.memory = DeferredRows(stream, spec.schema, spill_files)
        self.disk = SpilledPieces(stream, spill_files)

    @property
    def in_memory(self) -> pa.RecordBatch:
        """Deferred tuples that are not spilled."""
        return self.memory.rows

    @property
    def pieces(self) -> list[Piece]:
        return self.disk.pieces

    @property
    def spilled(self) -> int:
        """Tuples that are on disk."""
        return sum(p.rows for p in self.pieces)

    @property
    def least(self) -> int:
        """The least rank of a deferred tuple."""
        in_memory = int(self.ranks(self.in_memory).min()) if self.in_memory.num_rows else BEYOND
        return min([in_memory, *(p.low for p in self.pieces)])

    def ranks(self, rows: pa.RecordBatch) -> Int64s:
        ranks: Int64s = self.key_order.of_keys(encode([rows.column(self.spec.key[0])]))
        return ranks

    def sort(self, rows: pa.RecordBatch, until: int) -> pa.RecordBatch:
        """Defer these and earlier rows, but for those up to a rank, which come out in order."""
        rows = pa.concat_batches([self.in_memory, rows])
        ranks = self.ranks(rows)
        ready = np.flatnonzero(ranks <= until)
        self.memory.rows = rows.take(pa.array(np.flatnonzero(ranks > until)))
        return rows.take(pa.array(ready[np.argsort(ranks[ready], kind="stable")]))

    def spill(self, rows: pa.RecordBatch, until: int) -> pa.RecordBatch:
        """Spill rows beyond a rank; gives the others, and all pieces in which some have come within it."""
        ranks = self.ranks(rows)
        near = [rows.take(pa.array(np.flatnonzero(ranks <= until)))]
        near += self.disk.take([p for p in self.pieces if p.low <= until])
        self._put(rows.take(pa.array(np.flatnonzero(ranks > until))), PIECE)
        self._merge([p for p in self.pieces if p.rows < PIECE // 2])
        return pa.concat_batches(near)

    def _merge(self, small: list[Piece]) -> None:
        """Where there are many small pieces, make those of the most frequent size (within a factor of four) into a
        quarter as many, in order: few keys stand in each, and a row is put O(log PIECE) times."""
        if len(small) > MOST_SMALL:
            sizes = [p.rows.bit_length() // 2 for p in small]
            most = max(sorted(set(sizes)), key=sizes.count)
            some = [p for p, size in zip(small, sizes, strict=True) if size == most]
            rows = pa.concat_batches(self.disk.take(some))
            self._put(rows, min(PIECE, -(-4 * rows.num_rows // len(some))))

    def _put(self, rows: pa.RecordBatch, most: int) -> None:
        ranks = self.ranks(rows)
        order = np.argsort(ranks, kind="stable")
        for at in range(0, order.size, most):
            some = order[at : at + most]
            self.disk.put(rows.take(pa.array(some)), int(ranks[some[0]]))

    def drop_beyond(self, rank: int, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Drop held tuples beyond a rank, which can match nothing any more; gives those of `rows` up to it."""
        self.disk.drop([p for p in self.pieces if p.low > rank])
        in_memory, rows = (r.take(pa.array(np.flatnonzero(self.ranks(r) <= rank))) for r in (self.in_memory, rows))
        self.memory.rows = in_memory
        return rows
