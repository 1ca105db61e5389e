"""How much a window-oblivious join keeps of each stream: from given or measured disorder, by several rules.

A rule observes the ranks of every batch's tuples, in the order of arrival, and gives the low rank of each stream:
tuples from it on are kept. Its own state is bounded, and has a durable form.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from watersmeet.errors import StateMismatchError
from watersmeet.model.blocks import Blocks
from watersmeet.state.arrays import Arrays, HeapArrays
from watersmeet.state.durable.parts import DurablePart
from watersmeet.state.key_ordered import BEYOND, FIRST
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.statistics.disorder import Disorder, SortedTail, lag
from watersmeet.state.statistics.fading_histogram import MatchedDistances, RecentRate

#: Factor by which a number of tuples to keep shrinks per batch, if it is larger than needed.
SHRINKING = 0.98
#: Tuples with partners that are needed before a learned distance is used.
ENOUGH = 200

_NONE = np.empty(0, np.int64)

#: Scrambling factors that are known, by stream; None: to be measured.
Given = Sequence[int | None]


@dataclass(frozen=True, slots=True)
class ShownKeys:
    """Ranks of the tuples of one stream in a batch, in the order of arrival.

    In a shard, which has a part of the stream, `blocks` describe the whole stream; `positions`, where needed, are those
    of the tuples in the whole batch.
    """

    ranks: Int64s
    blocks: Blocks | None = None
    positions: Int64s | None = None


class Buffers(DurablePart):
    """The common part: every stream's disorder, and the rule that is sound.

    Stream j has closed the ranks up to its running maximum of k_j tuples ago; ranks that all others have closed are
    evicted. With the true k_j nothing is lost: a tuple at or below that maximum would be more than k_j behind.
    """

    kind = "buffers"

    def __init__(self, name: str, given: Given, arrays: Arrays | None = None) -> None:
        self.name = name
        self.given = given
        self.arrays = arrays or HeapArrays()
        self.disorder = [Disorder(i, self.arrays) for i in range(len(given))]

    def closed(self, j: int) -> int | None:
        """The largest closed rank of stream j: tuples to come are expected above it."""
        return self.disorder[j].closed(self.allowance(j))

    def observe(self, shown: Sequence[ShownKeys]) -> list[Int64s]:
        """Observe a batch of each stream; returns how far behind this shard's tuples came, where that is known."""
        behind = []
        for d, one, given in zip(self.disorder, shown, self.given, strict=True):
            before = d.count
            if one.blocks is None:
                behind.append(d.observe(one.ranks))
            else:
                d.observe_blocks(one.blocks)
                positions = one.positions
                behind.append(_NONE if positions is None else d.maxima.behind(one.ranks, before + positions))
            if given is not None:
                d.maxima.drop_before(d.count - given)
        return behind

    def allowance(self, j: int) -> int:
        """Positions by which a tuple of stream j may come behind."""
        given = self.given[j]
        return self.disorder[j].recent if given is None else given

    def low_ranks(self, ended: Sequence[bool]) -> list[int]:
        """The low rank of each stream: tuples from it on are kept."""
        return low_ranks_above([BEYOND if end else self.closed(j) for j, end in enumerate(ended)])

    def parts(self) -> list[DurablePart]:
        """The durable parts: the rule with its metadata, and the disorder of each stream."""
        return [self, *self.disorder]

    def metadata(self) -> dict[str, Any]:
        return {}

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        """The rule itself stores nothing."""


def check_same(option: str, before: str, now: str) -> None:
    """Refuse a state that was written with another option."""
    if before != now:
        raise StateMismatchError(
            f'the checkpoint was written with {option}="{before}", the join now has {option}="{now}"; '
            "what one has measured, or holds back, the other does not know.",
            hint=f'run with {option}="{before}", or start from a new checkpoint.',
        )


def low_ranks_above(closed: Sequence[int | None]) -> list[int]:
    """The low rank of each stream, if each has closed all up to a rank (None: nothing)."""
    above = [FIRST if c is None else min(c + 1, BEYOND) for c in closed]
    return [min(a for j, a in enumerate(above) if j != i) for i in range(len(above))]


class LearnedBuffers(Buffers):
    """The sound rule, with the distance that all but a share `loss` of the tuples with partners keep.

    Tuples without partners do not count. Until enough tuples have matched, the largest distance is used.
    """

    def __init__(self, name: str, given: Given, loss: float, arrays: Arrays | None = None) -> None:
        super().__init__(name, given, arrays)
        self.loss = loss
        self.matched = [MatchedDistances(loss) for _ in given]

    def learn(self, behind: Sequence[Int64s], matched: Sequence[Bools]) -> None:
        """Observe the distances of the `matched` tuples: with a partner in every other stream, or too late for one."""
        for learned, b, m in zip(self.matched, behind, matched, strict=True):
            learned.observe(b[m])

    def allowance(self, j: int) -> int:
        most, learned = super().allowance(j), self.matched[j]
        if learned.seen < ENOUGH:
            return most
        # while `loss` allows for less than one tuple, add a quarter: later tuples may come further behind
        few = learned.seen * self.loss < 1
        return min(most, learned.needed + few * learned.needed // 4)

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {"matched": [m.metadata() for m in self.matched]}

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        super().load_metadata(metadata)
        for m, stored in zip(self.matched, metadata["matched"], strict=True):
            m.load_metadata(stored)


class PaperBuffers(Buffers):
    """The number of tuples that equations 7 and 8 give, those with the largest ranks.

    ``M_i = max_j max{1, k_i + r_i · k_j / r_j + L_i→j}``, the lag taken k_j tuples of stream j ago, where its
    sorted order is final. This is an estimate: rates and lags change meanwhile.
    """

    def __init__(self, name: str, given: Given, arrays: Arrays | None = None) -> None:
        super().__init__(name, given, arrays)
        self.tails = [SortedTail(i, self.arrays) for i in range(len(given))]
        self.rates = [RecentRate() for _ in given]
        self.level = [0.0] * len(given)
        self.history: deque[list[int]] = deque(maxlen=256)  # tuples of each stream after the last batches

    def observe(self, shown: Sequence[ShownKeys]) -> list[Int64s]:
        for i, one in enumerate(shown):
            self.tails[i].add(one.ranks)
            self.rates[i].observe(one.ranks.size)
        behind = super().observe(shown)
        self.history.append([d.count for d in self.disorder])
        return behind

    def size(self, i: int, ended: Sequence[bool]) -> float | None:
        """Number of tuples of stream i to keep; None: all, as the lag is not known yet."""
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
        """Tuples of i per tuple of j, at most: of the last and the usual rate, the larger of i, the smaller of j."""
        mine, theirs = self.rates[i].range[1], self.rates[j].range[0] or self.rates[j].rate
        return mine / theirs if theirs else self.disorder[i].count / max(1, self.disorder[j].count)

    def smoothed(self, size: float, before: float) -> float:
        """Grow at once, shrink slowly."""
        return max(size, before * SHRINKING)

    def low_ranks(self, ended: Sequence[bool]) -> list[int]:
        return [self._low_rank(i, ended) for i in range(len(self.given))]

    def _low_rank(self, i: int, ended: Sequence[bool]) -> int:
        if all(end for j, end in enumerate(ended) if j != i):
            return BEYOND
        size = self.size(i, ended)
        if size is not None:
            self.level[i] = size = self.smoothed(size, self.level[i])
        rank = None if size is None else self.tails[i].at(self.disorder[i].count - int(np.ceil(size)) + 1)
        return FIRST if rank is None else rank

    def parts(self) -> list[DurablePart]:
        return [*super().parts(), *self.tails]

    def metadata(self) -> dict[str, Any]:
        return super().metadata() | {
            "rates": [r.metadata() for r in self.rates],
            "level": list(self.level),
            "history": list(self.history),
        }

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        super().load_metadata(metadata)
        self.history = deque(metadata["history"], maxlen=self.history.maxlen)
        self.level = list(metadata["level"])
        for rate, recent in zip(self.rates, metadata["rates"], strict=True):
            rate.load_metadata(recent)
