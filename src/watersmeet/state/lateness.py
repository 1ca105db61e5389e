"""The delay of a stream, measured: so long that all but a small share of its rows are on time."""

from __future__ import annotations

from math import ceil
from typing import Any

from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.lags import Lags
from watersmeet.state.recent import MatchedDistances

#: Rows from which something can be learnt; until then the stream makes no progress and nothing is late.
ENOUGH = 200
#: Rows that may be late and are still remembered with half their weight.
REMEMBERED = 16


class MeasuredDelay:
    """The delay by which all but `share` of the rows of late kept to. What is older fades; bursts weigh their rows."""

    def __init__(self, share: float) -> None:
        self.lags = MatchedDistances(share, max(4096, ceil(REMEMBERED / share)))
        self.newest = BEFORE_ALL

    def observe(self, lags: Lags, seen: int) -> None:
        """Take a batch up, in which the stream showed times up to `seen`."""
        since = lags.since(self.newest) if self.newest > BEFORE_ALL else lags.behind
        self.lags.observe(since, lags.count)
        self.newest = max(self.newest, seen)

    @property
    def delay(self) -> int | None:
        """In microseconds; None while too little is known."""
        seen = self.lags.seen
        if seen < ENOUGH:
            return None
        # of so few that none may be late, none has been as late as some will be
        few = seen * self.lags.share < 1
        return self.lags.needed + few * self.lags.needed // 4

    def notes(self) -> dict[str, Any]:
        return {"newest": self.newest, "lags": self.lags.notes()}

    def recall(self, notes: dict[str, Any]) -> None:
        self.newest = notes["newest"]
        self.lags.recall(notes["lags"])
