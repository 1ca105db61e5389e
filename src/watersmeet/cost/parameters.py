"""The input of the cost models: statistics of each stream, and how the join is run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from watersmeet.errors import QueryError
from watersmeet.model.asof import AsOf

#: One bucket per key, the default: an index in which a probe meets tuples of its own key only.
PER_KEY = math.inf
#: One bucket: no index, every probe scans the window.
SCAN = 1.0

#: Bytes of a key in the value lists, in addition to its tuples.
KEY_BYTES = 48

Order = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics of one stream; times in seconds, rates in 1/s of event time."""

    name: str
    rate: float  # tuples
    window: float = math.inf
    distinct: float = 1.0  # keys among the tuples of the window
    delay: float = 0.0
    wait: float = 0.0  # of an interval join: seconds before a tuple can match; negative: its partners are older
    punctuation_rate: float = 0.0  # keys closed
    row_bytes: float = 100.0  # of a stored tuple, its share of the lists included
    buckets: float = PER_KEY  # of the index on the window; `SCAN` without one
    tuples: float | None = None  # in the window, if not rate * window: a window of rows, or measured
    keys_seen: float | None = None  # distinct keys since the start
    set_size: float = 0.0  # closed keys in its punctuation set
    stay: float | None = None  # measured seconds that a tuple is stored, if others close keys
    hottest: float = 0.0  # share of its tuples with the most frequent key
    scrambling: float = 0.0  # positions by which a tuple may be behind its position in sorted order
    multiplicity: float = 1.0  # tuples with one key, at most

    def __post_init__(self) -> None:
        for field, least in (("rate", 0), ("window", 0), ("distinct", 1), ("delay", 0), ("buckets", 1)):
            value = getattr(self, field)
            if not value >= least:
                raise QueryError(
                    f"`{field}` of stream `{self.name}` is {value:g}; a cost is defined for {least} and more.",
                    hint="measured ones come from state.statistics; given ones are numbers of seconds and tuples.",
                )

    @property
    def window_tuples(self) -> float:
        """C = rate * window, or `tuples` if it is set."""
        if self.tuples is not None:
            return self.tuples
        if math.isinf(self.window):
            raise QueryError(
                f"stream `{self.name}` has no window; how many tuples it holds does not follow from its rate.",
                hint="give `tuples`, or estimate at a finite time: `Parameters.after(seconds)`.",
            )
        return self.rate * self.window

    @property
    def indexed(self) -> bool:
        return self.buckets > SCAN


@dataclass(frozen=True, slots=True)
class Parameters:
    """Streams that are joined, and how: intervals in seconds, orders as positions in `streams`.

    `orders[i]` is the order in which an arrival of stream i meets the others (for `naive_multiway` and `general_lazy`
    it contains i, too); None: the order of `streams`.
    """

    streams: tuple[Statistics, ...]
    orders: tuple[Order, ...] | None = None
    interval: float = 0.0  # between two evaluations: a micro-batch; 0: each arrival at once
    expiration: float = 0.0  # between two removals of expired tuples
    elapsed: float = math.inf  # since the start
    invalidation: str = "probe_insert"  # of a windowed hash join
    lags: tuple[tuple[float, ...], ...] | None = None  # lags[i][j]: tuples of i that are ahead of j
    asof: AsOf | None = None  # of an as-of join

    def __post_init__(self) -> None:
        if len(self.streams) < 2:
            raise QueryError(f"a join needs at least two streams; {len(self.streams)} given.")

    def indexed(self, buckets: Sequence[float]) -> Parameters:
        """The same with these numbers of buckets."""
        changed = [replace(s, buckets=b) for s, b in zip(self.streams, buckets, strict=True)]
        return replace(self, streams=tuple(changed))

    def after(self, seconds: float) -> Parameters:
        """The same at this time after the start: a window holds no more than has arrived by then."""
        bounded = [replace(s, window=min(s.window, seconds)) for s in self.streams]
        return replace(self, streams=tuple(bounded), elapsed=seconds)

    def others(self, i: int) -> tuple[Statistics, ...]:
        return self.streams[:i] + self.streams[i + 1 :]
