"""Recent behaviour of a stream: its rate without bursts, and how far behind the tuples that find a match come."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from watersmeet.model.log_buckets import class_of, largest_of
from watersmeet.state.keys import Int64s

#: Intervals over which a rate is taken.
INTERVALS = 15


class RecentRate:
    """Tuples per unit of time: the median over the last intervals. A short burst or pause does nothing."""

    def __init__(self) -> None:
        self._rates: deque[float] = deque(maxlen=INTERVALS)

    def observe(self, count: int, duration: float = 1.0) -> None:
        self._rates.append(count / duration)

    @property
    def range(self) -> tuple[float, float]:
        """The rate of the last interval and the median one, the smaller first."""
        last = self._rates[-1] if self._rates else 0.0
        return min(last, self.rate), max(last, self.rate)

    @property
    def rate(self) -> float:
        """0 before anything is known, and for a stream that was silent more often than not."""
        return float(np.median(self._rates)) if self._rates else 0.0

    def metadata(self) -> list[float]:
        return list(self._rates)

    def load_metadata(self, metadata: list[float]) -> None:
        self._rates = deque(metadata, maxlen=INTERVALS)


class MatchedDistances:
    """How far behind tuples come, learnt from those that found a partner (or came too late to find one).

    Counts by class of distance that fade: after `memory` tuples a count is half of what it was. A few stragglers move
    a quantile as little as a few tuples should, and a burst brings no more weight than its tuples.
    """

    def __init__(self, share: float, memory: int = 4096) -> None:
        self.share = share
        self.memory = memory
        self._counts: dict[int, float] = {}

    def observe(self, behind: Int64s, counts: Int64s | None = None) -> None:
        """Take distances up, each as often as in `counts` (by default once)."""
        many = np.ones(behind.size, np.int64) if counts is None else counts
        total = int(many.sum())
        if total:
            fade = 0.5 ** (total / self.memory)
            classes, inverse = np.unique(class_of(behind), return_inverse=True)
            faded = {c: n * fade for c, n in self._counts.items() if n * fade > 1e-3}
            for c, n in zip(classes.tolist(), np.bincount(inverse, many).tolist(), strict=True):
                faded[c] = faded.get(c, 0.0) + n
            self._counts = faded

    @property
    def seen(self) -> float:
        """Tuples it rests on, faded ones in part."""
        return sum(self._counts.values())

    @property
    def needed(self) -> int:
        """A distance that all but `share` of the tuples keep to."""
        classes = sorted(self._counts)
        most = np.cumsum([self._counts[c] for c in classes])
        if not classes:
            return 0
        at = int(np.searchsorted(most, most[-1] * (1 - self.share)))
        return largest_of(classes[min(at, len(classes) - 1)])

    def metadata(self) -> dict[str, Any]:
        return {str(c): n for c, n in self._counts.items()}

    def load_metadata(self, metadata: dict[str, Any]) -> None:
        self._counts = {int(c): n for c, n in metadata.items()}
