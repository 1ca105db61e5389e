"""Streams as the cost models assume them: steady rates, random keys out of the current ones, keys that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import BatchPunctuations
from watersmeet.workload.arrivals import SECOND, Columns, Times
from watersmeet.workload.several import Several


@dataclass(frozen=True)
class Steady(Several):
    """As `Several`, with keys that come and go.

    `punctuations` keys a second retire, the oldest first, and new ones replace them; all streams punctuate a key at
    the same time. Stream i draws from the oldest `distinct[i]` of the current keys.
    """

    punctuations: float = 0.0

    def rows(self, i: int, seconds: float) -> Columns:
        made = super().rows(i, seconds)
        return {**made, "key": made["key"] + self._retired(made["ts"])}

    def steps(self, seconds: float, batch: float = 1.0) -> Iterator[list[Batch]]:
        begin = 0
        for step in super().steps(seconds, batch):
            end = (step[0].seen or 0) + 1
            punctuations = self._punctuations(begin, end)
            yield [replace(b, punctuations=punctuations) for b in step]
            begin = end

    def _retired(self, times: Times) -> Times:
        """The number of keys retired at these times: key k retires at (k + 1) / punctuations."""
        gone: Times = np.floor(times * (self.punctuations / SECOND)).astype(np.int64)
        return gone

    def _punctuations(self, begin: int, end: int) -> BatchPunctuations | None:
        """The punctuations of the keys that retire in [begin, end)."""
        if not self.punctuations:
            return None
        first, last = self._retired(np.array([begin - 1, end - 1])).tolist()
        gone = np.arange(max(first, 0), last)
        times = np.ceil((gone + 1) * (SECOND / self.punctuations)).astype(np.int64)
        return BatchPunctuations(pa.record_batch([pa.array(gone)], names=["key"]), times)
