"""A bound of the memory of a working state: the oldest rows beyond it are spilled to files on a disk.

::

    folder of mapped arrays (memory)    lists, closed keys …, segments that fit
      └ spilled ─► folder on a disk     the oldest segments; mapped while rows are taken from them

The lists stay in memory: they find a tuple, and a segment is read only for rows that match. The link to the spilled
segments is in the folder of the working state, so they change their owner with it and are removed with it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from watersmeet.errors import MemoryLimitError
from watersmeet.state.arrays import Arrays
from watersmeet.state.segments import Segment, Segments, SpilledSegment, keep

#: The link from a working state to what it has spilled.
SPILLED = "spilled"


@dataclass(frozen=True)
class MemoryBound:
    """At most `limit` bytes of lists and rows, of all streams of a shard together."""

    limit: int
    arrays: Arrays
    streams: Sequence[Segments]
    folder: Path  # of the working state
    disk: Path  # where it may have a folder of its own

    def __post_init__(self) -> None:
        for segments in self.streams:
            segments.bound = self

    @property
    def used_bytes(self) -> int:
        """Bytes in memory: of all arrays, with what is reserved in them, and of rows."""
        return self.arrays.bytes + sum(segments.in_memory for segments in self.streams)

    def fit(self) -> None:
        """Spill the oldest segments until the others fit, or none is left to be spilled."""
        over = self.used_bytes - self.limit
        if over <= 0:
            return
        durable = [
            (part, number, segments)
            for segments in self.streams
            for number, part in segments.parts.items()
            if isinstance(part, Segment) and part.id >= 0  # the batch itself is none of the state's segments yet
        ]
        for part, number, segments in sorted(durable, key=lambda found: found[0].id):
            segments.replace(number, self._spilled(part))
            over -= part.size
            if over <= 0:
                return

    def _spilled(self, part: Segment) -> SpilledSegment:
        path = self._room() / f"{part.id}.arrow"
        try:
            keep(part.rows, path)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise MemoryLimitError(
                f"rows beyond `memory` do not fit: {self.disk} has no room for {part.size} bytes more.",
                hint="make room there, give more `memory`, or keep less: shorter windows, punctuations.",
            ) from error
        drop_pages(path)
        (self.folder / path.name).unlink(missing_ok=True)
        return SpilledSegment(part.id, path, part.size, part.checksum, part.count)

    def _room(self) -> Path:
        """The folder of what is spilled; the link is made first, so that no folder is without one."""
        room = self.folder / SPILLED
        if not room.exists():
            if not room.is_symlink():
                room.symlink_to(self.disk.absolute() / os.urandom(8).hex(), target_is_directory=True)
            self.disk.mkdir(parents=True, exist_ok=True, mode=0o700)
            room.readlink().mkdir(mode=0o700)
        return room

    def release(self) -> None:
        """Have the system drop what it holds of spilled segments in memory."""
        for segments in self.streams:
            for part in segments.parts.values():
                if isinstance(part, SpilledSegment):
                    drop_pages(part.path)

    def lift(self) -> None:
        """Bound the streams no longer."""
        for segments in self.streams:
            segments.bound = None


def drop_pages(path: Path) -> None:
    """Advise the system to drop the pages of a file from its cache, and to write out those that are not written yet."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(handle)
