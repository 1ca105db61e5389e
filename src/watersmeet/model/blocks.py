"""What a batch shows of the order of a whole stream: consecutive tuples in blocks, the least and the largest of each.

The tuples of a stream have positions by (batch, row in its source partition, partition). Source partitions do not see
each other, so each cuts its own rows into a bounded number of blocks. The blocks of all partitions together give their
positions in the stream: no tuple of a block stands before its `first` or behind its `last`.
Blocks of one tuple each are the stream itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

#: Blocks that a source partition sends of a piece of its batch, at most.
MOST_BLOCKS = 256


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of a batch; positions count the batch's tuples from 1 on. `first` ascends."""

    first: Int64s
    last: Int64s
    least: Int64s
    largest: Int64s
    count: int

    @classmethod
    def single(cls, ranks: Int64s, positions: Int64s | None = None) -> Blocks:
        """Every tuple by itself."""
        at = np.arange(1, ranks.size + 1) if positions is None else positions
        return cls(at, at, ranks, ranks, int(at[-1]) if at.size else 0)


def cut(ranks: Int64s, most: int = MOST_BLOCKS) -> tuple[Int64s, Int64s, Int64s, Int64s]:
    """At most `most` blocks of consecutive rows: the first and the last row of each, its least and largest rank."""
    starts = np.arange(0, ranks.size, max(1, -(-ranks.size // most)))
    stops = np.append(starts[1:], ranks.size) - 1
    if not ranks.size:
        return starts, stops[:0], ranks, ranks
    return starts, stops, np.minimum.reduceat(ranks, starts), np.maximum.reduceat(ranks, starts)


class Positions:
    """Where rows of several source partitions stand in the stream's batch: by row, then by partition."""

    def __init__(self, rows: dict[int, int]) -> None:
        self.rows = rows  # of each partition
        self.count = sum(rows.values())

    def of(self, partitions: Int64s, rows: Int64s) -> Int64s:
        """Positions, from 1 on, of these rows of these partitions."""
        out = np.ones(rows.size, np.int64)
        for other, n in self.rows.items():
            out += np.minimum(rows, n)
            out += (other < partitions) & (rows < n)
        return out


def interleaved(parts: Sequence[tuple[int, int, int, int, int]]) -> tuple[Blocks, Positions]:
    """The blocks (partition, first row, last row, least, largest) of all partitions as those of the stream."""
    partition, first, last, least, largest = np.array(parts, np.int64).reshape(-1, 5).T
    rows = {int(p): int(last[partition == p].max()) + 1 for p in np.unique(partition)}
    positions = Positions(rows)
    starts = positions.of(partition, first)
    order = np.argsort(starts)
    stops = positions.of(partition, last)
    return Blocks(starts[order], stops[order], least[order], largest[order], positions.count), positions
