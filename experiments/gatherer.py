"""The statistics gatherer: state and output of a join, at every sampling step of stream time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.joins.base import RunningJoin
from watersmeet.model.batches import Batch
from watersmeet.model.counters import Counters
from watersmeet.state.durable import log

#: Counters that a sample sums up over all batches so far.
SUMMED = ("rows_in", "results", "propagated", "probed", "checked", "inserted", "expired", "purged", "too_late")


@dataclass
class Gatherer:
    """Samples of a running join, one per `step` microseconds of stream time: columns of equal length.

    A sample is taken after the first batch that ends at or after a multiple of the step, and is filed under that
    multiple. `stored` has a list per stream; `cpu` are seconds of the join's own work so far.
    """

    step: int
    at: list[float] = field(default_factory=list)  # seconds of stream time
    stored: list[list[int]] = field(default_factory=list)
    totals: dict[str, list[int]] = field(default_factory=lambda: {name: [] for name in SUMMED})
    cpu: list[float] = field(default_factory=list)
    _sums: dict[str, int] = field(default_factory=lambda: dict.fromkeys(SUMMED, 0))
    _seconds: float = 0.0
    _due: int | None = None

    def after(self, now: int, counters: Counters, stored: Sequence[int], seconds: float) -> None:
        """Add a batch that ended at `now`."""
        for name in SUMMED:
            self._sums[name] += getattr(counters, name)
        self._seconds += seconds
        if self._due is None:
            self.stored = [[] for _ in stored]
            self._due = self.step
        if now < self._due:
            return
        reached = now - now % self.step
        self.at.append(reached / 1e6)
        for mine, size in zip(self.stored, stored, strict=True):
            mine.append(int(size))
        for name in SUMMED:
            self.totals[name].append(self._sums[name])
        self.cpu.append(self._seconds)
        self._due = reached + self.step

    @property
    def sums(self) -> dict[str, int]:
        """Counters of all batches, those after the last sample included."""
        return dict(self._sums)

    def since_first(self) -> tuple[float, dict[str, int]]:
        """CPU seconds and counters of all batches after the first sample; the batches before it fill the windows."""
        return self._seconds - self.cpu[0], {name: self._sums[name] - self.totals[name][0] for name in SUMMED}

    @property
    def seconds(self) -> float:
        return self._seconds

    @property
    def tuples(self) -> list[int]:
        """Tuples in all states, at each sample."""
        return [sum(sizes) for sizes in zip(*self.stored, strict=True)]


def follow(
    join: RunningJoin[Any],
    steps: Iterable[Sequence[Batch]],
    *,
    batch: float,
    sample: float,
    see: Callable[[int, pa.Table], None] | None = None,
    first: Callable[[], None] | None = None,
) -> Gatherer:
    """Hand a join its batches, each of `batch` seconds of stream time, one after the other, to the end of its input.

    The next batch is always there, so the CPU seconds that the gatherer sums are those of a join whose input is never
    drained; read against stream time, the same run is one whose input is what there is. Time is the process's CPU time
    in the join itself; that of the log, which settles each batch, is not in it. `see` is shown the results, each table
    with its batch's number; `first` is called after the first sample.
    """
    gatherer = Gatherer(round(sample * 1e6))
    store, header = log.MemoryStore(), log.begin(join.query)
    for number, batches in enumerate(steps):
        seconds, results = 0.0, join.step(batches)
        while True:
            began = time.process_time()
            table = next(results, None)
            seconds += time.process_time() - began
            if table is None:
                break
            if see is not None:
                see(number, table)
        streams = join.streams[: len(join.query.streams)]
        gatherer.after(round((number + 1) * batch * 1e6), join.counters, [len(s) for s in streams], seconds)
        header = log.commit(join, header, store)
        if first is not None and gatherer.at:
            first()
            first = None
    return gatherer
