"""How far a stream is from ascending: running maxima, the sorted tail, and what follows from them.

A stream's tuples have positions (1, 2, 3, … as they arrive) and places (their keys in the order of keys, see
`state.order`). The *scrambling factor* k is the least number such that no tuple comes more than k positions behind the
first one with its key or a larger one. So whatever comes after position n lies above the running maximum as it stood at
position n - k: that is what a stream with a known k has closed.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.model.blocks import Blocks
from watersmeet.state.arrays import AnyArray, Arrays, HeapArrays
from watersmeet.state.keys import Int64s

#: Entries that are remembered of running maxima before the older ones are thinned, and of a sorted tail.
ROOM = 1 << 13
#: Tuples after which what was shown becomes older.
PERIOD = 1000

_NONE = np.empty(0, np.int64)


class Kept:
    """A column of numbers that outlives the process: its length stands in front of it."""

    def __init__(self, name: str, arrays: Arrays) -> None:
        self.name, self.arrays = name, arrays
        found = arrays.attach(name, np.int64)
        if found is None:
            found = arrays.allocate(name, 64, np.int64)
            found[0] = 0
        self._all: AnyArray = found

    @property
    def values(self) -> Int64s:
        values: Int64s = self._all[1 : 1 + int(self._all[0])]
        return values

    @values.setter
    def values(self, values: Int64s) -> None:
        if values.size + 1 > self._all.size:
            self._all = self.arrays.grow(self.name, self._all, 2 * values.size)
        self._all[1 : 1 + values.size] = values
        self._all[0] = values.size


class RunningMaxima:
    """Where the running maximum of a stream rose, and to what.

    The last `room` / 2 rises are known exactly. Older ones are thinned, one in two at a time, and answers about
    them err on the side of more disorder: `behind` is never too small, `at` never too large. So they do about blocks of
    tuples (`model.blocks`), of which it is known only that the maximum rises somewhere within them.
    """

    def __init__(self, name: str = "", arrays: Arrays | None = None, room: int = ROOM) -> None:
        arrays = arrays or HeapArrays()
        self._positions, self._places = Kept(f"{name}.rises", arrays), Kept(f"{name}.maxima", arrays)
        self._risen = Kept(f"{name}.risen", arrays)  # the positions by which the maximum has risen for certain
        self.room = room
        self.thin = 0  # rises that are thinned, the first ones
        self.rewritten = False  # rises went since the last time they were made durable
        self._fresh: list[pa.RecordBatch] = []

    def __len__(self) -> int:
        return int(self._places.values.size)

    @property
    def highest(self) -> int | None:
        places = self._places.values
        return int(places[-1]) if places.size else None

    def observe(self, blocks: Blocks) -> Int64s:
        """Take tuples up; how many positions the least of each block is behind at most (see `behind`)."""
        if not blocks.first.size:
            return _NONE
        highest = np.maximum.accumulate(blocks.largest)
        rises = np.flatnonzero(np.concatenate([[True], highest[1:] > highest[:-1]]))
        if len(self):
            rises = rises[highest[rises] > self._places.values[-1]]
        self.add(blocks.first[rises], highest[rises], blocks.last[rises])
        out = self.behind(blocks.least, blocks.last)
        self._bound()
        return out

    def add(self, positions: Int64s, places: Int64s, risen: Int64s) -> None:
        """Append rises."""
        self._positions.values = np.concatenate([self._positions.values, positions])
        self._places.values = np.concatenate([self._places.values, places])
        self._risen.values = np.concatenate([self._risen.values, risen])
        self._fresh.append(_rises(positions, places, risen))

    def behind(self, places: Int64s, positions: Int64s) -> Int64s:
        """How many positions each tuple comes behind the first one with its place or a larger one."""
        rises = self._positions.values
        at = np.searchsorted(self._places.values, places)
        first = rises[at]
        if self.thin:
            guessed = (at <= self.thin) & (at > 0)  # rises may have gone in front of it
            first = np.where(guessed, rises[np.maximum(at - 1, 0)] + 1, first)
        behind: Int64s = positions - first
        return behind

    def at(self, position: int) -> int | None:
        """The running maximum as it stood at a position, at least; None before the first tuple."""
        rise = self._risen_by(position)
        return int(self._places.values[rise]) if rise >= 0 else None

    def _risen_by(self, position: int) -> int:
        """The last rise that was over at a position, -1 for none."""
        over = np.flatnonzero(self._risen.values <= position)
        return int(over[-1]) if over.size else -1

    def forget_before(self, position: int) -> None:
        """Nobody will ask for the maximum at an earlier position, nor how far anything is behind."""
        first = self._risen_by(position)
        if first > max(64, len(self) // 2):  # all that goes is moved a few times at most
            self._keep(np.arange(first, len(self)))

    def _bound(self) -> None:
        if len(self) > self.room:
            old = np.arange(len(self) - self.room // 2)
            self._keep(np.concatenate([old[::2], np.arange(old.size, len(self))]))
            self.thin = (old.size + 1) // 2

    def _keep(self, which: Int64s) -> None:
        for kept in self._columns:
            kept.values = kept.values[which]
        self.rewritten = True

    @property
    def _columns(self) -> tuple[Kept, Kept, Kept]:
        return self._positions, self._places, self._risen

    def deltas(self, *, whole: bool) -> list[tuple[pa.RecordBatch, bool]]:
        """Rises since the last time, or all there are."""
        fresh, self._fresh = self._fresh, []
        if whole or self.rewritten:
            self.rewritten = False
            return [(_rises(*(kept.values for kept in self._columns)), True)]
        return [(rows, False) for rows in fresh if rows.num_rows]

    def replay(self, rows: pa.RecordBatch) -> None:
        self.add(*(column.to_numpy() for column in rows.columns))
        self._fresh = []


def _rises(positions: Int64s, places: Int64s, risen: Int64s) -> pa.RecordBatch:
    columns = [pa.array(column.copy()) for column in (positions, places, risen)]
    return pa.record_batch(columns, names=["position", "place", "risen"])


class SortedTail:
    """The largest places that a stream has shown, sorted: virtual indexes, lags and multiplicities are read off it."""

    def __init__(self, name: str = "", arrays: Arrays | None = None, room: int = ROOM) -> None:
        self._places = Kept(f"{name}.tail", arrays or HeapArrays())
        self.room = room
        self.below = 0  # tuples that were smaller than those remembered
        self.multiplicity = 0  # tuples with one place, at most

    @property
    def count(self) -> int:
        return self.below + int(self._places.values.size)

    def add(self, places: Int64s) -> None:
        """Take tuples up."""
        both = np.sort(np.concatenate([self._places.values, places]), kind="stable")
        some = np.unique(places)
        equal = np.searchsorted(both, some, "right") - np.searchsorted(both, some)
        self.multiplicity = max(self.multiplicity, int(equal.max(initial=0)))
        gone = max(0, both.size - self.room)
        self.below += gone
        self._places.values = both[gone:]

    def at(self, index: int) -> int | None:
        """The place at a position of the sorted stream, from 1 on; None if it is not (or no longer) known."""
        places = self._places.values
        known = 0 < index - self.below <= places.size
        return int(places[index - self.below - 1]) if known else None

    def until(self, place: int) -> int:
        """Tuples with this place or a smaller one."""
        return self.below + int(np.searchsorted(self._places.values, place, "right"))

    def virtual_index(self, place: int) -> tuple[int, int]:
        """The first and the last position that a tuple with this place can take in the sorted stream."""
        return self.below + int(np.searchsorted(self._places.values, place)) + 1, self.until(place)

    @property
    def rows(self) -> pa.RecordBatch:
        return pa.record_batch([pa.array(self._places.values.copy())], names=["place"])

    def notes(self) -> list[int]:
        return [self.below, self.multiplicity]

    def recall(self, notes: list[int]) -> None:
        self.below, self.multiplicity = notes

    def replay(self, rows: pa.RecordBatch) -> None:
        """Take up what was remembered; how many were smaller is known from the notes."""
        kept = np.sort(np.concatenate([self._places.values, rows.column(0).to_numpy()]), kind="stable")
        self._places.values = kept[max(0, kept.size - self.room) :]


class Disorder:
    """The disorder of one stream, as it was and as it is: the exact scrambling factor, and a recent one.

    `recent` grows at once, and after every `period` tuples falls by a tenth, but not below what this period and the one
    before have shown. Until the first period is over nothing is known, and `recent` is the number of tuples.
    """

    def __init__(self, name: str = "", arrays: Arrays | None = None, room: int = ROOM, period: int = 0) -> None:
        self.maxima = RunningMaxima(name, arrays, room)
        self.period = period or PERIOD
        self.count = 0
        self.scrambling = 0
        self._level, self._now, self._before, self._periods = 0, 0, 0, 0

    def observe(self, places: Int64s, positions: Int64s | None = None) -> Int64s:
        """Take tuples up in the order of arrival; how many positions each is behind."""
        if positions is not None:
            positions = positions - self.count
        return self.observe_blocks(Blocks.single(places, positions))

    def observe_blocks(self, blocks: Blocks) -> Int64s:
        """Take a batch up, in blocks of tuples; how many positions the least of each is behind, at most."""
        positions = (blocks.first + self.count, blocks.last + self.count)
        behind = self.maxima.observe(Blocks(*positions, blocks.least, blocks.largest, 0))
        if blocks.count:
            self.count += blocks.count
            most = int(behind.max())
            self.scrambling = max(self.scrambling, most)
            self._now, self._level = max(self._now, most), max(self._level, most)
            for _ in range(min(2, self.count // self.period - self._periods)):
                self._level = max(self._level - -(-self._level // 10), self._now, self._before)
                self._before, self._now = self._now, most
            self._periods = self.count // self.period
        return behind

    @property
    def recent(self) -> int:
        return self._level if self._periods else self.count

    def closed(self, allowance: int) -> int | None:
        """The largest place that nothing to come reaches down to, if no tuple is more than `allowance` behind."""
        return self.maxima.at(self.count - allowance)

    def notes(self) -> dict[str, Any]:
        numbers = [self.count, self.scrambling, self._level, self._now, self._before, self._periods]
        return {"disorder": numbers, "thin": self.maxima.thin}

    def recall(self, notes: dict[str, Any]) -> None:
        self.count, self.scrambling, self._level, self._now, self._before, self._periods = notes["disorder"]
        self.maxima.thin = notes["thin"]


def lag(leader: SortedTail, arrived: int, other: SortedTail, position: int) -> int | None:
    """Tuples by which one stream is ahead of another, when `arrived` of its own and `position` of the other's came.

    ``L = PI(s_i) - VI_max(s'_i)``, s'_i the last of the leader's tuples up to the one that stands at `position` in
    the other stream once that is sorted. None if that is no longer known.
    """
    place = other.at(position)
    return None if place is None else arrived - leader.until(place)
