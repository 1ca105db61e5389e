"""How far behind the rows of a batch came, in event time: what a source partition knows without the others.

A row's lag is the distance to the largest time that came before it. A partition has that of its own rows in this
batch; the shards have the largest time of earlier batches, and add what the partition was still behind that. Where a
partition holds several files, that is so of each file: which of two files of one batch came first is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from watersmeet.model.log_buckets import class_of, largest_of

Int64s = npt.NDArray[np.int64]

#: Longer lags (of more than two thousand years) are taken for this one.
LONGEST = 1 << 56


@dataclass(frozen=True, slots=True)
class Lags:
    """`count` rows came at most `behind` the largest time of their partition, which was at least `highest` by then."""

    highest: Int64s
    behind: Int64s
    count: Int64s

    @classmethod
    def of(cls, times: Int64s) -> Lags:
        """Of the rows of one partition, in the order of arrival.

        The largest time settles with the first rows; so rows are taken together by twos, fours, eights and so on.
        """
        highest = np.maximum.accumulate(times) if times.size else times
        run = np.floor(np.log2(np.arange(1, times.size + 1))).astype(np.int64)
        kinds, count = np.unique((run << 32) + class_of(np.minimum(highest - times, LONGEST)), return_counts=True)
        behind = np.array([largest_of(c) for c in (kinds & 0xFFFFFFFF).tolist()], np.int64)
        return cls(highest[(1 << (kinds >> 32)) - 1], behind, count)

    @classmethod
    def of_files(cls, times: Int64s, origins: Int64s) -> Lags:
        """The same where rows come from several files, one after the other; `origins` has a number for each file."""
        return cls.together([cls.of(some) for some in np.split(times, np.flatnonzero(np.diff(origins)) + 1)])

    @classmethod
    def together(cls, parts: Sequence[Lags]) -> Lags:
        """Of all partitions."""
        return cls(*(np.concatenate(c) for c in zip(*((p.highest, p.behind, p.count) for p in parts), strict=True)))

    def since(self, newest: int) -> Int64s:
        """Lags, where `newest` is the largest time of earlier batches."""
        lags: Int64s = self.behind + np.maximum(0, newest - self.highest)
        return lags
