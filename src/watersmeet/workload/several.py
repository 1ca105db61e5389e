"""Streams over the same keys, with given rates, windows and numbers of keys: the load of the multi-way joins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.workload.arrivals import Columns, generator, micros, poisson_arrivals
from watersmeet.workload.punctuated_streams import stream_spec

NAMES = "abcdefgh"


@dataclass(frozen=True)
class Several:
    """Poisson arrivals at `rates` (tuples per second); keys of stream i at random from 0 to distinct[i] - 1.

    The keys of a stream with fewer keys are among those of a stream with more. Windows are in seconds.
    """

    rates: tuple[float, ...]
    windows: tuple[float, ...]
    distinct: tuple[int, ...]
    seed: int = 0

    def __post_init__(self) -> None:
        if not len(self.rates) == len(self.windows) == len(self.distinct) <= len(NAMES):
            raise QueryError(
                f"`rates`, `windows` and `distinct` have {len(self.rates)}, {len(self.windows)} and "
                f"{len(self.distinct)} entries; each stream has one of each, and there are at most {len(NAMES)}."
            )
        if min(self.rates) <= 0 or min(self.windows) < 0 or min(self.distinct) < 1:
            raise QueryError("`rates` must be positive, `windows` not negative, `distinct` at least 1.")

    def scaled(self, factor: int) -> Several:
        """The streams with `factor` times the tuples and the keys: as many tuples of a key in a window as before."""
        return replace(
            self, rates=tuple(r * factor for r in self.rates), distinct=tuple(v * factor for v in self.distinct)
        )

    @property
    def query(self) -> JoinQuery:
        """The join of all streams on `key`."""
        return JoinQuery(tuple(stream_spec(name, w) for name, w in zip(NAMES, self.windows, strict=False)))

    def rows(self, i: int, seconds: float) -> Columns:
        """Stream i's tuples of the first `seconds`: `key` and `ts` (microseconds), by time."""
        times = poisson_arrivals(self.rates[i], 0, micros(seconds), seed=self.seed, stream=2 * i)
        keys = generator(self.seed, 2 * i + 1, 0).integers(0, self.distinct[i], times.size)
        return {"key": keys, "ts": times}

    def steps(self, seconds: float, batch: float) -> Iterator[list[Batch]]:
        """The streams in batches of `batch` seconds; after a batch, the newest event time of each stream is its end."""
        specs = self.query.streams
        made = [self.rows(i, seconds) for i in range(len(specs))]
        edges = np.arange(0, micros(seconds), micros(batch)) + micros(batch)
        cuts = [np.concatenate([[0], np.searchsorted(m["ts"], edges)]) for m in made]
        for n, edge in enumerate(edges.tolist()):
            batches = []
            for spec, m, at in zip(specs, made, cuts, strict=True):
                some = slice(int(at[n]), int(at[n + 1]))
                numbers = np.arange(some.start, some.stop)
                rows = pa.record_batch([m["key"][some], m["ts"][some], numbers], schema=spec.schema)
                batches.append(Batch(rows, edge - 1))
            yield batches
