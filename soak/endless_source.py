"""Two endless streams as a Spark source: rows, punctuations, idle phases, bursts and a hot key, all from the offset.

A batch is a second of event time. In a cycle of 60 of them: 30 steady ones, six with three times the rows, then a pause
of some seconds without input, twelve with a hot key, ten in which stream b is idle.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

SECOND = 1_000_000
START = 1_767_225_600 * SECOND
CYCLE, BURST, PAUSE, HOT, IDLE = 60, range(30, 36), 36, range(38, 50), range(50, 60)
PAUSE_SECONDS = 5.0
DISORDER = SECOND // 2
HOT_KEY, HOT_SHARE = -1, 0.002
KEY_SECONDS = 2  # how long a key is used
PARTS = 2

DDL = "k bigint, {s}_ts timestamp, {s}_v double, {s}_closing boolean, {s}_low bigint, {s}_high bigint"
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """A stream's arrivals in a batch: keys and times of its tuples, and the bound below which keys are closed."""

    keys: Ints
    times: Ints
    bound: int


def size(stream: str, batch: int, rows: int) -> int:
    at = batch % CYCLE
    if stream == "b" and at in IDLE:
        return 0
    return rows * 3 if at in BURST else rows


def made(stream: str, batch: int, rows: int, part: int | None = None) -> Rows:
    """The rows of a batch, or of one partition of it. Keys ascend with time, a quarter as many a second as rows."""
    per_second = rows // 4
    keys, times = [], []
    for p in range(PARTS) if part is None else (part,):
        n = size(stream, batch, rows) // PARTS
        rng = np.random.default_rng([ord(stream), batch, p])
        clock = batch * SECOND + np.sort(rng.integers(0, SECOND, n))
        ts = np.maximum(clock - rng.integers(0, DISORDER, n), 0)
        key = ts * per_second // SECOND + rng.integers(0, KEY_SECONDS * per_second, n)
        if batch % CYCLE in HOT:
            key[rng.random(n) < HOT_SHARE] = HOT_KEY
        keys.append(key)
        times.append(ts)
    return Rows(np.concatenate(keys), np.concatenate(times), max(0, (batch * SECOND - DISORDER) * per_second // SECOND))


@dataclass(frozen=True)
class Piece(InputPartition):
    batch: int
    part: int


@dataclass
class Reader(DataSourceStreamReader):
    """One batch more as soon as the last one is taken, except in pauses.

    Both streams resume in the same batch after a pause: Spark calls them in turn, and the first one called writes a
    file to `signals` when the pause is over. With separate clocks one of them would stay a batch ahead.
    """

    stream: str
    rows: int
    signals: Path
    _paused: dict[int, float] = field(default_factory=dict)

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's names
        return {"batch": 0}

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802
        batch = start["batch"]
        if batch % CYCLE == PAUSE and not self._over(batch):
            return start
        return {"batch": batch + 1}

    def _over(self, batch: int) -> bool:
        first, over = self.signals / f"{batch}-first", self.signals / f"{batch}-over"
        with suppress(FileExistsError), first.open("x") as file:
            file.write(self.stream)
            self._paused[batch] = time.monotonic()
        if batch in self._paused and time.monotonic() > self._paused[batch] + PAUSE_SECONDS:
            over.touch()
        return over.exists()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Piece]:
        return [Piece(batch, part) for batch in range(start["batch"], end["batch"]) for part in range(PARTS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece), "partitions of this source are pieces"
        rows = made(self.stream, partition.batch, self.rows, partition.part)
        if not rows.keys.size:
            return
        n, s = rows.keys.size, self.stream
        none, closes = pa.nulls(n, pa.int64()), rows.bound > 0 and partition.part == 0
        columns = [pa.array(rows.keys), _time(rows.times), pa.array(rows.keys / 4), pa.repeat(False, n), none, none]
        names = ["k", f"{s}_ts", f"{s}_v", f"{s}_closing", f"{s}_low", f"{s}_high"]
        yield pa.record_batch(columns, names)
        if closes:
            at = _time(np.array([partition.batch * SECOND - DISORDER]))
            yield pa.record_batch(
                [pa.nulls(1, pa.int64()), at, pa.nulls(1, pa.float64()), [True], [0], [rows.bound - 1]], names
            )


def _time(micros: Ints) -> pa.Array:
    return pa.array(micros + START, pa.timestamp("us", "UTC"))


class EndlessSource(DataSource):
    """The format `endless`; options `stream` ("a" or "b"), `rows` (of a steady batch), `signals` (a folder)."""

    @classmethod
    def name(cls) -> str:
        return "endless"

    def schema(self) -> str:
        return DDL.format(s=self.options["stream"])

    def streamReader(self, schema: object) -> Reader:  # noqa: N802
        return Reader(self.options["stream"], int(self.options["rows"]), Path(self.options["signals"]))
