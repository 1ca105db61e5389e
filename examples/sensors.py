"""Locate a walker with three or four sensors: the readings of one epoch are joined.

Four sensors stand at the corners of a field. Once per second (an epoch) each measures its distance to a walker.
Readings are noisy, some get lost, and they travel for up to three seconds, so they arrive out of order. Three distances
give a position, a fourth improves it:

    wm.join(north_west, north_east, south_west, on="epoch")                 three streams, one operator
    wm.join(north_west, north_east, south_west, south_east, on="epoch")     four

Each sensor's epochs ascend, up to the three seconds: wm.ordered("epoch", slack=3). With this constraint, an epoch with
a lost reading is closed as soon as the reading cannot come any more; without it, its readings stay until their windows
have passed. All joins must have the result of a batch query in DuckDB.
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
from matplotlib import rc_context
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet import testing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "sensors.svg"
SECOND = 1_000_000
FIELD = 100.0  # metres
SENSORS = {"nw": (0.0, FIELD), "ne": (FIELD, FIELD), "sw": (0.0, 0.0), "se": (FIELD, 0.0)}
TRAVEL, WINDOW = 3, 300  # seconds: the longest time that a reading travels, and that it is kept
NOISE, LOST, BATCH = 1.0, 0.15, 60  # metres; share of the readings; epochs in a batch

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Walk:
    """One run: its epochs and its seed."""

    epochs: int
    seed: int

    def places(self, epochs: npt.NDArray[np.int64]) -> Floats:
        """Position of the walker: (x, y) of each epoch."""
        turn = 2 * np.pi * (epochs + 100 * self.seed) / 600
        return FIELD * np.stack([0.5 + 0.4 * np.sin(3 * turn), 0.5 + 0.4 * np.sin(4 * turn)], axis=1)

    def readings(self, sensor: str) -> list[pa.Table]:
        """Readings of a sensor as they arrive, by batch."""
        chance = np.random.default_rng([self.seed, list(SENSORS).index(sensor)])
        epochs = np.flatnonzero(chance.random(self.epochs) >= LOST)
        away = np.linalg.norm(self.places(epochs) - SENSORS[sensor], axis=1)
        measured = away + chance.normal(0, NOISE, epochs.size)
        at = epochs * SECOND + chance.integers(0, SECOND, epochs.size)
        arrives = at + chance.integers(0, (TRAVEL - 1) * SECOND, epochs.size)
        rows = pa.table({"epoch": epochs, f"{sensor}_at": pa.array(at, pa.timestamp("us", "UTC")), sensor: measured})
        batch = arrives // (BATCH * SECOND)
        return [rows.filter(pa.array(batch == n)).take(np.argsort(arrives[batch == n])) for n in range(batch.max() + 1)]


def write(walk: Walk, folder: Path) -> None:
    for sensor in SENSORS:
        (folder / sensor).mkdir(parents=True)
        for n, table in enumerate(walk.readings(sensor)):
            path = folder / sensor / f"{n:04d}.parquet"
            pq.write_table(table, path)
            os.utime(path, (n, n))  # files are read in this order


@dataclass(frozen=True)
class Located:
    """Epochs and positions that a join found, and its largest state in tuples."""

    name: str
    sensors: tuple[str, ...]
    epochs: npt.NDArray[np.int64]
    places: Floats
    most_stored: int

    def error(self, walk: Walk) -> float:
        """Root mean square error of the positions, in metres."""
        off = self.places - walk.places(self.epochs)
        return float(np.sqrt((off**2).sum(axis=1).mean()))


def place(sensors: tuple[str, ...], ranges: Floats) -> Floats:
    """(x, y) from distances: least squares over the differences of the circle equations, which are linear."""
    at = np.array([SENSORS[s] for s in sensors])
    lines = 2 * (at[1:] - at[0])
    right = ranges[:, :1] ** 2 - ranges[:, 1:] ** 2 + (at[1:] ** 2).sum(axis=1) - (at[0] ** 2).sum()
    found: Floats = np.linalg.lstsq(lines, right.T, rcond=None)[0].T
    return found


def locate(spark: SparkSession, folder: Path, name: str, sensors: tuple[str, ...], *, ordered: bool) -> Located:
    """Join the readings of some sensors, batch by batch, and compute the positions."""
    constraint = wm.ordered("epoch", slack=TRAVEL) if ordered else None
    streams = [
        wm.stream(
            spark.readStream.schema(f"epoch long, {s}_at timestamp, {s} double")
            .option("maxFilesPerTrigger", 1)
            .parquet(str(folder / s)),
            time=f"{s}_at",
            window=f"{WINDOW} seconds",
            delay=f"{TRAVEL} seconds",
            punctuation=constraint,
            name=s,
        )
        for s in sensors
    ]
    ran = testing.run(wm.join(*streams, on="epoch").df, folder / name)
    rows = ran.table.sort_by("epoch")
    ranges = np.stack([rows.column(s).to_numpy() for s in sensors], axis=1)
    most = max(c["stored"] for c in ran.metrics if c)
    return Located(name, sensors, rows.column("epoch").to_numpy(), place(sensors, ranges), most)


def batch_answer(folder: Path, sensors: tuple[str, ...]) -> list[int]:
    """The epochs that DuckDB finds, with the windows as predicates."""
    tables = " JOIN ".join(f"(SELECT * FROM '{folder}/{s}/*.parquet') {s} USING (epoch)" for s in sensors)
    times = [f"{s}_at" for s in sensors]
    inside = " AND ".join(f"{t} >= greatest({', '.join(times)}) - INTERVAL {WINDOW} SECONDS" for t in times)
    tables = tables.replace(f"{sensors[0]} USING (epoch)", sensors[0])
    with duckdb.connect() as database:
        found = database.execute(f"SELECT epoch FROM {tables} WHERE {inside} ORDER BY epoch").fetchall()
    return [epoch for (epoch,) in found]


def draw(walk: Walk, found: list[Located], path: Path) -> None:
    """The walk, and the positions found by three and by four sensors."""
    style = {"svg.hashsalt": "watersmeet", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
    true = walk.places(np.arange(walk.epochs))
    with rc_context(style):
        figure = Figure(figsize=(4.2 * len(found), 4.4), layout="constrained")
        panels = np.atleast_1d(figure.subplots(1, len(found), sharey=True))
        for axes, one in zip(panels, found, strict=True):
            axes.plot(*true.T, color="#9ca3af", linewidth=1)
            axes.plot(*one.places.T, ".", color="#c2410c", markersize=2.5)
            axes.plot(*np.array([SENSORS[s] for s in one.sensors]).T, "^", color="#1e3a5f", markersize=8)
            axes.set_aspect("equal")
            title = f"{one.name}: {one.epochs.size:,} of {walk.epochs:,} epochs, {one.error(walk):.2f} m off"
            axes.set_title(title, loc="left", fontweight="bold")
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def show(spark: SparkSession, walk: Walk, out: Path, console: Console) -> tuple[list[Located], int]:
    """Locate by three and by four sensors, compare with DuckDB, draw the walk; the results, and how many differ."""
    three, four = tuple(SENSORS)[:3], tuple(SENSORS)
    found, different = [], 0
    table = Table("sensors", "epochs located", "DuckDB", "metres off", "tuples in state, at most", title="the walker")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(walk, folder)
        for label, sensors, ordered in (
            ("three", three, True),
            ("four", four, True),
            ("four, windows alone", four, False),
        ):
            one = locate(spark, folder, label, sensors, ordered=ordered)
            want = batch_answer(folder, sensors)
            different += one.epochs.tolist() != want
            numbers: list[Any] = [f"{one.epochs.size:,}", f"{len(want):,}", f"{one.error(walk):.2f}", one.most_stored]
            table.add_row(label, *map(str, numbers))
            found.append(one)
    console.print(table)
    console.print("exact: the same epochs by all" if not different else f"NOT exact: {different} results differ")
    draw(walk, found[:2], out)
    console.print(f"The walk is drawn in {out}.")
    return found, different


def main() -> None:
    summary, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--epochs", type=int, default=600, help="seconds of the walk (600)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated walk (1)")
    parser.add_argument("--out", type=Path, default=PICTURE, help="the picture, .svg or .png (%(default)s)")
    options = parser.parse_args()
    spark = wm.session(master="local[2]")
    try:
        _, different = show(spark, Walk(options.epochs, options.seed), options.out, Console())
    finally:
        spark.stop()
    raise SystemExit(1 if different else 0)


if __name__ == "__main__":
    main()
