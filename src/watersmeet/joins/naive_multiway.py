"""The naive multi-way join: one plan for all, whichever stream a new tuple comes from."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.joins.one_by_one import Loops, RunningOneByOne
from watersmeet.joins.orders import OrderedJoin
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class NaiveMultiwayJoin(OrderedJoin):
    """Two to eight streams, a window each; the loops are the plan's, and the new tuple stands for its own window.

    ::

        order a, b, c; new c ──► for each a of the whole window ──► for each b of a's key ──► is c's key the same?

    Emits   what `eager` emits.
    Forgets what `eager` forgets, and as that does.
    Costs   what `eager` costs if the new tuple is of the order's first stream. Else the outermost loop looks at a whole
            window, index or not, for a tuple that could have said which key it wants: a baseline.

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    def start(self, arrays: Arrays | None = None) -> RunningOneByOne:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        loops = Loops((self.index == "hash",) * len(self.query.streams), in_place=True)
        return RunningOneByOne(self.query, loops, self.order, None, self.expiration, self.max_matches_per_row, arrays)
