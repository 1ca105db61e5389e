"""The hybrid multi-way join: an index on some windows only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.errors import QueryError
from watersmeet.joins.algorithm import MOST_STREAMS, Traits
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_loops import Loops
from watersmeet.joins.multiway_options import MultiwayJoin, interval
from watersmeet.model.durations import Duration
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class HybridJoin(MultiwayJoin[RunningMultiway]):
    """Two to eight streams, a window each, of which those named in `index` are looked up by key and the others scanned.

    ::

        index on c and d; new b ──► scan A ──► c of its key ──► d of its key: a result

    Emits   what `eager` emits.
    Evicts  what `eager` evicts, and when it does.
    Costs   what `eager` costs, each window at its own price; indexed windows go innermost, where most lookups are, and
            keep the `order` among themselves. (All windows have an index in memory here; those not named are
            scanned as if they had none, to compare the work.)

    >>> HybridJoin(index=("bids",)).describe()["options"]["index"]
    ['bids']

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    index: tuple[str, ...] = ()
    every: Duration | int | None = None

    traits: ClassVar[Traits] = Traits(
        "hybrid",
        family="eager",
        preference=6,
        streams=MOST_STREAMS,
        windows=("time", "rows", "none"),
        punctuations=True,
        baseline=True,
        index=None,
    )

    def __post_init__(self) -> None:
        MultiwayJoin.__post_init__(self)
        if isinstance(self.index, list):
            object.__setattr__(self, "index", tuple(self.index))
        object.__setattr__(self, "every", interval("every", self.every))

    def check(self, query: JoinQuery) -> None:
        MultiwayJoin.check(self, query)
        names = [s.name for s in query.streams]
        if isinstance(self.index, str) or any(name not in names for name in self.index):
            raise QueryError(
                f"`index` is {self.index!r}; it names the streams to be indexed, of {', '.join(names)}.",
                hint=f"for example index=({names[0]!r},).",
            )

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningMultiway:
        loops = Loops(tuple(s.name in self.index for s in query.streams))
        return RunningMultiway(query, loops, *self._options(self.every), arrays)
