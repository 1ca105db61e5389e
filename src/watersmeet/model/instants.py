"""What a batch shows of a stream's keys in the order of event time, for streams that are ordered or clustered.

Shards do not see each other's rows, so source partitions send these to all of them. A batch with at most `MOST`
different event times is described exactly. A larger one is cut into slices of 2^shift microseconds, with the least
shift that gives at most `MOST` slices, and rows of one slice are not compared with each other. The slices
follow from the rows of the whole batch: neither the number of shards nor the cut into source partitions changes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]

#: Slices of a batch, at most; also of what one source partition sends.
MOST = 1 << 14
LEAST = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class Instants:
    """Tuples of a batch, late ones included: enough of them to know each slice of 2^shift microseconds."""

    keys: pa.RecordBatch  # the key columns
    times: Int64s
    shift: int = 0

    @classmethod
    def together(cls, parts: Sequence[Instants]) -> Instants:
        """Of all source partitions."""
        keys = pa.concat_batches([p.keys for p in parts])
        times = np.concatenate([p.times for p in parts])
        return cls(keys, times, shift_for(times, max(p.shift for p in parts)))

    def rises(self, ranks: Int64s, watermark: int) -> tuple[Int64s, Int64s]:
        """Tuples on time with a key larger than all before, as positions, and the times from which that is known.

        `ranks` are those of the keys. Of the slice that contains the watermark only the tuple with the largest key of
        all counts: which others of it are late is not known.
        """
        which = np.flatnonzero(self.times >= watermark)
        slices = self.times[which] >> self.shift
        whole = slices << self.shift >= watermark
        which = which[whole | (ranks[which] == ranks[which].max(initial=LEAST))]
        slices = self.times[which] >> self.shift
        order = np.lexsort((self.times[which], ~ranks[which], slices))
        _, first = np.unique(slices[order], return_index=True)
        which, slices = which[order[first]], slices[order[first]]
        highest = np.maximum.accumulate(ranks[which])
        rise = np.append(highest[:1] >= LEAST, highest[1:] > highest[:-1])
        return which[rise], np.minimum(self._ends(slices)[rise], self.times.max(initial=watermark))

    def whole(self, watermark: int) -> tuple[Int64s, Int64s, Int64s]:
        """Tuples of slices without late ones, as positions, with the first and the last time of their slices."""
        slices = self.times >> self.shift
        which = np.flatnonzero(slices << self.shift >= watermark)
        return which, slices[which] << self.shift, self._ends(slices[which])

    def _ends(self, slices: Int64s) -> Int64s:
        ends: Int64s = ((slices + 1) << self.shift) - 1
        return ends


def shift_for(times: Int64s, shift: int = 0, most: int | None = None) -> int:
    """The least shift, from the given one on, with which times stand in at most so many slices."""
    slices = np.sort(times >> shift, kind="stable")  # fast where they ascend, as they mostly do
    slices = slices[_begins(slices)]
    while slices.size > (MOST if most is None else most):
        slices = slices >> 1
        slices = slices[_begins(slices)]
        shift += 1
    return shift


def _begins(ascending: Int64s) -> npt.NDArray[np.bool_]:
    """Where another value begins."""
    return np.append(np.ones(min(1, ascending.size), np.bool_), ascending[1:] != ascending[:-1])


def largest_of_each(times: Int64s, ranks: Int64s) -> tuple[Int64s, int]:
    """The tuples to be sent of an ordered stream: of each slice the largest, and the shift.

    Where slices are longer than an instant, those with a larger key than all later ones are sent as well: whatever
    turns out to be late, the largest of the rest is among them. An ordered stream has few of these.
    """
    shift = shift_for(times)
    if not times.size:
        return np.empty(0, np.int64), shift
    by_time = np.argsort(times, kind="stable")
    slices, ranks = times[by_time] >> shift, ranks[by_time]
    starts = np.flatnonzero(_begins(slices))
    tops = np.repeat(np.maximum.reduceat(ranks, starts), np.diff(starts, append=slices.size))
    chosen = np.flatnonzero(ranks == tops)
    chosen = chosen[_begins(slices[chosen])]
    if shift:
        later = np.maximum.accumulate(ranks[::-1])[::-1]
        chosen = np.union1d(chosen, np.flatnonzero(np.append(later[:-1] > later[1:], True)))
    return by_time[chosen], shift


def two_of_each(times: Int64s, numbers: Int64s) -> tuple[Int64s, int]:
    """The tuples to be sent of a clustered stream, and the shift: of each slice one, and one with another key.

    Equal keys have equal numbers.
    """
    shift = shift_for(times)
    order = np.lexsort((numbers, times >> shift))
    slices, numbers = times[order] >> shift, numbers[order]
    new_slice = np.diff(slices, prepend=slices[:1] - 1) != 0
    new_key = new_slice | (np.diff(numbers, prepend=-1) != 0)
    start = np.maximum.accumulate(np.where(new_slice, np.arange(slices.size), 0))
    keys_before = np.cumsum(new_key) - np.cumsum(new_key)[start]
    return order[new_key & (keys_before < 2)], shift
