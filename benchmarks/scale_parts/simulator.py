"""A simulator of a batch on many cores, fitted on measured batches of one core.

A batch is the driver's work, then the tasks that pack, one a source partition, then the tasks that join, one a shard:

    driver   d0 + d1 (partitions + shards)                    one after the other
    packing  p0 + p1 rows/partitions + p2 shards              each on the next free core
    joining  j0 + j1 rows/shards + j2 partitions              likewise, when all have packed

in milliseconds. p2 and j2, the work on one more blob, are measured by themselves (`all_to_all`). The others are least
squares over all batches. A simulated task takes the fitted time, times the ratio of measured to fitted time of a
task drawn from the measured ones: so some are late. A prediction is drawn many times, each time fitted on batches drawn
from the measured ones; its range has nine in ten of the draws.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from heapq import heapify, heapreplace
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Size:
    """What a batch is made of, and the cores that it has."""

    rows: int
    partitions: int
    shards: int
    cores: int

    @property
    def tasks(self) -> int:
        return self.partitions + self.shards


@dataclass(frozen=True)
class Sample:
    """A measured batch: its wall time and the times of its tasks, in milliseconds."""

    size: Size
    batch_ms: float
    packing_ms: tuple[float, ...]
    joining_ms: tuple[float, ...]

    @property
    def driver_ms(self) -> float:
        """What is left of a batch on one core: the driver's own work, and what lies between tasks."""
        return max(self.batch_ms - sum(self.packing_ms) - sum(self.joining_ms), 0.0)


@dataclass(frozen=True)
class PerBlob:
    """Milliseconds of a packing task for each shard, and of a joining task for each source partition."""

    packing: float
    joining: float


@dataclass(frozen=True)
class Model:
    """The fitted coefficients, and the ratios of measured to fitted times of tasks and of the driver."""

    driver: tuple[float, float]
    packing: tuple[float, float]
    joining: tuple[float, float]
    per_blob: PerBlob
    packing_ratios: Floats
    joining_ratios: Floats
    driver_ratios: Floats

    def coefficients(self) -> dict[str, Any]:
        blob = asdict(self.per_blob)
        return {"driver": self.driver, "packing": self.packing, "joining": self.joining, "per_blob": blob}

    def driver_ms(self, size: Size) -> float:
        return self.driver[0] + self.driver[1] * size.tasks

    def packing_ms(self, size: Size) -> float:
        return self.packing[0] + self.packing[1] * size.rows / size.partitions + self.per_blob.packing * size.shards

    def joining_ms(self, size: Size) -> float:
        return self.joining[0] + self.joining[1] * size.rows / size.shards + self.per_blob.joining * size.partitions

    def simulate(self, size: Size, chance: np.random.Generator) -> float:
        """The milliseconds of one batch."""
        packing = self.packing_ms(size) * chance.choice(self.packing_ratios, size.partitions)
        joining = self.joining_ms(size) * chance.choice(self.joining_ratios, size.shards)
        driver = self.driver_ms(size) * float(chance.choice(self.driver_ratios))
        return driver + makespan(packing, size.cores) + makespan(joining, size.cores)


@dataclass(frozen=True)
class Prediction:
    """Milliseconds of a batch: the median of the draws, and the range of nine in ten."""

    median: float
    low: float
    high: float


def makespan(tasks: Floats | Sequence[float], cores: int) -> float:
    """The time until all tasks are done, each in its turn on the next free core."""
    free = [0.0] * min(cores, len(tasks))
    heapify(free)
    for task in tasks:
        heapreplace(free, free[0] + float(task))
    return max(free, default=0.0)


def fit(samples: Sequence[Sample], per_blob: PerBlob) -> Model:
    """The model of batches that were measured on one core."""
    assert all(sample.size.cores == 1 for sample in samples), (
        "with more cores the driver's part is not what tasks leave"
    )
    packing = [(s.size, ms) for s in samples for ms in s.packing_ms]
    joining = [(s.size, ms) for s in samples for ms in s.joining_ms]
    model = Model(
        _line([s.size.tasks for s in samples], [s.driver_ms for s in samples]),
        _line([z.rows / z.partitions for z, _ in packing], [ms - per_blob.packing * z.shards for z, ms in packing]),
        _line([z.rows / z.shards for z, _ in joining], [ms - per_blob.joining * z.partitions for z, ms in joining]),
        per_blob,
        *(np.ones(1) for _ in range(3)),
    )
    ratios = (
        np.array([ms / model.packing_ms(z) for z, ms in packing]),
        np.array([ms / model.joining_ms(z) for z, ms in joining]),
        np.array([s.driver_ms / model.driver_ms(s.size) for s in samples]),
    )
    return Model(model.driver, model.packing, model.joining, per_blob, *(r / r.mean() for r in ratios))


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Intercept and slope by least squares of the relative errors; neither is negative."""
    xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
    weights = 1 / np.maximum(ys, 1.0)
    design = np.column_stack([weights, xs * weights])
    best = np.linalg.lstsq(design, ys * weights, rcond=None)[0]
    if best[0] < 0:
        best = np.array([0.0, (xs * ys * weights**2).sum() / (xs * xs * weights**2).sum()])
    if best[1] < 0:
        best = np.array([(ys * weights**2).sum() / (weights**2).sum(), 0.0])
    return float(best[0]), float(best[1])


def predict(samples: Sequence[Sample], per_blob: PerBlob, size: Size, draws: int = 200, seed: int = 1) -> Prediction:
    """A batch of this size, by many fits on batches drawn from the samples of each of their sizes."""
    chance = np.random.default_rng(seed)
    groups: dict[Size, list[Sample]] = {}
    for sample in samples:
        groups.setdefault(sample.size, []).append(sample)
    found = []
    for _ in range(draws):
        drawn = [group[n] for group in groups.values() for n in chance.integers(0, len(group), len(group))]
        found.append(fit(drawn, per_blob).simulate(size, chance))
    low, median, high = np.percentile(found, [5, 50, 95])
    return Prediction(float(median), float(low), float(high))
