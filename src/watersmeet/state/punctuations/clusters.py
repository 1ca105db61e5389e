"""Where clusters end: the first tuple of another key that stands behind the first one of a key, by event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.model.batches import AFTER_ALL
from watersmeet.model.instants import Instants
from watersmeet.state.keys import Int64s, encode, numbered

#: Instead of a key's number: there are several keys.
_SEVERAL = -1


@dataclass(frozen=True, slots=True)
class Closers:
    """Keys that end the clusters of other keys: a cluster that begins before `first` ends at `last`."""

    keys: pa.RecordBatch
    first: Int64s
    last: Int64s

    @classmethod
    def at(cls, keys: pa.RecordBatch, time: int) -> Closers:
        """Keys of tuples of this time."""
        times = np.full(keys.num_rows, time, np.int64)
        return cls(keys, times, times)

    @classmethod
    def within(cls, shown: Instants, watermark: int, newest: int) -> Closers:
        """Keys of slices without late tuples, the newest of which has this time."""
        which, first, last = shown.whole(watermark)
        return cls(shown.keys.take(pa.array(which)), first, np.minimum(last, newest))


@dataclass(frozen=True, slots=True)
class Clusters:
    """Different keys, when their clusters begin, and when they end (`AFTER_ALL`: not yet)."""

    keys: pa.RecordBatch
    begins: Int64s
    ends: Int64s
    ends_of_each: Int64s  # of every key as it was given

    @classmethod
    def of(cls, keys: pa.RecordBatch, times: Int64s, closers: Sequence[Sequence[Closers]]) -> Clusters:
        """The clusters of tuples with these keys and times; slices of one sequence of closers do not overlap."""
        parts = [keys, *(c.keys for some in closers for c in some)]
        columns = [pa.concat_arrays([p.column(n) for p in parts]) for n in range(keys.num_columns)]
        numbers = iter(np.split(numbered(encode(columns)), np.cumsum([p.num_rows for p in parts])[:-1]))
        own = next(numbers)
        order = np.lexsort((times, own))
        different, first = np.unique(own[order], return_index=True)
        begins, ends = times[order[first]], np.full(different.size, AFTER_ALL, np.int64)
        for some in closers:
            for_each = [(next(numbers), c.first, c.last) for c in some]
            if for_each:
                ends = np.minimum(ends, _followed(different, begins, *map(np.concatenate, zip(*for_each, strict=True))))
        chosen = keys.take(pa.array(order[first]))
        return cls(chosen, begins, ends, ends[np.searchsorted(different, own)])


def _followed(keys: Int64s, begins: Int64s, closers: Int64s, first: Int64s, last: Int64s) -> Int64s:
    """When each key is first followed by another one."""
    slices, at, counts = np.unique(first, return_index=True, return_counts=True)
    order = np.lexsort((closers, first))
    starts = np.cumsum(counts) - counts
    least, most = closers[order[starts]], closers[order[starts + counts - 1]]
    single = np.where(least == most, least, _SEVERAL)
    ends = np.append(last[at], AFTER_ALL)
    changes = np.append(np.flatnonzero(np.diff(single)) + 1, single.size)
    behind = np.searchsorted(slices, begins, side="right")  # the first slice behind the beginning of each key
    own = np.append(single, _SEVERAL)[behind] == keys
    behind[own] = changes[np.searchsorted(changes, behind[own], side="right")]
    out: Int64s = ends[behind]
    return out
