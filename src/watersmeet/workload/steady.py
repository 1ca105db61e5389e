"""Streams as cost models think of them: steady rates, keys at random out of those that live, keys that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import Closings
from watersmeet.workload.arrivals import SECOND, Columns, Times
from watersmeet.workload.several import Several


@dataclass(frozen=True)
class Steady(Several):
    """As `Several`, of keys that come and go.

    With `closings`, so many keys a second retire, the oldest first, new ones come in their place, and all streams say
    so at once. Stream i draws from the oldest `distinct[i]` of the keys that live.
    """

    closings: float = 0.0

    def rows(self, i: int, seconds: float) -> Columns:
        made = super().rows(i, seconds)
        return {**made, "key": made["key"] + self._retired(made["ts"])}

    def steps(self, seconds: float, batch: float = 1.0) -> Iterator[list[Batch]]:
        begin = 0
        for step in super().steps(seconds, batch):
            end = (step[0].seen or 0) + 1
            said = self._said(begin, end)
            yield [replace(b, closings=said) for b in step]
            begin = end

    def _retired(self, times: Times) -> Times:
        """How many keys are gone at these times: key k at (k + 1) / closings."""
        gone: Times = np.floor(times * (self.closings / SECOND)).astype(np.int64)
        return gone

    def _said(self, begin: int, end: int) -> Closings | None:
        if not self.closings:
            return None
        first, last = self._retired(np.array([begin - 1, end - 1])).tolist()
        gone = np.arange(max(first, 0), last)
        times = np.ceil((gone + 1) * (SECOND / self.closings)).astype(np.int64)
        return Closings(pa.record_batch([pa.array(gone)], names=["key"]), times)
