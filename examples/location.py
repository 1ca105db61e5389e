"""Locate a transmitter with four sensors over unreliable links, without a window.

Four sensors at the corners of a field measure the strength of a signal ten times a second. A reading carries the number
of its epoch. The links lose some readings, delay each by a different time, and are slow for minutes; the readings of
one sensor come a quarter of a minute behind. The join has to keep readings until the four of an epoch have met. No
window is known, but the epochs ascend in the long run, so the order of the keys decides what is kept:

    wm.join(nw, ne, sw, se, on="epoch", window="auto")

This file sets no window and no delay. The result is compared with that of a batch query in DuckDB. A reading that comes
further behind than any recent one may find its partners evicted; it is counted as too late.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet import testing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIELD = 100.0  # metres
SENSORS = {"nw": (0.0, FIELD), "ne": (FIELD, FIELD), "sw": (0.0, 0.0), "se": (FIELD, 0.0)}
EPOCHS = 10  # a second
LOST = 0.05  # of the readings
DETOUR = 15.0  # seconds by which the last sensor's readings are behind
BATCH = 10.0  # seconds

Floats = npt.NDArray[np.float64]
Epochs = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Field:
    """One run: its epochs and its seed."""

    epochs: int
    seed: int

    def places(self, epochs: Epochs) -> Floats:
        """Position of the transmitter: (x, y) of each epoch."""
        turn = 2 * np.pi * (epochs / EPOCHS + 40 * self.seed) / 600
        return FIELD * np.stack([0.5 + 0.35 * np.sin(5 * turn), 0.5 + 0.35 * np.cos(3 * turn)], axis=1)

    def readings(self, sensor: str) -> list[pa.Table]:
        """Readings of a sensor as they arrive, by batch."""
        number = list(SENSORS).index(sensor)
        chance = np.random.default_rng([self.seed, number])
        epochs = np.flatnonzero(chance.random(self.epochs) >= LOST)
        at = epochs / EPOCHS
        slow = 0.3 + 1.2 * np.sin(np.pi * (at / 200 + number / 4)) ** 2  # mean seconds that a reading travels
        arrives = at + np.minimum(chance.exponential(slow), 5.0) + (number == len(SENSORS) - 1) * DETOUR
        away = np.linalg.norm(self.places(epochs) - SENSORS[sensor], axis=1)
        strength = -20 * np.log10(away) + chance.normal(0, 0.1, epochs.size)
        order = np.argsort(arrives)
        arrived = pa.array((arrives * 1e6).astype(np.int64), pa.timestamp("us", "UTC"))
        rows = pa.table({"epoch": epochs, f"{sensor}_at": arrived, sensor: strength}).take(order)
        edges = np.searchsorted(arrives[order], np.arange(0, at.max() + DETOUR + 6, BATCH)).tolist()
        return [rows.slice(a, b - a) for a, b in zip(edges, [*edges[1:], epochs.size], strict=True)]


def write(field: Field, folder: Path) -> None:
    for sensor in SENSORS:
        (folder / sensor).mkdir(parents=True)
        for n, table in enumerate(field.readings(sensor)):
            path = folder / sensor / f"{n:04d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (n, n))  # files are read in this order


@dataclass(frozen=True)
class Located:
    """Epochs and positions that the join found; its counters, by batch."""

    epochs: Epochs
    places: Floats
    counters: list[dict[str, Any]]

    def error(self, field: Field) -> float:
        """Median error of the positions, in metres."""
        return float(np.median(np.linalg.norm(self.places - field.places(self.epochs), axis=1)))


def place(strengths: Floats) -> Floats:
    """(x, y) from signal strengths: least squares over the differences of the circle equations, which are linear."""
    away, at = 10 ** (-strengths / 20), np.array(list(SENSORS.values()))
    lines = 2 * (at[1:] - at[0])
    right = away[:, :1] ** 2 - away[:, 1:] ** 2 + (at[1:] ** 2).sum(axis=1) - (at[0] ** 2).sum()
    found: Floats = np.linalg.lstsq(lines, right.T, rcond=None)[0].T
    return found


def locate(spark: SparkSession, folder: Path) -> Located:
    """Join the readings as they arrive, and compute the positions."""
    streams = [
        wm.stream(
            spark.readStream.schema(f"epoch long, {s}_at timestamp, {s} double")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / s)),
            time=f"{s}_at",
            name=s,
        )
        for s in SENSORS
    ]
    ran = testing.run(wm.join(*streams, on="epoch", window="auto").df, folder / "checkpoint")
    rows = ran.table.sort_by("epoch")
    strengths = np.stack([rows.column(s).to_numpy() for s in SENSORS], axis=1)
    return Located(rows.column("epoch").to_numpy(), place(strengths), [c for c in ran.metrics if c])


def batch_answer(folder: Path) -> list[int]:
    """The epochs with all four readings, by DuckDB."""
    first, *others = (f"'{folder}/{s}/*.parquet'" for s in SENSORS)
    tables = first + "".join(f" JOIN {other} USING (epoch)" for other in others)
    with duckdb.connect() as database:
        return [epoch for (epoch,) in database.execute(f"SELECT epoch FROM {tables} ORDER BY epoch").fetchall()]


def show(spark: SparkSession, field: Field, console: Console) -> tuple[Located, list[int]]:
    """Locate, compare with DuckDB, and print the state; the result, and the epochs that DuckDB finds."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(field, folder)
        found, whole = locate(spark, folder), batch_answer(folder)
    table = Table("seconds", "readings", "results", "tuples in state", "too late", *SENSORS, title="state by batch")
    for n, counters in enumerate(found.counters):
        behind = counters["shards"][0]["scrambling"]
        shown = [counters[name] for name in ("rows_in", "results", "stored", "too_late")]
        table.add_row(*map(str, [round((n + 1) * BATCH), *shown, *behind]))
    console.print(table)
    console.print("Under a sensor's name: its measured scrambling factor, the positions a reading may come behind.")
    share = len(found.epochs) / max(1, len(whole))
    console.print(f"{len(found.epochs):,} of the {len(whole):,} epochs that DuckDB finds ({share:.2%}), ", end="")
    console.print(f"{found.error(field):.2f} m off; {sum(c['too_late'] for c in found.counters)} readings too late")
    return found, whole


def main() -> None:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=3000, help="tenths of a second (3000)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated readings (1)")
    options = parser.parse_args()
    spark = wm.session(master="local[2]")
    try:
        found, whole = show(spark, Field(options.epochs, options.seed), Console())
    finally:
        spark.stop()
    raise SystemExit(0 if set(found.epochs.tolist()) <= set(whole) else 1)


if __name__ == "__main__":
    main()
