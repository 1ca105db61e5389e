"""How many tuples a running join should hold, batch by batch, from what its streams have shown of late."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.cost.figures import assumed
from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.errors import QueryError
from watersmeet.model.punctuations import Clustered, Ordered
from watersmeet.model.queries import JoinQuery, StreamSpec

SECOND = 1_000_000
#: Batches over which a rate is measured, at least.
BATCHES = 4


@dataclass(frozen=True, slots=True)
class Shown:
    """What one stream brought in a batch, all shards together; `keys` are those of its stored tuples."""

    rows: int
    closed: int = 0  # keys that it closed one by one
    ranges: int = 0  # intervals of keys that it closed
    seen: int | None = None  # its newest event time, in microseconds
    keys: int | None = None
    scrambling: int = 0


class Forecast:
    """Tuples that each stream should hold after a batch, by the cost model of the algorithm.

    Rates (rows and closed keys, per second of event time) are those of the last window; a closed key is taken to be any
    of the stored ones. Before there is a rate, and where promises are about ranges of keys, nothing is foretold (None).
    """

    def __init__(self, query: JoinQuery, algorithm: str) -> None:
        self.query, self.model = query, COST_MODELS[algorithm]
        self._streams = [_Recent(spec) for spec in query.streams]

    def after(self, shown: Sequence[Shown]) -> list[float | None]:
        """Take note of a batch; the tuples of each stream that should be stored now."""
        for stream, news in zip(self._streams, shown, strict=True):
            stream.add(news)
        if any(s.in_ranges or s.rate is None for s in self._streams):
            return [None] * len(shown)
        known = assumed(self.query, interval=1.0)
        figures = [r.measured(s) for r, s in zip(self._streams, known.streams, strict=True)]
        try:
            tuples = self.model(Parameters(tuple(figures), interval=1.0)).tuples
        except QueryError:  # a silent stream: how long the others wait for it is open
            return [None] * len(shown)
        limits = [r.rows for r in self._streams]
        return [min(t, float(most)) if math.isfinite(t) else None for t, most in zip(tuples, limits, strict=True)]


class _Recent:
    """The last batches of a stream."""

    def __init__(self, spec: StreamSpec) -> None:
        self.span = spec.window.reach + spec.delay
        self.in_ranges = any(isinstance(p, Ordered | Clustered) for p in spec.promises)
        self.rows = self.closed = 0
        self.keys: int | None = None
        self.scrambling = 0
        self._batches: deque[tuple[int, int, int]] = deque()  # newest time, rows and closed keys up to then

    def add(self, news: Shown) -> None:
        self.rows += news.rows
        self.closed += news.closed
        self.keys, self.scrambling = news.keys, news.scrambling
        self.in_ranges |= bool(news.ranges)
        if news.seen is None or (self._batches and news.seen <= self._batches[-1][0]):
            return
        self._batches.append((news.seen, self.rows, self.closed))
        while len(self._batches) > BATCHES and self._batches[1][0] < news.seen - self.span:
            self._batches.popleft()

    @property
    def rate(self) -> float | None:
        """Rows per second of event time; None as long as no second has gone by."""
        if len(self._batches) < 2:
            return None
        first, last = self._batches[0], self._batches[-1]
        return (last[1] - first[1]) * SECOND / (last[0] - first[0])

    def measured(self, s: Statistics) -> Statistics:
        rate, (first, last) = self.rate or 0.0, (self._batches[0], self._batches[-1])
        window = self.rows if math.isinf(s.window) else min(rate * s.window, self.rows)
        return replace(
            s,
            rate=rate,
            tuples=window if s.tuples is None else min(window, s.tuples),
            distinct=float(max(self.keys or 1, 1)),
            punctuation_rate=(last[2] - first[2]) * SECOND / (last[0] - first[0]),
            scrambling=float(self.scrambling),
        )
