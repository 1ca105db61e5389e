"""The eager multi-way join: a new tuple is joined at once, in the outermost loop."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.joins.one_by_one import Loops, RunningOneByOne
from watersmeet.joins.orders import OrderedJoin
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class EagerJoin(OrderedJoin):
    """Two to eight streams, a window each; every new tuple goes through the other windows, one loop inside the other.

    ::

        new b ──► for each a of its key ──► for each c ──► for each d: a result        then b into its own window

    Emits   what `general_lazy` emits, with the same batch; one tuple after the other, by event time.
    Forgets what `general_lazy` forgets. With an `expiration` interval only whenever the other streams' progress has
            passed a multiple of it (expiration = 10, a could go at 34: it goes at 40); until then it is `stale`.
    Costs   per new tuple the first window (its tuples of the key, with index="hash"; all of them, with "scan"), for
            each match in it the second, and so on: the streams that match least go first in the `order`.

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    def start(self, arrays: Arrays | None = None) -> RunningOneByOne:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        loops = Loops((self.index == "hash",) * len(self.query.streams))
        return RunningOneByOne(self.query, loops, self.order, None, self.expiration, self.max_matches_per_row, arrays)
