"""Streams with punctuations, named as in the literature on punctuated joins.

    cluster-asc-20       equal keys come together, about 20 of them, and a punctuation ends each cluster
    punct-asc-100-40     about every 100 tuples a punctuation; about 40 % of the tuples since the last one carry its
                         value, the others carry values that are not closed yet
    uniform-15000        keys from 0 to 14999 at random, and no punctuations

The order of the punctuated values is `asc`, `desc` or `random`. Sizes and percentages are Poisson distributed, gaps
between tuples exponential. A longer stream begins with the shorter one of the same seed. No tuple violates a
punctuation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from watersmeet.errors import QueryError
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import BatchPunctuations
from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.workload.arrivals import SECOND, Times, micros

Keys = NDArray[np.int64]

_PATTERN = re.compile(r"(?:(cluster)-(asc|desc|random)-(\d+)|(punct)-(asc|desc|random)-(\d+)-(\d+)|(uniform)-(\d+))")
GAPS, SIZES, SHARES, MATCHES, OTHERS, ORDER = range(6)  # the random streams of one stream


@dataclass(frozen=True)
class Made:
    """Tuples by arrival, and punctuations: no tuple of `closed_keys[i]` comes after `closed_at[i]`."""

    times: Times
    keys: Keys
    closed_keys: Keys
    closed_at: Times
    ends: NDArray[np.int64]  # number of tuples before each punctuation

    def batches(self, spec: StreamSpec, seconds: float, *, punctuations: bool = True) -> Iterator[Batch]:
        """The stream in batches of `seconds` of event time, with or without its punctuations."""
        last = int(max(self.times[-1:].max(initial=-1), self.closed_at[-1:].max(initial=-1)))
        cuts = np.arange(0, last + 1, micros(seconds)) + micros(seconds)
        rows, closed = np.searchsorted(self.times, cuts), np.searchsorted(self.closed_at, cuts)
        for a, b, c, d in zip([0, *rows[:-1]], rows, [0, *closed[:-1]], closed, strict=True):
            yield self._batch(spec, slice(a, b), slice(c, d) if punctuations else slice(0, 0))

    def _batch(self, spec: StreamSpec, rows: slice, closed: slice) -> Batch:
        columns = {spec.time: self.times[rows], spec.key[0]: self.keys[rows]}
        numbers = np.arange(rows.start, rows.stop)
        data = [pa.array(columns.get(f.name, numbers)).cast(f.type) for f in spec.schema]
        last_times = self.times[rows][-1:].tolist() + self.closed_at[closed][-1:].tolist()
        keys = [pa.array(self.closed_keys[closed]).cast(spec.schema.field(spec.key[0]).type)]
        punctuations = BatchPunctuations(pa.record_batch(keys, names=[spec.key[0]]), self.closed_at[closed].copy())
        tuples = pa.record_batch(data, schema=spec.schema)
        return Batch(tuples, max(last_times, default=None), punctuations=punctuations)


@dataclass(frozen=True)
class Punctuated:
    """A stream of the kind that `pattern` names; the same seed gives the same stream, whatever its length."""

    pattern: str = "punct-asc-100-40"
    seed: int = 0
    gap: float = 0.01  # mean seconds between tuples
    values: int = 15_000  # values are 0 .. values - 1; the stream ends when the last of them is closed
    irrelevant: bool = False  # the punctuations close values that no tuple has

    def __post_init__(self) -> None:
        found = _PATTERN.fullmatch(self.pattern)
        if found is None or int(found[3] or found[6] or found[9]) < 1 or int(found[7] or 0) > 100:
            raise QueryError(
                f"`pattern` is {self.pattern!r}, which names no punctuated stream.",
                hint="write cluster-asc-20, punct-random-100-40 (tuples between punctuations, per cent of them that "
                "match) or uniform-15000; orders are asc, desc and random.",
            )
        if self.gap <= 0 or self.values < 1:
            raise QueryError("`gap` must be positive, and `values` at least 1.")

    def take(self, tuples: int) -> Made:
        """The first `tuples` tuples and the punctuations between them; fewer tuples if all values close before."""
        kind, order, size, share = self._parts()
        if kind == "uniform":
            none = np.empty(0, np.int64)
            return Made(self._times(tuples), self._random(OTHERS).integers(0, size, tuples), none, none.copy(), none)
        sizes = self._random(SIZES).poisson(size, self.values)
        ends = np.cumsum(sizes)
        tuples = min(tuples, int(ends[-1]))
        segment = np.searchsorted(ends, np.arange(tuples), side="right")
        times, values = self._times(tuples), self._order(order)
        keys = values[segment if kind == "cluster" else self._places(segment, share)]
        count = int(np.searchsorted(ends, tuples, side="right"))
        before = np.concatenate([np.zeros(1, np.int64), times])  # a punctuation has the time of the tuple before it
        closed = values[:count] if not self.irrelevant else -1 - values[:count]
        return Made(times, keys, closed, before[ends[:count]], ends[:count])

    def _parts(self) -> tuple[str, str, int, int]:
        kind, *rest = self.pattern.split("-")
        if kind == "uniform":
            return kind, "", int(rest[0]), 0
        return kind, rest[0], int(rest[1]), int(rest[2]) if kind == "punct" else 100

    def _random(self, purpose: int) -> np.random.Generator:
        return np.random.Generator(np.random.Philox(np.random.SeedSequence((self.seed, purpose))))

    def _times(self, tuples: int) -> Times:
        gaps = self._random(GAPS).exponential(self.gap * SECOND, tuples)
        return np.cumsum(gaps).astype(np.int64)

    def _order(self, order: str) -> Keys:
        """The values in the order in which they are closed."""
        if order == "random":
            return self._random(ORDER).permutation(self.values)
        return np.arange(self.values)[:: 1 if order == "asc" else -1]

    def _places(self, segment: NDArray[np.int64], share: int) -> NDArray[np.int64]:
        """The position of each tuple's value in the order of closing: its own segment's, or any later one."""
        shares = self._random(SHARES).poisson(share, self.values) / 100
        matches = self._random(MATCHES).random(segment.size) < shares[segment]
        open_ = self.values - 1 - segment
        later = segment + 1 + (self._random(OTHERS).random(segment.size) * open_).astype(np.int64)
        return np.where(matches | (open_ == 0), segment, later)


def stream_spec(name: str, window: float | None, kind: pa.DataType | None = None) -> StreamSpec:
    """A stream `name` with columns key, <name>_ts and <name>_n (its tuples' numbers) and a window in seconds."""
    fields = [("key", kind or pa.int64()), (f"{name}_ts", pa.int64()), (f"{name}_n", pa.int64())]
    reach = Unbounded() if window is None else TimeWindow(micros(window))
    return StreamSpec(name, pa.schema(fields), f"{name}_ts", ("key",), reach)
