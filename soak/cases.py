"""Queries with a known answer: streams as Parquet files, generated from a seed, and the results by DuckDB.

A file of a stream is a batch of it (`maxFilesPerTrigger` is 1), with one exception: if a driver dies after Spark's file
source has logged a file and before the batch is in the offset log, the next batch contains two files. Late rows are so
far behind that they are late either way, so the set of late rows follows from the files alone. Rows carry their number.
Keys are in use for a while and are then closed by stream b, except for some. Some rows have no key or no time. The last
file ends its stream.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

import watersmeet as wm

SECOND = 1_000_000
START = 1_767_225_600 * SECOND
#: Seconds of event time in a file; windows and delay of every stream.
FILE_SECONDS, WINDOWS, DELAY = 5, {"a": 20, "b": 12, "c": 15}, 2
#: The key that half of the rows of stream a have in a case with a hot key, and its windows: a split begins after one.
HOT_KEY, SHORT_WINDOWS = -1, {"a": 4, "b": 3}

DDL = "k bigint, {s}_ts timestamp, {s}_n bigint, {s}_v double, {s}_closed boolean, {s}_over boolean"
#: The columns of a result that are compared.
COLUMNS = ("{s}_ts", "{s}_n", "{s}_v")

MICROS = pa.timestamp("us", "UTC")  # Spark's own files have nanoseconds

Bag = Counter[tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """One query over its streams. `sql` is the same query for DuckDB, over the tuples that are on time."""

    streams: str
    build: Callable[..., Any]  # of the streams, and of options of `wm.join`
    columns: tuple[str, ...]
    sql: str
    punctuated: bool = True
    windows: Mapping[str, int] = field(default_factory=lambda: WINDOWS)
    hot: bool = False  # whether half of the rows of stream a have one key
    idle_clock: str | None = None
    own_keys: bool = False  # whether the key column of each stream has a name of its own
    changed: dict[str, Any] = field(default_factory=dict)  # options with which an evolved query has the same results


def _pair(
    join: str,
    on: str = "a.k = b.k",
    key: str = "coalesce(a.k, b.k) AS k",
    windows: Mapping[str, int] = WINDOWS,
) -> str:
    """a and b within their windows, all columns."""
    near = f"a_ts >= b_ts - {windows['a'] * SECOND} AND b_ts >= a_ts - {windows['b'] * SECOND}"
    return f"SELECT {key}, a_ts, a_n, a_v, b_ts, b_n, b_v FROM a {join} JOIN b ON {on} AND {near}"


def _three() -> str:
    near = " AND ".join(f"{s}_ts >= greatest(a_ts, b_ts, c_ts) - {WINDOWS[s] * SECOND}" for s in "abc")
    columns = "a.k, a_ts, a_n, a_v, b_ts, b_n, b_v, c_ts, c_n, c_v"
    return f"SELECT {columns} FROM a, b, c WHERE a.k = b.k AND a.k = c.k AND {near}"


def _nearest() -> str:
    """Each row of a with the last one of b before it."""
    near = f"a.k = b.k AND b_ts <= a_ts AND b_ts >= a_ts - {WINDOWS['b'] * SECOND}"
    pairs = f"SELECT a.k, a_ts, a_n, a_v, b_ts, b_n, b_v FROM a LEFT JOIN b ON {near}"
    return f"{pairs} QUALIFY row_number() OVER (PARTITION BY a_n ORDER BY b_ts DESC, b_n DESC) = 1"


def _join(streams: list[wm.Stream], **options: Any) -> Any:
    return wm.join(*streams, on="k", **options)


def _full(streams: list[wm.Stream], **options: Any) -> Any:
    return _join(streams, how="full", **options)


def _groups(streams: list[wm.Stream], **options: Any) -> Any:
    return _join(streams, **options).group_by("k").agg(pairs=wm.count(), first=wm.min("a_n"), last=wm.max("b_n"))


_ALL = {s: tuple(c.format(s=s) for c in COLUMNS) for s in "abc"}
_PAIRS = ("k", *_ALL["a"], *_ALL["b"])

CASES = {
    "inner": Case("ab", _join, _PAIRS, _pair("INNER"), punctuated=False, changed={"algorithm": "nested_loop"}),
    "full": Case("ab", _full, _PAIRS, _pair("FULL"), changed={"algorithm": "pjoin"}),
    "three": Case("abc", _join, (*_PAIRS, *_ALL["c"]), _three(), changed={"algorithm": "lazy"}),
    "groups": Case(
        "ab",
        _groups,
        ("k", "pairs", "first", "last"),
        f"SELECT k, count(*), min(a_n), max(b_n) FROM ({_pair('INNER')}) GROUP BY k",
    ),
    "spilling": Case("ab", partial(_full, memory="1 KB"), _PAIRS, _pair("FULL")),
    "hot": Case(
        "ab",
        _join,
        _PAIRS,
        _pair("INNER", windows=SHORT_WINDOWS),
        punctuated=False,
        windows=SHORT_WINDOWS,
        hot=True,
        changed={"algorithm": "nested_loop"},
    ),
    "quiet": Case("ab", _full, _PAIRS, _pair("FULL"), idle_clock="1 hour"),
    "theta": Case(
        "ab",
        lambda s: wm.join(*s, where="abs(a_k - b_k) <= 1"),
        ("a_k", *_ALL["a"], "b_k", *_ALL["b"]),
        f"SELECT a_k, a_ts, a_n, a_v, b_k, b_ts, b_n, b_v FROM "
        f"({_pair('INNER', 'abs(a.k - b.k) <= 1', 'a.k AS a_k, b.k AS b_k')})",
        punctuated=False,
        own_keys=True,
    ),
    "asof": Case(
        "ab",
        lambda s: wm.join_asof(*s, on="k", tolerance=f"{WINDOWS['b']} seconds", order_by="b_n"),
        _PAIRS,
        _nearest(),
        windows={},
    ),
}


def query(spark: SparkSession, name: str, folder: Path, *, changed: bool = False) -> Any:
    """The case's join over the files in `folder`; with options that change nothing in the results if `changed`."""
    case, streams = CASES[name], []
    for s in case.streams:
        reader = spark.readStream.schema(DDL.format(s=s)).option("maxFilesPerTrigger", 1)
        streams.append(_stream(case, s, of_case(case, s, reader.parquet(str(folder / "in" / s)))))
    return case.build(streams, **case.changed if changed else {})


def table(spark: SparkSession, name: str, s: str, folder: Path, files: int) -> DataFrame:
    """The first files of a stream, as its table."""
    paths = sorted((folder / "all" / s).iterdir())[:files]
    return of_case(CASES[name], s, spark.read.schema(DDL.format(s=s)).parquet(*map(str, paths)))


def of_case(case: Case, s: str, df: DataFrame) -> DataFrame:
    """The rows of a stream as the case has them."""
    df = df if case.punctuated else df.where(f"NOT {s}_closed AND NOT {s}_over")
    return df.withColumnRenamed("k", f"{s}_k") if case.own_keys else df


def _stream(case: Case, s: str, df: DataFrame) -> wm.Stream:
    return wm.stream(
        df,
        time=f"{s}_ts",
        window=f"{case.windows[s]} seconds" if case.windows else None,
        delay=f"{DELAY} seconds",
        punctuation=[wm.end(f"{s}_over"), wm.when(f"{s}_closed", on="k")] if case.punctuated else None,
        name=s,
        idle_clock=case.idle_clock,
    )


# ---------------------------------------------------------------- the streams


def make(name: str, files: int, rows: int, chance: Random, folder: Path) -> None:
    """Write the streams of a case to `folder/all/<stream>/<number>.parquet`; nothing is handed out yet."""
    for s in CASES[name].streams:
        target = folder / "all" / s
        target.mkdir(parents=True)
        (folder / "in" / s).mkdir(parents=True)
        number = 0
        for file in range(files):
            made = _rows(s, file, rows, chance, number, hot=CASES[name].hot)
            number += len(made)
            if file == files - 1:
                end = START + (files * FILE_SECONDS + 1) * SECOND
                made.append((None, end, None, None, False, True))
            path = target / f"{file:04d}.parquet"
            pq.write_table(_table(s, made), path)
            os.utime(path, (1_000_000_000 + file,) * 2)  # files are taken in this order


def _rows(s: str, file: int, rows: int, chance: Random, number: int, *, hot: bool) -> list[tuple[Any, ...]]:
    start = START + file * FILE_SECONDS * SECOND
    out: list[tuple[Any, ...]] = []
    for n in range(number, number + rows):
        ts = start + chance.randrange(FILE_SECONDS * SECOND)
        key: int | None = _key(ts, rows, chance)
        dice = chance.random()
        if dice < 0.01 and file > 1:
            ts -= (DELAY + 2 * FILE_SECONDS + 1 + chance.randrange(5)) * SECOND  # late, even if two files are one batch
            key = _key(ts, rows, chance)
        if hot and n % (2 if s == "a" else 20) == 0:
            key = HOT_KEY
        out.append((None if 0.01 < dice < 0.015 else key, None if 0.015 < dice < 0.018 else ts, n, n / 4, False, False))
    if s == "b":  # most of the keys that are no longer in use are closed
        ended = range(_oldest(start, rows), _oldest(start + FILE_SECONDS * SECOND, rows))
        at = start + FILE_SECONDS * SECOND
        out += [(k, at, None, None, True, False) for k in ended if chance.random() < 0.7]
    chance.shuffle(out)
    return out


def _key(ts: int, rows: int, chance: Random) -> int:
    """A key in use at `ts`: new keys appear at a steady rate and are in use for ten seconds."""
    oldest = _oldest(ts, rows)
    return oldest + chance.randrange(max(1, _oldest(ts + 10 * SECOND, rows) - oldest))


def _oldest(ts: int, rows: int) -> int:
    return (ts - START) * rows // (10 * FILE_SECONDS * SECOND)


def _table(s: str, rows: list[tuple[Any, ...]]) -> pa.Table:
    kinds = {
        "k": pa.int64(),
        f"{s}_ts": MICROS,
        f"{s}_n": pa.int64(),
        f"{s}_v": pa.float64(),
        f"{s}_closed": pa.bool_(),
        f"{s}_over": pa.bool_(),
    }
    columns = list(zip(*rows, strict=True))
    return pa.table([pa.array(c, t) for c, t in zip(columns, kinds.values(), strict=True)], schema=pa.schema(kinds))


# ---------------------------------------------------------------- the answer


@dataclass(frozen=True)
class Answer:
    """The whole output of a query: results as rows, late rows as (stream, number)."""

    results: Bag
    late: Bag


def answer(name: str, folder: Path) -> Answer:
    """The expected output by definition: late rows file by file, a join of the others by DuckDB."""
    database = duckdb.connect()
    late: Bag = Counter()
    for s in CASES[name].streams:
        files = [pq.read_table(path) for path in sorted((folder / "all" / s).iterdir())]
        on_time, behind = _divided(files, s, add_punctuations=CASES[name].punctuated)
        late.update((s, number) for number in behind)
        database.register(s, on_time)
    return Answer(Counter(database.sql(CASES[name].sql).fetchall()), late)


def _divided(files: list[pa.Table], s: str, *, add_punctuations: bool) -> tuple[pa.Table, list[int]]:
    """Tuples of a stream that are on time, and the numbers of those that are not."""
    on_time: list[tuple[Any, ...]] = []
    late: list[int] = []
    progress: int | None = None
    for table in files:
        names = (f"{s}_n", f"{s}_v", f"{s}_closed", f"{s}_over")
        times = table.column(f"{s}_ts").cast(pa.int64()).to_pylist()
        columns = [table.column("k").to_pylist(), times, *(table.column(c).to_pylist() for c in names)]
        seen = [progress] if progress is not None else []
        for k, ts, n, v, closed, over in zip(*columns, strict=True):
            if not closed and not over:
                if ts is None or (progress is not None and ts < progress):
                    late.append(n)
                else:
                    on_time.append((k, ts, n, v))
            if ts is not None and not over and (add_punctuations or not closed):
                seen.append(ts - DELAY * SECOND)
        progress = max(seen)
    kinds = {"k": pa.int64(), f"{s}_ts": pa.int64(), f"{s}_n": pa.int64(), f"{s}_v": pa.float64()}
    arrays = [pa.array(c, t) for c, t in zip(zip(*on_time, strict=True), kinds.values(), strict=True)]
    return pa.table(arrays, list(kinds)), late


def output(name: str, folder: Path) -> Answer:
    """The output that the query has written."""
    results: Bag = Counter()
    for part in sorted((folder / "results").glob("batch=*/*.parquet")):
        table = pq.read_table(part).select(CASES[name].columns)
        columns = [c.cast(MICROS).cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in table.columns]
        results.update(zip(*(c.to_pylist() for c in columns), strict=True))
    late: Bag = Counter()
    for part in sorted((folder / "late").glob("batch=*/*.parquet")):
        for row in pq.read_table(part).to_pylist():
            late[(row["stream"], json.loads(row["row"])[f"{row['stream']}_n"])] += 1
    return Answer(results, late)
