"""The naive multi-way join: one plan for all, whichever stream a new tuple comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from watersmeet.joins.algorithm import MOST_STREAMS, Traits
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_loops import Loops
from watersmeet.joins.multiway_options import MultiwayJoin, check_index
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class NaiveMultiwayJoin(MultiwayJoin[RunningMultiway]):
    """Two to eight streams, a window each; the loops are the plan's, and the new tuple stands for its own window.

    ::

        order a, b, c; new c ──► for each a of the whole window ──► for each b of a's key ──► is c's key the same?

    Emits   what `eager` emits.
    Evicts  what `eager` evicts, and when it does.
    Costs   what `eager` costs if the new tuple is of the order's first stream. Else the outermost loop scans a whole
            window, index or not, although the new tuple's key is known: a baseline.

    `index` is "hash" (a window is looked up by key) or "scan" (all of its tuples are looked at).

    >>> NaiveMultiwayJoin(index="scan").index
    'scan'

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    index: str = "hash"

    traits: ClassVar[Traits] = Traits(
        "naive_multiway",
        family="eager",
        preference=7,
        streams=MOST_STREAMS,
        windows=("time", "rows", "none"),
        punctuations=True,
        baseline=True,
        one_order=True,
    )

    def __post_init__(self) -> None:
        MultiwayJoin.__post_init__(self)
        check_index(self.index)

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningMultiway:
        loops = Loops((self.index == "hash",) * len(query.streams), in_place=True)
        return RunningMultiway(query, loops, *self._options(), arrays)
