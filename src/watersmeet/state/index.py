"""The interface between the state of a stream and the index over its tuples."""

from __future__ import annotations

from bisect import bisect_left
from typing import Protocol

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import sorting
from watersmeet.state.keys import Bools, Int64s, Keys

Int32s = npt.NDArray[np.int32]


class Index(Protocol):
    """Stored tuples of one stream by slot; a tuple keeps its slot for as long as it is stored.

    Its row stands in segment ``segment[slot]`` as row ``row[slot]``. Lookup by key is not part of the interface: there
    the operators differ.
    """

    def __len__(self) -> int: ...

    @property
    def bytes(self) -> int: ...

    @property
    def slots(self) -> int: ...

    @property
    def segment(self) -> Int32s: ...

    @property
    def row(self) -> Int32s: ...

    def alive(self, slots: Int64s) -> Bools: ...

    def insert(self, which: Int64s, times: Int64s, keys: Keys, segment: int) -> tuple[Int64s, Int64s]: ...

    def expire_before(self, time: int, left: Int64s) -> int: ...

    def living(self) -> Int64s: ...


def by_time(times: Int64s, which: Int64s) -> Int64s:
    """These rows in order of time, equal times as they stand."""
    if sorting.ascending(times, which):
        return which
    out = np.empty_like(which)
    return out if sorting.by_time(times, which, out) else which[np.argsort(times[which], kind="stable")]


def first_since(times: Int64s, which: Int64s, time: int) -> int:
    """The number of the first of these rows, which are in order of time, that is not before `time`."""
    return bisect_left(which, time, key=times.__getitem__)
