"""One real shard of 1,024 for minutes or hours: its share of rows and state, blobs from stub partitions.

    python -m benchmarks.scale_parts.one_shard [--minutes 2] [--partitions 64] [--rows 1000]

The real processor runs without Spark (TwsTester: Spark's state calls over dictionaries). Every stub partition sends a
blob of each stream in every batch, as 1,024 shards would receive them. Prints its measurements as JSON.
"""

import argparse
import json
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.streaming.stateful_processor import TimerValues

from benchmarks.cases import DELAY_SECONDS, WINDOW_SECONDS
from benchmarks.data import SECOND, START
from lab.tws.task import Task
from watersmeet.kernels.warm_up import warm_up
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.spark.runtime.packing import Blob, blobs_of
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.row_kinds import RESULT, STATS
from watersmeet.state.durable.log import MemoryStore
from watersmeet.state.keys import encode_key
from watersmeet.state.shards import ShardKeys

SHARDS = 1024
BATCH_SECONDS = 1.0  # of event time in a batch: a window holds ten of them
WARM_UP = 30  # batches until the state has its size
POINTS = 256  # of the series, at most: it must not grow, as the memory of this process is measured

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Load:
    """What the shard gets: `rows` of each batch, of both streams, from so many partitions of each."""

    partitions: int = 64
    rows: int = 1000
    seed: int = 1


def query() -> JoinQuery:
    """The window join of the other benchmarks: narrow rows, ten seconds, a delay of two."""
    specs = []
    for name in "ab":
        schema = pa.schema([("k", pa.int64()), (f"{name}_ts", pa.timestamp("us", "UTC")), (f"{name}_v", pa.int64())])
        window = TimeWindow(WINDOW_SECONDS * SECOND)
        specs.append(StreamSpec(name, schema, f"{name}_ts", ("k",), window, DELAY_SECONDS * SECOND))
    return JoinQuery(tuple(specs))


def own_keys(shard: int, count: int) -> Ints:
    """The first `count` keys that belong to the shard."""
    mine = ShardKeys(shard, SHARDS)
    found: list[Ints] = []
    first, step = 0, 4 * SHARDS * count
    while sum(map(len, found)) < count:
        keys = np.arange(first, first + step)
        found.append(keys[mine(encode_key([pa.array(keys)], (False,)).words)])
        first += step
    return np.concatenate(found)[:count]


def frames(load: Load) -> Iterator[pd.DataFrame]:
    """The shard's blobs, batch by batch, as Spark's worker hands them over: about three partners a row."""
    rng = np.random.default_rng(load.seed)
    specs = query().streams
    a_second = load.rows / 2 / BATCH_SECONDS  # rows of a stream
    keys = own_keys(0, round(a_second * (2 * WINDOW_SECONDS + 1) / 3))
    clock = START
    while True:
        rows: list[tuple[int, int, int, int, bytes, int]] = []
        for number, spec in enumerate(specs):
            shares = np.bincount(rng.integers(0, load.partitions, load.rows // 2), minlength=load.partitions)
            for share in shares.tolist():
                times = np.sort(rng.integers(clock - SECOND // 2, clock + round(BATCH_SECONDS * SECOND), share))
                columns = [rng.choice(keys, share), times, rng.integers(0, 100_000, share)]
                arrays = [pa.array(c).cast(f.type) for c, f in zip(columns, spec.schema, strict=True)]
                some = pa.record_batch(arrays, schema=spec.schema)
                seen = int(times[-1]) if share else clock
                rows.append((0, number, seen, share, blobs_of([some])[0], int(Blob.ROWS)))
        clock += round(BATCH_SECONDS * SECOND)
        yield pd.DataFrame(rows, columns=["shard", "stream", "seen", "rows", "blob", "kind"])


def run(load: Load, seconds: float) -> dict[str, Any]:
    """Batch after batch until the time is over; the series begins when the state has its size."""
    warm_up()
    task = Task(query(), shard_ids(SHARDS, SHARDS), 0, MemoryStore(), ended=False)
    process = psutil.Process(os.getpid())
    series = Series()
    results = batches = 0
    began = time.monotonic()
    for frame in frames(load):
        wall, processor = time.perf_counter(), time.process_time()
        output = list(task.processor.handleInputRows((0,), iter([frame]), TimerValues(-1, -1)))
        wall, processor = time.perf_counter() - wall, time.process_time() - processor
        batches += 1
        kinds = [int(part.iloc[0, 0]) for part in output]
        results += sum(len(part) for part, kind in zip(output, kinds, strict=True) if kind == RESULT)
        if batches > WARM_UP:
            stats = json.loads(next(p for p, kind in zip(output, kinds, strict=True) if kind == STATS).iloc[0, 1])
            stored = task.store()
            series.add(
                {
                    "minute": (time.monotonic() - began) / 60,
                    "wall_ms": wall * 1000,
                    "cpu_ms": processor * 1000,
                    "memory_mb": process.memory_info().rss / 1e6,
                    "state_rows": stats["stored"],
                    "state_mb": stats["state_bytes"] / 1e6,
                    "store_mb": (len(stored.header or b"") + sum(map(len, stored.segments.values()))) / 1e6,
                    "segments": len(stored.segments),
                }
            )
        if time.monotonic() - began > seconds and batches >= WARM_UP + 30:
            break
    return {
        "shards": SHARDS,
        "partitions": load.partitions,
        "rows_a_batch": load.rows,
        "blobs_a_batch": 2 * load.partitions,
        "batches": batches,
        "results": results,
        "drift": {name: drift([p[name] for p in series.points]) for name in series.points[0] if name != "minute"},
        "series": [{name: round(value, 4) for name, value in point.items()} for point in series.points],
    }


def drift(values: list[float]) -> dict[str, float]:
    """The medians of the first and of the last third, and their ratio: 1 is flat."""
    third = max(len(values) // 3, 1)
    first, last = float(np.median(values[:third])), float(np.median(values[-third:]))
    return {"first": first, "last": last, "ratio": last / first if first else 1.0}


class Series:
    """Means of equal stretches of a series of unknown length; a stretch becomes longer when there are too many."""

    def __init__(self, most: int = POINTS) -> None:
        self.points: list[dict[str, float]] = []
        self.most, self.stretch = most, 1
        self._waiting: list[dict[str, float]] = []

    def add(self, point: dict[str, float]) -> None:
        self._waiting.append(point)
        if len(self._waiting) < self.stretch:
            return
        self.points.append(mean_of(self._waiting))
        self._waiting = []
        if len(self.points) == self.most:
            self.points = [mean_of(self.points[n : n + 2]) for n in range(0, self.most, 2)]
            self.stretch *= 2


def mean_of(points: list[dict[str, float]]) -> dict[str, float]:
    return {name: sum(point[name] for point in points) / len(points) for name in points[0]}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale_parts.one_shard")
    parser.add_argument("--minutes", type=float, default=2)
    parser.add_argument("--partitions", type=int, default=Load.partitions)
    parser.add_argument("--rows", type=int, default=Load.rows)
    options = parser.parse_args()
    print(json.dumps(run(Load(options.partitions, options.rows), options.minutes * 60)))


if __name__ == "__main__":
    main()
