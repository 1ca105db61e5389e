"""The contenders of `benchmarks.joins`: joins without equality and as-of joins, ours and what Spark has instead.

    python -m benchmarks.join_contenders band band-200k [--quick]

runs one of them in this process and prints its measurements as JSON on the last line. Results are counted, and of as-of
joins the answers added up, by `observe`; NumPy says what they must be.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import watersmeet as wm
from benchmarks import data
from benchmarks.cases import DELAY_SECONDS, WINDOW_SECONDS, Case, Stretch
from benchmarks.contenders import IN_MEMORY, Contender, batch, watersmeet_session
from benchmarks.data import DISORDER_SECONDS, MAX_TIME, SECOND, START, Ints

BAND, NATIVE_BAND, EQUALITY = "band", "native-band", "equality"
ASOF, PER_KEY, HASH = "asof", "per-key", "hash"
#: They take minutes, and run in the first repetition alone.
SLOW = (NATIVE_BAND, PER_KEY)

#: Results of a run by name, and what NumPy says that they are.
Sums = dict[str, int]


def _stretches(rows: int, warm_up: int, steady: int, *, flush: bool = False) -> tuple[Stretch, ...]:
    """Batches of 5 s of event time; at the end two that pass all rows before, so that as-of answers are final."""
    last = (Stretch("flush", 2, 200, 30.0),) if flush else ()
    return (Stretch("warm-up", warm_up, rows, 5.0), Stretch("steady", steady, rows, 5.0), *last)


CASES = {
    case.name: case
    for case in (
        Case(
            "band-200k",
            "200 k rows a batch, 5 s of event time each, pairs with |a.k - b.k| <= 1, about three partners a row; "
            "equality: the same files on k / 3",
            _stretches(200_000, 5, 8),
            keys=300_000,
            drift=15_000,
            contenders=(BAND, EQUALITY),
        ),
        Case(
            "band-20k",
            "20 k rows a batch, otherwise as band-200k: Spark's join compares every row with all of the window, a "
            "hundred times as many pairs at 200 k rows, which would take hours a batch",
            _stretches(20_000, 3, 3),
            keys=30_000,
            drift=1_500,
            contenders=(BAND, NATIVE_BAND),
        ),
        Case(
            "asof-200k",
            "200 k rows a batch, 5 s of event time each, half of them questions and half of them versions, 100 k keys "
            "that drift; the last version at most 10 s before",
            _stretches(200_000, 3, 4, flush=True),
            keys=100_000,
            drift=5_000,
            contenders=(ASOF, HASH, PER_KEY),
        ),
        Case(
            "asof-few-keys",
            "the same with 1,000 keys: a hundred times fewer calls of the function",
            _stretches(200_000, 3, 4, flush=True),
            keys=1_000,
            drift=0,
            contenders=(ASOF, PER_KEY),
        ),
    )
}


# ------------------------------------------------------------ the joins


def _ours(df: DataFrame, name: str, **window: str) -> wm.Stream:
    return wm.stream(df, time=f"{name}_ts", delay=f"{DELAY_SECONDS} seconds", name=name, **window)


def _windowed(a: DataFrame, b: DataFrame) -> tuple[wm.Stream, wm.Stream]:
    window = f"{WINDOW_SECONDS} seconds"
    return _ours(a, "a", window=window), _ours(b, "b", window=window)


def _apart(a: DataFrame, b: DataFrame) -> tuple[DataFrame, DataFrame]:
    """Without a common name."""
    return a.withColumnRenamed("k", "a_k"), b.withColumnRenamed("k", "b_k")


def band(a: DataFrame, b: DataFrame) -> DataFrame:
    return wm.join(*_windowed(*_apart(a, b)), where="abs(a_k - b_k) <= 1", algorithm="band").df


def native_band(a: DataFrame, b: DataFrame) -> DataFrame:
    """Spark's join needs an equality: of a key that is the same in all rows, and no literal, which it would remove."""
    delay = f"{DELAY_SECONDS} seconds"
    left, right = (
        df.withColumn(f"{name}_one", sf.expr(f"1 + 0 * second({name}_ts)")).withWatermark(f"{name}_ts", delay)
        for df, name in zip(_apart(a, b), "ab", strict=True)
    )
    window = f"interval {WINDOW_SECONDS} seconds"
    near = f"b_ts BETWEEN a_ts - {window} AND a_ts + {window}"
    return left.join(right, sf.expr(f"a_one = b_one AND abs(a_k - b_k) <= 1 AND {near}")).drop("a_one", "b_one")


def equality(a: DataFrame, b: DataFrame) -> DataFrame:
    third = sf.expr("k div 3")
    return wm.join(*_windowed(a.withColumn("k", third), b.withColumn("k", third)), on="k").df


def hash_join(a: DataFrame, b: DataFrame) -> DataFrame:
    return wm.join(*_windowed(a, b), on="k").df


def asof(a: DataFrame, b: DataFrame) -> DataFrame:
    tolerance = f"{WINDOW_SECONDS} seconds"
    return wm.join_asof(_ours(a, "a"), _ours(b, "b"), on="k", tolerance=tolerance, order_by="b_v").df


def per_key(a: DataFrame, b: DataFrame) -> DataFrame:
    """The as-of join as a function of one key, its new rows and its state."""
    questions = a.selectExpr("k", "a_ts AS ts", "a_v AS v", "true AS asks")
    versions = b.selectExpr("k", "b_ts AS ts", "CAST(round(b_v * 100) AS BIGINT) AS v", "false AS asks")
    rows = questions.union(versions).withWatermark("ts", f"{DELAY_SECONDS} seconds")
    return (
        rows.groupBy("k")
        .applyInPandasWithState(
            _answers,
            "k BIGINT, a_ts TIMESTAMP, a_v BIGINT, b_ts TIMESTAMP, cents BIGINT",
            "questions BINARY, versions BINARY",
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
        .withColumn("b_v", sf.expr("cents / 100"))
        .drop("cents")
    )


def _answers(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Answers that are final, of one key. State: rows of (time, value), as the bytes of an array."""
    questions, versions = (
        (np.frombuffer(part, np.int64).reshape(-1, 2) for part in state.get) if state.exists else (_NONE, _NONE)
    )
    for frame in frames:
        new = np.column_stack([frame["ts"].to_numpy("datetime64[us]").astype(np.int64), frame["v"].to_numpy(np.int64)])
        asks = frame["asks"].to_numpy(np.bool_)
        questions, versions = np.concatenate([questions, new[asks]]), np.concatenate([versions, new[~asks]])
    watermark = state.getCurrentWatermarkMs() * 1000
    versions = versions[np.lexsort((versions[:, 1], versions[:, 0]))]
    ripe = questions[:, 0] < watermark
    final, questions = questions[ripe], questions[~ripe]
    if final.size:
        yield _answered(key[0], final, versions)
    # the last version before the watermark, and all later ones, as long as a question may come for them
    stays = max(int(np.searchsorted(versions[:, 0], watermark)) - 1, 0)
    versions = versions[stays:]
    versions = versions[versions[:, 0] + WINDOW_SECONDS * SECOND >= watermark]
    if not questions.size and not versions.size:
        state.remove()
        return
    state.update((questions.tobytes(), versions.tobytes()))
    due = questions[:, 0].min() if questions.size else versions[-1, 0] + WINDOW_SECONDS * SECOND
    state.setTimeoutTimestamp(int(due // 1000) + 1)


_NONE = np.empty((0, 2), np.int64)


def _answered(key: int, questions: Ints, versions: Ints) -> pd.DataFrame:
    at = np.searchsorted(versions[:, 0], questions[:, 0], side="right") - 1
    found = versions[np.maximum(at, 0)] if versions.size else np.zeros_like(questions)
    known = (at >= 0) & (questions[:, 0] - found[:, 0] <= WINDOW_SECONDS * SECOND)
    return pd.DataFrame(
        {
            "k": key,
            "a_ts": questions[:, 0].copy().view("datetime64[us]"),
            "a_v": questions[:, 1],
            "b_ts": np.where(known, found[:, 0].copy().view("datetime64[us]"), np.datetime64("NaT", "us")),
            "cents": pd.arrays.IntegerArray(found[:, 1].copy(), ~known),
        }
    )


# ------------------------------------------------------------ what they find


def _end(case: Case) -> int:
    """The time before which all questions are answered at the end: of the first rows that flush."""
    seconds = DISORDER_SECONDS + sum(s.batches * s.seconds for s in case.stretches if s.phase != "flush")
    return START + int((seconds - DISORDER_SECONDS) * SECOND)


def _count(case: Case) -> dict[str, Column]:
    return {"results": sf.count(sf.lit(1))}


def _add_up(case: Case) -> dict[str, Column]:
    in_time = sf.expr(f"unix_micros(a_ts) < {_end(case)}")
    cents = sf.expr("CAST(round(b_v * 100) AS BIGINT)")
    return {
        "results": sf.count(sf.lit(1)),
        "questions": sf.count(sf.when(in_time, 1)),
        "answers": sf.count(sf.when(in_time, cents)),
        "cents": sf.coalesce(sf.sum(sf.when(in_time, cents)), sf.lit(0)),
    }


def _read(case: Case, stream: str) -> tuple[Ints, Ints, Ints]:
    """Keys, times since the start and values of all rows of a stream."""
    rows = pq.read_table(data.make(case) / stream)
    values = rows.column(f"{stream}_v").to_numpy()
    times = rows.column(f"{stream}_ts").cast("int64").to_numpy() - START
    return rows.column("k").to_numpy(), times, values if stream == "a" else np.rint(values * 100).astype(np.int64)


def _pairs(case: Case, wide: int = 0, divisor: int = 1) -> Sums:
    (a, a_times, _), (b, b_times, _) = (_read(case, stream) for stream in "ab")
    mine = (a // divisor + wide, a_times)
    theirs = [(b // divisor + wide + d, b_times) for d in range(-wide, wide + 1)]
    return {"results": sum(data.count_results([mine, other]) for other in theirs)}


def _nearest(case: Case) -> Sums:
    (a, a_times, _), (b, b_times, cents) = (_read(case, stream) for stream in "ab")
    in_time = a_times + START < _end(case)
    a, a_times = a[in_time], a_times[in_time]
    order = np.lexsort((cents, b_times, b))
    b, b_times, cents = b[order], b_times[order], cents[order]
    at = np.searchsorted(b * MAX_TIME + b_times, a * MAX_TIME + a_times, side="right") - 1
    known = (at >= 0) & (b[at] == a) & (a_times - b_times[at] <= WINDOW_SECONDS * SECOND)
    return {"questions": int(a.size), "answers": int(known.sum()), "cents": int(cents[at[known]].sum())}


@dataclass(frozen=True)
class JoinContender:
    """A query, what is observed of its results, and what NumPy finds."""

    query: Contender
    observed: Callable[[Case], dict[str, Column]]
    expected: Callable[[Case], Sums]


CONTENDERS = {
    BAND: JoinContender(Contender(band, session=watersmeet_session), _count, lambda case: _pairs(case, wide=1)),
    NATIVE_BAND: JoinContender(Contender(native_band, IN_MEMORY), _count, lambda case: _pairs(case, wide=1)),
    EQUALITY: JoinContender(
        Contender(equality, session=watersmeet_session), _count, lambda case: _pairs(case, divisor=3)
    ),
    ASOF: JoinContender(Contender(asof, session=watersmeet_session), _add_up, _nearest),
    PER_KEY: JoinContender(Contender(per_key, IN_MEMORY), _add_up, _nearest),
    HASH: JoinContender(Contender(hash_join, session=watersmeet_session), _count, _pairs),
}


def run(name: str, case: Case) -> dict[str, Any]:
    """Run a contender over all files of a case, batch by batch; the times are from Spark's progress."""
    files, scratch = data.make(case), Path(tempfile.mkdtemp(prefix=name, dir=data.scratch("checkpoints")))
    contender = CONTENDERS[name]
    spark = contender.query.start_session({})
    try:
        streams = [
            spark.readStream.schema(data.schema(case, stream))
            .option("maxFilesPerTrigger", data.FILES_PER_BATCH)
            .parquet(str(files / stream))
            for stream in case.streams
        ]
        observed = [column.alias(n) for n, column in contender.observed(case).items()]
        counted = contender.query.build(*streams).observe("bench", *observed)
        writer = counted.writeStream.format("noop").option("checkpointLocation", str(scratch / "checkpoint"))
        query = writer.start()
        query.processAllAvailable()
        progress = [json.loads(p.json) for p in query.recentProgress]
        query.stop()
    finally:
        spark.stop()
        shutil.rmtree(scratch, ignore_errors=True)
    fed = [p for p in progress if p["numInputRows"] > 0]
    expected = contender.expected(case)
    sums = [p["observedMetrics"]["bench"] for p in progress if "bench" in p["observedMetrics"]]
    return {
        "contender": name,
        "case": case.name,
        "found": {n: sum(found[n] or 0 for found in sums) for n in expected},
        "expected": expected,
        "batches": [batch(p, phase) for p, phase in zip(fed, case.phases, strict=True)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.join_contenders")
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the data")
    options = parser.parse_args()
    case = CASES[options.case]
    print(json.dumps(run(options.contender, case.quick() if options.quick else case)))


if __name__ == "__main__":
    main()
