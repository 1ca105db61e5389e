"""The lazy multi-way join: new tuples wait, and are joined as the eager join does, every so often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.joins.algorithm import MOST_STREAMS, Traits
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_loops import Loops
from watersmeet.joins.multiway_options import MultiwayJoin, check_index, interval
from watersmeet.model.durations import Duration
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class LazyJoin(MultiwayJoin[RunningMultiway]):
    """Two to eight streams, a window each; new tuples are joined when all streams have passed a multiple of `every`.

    ::

        new a, b, c ──► wait until all watermarks pass 10, 20, 30, …  ──► each of them as the eager join does

    Emits   what `eager` emits, later: a combination whose newest tuple has the time `now` is emitted in the batch in
            which every stream's watermark reaches the first multiple of `every` after `now`.
            (every = 10, now = 34: when all watermarks are at 40. Without `every`: with the batch.)
    Evicts  a tuple once it has been joined and `eager` would evict it; pending tuples are kept.

    `index` is "hash" (a window is looked up by key) or "scan" (all of its tuples are looked at).
    The join runs whenever all streams have passed a multiple of `every` ("10 seconds"; without it: with every batch).

    >>> LazyJoin(every="10 seconds", index="scan").describe()["options"]["every"]
    10000000

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    index: str = "hash"
    every: Duration | int | None = None

    traits: ClassVar[Traits] = Traits(
        "lazy",
        family="eager",
        preference=5,
        streams=MOST_STREAMS,
        windows=("time", "rows", "none"),
        punctuations=True,
        baseline=True,
    )

    def __post_init__(self) -> None:
        MultiwayJoin.__post_init__(self)
        check_index(self.index)
        object.__setattr__(self, "every", interval("every", self.every))

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningMultiway:
        loops = Loops((self.index == "hash",) * len(query.streams))
        return RunningMultiway(query, loops, *self._options(self.every), arrays)
