"""Runs on Spark: the same streams, as files, one of each stream a micro-batch."""

from __future__ import annotations

import atexit
import json
import logging
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from experiments import wo_join_runs as wo
from experiments.experiment import Run
from experiments.pwjoin_runs import ASCENDING, Streams
from lab.joins.window_oblivious import possible
from lab.measure.claims import Found
from watersmeet.workload.parquet_files import save
from watersmeet.workload.punctuated_streams import Made
from watersmeet.workload.scrambled import cut
from watersmeet.workload.tables import ORIGIN

WINDOW = 15
BATCH = 5.0  # seconds of stream time
OWN, PLAIN, PWJOIN = "Spark's own join", "window join", "PWJoin"

#: A join of two streaming DataFrames.
Build = Callable[[Any, Any], Any]


@cache
def session() -> Any:
    """A local session with two shards, for all experiments of this process."""
    import watersmeet as wm

    logging.getLogger("watersmeet").setLevel(logging.WARNING)
    spark = wm.session(master="local[2]", shards=2, **{"spark.driver.memory": "1g", "spark.log.level": "ERROR"})
    atexit.register(spark.stop)
    return spark


def contend(run: Run, streams: Mapping[str, tuple[str, Iterable[pa.Table]]], contenders: Mapping[str, Build]) -> Found:
    """All contenders over two streams (a schema and the parts of each): rows in state and results, batch by batch."""
    counts: Found = {}
    times: Found = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder, spark = Path(scratch), session()
        for name, (_, parts) in streams.items():
            save(parts, folder / name)
        for name, build in run.steps(list(contenders.items())):
            inputs = [
                spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / stream))
                for stream, (schema, _) in streams.items()
            ]
            batches = run_query(build(*inputs), folder / f"checkpoint {name}")
            results = [p["observedMetrics"]["experiment"]["results"] for p in batches]
            counts[name] = {"stored": [stored(p) for p in batches], "results": sum(results)}
            times[name] = [p["durationMs"]["triggerExecution"] / 1e3 for p in batches]
    return {"counts": counts, "times": times}


def run_query(df: Any, checkpoint: Path, attempts: int = 3) -> list[dict[str, Any]]:
    """The progress of every batch with input, until all input is processed.

    On a busy machine Spark may give up waiting for its first Python worker; then it is started again.
    """
    from pyspark.errors import StreamingQueryException
    from pyspark.sql import functions as sf

    counted = df.observe("experiment", sf.count(sf.lit(1)).alias("results"))
    query = counted.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        return [json.loads(p.json) for p in query.recentProgress if p.numInputRows > 0]
    except StreamingQueryException:
        if attempts == 1 or query.recentProgress:
            raise
        return run_query(df, checkpoint, attempts - 1)
    finally:
        query.stop()


def stored(progress: dict[str, Any]) -> int:
    """Rows in state after a batch, by each join's own counters."""
    import watersmeet as wm

    own = wm.counters(progress)
    return int(own["stored"] if own else sum(o["numRowsTotal"] for o in progress["stateOperators"]))


def stamps(times: np.ndarray) -> pa.Array:
    return pa.array(times + ORIGIN).cast(pa.timestamp("us", "UTC"))


# ---------------------------------------------------------------- punctuated streams


def punctuated_parts(made: Made, name: str, batches: int) -> Iterator[pa.Table]:
    """A stream in batches: tuples, and its punctuations as rows in which `<name>_closed` is true."""
    times = np.concatenate([made.times, made.closed_at])
    order = np.argsort(times, kind="stable")  # a punctuation comes after the tuples of its time
    keys = np.concatenate([made.keys, made.closed_keys])[order]
    closed, times = order >= made.times.size, times[order]
    cuts = np.searchsorted(times, np.arange(batches + 1) * BATCH * 1e6)
    for start, end in pairwise(cuts.tolist()):
        some = slice(start, end)
        columns = [pa.array(keys[some]), stamps(times[some]), pa.array(order[some]), pa.array(closed[some])]
        yield pa.table(columns, names=["key", f"{name}_ts", f"{name}_n", f"{name}_closed"])


def tuples(df: Any, name: str) -> Any:
    """A stream without its punctuations."""
    return df.where(f"NOT {name}_closed").drop(f"{name}_closed")


def spark_own(a: Any, b: Any) -> Any:
    """A stream-stream join with watermarks, in the same window."""
    from pyspark.sql import functions as sf

    left = tuples(a, "a").withWatermark("a_ts", "0 seconds").alias("a")
    right = tuples(b, "b").withWatermark("b_ts", "0 seconds").alias("b")
    near = f"b_ts BETWEEN a_ts - INTERVAL {WINDOW} SECONDS AND a_ts + INTERVAL {WINDOW} SECONDS"
    return left.join(right, sf.expr(f"a.key = b.key AND {near}"))


def ours(algorithm: str) -> Build:
    def build(a: Any, b: Any) -> Any:
        import watersmeet as wm

        streams = []
        for name, df in (("a", a), ("b", b)):
            closes = wm.when(f"{name}_closed", on="key") if algorithm == "pwjoin" else None
            rows = df if closes else tuples(df, name)
            streams.append(
                wm.stream(rows, time=f"{name}_ts", window=f"{WINDOW} seconds", name=name, punctuation=closes)
            )
        return wm.join(*streams, on="key", algorithm=algorithm).df

    return build


def run_state(run: Run) -> Found:
    batches = run.size(30, 6)
    load = Streams(ASCENDING, round(batches * BATCH * 130), (WINDOW, WINDOW), BATCH, values=400, seed=run.seed)
    streams = {
        name: (
            f"key long, {name}_ts timestamp, {name}_n long, {name}_closed boolean",
            punctuated_parts(made, name, batches),
        )
        for name, made in zip("ab", load.made(), strict=True)
    }
    found = contend(run, streams, {OWN: spark_own, PLAIN: ours("hash"), PWJOIN: ours("pwjoin")})
    found["counts"]["at"] = [(n + 1) * BATCH for n in range(batches)]
    return found


# ---------------------------------------------------------------- scrambled streams

SHORT, LONG, AUTO = "Spark's own join, 15 s", "Spark's own join, 90 s", 'window="auto"'


def near_in_time(seconds: int) -> Build:
    """Spark's own join of rows that arrive at most so far apart."""

    def build(a: Any, b: Any) -> Any:
        from pyspark.sql import functions as sf

        left, right = a.withWatermark("a_at", "0 seconds").alias("a"), b.withWatermark("b_at", "0 seconds").alias("b")
        near = f"b_at BETWEEN a_at - INTERVAL {seconds} SECONDS AND a_at + INTERVAL {seconds} SECONDS"
        return left.join(right, sf.expr(f"a.epoch = b.epoch AND {near}"))

    return build


def oblivious(a: Any, b: Any) -> Any:
    import watersmeet as wm

    streams = [wm.stream(df, time=f"{name}_at", name=name) for name, df in (("a", a), ("b", b))]
    return wm.join(*streams, on="epoch", window="auto").df


def run_auto(run: Run) -> Found:
    seconds = run.size(120.0, 40.0)
    _, rows = wo.query_1(run.seed, seconds)
    rows = rows[:2]
    streams = {}
    for i, name in enumerate("ab"):
        parts = [some[i] for some in cut(rows, seconds, BATCH)]
        tables = [
            pa.table(
                [p["epoch"], stamps(p["at"].to_numpy()), p["reading"]], names=["epoch", f"{name}_at", f"{name}_reading"]
            )
            for p in parts
        ]
        streams[name] = (f"epoch long, {name}_at timestamp, {name}_reading double", tables)
    found = contend(run, streams, {SHORT: near_in_time(15), LONG: near_in_time(90), AUTO: oblivious})
    found["counts"] |= {"at": [(n + 1) * BATCH for n in range(round(seconds / BATCH))], "possible": possible(rows)}
    return found
