"""The delay of a stream, measured: so long that all but a small share of its rows are on time."""

from __future__ import annotations

from math import ceil
from typing import Any

from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.lags import Lags
from watersmeet.state.durable.parts import DurablePart
from watersmeet.state.statistics.fading_histogram import MatchedDistances

#: Rows needed to measure a delay; until then the watermark does not advance and no row is late.
ENOUGH = 200
#: Late rows after which the weight of older rows is halved.
MOST_KEYS = 16


class MeasuredDelay(DurablePart):
    """The delay that all but `share` of the recent rows kept to. Older rows fade; a burst weighs as its rows do."""

    kind = "delay"

    def __init__(self, share: float, stream: int = 0) -> None:
        self.stream = stream
        self.lags = MatchedDistances(share, max(4096, ceil(MOST_KEYS / share)))
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
        # among few rows the latest ones are missing: add a quarter
        few = seen * self.lags.share < 1
        return self.lags.needed + few * self.lags.needed // 4

    def metadata(self) -> dict[str, Any]:
        return {"newest": self.newest, "lags": self.lags.metadata()}

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        self.newest = metadata["newest"]
        self.lags.load_metadata(metadata["lags"])
