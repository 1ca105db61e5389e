"""Durable parts: what a running join stores beside the tuples of its streams, and how the log reads and writes it.

A join lists its parts. A part has small metadata, which is JSON and stands in the header, and rows, which stand in
segments: each batch adds what has changed. The log counts the segments of every part and has a part written anew, as
one, when there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

#: A part that stands in so many segments is written anew as one.
MOST_PIECES = 32

#: Reads the rows of a part's segment, by its number among the segments of the part.
ReadPiece = Callable[[int], pa.RecordBatch]


@dataclass(frozen=True, slots=True)
class Change:
    """Rows to be written for a part, a segment each: those that a batch added or, if `whole`, all there are.

    `removed` are the numbers of the part's earlier segments that are not needed any more.
    """

    rows: Sequence[pa.RecordBatch]
    whole: bool = False
    removed: Sequence[int] = ()


class DurablePart:
    """A part of a join's state, of one stream or (`stream` is None) of the whole join.

    A subclass overrides what it needs: by default there is nothing to store.
    """

    kind: str  # names the metadata and the segments
    stream: int | None = None
    spilled = False  # segments stay in the store until they are needed: a rebuild does not read them
    about_rows = False  # names stored rows by segment: written anew when rows of the stream move

    def metadata(self) -> Any:
        """Small facts, as JSON; None for none."""
        return None

    def load_metadata(self, metadata: Any) -> None:
        """Take up stored metadata, before any segment."""

    def changes(self, rewrite: bool) -> Change | None:
        """What the last step changed or, to `rewrite`, all there is; None: nothing."""
        return None

    def replay(self, rows: pa.RecordBatch) -> None:
        """Take up the rows of a segment, after the stored tuples."""
        raise ValueError(f"no rows are stored of {self.kind}")

    def restored(self) -> None:
        """All segments are read."""

    def attach(self, read: ReadPiece) -> None:
        """Set the reader of spilled segments for the current batch."""


class Metadata(DurablePart):
    """A part that is metadata alone, saved and loaded by two functions."""

    def __init__(self, kind: str, save: Callable[[], Any], load: Callable[[Any], None]) -> None:
        self.kind, self._save, self._load = kind, save, load

    def metadata(self) -> Any:
        return self._save()

    def load_metadata(self, metadata: Any) -> None:
        self._load(metadata)


def metadata_of(parts: Iterable[DurablePart]) -> dict[str, Any]:
    """The metadata of all parts, by kind and, for parts of single streams, by stream."""
    out: dict[str, Any] = {}
    for part in parts:
        found = part.metadata()
        if found is None:
            continue
        if part.stream is None:
            out[part.kind] = found
        else:
            out.setdefault(part.kind, {})[str(part.stream)] = found
    return out


def load_metadata(parts: Iterable[DurablePart], metadata: dict[str, Any]) -> None:
    """Give every part its metadata, as `metadata_of` returned it."""
    for part in parts:
        found = metadata.get(part.kind)
        if part.stream is not None and found is not None:
            found = found.get(str(part.stream))
        if found is not None:
            part.load_metadata(found)
