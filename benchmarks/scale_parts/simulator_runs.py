"""Batches of several sizes and numbers of shards on one core and on two, for the simulator."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import numpy as np

from benchmarks import cases, spark
from benchmarks.cases import SCALE
from benchmarks.scale_parts import event_log
from benchmarks.scale_parts.simulator import Model, PerBlob, Prediction, Sample, Size, fit, predict

CASE = "sizes"
MEASURED = ("small", "steady", "large")
#: Cores and shards of each run: those of one core fit the simulator, those of two judge it.
RUNS = ((1, 1), (1, 4), (1, 12), (2, 2), (2, 12))
QUICK_RUNS = ((1, 1), (1, 2), (2, 2))
#: Cores, each with one shard, to which it is taken.
CORES = (2, 4, 16, 64, 256, 1024)
ROWS_A_CORE = 100_000  # of a batch that grows with the cores
ALL_ROWS = 3_200_000  # of a batch that does not
FILES = 2  # source partitions of each core: one a stream


@contextmanager
def pinned(cores: int) -> Iterator[None]:
    """This thread, and the processes that it starts, on the first `cores` processors."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(before)[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def run(cores: int, shards: int, quick: bool) -> list[Sample] | str:
    """The measured batches of one run, or why there are none."""
    logs = event_log.folder(f"simulator-{cores}-{shards}")
    settings = {"spark.master": f"local[{cores}]", "spark.sql.shuffle.partitions": str(shards)}
    with pinned(cores):
        outcome = spark.run_one(cases.WATERSMEET, CASE, quick, settings=settings | event_log.settings(logs))
    if "error" in outcome:
        return str(outcome["error"])
    stages = event_log.stages(logs)
    phases = (SCALE[CASE].quick() if quick else SCALE[CASE]).phases
    samples = []
    for number, (phase, batch) in enumerate(zip(phases, outcome["batches"], strict=True)):
        mine = [s for s in stages if s.batch == number]
        packing = tuple(float(ms) for s in mine if s.shuffle_write for ms in s.runs)
        joining = tuple(float(ms) for s in mine if s.shuffle_read for ms in s.runs)
        if phase in MEASURED:
            size = Size(batch["rows"], len(packing), len(joining), cores)
            samples.append(Sample(size, float(batch["durations"]["triggerExecution"]), packing, joining))
    return samples


def judge(samples: Sequence[Sample], per_blob: PerBlob) -> dict[str, Any]:
    """The fit on one core, what it predicts for two beside what was measured, and what it predicts beyond."""
    one, two = ([s for s in samples if s.size.cores == cores] for cores in (1, 2))
    compared = []
    for size in dict.fromkeys(s.size for s in two):
        times = [s.batch_ms for s in two if s.size == size]
        predicted = predict(one, per_blob, size)
        measured = float(np.median(times))
        compared.append(
            asdict(size)
            | {"measured": measured, "measured_low": min(times), "measured_high": max(times)}
            | {"predicted": asdict(predicted), "error": predicted.median / measured - 1}
        )
    worst = max(abs(row["error"]) for row in compared)
    beyond = []
    for cores in CORES:
        for load, rows in (("grows with the cores", ROWS_A_CORE * cores), ("stays", ALL_ROWS)):
            size = Size(rows, FILES * cores, cores, cores)
            beyond.append(asdict(size) | {"load": load} | asdict(widened(predict(one, per_blob, size), worst)))
    return {
        "coefficients": fit(one, per_blob).coefficients(),
        "compared": compared,
        "worst_error": worst,
        "beyond": beyond,
        "samples": [asdict(sample) for sample in samples],
    }


def widened(predicted: Prediction, error: float) -> Prediction:
    """The range with the largest relative error that was seen at two cores added on both sides."""
    return Prediction(predicted.median, predicted.low * (1 - error), predicted.high * (1 + error))


def samples_of(found: dict[str, Any]) -> list[Sample]:
    """The samples that are stored with the results."""
    return [
        Sample(Size(**s["size"]), s["batch_ms"], tuple(s["packing_ms"]), tuple(s["joining_ms"]))
        for s in found["samples"]
    ]


def cores_to_pass(samples: Sequence[Sample], per_blob: PerBlob, rows_a_second: float, rows: int | None) -> int | None:
    """The fewest cores with which a batch of `rows` (None: so many a core) goes faster than that; None up to 1,024."""
    model = fit([s for s in samples if s.size.cores == 1], per_blob)
    for cores in range(2, max(CORES) + 1):
        size = Size(rows or ROWS_A_CORE * cores, FILES * cores, cores, cores)
        if size.rows / fitted_time(model, size) * 1000 > rows_a_second:
            return cores
    return None


def fitted_time(model: Model, size: Size) -> float:
    """Milliseconds of a batch without chance: every task takes its fitted time."""
    waves = (-(-size.partitions // size.cores), -(-size.shards // size.cores))
    return model.driver_ms(size) + waves[0] * model.packing_ms(size) + waves[1] * model.joining_ms(size)
