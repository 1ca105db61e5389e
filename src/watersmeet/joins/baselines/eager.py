"""The eager multi-way join: a new tuple is joined at once, in the outermost loop."""

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
class EagerJoin(MultiwayJoin[RunningMultiway]):
    """Two to eight streams, a window each; every new tuple goes through the other windows, one loop inside the other.

    ::

        new b ──► for each a of its key ──► for each c ──► for each d: a result        then b into its own window

    Emits   what `general_lazy` emits, with the same batch; one tuple after the other, by event time.
    Evicts  what `general_lazy` evicts. With an `expiration` interval only whenever the other streams' watermarks have
            passed a multiple of it (expiration = 10, a may expire at 34: it expires at 40); until then it is `stale`.
    Costs   per new tuple the first window (its tuples of the key, with index="hash"; all of them, with "scan"), for
            each match in it the second, and so on: the streams that match least go first in the `order`.

    `index` is "hash" (a window is looked up by key) or "scan" (all of its tuples are looked at).

    >>> EagerJoin(index="scan", order=("c", "a", "b")).order
    ('c', 'a', 'b')

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    index: str = "hash"

    traits: ClassVar[Traits] = Traits(
        "eager",
        family="eager",
        preference=4,
        streams=MOST_STREAMS,
        windows=("time", "rows", "none"),
        punctuations=True,
        baseline=True,
    )

    def __post_init__(self) -> None:
        MultiwayJoin.__post_init__(self)
        check_index(self.index)

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningMultiway:
        loops = Loops((self.index == "hash",) * len(query.streams))
        return RunningMultiway(query, loops, *self._options(), arrays)
