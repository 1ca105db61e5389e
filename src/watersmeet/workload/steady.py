"""Streams as cost models think of them: steady rates, keys at random out of those that live, keys that come and go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import Closings
from watersmeet.model.queries import JoinQuery
from watersmeet.workload.arrivals import SECOND
from watersmeet.workload.punctuated import stream_spec


@dataclass(frozen=True)
class Steady:
    """Streams a, b, c, … with so many tuples a second, windows in seconds, and keys that live at one time.

    Stream i draws from the first `keys[i]` of the keys that live. With `closings`, so many keys a second retire, the
    oldest first, new ones come in their place, and all streams say so at once. The same for a seed.
    """

    rates: tuple[float, ...]
    windows: tuple[float, ...]
    keys: tuple[int, ...]
    closings: float = 0.0
    seed: int = 7

    def __post_init__(self) -> None:
        if not 2 <= len(self.rates) == len(self.windows) == len(self.keys) or min(self.keys) < 1:
            raise QueryError("`rates`, `windows` and `keys` are of the same streams, two or more, with a key at least.")

    @property
    def query(self) -> JoinQuery:
        named = zip("abcdefgh", self.windows, strict=False)
        return JoinQuery(tuple(stream_spec(name, window) for name, window in named))

    def steps(self, seconds: float, interval: float = 1.0) -> Iterator[list[Batch]]:
        """Batches of all streams, each of `interval` seconds of event time."""
        random, query = np.random.default_rng(self.seed), self.query
        counted = np.zeros(len(self.rates), np.int64)
        for n in range(round(seconds / interval)):
            begin, end = (round((n + k) * interval * SECOND) for k in (0, 1))
            step = []
            for i, spec in enumerate(query.streams):
                count = random.poisson(self.rates[i] * interval)
                times = np.sort(random.integers(begin, end, count))
                keys = self._retired(times) + random.integers(0, self.keys[i], count)
                numbers = np.arange(counted[i], counted[i] + count)
                counted[i] += count
                rows = pa.record_batch([pa.array(c) for c in (keys, times, numbers)], schema=spec.schema)
                step.append(Batch(rows, end - 1, closings=self._said(begin, end)))
            yield step

    def _retired(self, times: np.ndarray) -> np.ndarray:
        """How many keys are gone at these times: key k at (k + 1) / closings."""
        return np.floor(times * (self.closings / SECOND)).astype(np.int64)

    def _said(self, begin: int, end: int) -> Closings | None:
        if not self.closings:
            return None
        first, last = self._retired(np.array([begin - 1, end - 1])).tolist()
        gone = np.arange(max(first, 0), last)
        times = np.ceil((gone + 1) * (SECOND / self.closings)).astype(np.int64)
        return Closings(pa.record_batch([pa.array(gone)], names=["key"]), times)
