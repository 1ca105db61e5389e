"""Two streams whose keys move on: the basic load of the benchmarks.

At time t a key is drawn uniformly from [v t, v t + width). The range passes over a key within `lifetime` seconds. In
that time each stream has the key rate / v times; v is chosen so that this is `partners`. So with any window of at
least `lifetime` a row has about `partners` partners; with a smaller window it has fewer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from watersmeet.errors import QueryError
from watersmeet.workload.arrivals import SECOND, Columns, Times, delivered, generator, micros

Side = Literal["left", "right"]
SIDES: tuple[Side, Side] = ("left", "right")

NO_ROWS: Columns = {name: np.empty(0, np.int64) for name in ("key", "ts", "value")}


@dataclass(frozen=True)
class Drifting:
    """Evenly spaced rows `key`, `ts` (microseconds), `value` (int64 each); a seed fixes them for any intervals."""

    rate: float = 100_000.0  # rows per second of event time, on each stream
    seed: int = 0
    partners: float = 4.0  # rows of the other stream that a row meets
    lifetime: float = 5.0  # seconds for which a key is in use
    dense: int = 0  # > 0: keys are always 0 .. dense - 1, so each row meets (its window in rows) / dense
    batch_seconds: float = 1.0  # event time covered by one batch

    def __post_init__(self) -> None:
        if min(self.rate, self.partners, self.lifetime, self.batch_seconds) <= 0 or self.dense < 0:
            raise QueryError("`rate`, `partners`, `lifetime` and `batch_seconds` must be positive, `dense` at least 0.")

    def batch(self, side: Side, number: int) -> Columns:
        """The rows of batch `number`, counted from 0; batches follow each other without gaps."""
        return self.rows(side, micros(number * self.batch_seconds), micros((number + 1) * self.batch_seconds))

    def rows(self, side: Side, start: int, end: int) -> Columns:
        """The rows with start <= ts < end (microseconds), in order of time."""
        return delivered(lambda second: self._rows_of(side, second), start, end, 0, NO_ROWS)

    def left(self, start: int, end: int) -> Columns:
        return self.rows("left", start, end)

    def right(self, start: int, end: int) -> Columns:
        return self.rows("right", start, end)

    def _rows_of(self, side: Side, second: int) -> tuple[Times, Columns]:
        rng = generator(self.seed, SIDES.index(side), second)
        count = int(self.rate * (second + 1)) - int(self.rate * second)
        # One row in each of `count` equal slots: already in order of time.
        ts = second * SECOND + ((np.arange(count) + rng.random(count)) * (SECOND / max(count, 1))).astype(np.int64)
        if self.dense:
            key = rng.integers(0, self.dense, count)
        else:
            speed = self.rate / self.partners
            key = (ts * (speed / SECOND) + rng.random(count) * (speed * self.lifetime)).astype(np.int64)
        return ts, {"key": key, "ts": ts, "value": rng.integers(0, 1_000_000, count)}
