"""The streams of a case as Parquet files, two files per stream and micro-batch, generated once.

Rows arrive in the order of a clock; their event time, in whole milliseconds, is up to half a second before it, well
inside the delay of two seconds, so no contender meets a late row. Payloads are amounts in cents. The number of results
is counted here as well, from the definition of the join and by another way than any contender's: each must reach it.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from benchmarks.cases import WINDOW_SECONDS, Case

FILES_PER_BATCH = 2  # of a stream, so that both cores have something to read
DISORDER_SECONDS = 0.5
SECOND = 1_000_000
MAX_TIME = 1 << 31  # microseconds; a case lasts less than 35 minutes of event time
START = int(datetime(2026, 1, 1, tzinfo=UTC).timestamp()) * SECOND
SCRATCH = Path(__file__).parent.parent / ".bench"

NARROW = {s: f"k BIGINT, {s}_ts TIMESTAMP, {s}_v {'BIGINT' if s == 'a' else 'DOUBLE'}" for s in "abcd"}
WIDE = "k STRING, {s}_ts TIMESTAMP, " + ", ".join(
    f"{{s}}_{name} {kind}"
    for name, kind in {
        "long": "BIGINT",
        "int": "INT",
        "double": "DOUBLE",
        "float": "FLOAT",
        "flag": "BOOLEAN",
        "day": "DATE",
        "seen": "TIMESTAMP",
        "price": "DECIMAL(12,2)",
        "word": "STRING",
        "text": "STRING",
    }.items()
)

Ints = NDArray[np.int64]


def scratch(name: str) -> Path:
    """A folder for files that can be generated again; git ignores it."""
    folder = SCRATCH / name
    folder.mkdir(parents=True, exist_ok=True)
    (SCRATCH / ".gitignore").write_text("*\n")
    return folder


def schema(case: Case, stream: str) -> str:
    """The columns of a stream's files, as Spark writes them."""
    return WIDE.format(s=stream) if case.wide else NARROW[stream]


def make(case: Case) -> Path:
    """The folder with the case's files (`a/`, `b/`, …, `results.json`), generated unless it exists."""
    what = (case.stretches, case.keys, case.drift, case.wide, *(case.streams if case.streams != "ab" else ()))
    mark = hashlib.sha256(repr(what).encode()).hexdigest()[:12]
    folder = scratch("data") / f"{case.name}-{mark}"
    if folder.exists():
        return folder
    unfinished = folder.with_suffix(".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    seen = [_write(case, stream, unfinished / stream, seed) for seed, stream in enumerate(case.streams)]
    (unfinished / "results.json").write_text(json.dumps({"results": count_results(seen)}))
    unfinished.rename(folder)
    return folder


def expected_results(folder: Path) -> int:
    return int(json.loads((folder / "results.json").read_text())["results"])


def count_results(streams: Sequence[tuple[Ints, Ints]]) -> int:
    """Combinations of equal key, a row of each stream, none more than a window before the newest.

    From the newest one, of ties that of the latest stream: in each other stream, sorted by (key, time), its partners
    are a range.
    """
    window = WINDOW_SECONDS * SECOND
    shift = 2 * window  # keeps the ends of every range inside its own key
    rows = [np.sort(keys * MAX_TIME + times + shift) for keys, times in streams]
    total = 0
    for i, newest in enumerate(rows):
        combinations = np.ones(newest.size, np.int64)
        for j, others in enumerate(rows):
            if j != i:
                ends = np.searchsorted(others, newest, side="right" if j < i else "left")
                combinations *= ends - np.searchsorted(others, newest - window, side="left")
        total += int(combinations.sum())
    return total


def _write(case: Case, stream: str, folder: Path, seed: int) -> tuple[Ints, Ints]:
    """Write one stream; returns the keys and times (microseconds since the start) of all its rows."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    clock, batch = DISORDER_SECONDS, 0
    all_keys, all_times = [], []
    for stretch in case.stretches:
        for _ in range(stretch.batches):
            arrivals = np.sort(rng.uniform(clock, clock + stretch.seconds, stretch.rows // len(case.streams)))
            times = ((arrivals - rng.uniform(0, DISORDER_SECONDS, arrivals.size)) * 1000).astype(np.int64) * 1000
            keys = (arrivals * case.drift).astype(np.int64) + rng.integers(0, case.keys, arrivals.size)
            table = pa.table({"k": _key(keys, case.wide), f"{stream}_ts": _timestamps(times)})
            payload = _mixed(rng, times.size) if case.wide else _number(rng, stream, times.size)
            for name, column in payload.items():
                table = table.append_column(f"{stream}_{name}", column)
            for part in range(FILES_PER_BATCH):
                write_file(table.take(np.arange(part, times.size, FILES_PER_BATCH)), folder, batch, part)
            all_keys.append(keys)
            all_times.append(times)
            clock, batch = clock + stretch.seconds, batch + 1
    assert clock * SECOND + 4 * WINDOW_SECONDS * SECOND < MAX_TIME, "count_results puts key and time into one integer"
    return np.concatenate(all_keys), np.concatenate(all_times)


def write_file(table: pa.Table, folder: Path, batch: int, part: int) -> None:
    path = folder / f"{batch:04d}-{part}.parquet"
    pq.write_table(table, path)
    when = START // SECOND + batch * FILES_PER_BATCH + part
    os.utime(path, (when, when))  # Spark's file source takes files in the order of their modification


def _key(keys: Ints, wide: bool) -> pa.Array:
    if not wide:
        return pa.array(keys)
    return pc.binary_join_element_wise("customer", pa.array(keys).cast(pa.string()), "-")


def _timestamps(times: Ints) -> pa.Array:
    return pa.array(times + START, pa.timestamp("us", "UTC"))


def _number(rng: np.random.Generator, stream: str, size: int) -> dict[str, pa.Array]:
    cents = rng.integers(0, 100_000, size)
    return {"v": pa.array(cents if stream == "a" else cents / 100)}


def _mixed(rng: np.random.Generator, size: int) -> dict[str, pa.Array]:
    labels = pa.array([f"word{n}" for n in range(2_000)])
    texts = pa.array([f"a sentence that somebody typed into a form, number {n}" for n in range(20_000)])
    return {
        "long": pa.array(rng.integers(0, 1 << 40, size)),
        "int": pa.array(rng.integers(0, 1 << 20, size, dtype=np.int32)),
        "double": pa.array(rng.random(size)),
        "float": pa.array(rng.random(size, dtype=np.float32)),
        "flag": pa.array(rng.random(size) < 0.5),
        "day": pa.array(rng.integers(0, 20_000, size, dtype=np.int32)).cast(pa.date32()),
        "seen": _timestamps(rng.integers(0, 1 << 40, size)),
        "price": pa.array(rng.integers(0, 1 << 20, size)).cast(pa.decimal128(20, 0)).cast(pa.decimal128(12, 2)),
        "word": labels.take(pa.array(rng.integers(0, len(labels), size))),
        "text": texts.take(pa.array(rng.integers(0, len(texts), size))),
    }
