"""How much a window-oblivious join keeps of each stream: from given or measured disorder, by several rules.

A rule looks at the places of every batch's tuples, in the order of arrival, and says from which place on the tuples of
each stream have to stay. All it knows is bounded, and has a durable form.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import StateMismatchError
from watersmeet.model.blocks import Blocks
from watersmeet.state.arrays import Arrays, HeapArrays
from watersmeet.state.disorder import Disorder, SortedTail, lag
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.log import Delta, Entry
from watersmeet.state.placed import BEYOND, FIRST
from watersmeet.state.recent import MatchedDistances, RecentRate

#: What is left, after a batch, of a number of tuples to keep that is larger than needed now.
SHRINKING = 0.98
#: Tuples with partners from which something can be learnt.
ENOUGH = 200
#: What has become durable in so many pieces is written anew as one.
MOST_PIECES = 32

_NONE = np.empty(0, np.int64)

#: Scrambling factors that are known, by stream; None: to be measured.
Given = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class News:
    """Places of the tuples that one stream brings in a batch, in the order of arrival.

    Where these are a part of the stream (a shard's), `blocks` tell of all of it, and `positions`, if anybody needs to
    know, where the tuples stand in the batch.
    """

    places: Int64s
    blocks: Blocks | None = None
    positions: Int64s | None = None


class Buffers(ABC):
    """The common part: every stream's disorder."""

    def __init__(self, name: str, given: Given, arrays: Arrays | None = None) -> None:
        self.name = name
        self.given = given
        self.arrays = arrays or HeapArrays()
        self.disorder = [Disorder(str(i), self.arrays) for i in range(len(given))]

    def closed(self, j: int) -> int | None:
        """The largest place that nothing to come of stream j is expected to reach down to."""
        return self.disorder[j].closed(self.allowance(j))

    def observe(self, news: Sequence[News]) -> list[Int64s]:
        """Take a batch of each stream up; how far behind the tuples of this shard came, where that is known."""
        behind = []
        for d, one, given in zip(self.disorder, news, self.given, strict=True):
            before = d.count
            if one.blocks is None:
                behind.append(d.observe(one.places))
            else:
                d.observe_blocks(one.blocks)
                positions = one.positions
                behind.append(_NONE if positions is None else d.maxima.behind(one.places, before + positions))
            if given is not None:
                d.maxima.forget_before(d.count - given)
        return behind

    def allowance(self, j: int) -> int:
        """Positions by which a tuple of stream j may come behind."""
        given = self.given[j]
        return self.disorder[j].recent if given is None else given

    @abstractmethod
    def floors(self, ended: Sequence[bool]) -> list[int]:
        """The places from which on tuples of each stream have to stay."""

    def notes(self) -> dict[str, Any]:
        return {"rule": self.name, "streams": [d.notes() for d in self.disorder]}

    def recall(self, notes: dict[str, Any]) -> None:
        check_same("buffer", notes["rule"], self.name)
        for d, note in zip(self.disorder, notes["streams"], strict=True):
            d.recall(note)

    def deltas(self, entries: Sequence[Entry]) -> list[Delta]:
        out = []
        for i, d in enumerate(self.disorder):
            whole = pieces(entries, "maxima", i) >= MOST_PIECES
            out += [Delta("maxima", i, rows, all) for rows, all in d.maxima.deltas(whole=whole)]
        return out

    def replay(self, delta: Delta) -> None:
        self.disorder[delta.stream].maxima.replay(delta.rows)


def check_same(option: str, before: str, now: str) -> None:
    """Refuse a state that was written with another option."""
    if before != now:
        raise StateMismatchError(
            f'the checkpoint was written with {option}="{before}", the join now has {option}="{now}"; '
            "what one has measured, or holds back, the other does not know.",
            hint=f'run with {option}="{before}", or start from a new checkpoint.',
        )


def floors_above(closed: Sequence[int | None]) -> list[int]:
    """Places from which on tuples have to stay, if each stream has closed all up to a place (None: nothing)."""
    above = [FIRST if c is None else min(c + 1, BEYOND) for c in closed]
    return [min(a for j, a in enumerate(above) if j != i) for i in range(len(above))]


def pieces(entries: Sequence[Entry], kind: str, i: int) -> int:
    """Segments in which something of stream i is durable."""
    return sum((e.kind, e.stream) == (kind, i) for e in entries)


class SoundBuffers(Buffers):
    """Stream j has closed all that its running maximum had reached k_j tuples ago; what all others have closed goes.

    With the true k_j nothing is lost: a tuple that came at or below that maximum would be more than k_j behind.
    """

    def floors(self, ended: Sequence[bool]) -> list[int]:
        return floors_above([BEYOND if end else self.closed(j) for j, end in enumerate(ended)])


class LearnedBuffers(SoundBuffers):
    """The same with the distance that all but a `loss` of the tuples with partners keep to, in place of the largest.

    Tuples that match nothing, however late, ask for nothing. Where few have matched, the largest distance holds.
    """

    def __init__(self, name: str, given: Given, loss: float, arrays: Arrays | None = None) -> None:
        super().__init__(name, given, arrays)
        self.loss = loss
        self.matched = [MatchedDistances(loss) for _ in given]

    def learn(self, behind: Sequence[Int64s], matched: Sequence[Bools]) -> None:
        """Which of the batch's tuples found a partner in every other stream, or came too late for that."""
        for learned, b, m in zip(self.matched, behind, matched, strict=True):
            learned.observe(b[m])

    def allowance(self, j: int) -> int:
        most, learned = super().allowance(j), self.matched[j]
        if learned.seen < ENOUGH:
            return most
        # of so few that none may be lost, none has been as late as some will be
        few = learned.seen * self.loss < 1
        return min(most, learned.needed + few * learned.needed // 4)

    def notes(self) -> dict[str, Any]:
        return super().notes() | {"matched": [m.notes() for m in self.matched]}

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        for m, note in zip(self.matched, notes["matched"], strict=True):
            m.recall(note)


class PaperBuffers(Buffers):
    """As many tuples as equations 7 and 8 say, those with the largest places.

    ``M_i = max_j max{1, k_i + r_i · k_j / r_j + L_i→j}``, the lag taken k_j tuples of stream j ago: as far as its
    sorted order is final by now. An estimate: rates and lags wander meanwhile.
    """

    def __init__(self, name: str, given: Given, arrays: Arrays | None = None) -> None:
        super().__init__(name, given, arrays)
        self.tails = [SortedTail(str(i), self.arrays) for i in range(len(given))]
        self.rates = [RecentRate() for _ in given]
        self.level = [0.0] * len(given)
        self.history: deque[list[int]] = deque(maxlen=256)  # tuples of each stream after the last batches
        self._fresh: list[list[Int64s]] = [[] for _ in given]

    def observe(self, news: Sequence[News]) -> list[Int64s]:
        for i, one in enumerate(news):
            self.tails[i].add(one.places)
            self.rates[i].observe(one.places.size)
            self._fresh[i].append(one.places)
        behind = super().observe(news)
        self.history.append([d.count for d in self.disorder])
        return behind

    def size(self, i: int, ended: Sequence[bool]) -> float | None:
        """Tuples of stream i to keep; None: all, as not enough is known."""
        most = 1.0
        then = np.array(self.history)
        for j, other in enumerate(self.disorder):
            if j == i or ended[j]:
                continue
            position = other.count - self.allowance(j)
            at = min(int(np.searchsorted(then[:, j], position)), len(then) - 1)
            ahead = lag(self.tails[i], int(then[at, i]), self.tails[j], position)
            if ahead is None:
                return None
            most = max(most, self.allowance(i) + self.ratio(i, j) * self.allowance(j) + ahead)
        return most

    def ratio(self, i: int, j: int) -> float:
        """Tuples of i for one of j: at once as many as the last batch has, fewer when that has become usual."""
        mine, theirs = self.rates[i].range[1], self.rates[j].range[0] or self.rates[j].rate
        return mine / theirs if theirs else self.disorder[i].count / max(1, self.disorder[j].count)

    def smoothed(self, size: float, before: float) -> float:
        """Grow at once, shrink slowly."""
        return max(size, before * SHRINKING)

    def floors(self, ended: Sequence[bool]) -> list[int]:
        return [self._floor(i, ended) for i in range(len(self.given))]

    def _floor(self, i: int, ended: Sequence[bool]) -> int:
        if all(end for j, end in enumerate(ended) if j != i):
            return BEYOND
        size = self.size(i, ended)
        if size is not None:
            self.level[i] = size = self.smoothed(size, self.level[i])
        place = None if size is None else self.tails[i].at(self.disorder[i].count - int(np.ceil(size)) + 1)
        return FIRST if place is None else place

    def notes(self) -> dict[str, Any]:
        return super().notes() | {
            "tails": [t.notes() for t in self.tails],
            "rates": [r.notes() for r in self.rates],
            "level": list(self.level),
            "history": list(self.history),
        }

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        self.history = deque(notes["history"], maxlen=self.history.maxlen)
        self.level = list(notes["level"])
        for tail, rate, t, r in zip(self.tails, self.rates, notes["tails"], notes["rates"], strict=True):
            tail.recall(t)
            rate.recall(r)

    def deltas(self, entries: Sequence[Entry]) -> list[Delta]:
        out = super().deltas(entries)
        for i, tail in enumerate(self.tails):
            fresh, self._fresh[i] = np.concatenate([np.empty(0, np.int64), *self._fresh[i]]), []
            if pieces(entries, "tail", i) >= MOST_PIECES:
                out.append(Delta("tail", i, tail.rows, whole=True))
            else:
                out.append(Delta("tail", i, pa.record_batch([pa.array(fresh)], names=["place"])))
        return out

    def replay(self, delta: Delta) -> None:
        if delta.kind == "tail":
            self.tails[delta.stream].replay(delta.rows)
        else:
            super().replay(delta)
