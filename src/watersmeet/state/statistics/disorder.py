"""How far a stream is from ascending: running maxima, the sorted tail, and the scrambling factor.

A stream's tuples have positions (1, 2, 3, … as they arrive) and ranks (of their keys, see `state.key_order`). The
*scrambling factor* k is the least number such that no tuple comes more than k positions behind the first one with its
key or a larger one. So every tuple after position n is above the running maximum at position n - k: all keys up to that
maximum are closed in a stream with a known k.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.model.blocks import Blocks
from watersmeet.state.arrays import AnyArray, Arrays, HeapArrays
from watersmeet.state.durable.parts import Change, DurablePart
from watersmeet.state.keys import Int64s

#: Entries that are kept of running maxima before the older ones are thinned, and of a sorted tail.
ROOM = 1 << 13
#: Tuples in a period of `Disorder`.
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
    """The positions at which the running maximum of a stream rose, and the maxima.

    The last `room` / 2 rises are known exactly. Older ones are thinned, one in two at a time, and answers about
    them err on the side of more disorder: `behind` is never too small, `at` never too large. The same
    holds for blocks of tuples (`model.blocks`), within which the position of a rise is unknown.
    """

    def __init__(self, name: str = "", arrays: Arrays | None = None, room: int = ROOM) -> None:
        arrays = arrays or HeapArrays()
        self._positions, self._ranks = Kept(f"{name}.rises", arrays), Kept(f"{name}.maxima", arrays)
        self._risen = Kept(f"{name}.risen", arrays)  # the positions by which the maximum has risen for certain
        self.room = room
        self.thin = 0  # rises that are thinned, the first ones
        self.rewritten = False  # rises went since the last time they were made durable
        self._fresh: list[pa.RecordBatch] = []

    def __len__(self) -> int:
        return int(self._ranks.values.size)

    @property
    def highest(self) -> int | None:
        ranks = self._ranks.values
        return int(ranks[-1]) if ranks.size else None

    def observe(self, blocks: Blocks) -> Int64s:
        """Take tuples up; how many positions the least of each block is behind at most (see `behind`)."""
        if not blocks.first.size:
            return _NONE
        highest = np.maximum.accumulate(blocks.largest)
        rises = np.flatnonzero(np.concatenate([[True], highest[1:] > highest[:-1]]))
        if len(self):
            rises = rises[highest[rises] > self._ranks.values[-1]]
        self.add(blocks.first[rises], highest[rises], blocks.last[rises])
        out = self.behind(blocks.least, blocks.last)
        self._bound()
        return out

    def add(self, positions: Int64s, ranks: Int64s, risen: Int64s) -> None:
        """Append rises."""
        self._positions.values = np.concatenate([self._positions.values, positions])
        self._ranks.values = np.concatenate([self._ranks.values, ranks])
        self._risen.values = np.concatenate([self._risen.values, risen])
        self._fresh.append(_rises(positions, ranks, risen))

    def behind(self, ranks: Int64s, positions: Int64s) -> Int64s:
        """How many positions each tuple comes behind the first one with its rank or a larger one."""
        rises = self._positions.values
        at = np.searchsorted(self._ranks.values, ranks)
        first = rises[at]
        if self.thin:
            guessed = (at <= self.thin) & (at > 0)  # rises may have gone in front of it
            first = np.where(guessed, rises[np.maximum(at - 1, 0)] + 1, first)
        behind: Int64s = positions - first
        return behind

    def at(self, position: int) -> int | None:
        """The running maximum as it stood at a position, at least; None before the first tuple."""
        rise = self._risen_by(position)
        return int(self._ranks.values[rise]) if rise >= 0 else None

    def _risen_by(self, position: int) -> int:
        """The last rise that was over at a position, -1 for none."""
        over = np.flatnonzero(self._risen.values <= position)
        return int(over[-1]) if over.size else -1

    def drop_before(self, position: int) -> None:
        """Drop rises before a position; later calls of `at` and `behind` must not need them."""
        first = self._risen_by(position)
        if first > max(64, len(self) // 2):  # so that a rise is moved a few times at most
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
        return self._positions, self._ranks, self._risen

    def changes(self, rewrite: bool) -> Change | None:
        """Rises since the last time, or all there are."""
        fresh, self._fresh = self._fresh, []
        if rewrite or self.rewritten:
            self.rewritten = False
            return Change([_rises(*(kept.values for kept in self._columns))], whole=True)
        return Change(fresh) if fresh else None

    def replay(self, rows: pa.RecordBatch) -> None:
        self.add(*(column.to_numpy() for column in rows.columns))
        self._fresh = []


def _rises(positions: Int64s, ranks: Int64s, risen: Int64s) -> pa.RecordBatch:
    columns = [pa.array(column.copy()) for column in (positions, ranks, risen)]
    return pa.record_batch(columns, names=["position", "rank", "risen"])


class SortedTail(DurablePart):
    """The largest ranks that a stream has shown, sorted: lags and multiplicities follow from them."""

    kind = "tail"

    def __init__(self, stream: int = 0, arrays: Arrays | None = None, room: int = ROOM) -> None:
        self.stream = stream
        self._ranks = Kept(f"{stream}.tail", arrays or HeapArrays())
        self._fresh: list[Int64s] = []
        self.room = room
        self.below = 0  # tuples with ranks below those kept
        self.multiplicity = 0  # the largest number of tuples with one rank

    @property
    def count(self) -> int:
        return self.below + int(self._ranks.values.size)

    def add(self, ranks: Int64s) -> None:
        """Take tuples up."""
        self._fresh.append(ranks)
        both = np.sort(np.concatenate([self._ranks.values, ranks]), kind="stable")
        some = np.unique(ranks)
        equal = np.searchsorted(both, some, "right") - np.searchsorted(both, some)
        self.multiplicity = max(self.multiplicity, int(equal.max(initial=0)))
        gone = max(0, both.size - self.room)
        self.below += gone
        self._ranks.values = both[gone:]

    def at(self, index: int) -> int | None:
        """The rank at a position of the sorted stream, from 1 on; None if it is not (or no longer) known."""
        ranks = self._ranks.values
        known = 0 < index - self.below <= ranks.size
        return int(ranks[index - self.below - 1]) if known else None

    def until(self, rank: int) -> int:
        """Tuples with this rank or a smaller one."""
        return self.below + int(np.searchsorted(self._ranks.values, rank, "right"))

    def metadata(self) -> list[int]:
        return [self.below, self.multiplicity]

    def load_metadata(self, metadata: list[int]) -> None:
        self.below, self.multiplicity = metadata

    def changes(self, rewrite: bool) -> Change | None:
        """Ranks shown since the last time, or all that are kept."""
        fresh, self._fresh = self._fresh, []
        ranks = self._ranks.values.copy() if rewrite else np.concatenate([_NONE, *fresh])
        return Change([pa.record_batch([pa.array(ranks)], names=["rank"])], whole=rewrite)

    def replay(self, rows: pa.RecordBatch) -> None:
        """Take up stored ranks; the metadata has the number of smaller ones."""
        kept = np.sort(np.concatenate([self._ranks.values, rows.column(0).to_numpy()]), kind="stable")
        self._ranks.values = kept[max(0, kept.size - self.room) :]


class Disorder(DurablePart):
    """The disorder of one stream: the exact scrambling factor since the start, and a recent one.

    `recent` grows at once, and after every `period` tuples falls by a tenth, but not below what this period and the one
    before have shown. Until the first period is over nothing is known, and `recent` is the number of tuples.
    """

    kind = "maxima"

    def __init__(self, stream: int = 0, arrays: Arrays | None = None, room: int = ROOM, period: int = 0) -> None:
        self.stream = stream
        self.maxima = RunningMaxima(str(stream), arrays, room)
        self.period = period or PERIOD
        self.count = 0
        self.scrambling = 0
        self._level, self._now, self._before, self._periods = 0, 0, 0, 0

    def observe(self, ranks: Int64s, positions: Int64s | None = None) -> Int64s:
        """Take tuples up in the order of arrival; how many positions each is behind."""
        if positions is not None:
            positions = positions - self.count
        return self.observe_blocks(Blocks.single(ranks, positions))

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
        """The largest rank below all tuples to come, if no tuple is more than `allowance` behind."""
        return self.maxima.at(self.count - allowance)

    def metadata(self) -> dict[str, Any]:
        numbers = [self.count, self.scrambling, self._level, self._now, self._before, self._periods]
        return {"disorder": numbers, "thin": self.maxima.thin}

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        self.count, self.scrambling, self._level, self._now, self._before, self._periods = metadata["disorder"]
        self.maxima.thin = metadata["thin"]

    def changes(self, rewrite: bool) -> Change | None:
        return self.maxima.changes(rewrite)

    def replay(self, rows: pa.RecordBatch) -> None:
        self.maxima.replay(rows)


def lag(leader: SortedTail, arrived: int, other: SortedTail, position: int) -> int | None:
    """Tuples by which one stream is ahead of another, when `arrived` of its own and `position` of the other's came.

    ``L = PI(s_i) - VI_max(s'_i)``, s'_i the last of the leader's tuples up to the one that stands at `position` in
    the other stream once that is sorted. None if that is no longer known.
    """
    rank = other.at(position)
    return None if rank is None else arrived - leader.until(rank)
