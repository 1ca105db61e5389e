"""Two streams of a key and a time: their join, and event times in order of arrival, some late."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow

SECOND = 1_000_000


def query(window: int = 30 * SECOND, late_share: float | None = None) -> JoinQuery:
    def side(name: str) -> StreamSpec:
        schema = pa.schema([("k", pa.int64()), (f"{name}_ts", pa.int64())])
        return StreamSpec(name, schema, f"{name}_ts", ("k",), TimeWindow(window), late_share=late_share)

    return JoinQuery((side("a"), side("b")))


def tolerant(share: float) -> JoinQuery:
    """The query with measured delays, so that about this share of the rows is late."""
    return query(5 * SECOND, share)


def arrivals(seed: int, mean: float, n: int = 30_000) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Event times in order of arrival: 100 a second, each delivered an exponential time later."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.exponential(SECOND / 100, n))
    return times[np.argsort(times + rng.exponential(mean * SECOND, n))].astype(np.int64)
