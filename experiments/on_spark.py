"""The same streams through Spark: what a user sees of the state."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from experiments import drawing
from experiments.experiment import Claim, Experiment, Found, Run, Verdict, mean
from experiments.pwjoin_runs import ASCENDING, Streams
from watersmeet.workload.files import save
from watersmeet.workload.punctuated import Made
from watersmeet.workload.tables import ORIGIN

WINDOW = 15
BATCH = 5.0  # seconds of stream time
OWN, PLAIN, PWJOIN = "Spark's own join", "window join", "PWJoin"


@contextmanager
def session() -> Iterator[Any]:
    """A local session with two shards."""
    import watersmeet as wm

    logging.getLogger("watersmeet").setLevel(logging.WARNING)
    spark = wm.session(master="local[2]", shards=2, **{"spark.driver.memory": "1g", "spark.log.level": "ERROR"})
    try:
        yield spark
    finally:
        spark.stop()


def parts(made: Made, name: str, batches: int) -> Iterator[pa.Table]:
    """A stream in batches: tuples, and its punctuations as rows in which `closed` is true."""
    times = np.concatenate([made.times, made.closed_at])
    closed = np.arange(times.size) >= made.times.size
    order = np.argsort(times, kind="stable")  # a punctuation comes after the tuples of its time
    columns = {
        "key": np.concatenate([made.keys, made.closed_keys]),
        f"{name}_ts": times,
        f"{name}_n": np.arange(times.size),
        "closed": closed,
    }
    sorted_ = {c: v[order] for c, v in columns.items()}
    cuts = np.searchsorted(sorted_[f"{name}_ts"], np.arange(batches + 1) * BATCH * 1e6)
    for start, end in pairwise(cuts.tolist()):
        table = pa.table({c: v[start:end] for c, v in sorted_.items()})
        stamps = pa.array(table[f"{name}_ts"].to_numpy() + ORIGIN).cast(pa.timestamp("us", "UTC"))
        yield table.set_column(1, f"{name}_ts", stamps)


def read(spark: Any, folder: Path, name: str) -> Any:
    schema = f"key long, {name}_ts timestamp, {name}_n long, closed boolean"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(folder / name))


def spark_own(a: Any, b: Any) -> Any:
    """A stream-stream join with watermarks, in the same window."""
    from pyspark.sql import functions as sf

    left = a.where("NOT closed").drop("closed").withWatermark("a_ts", "0 seconds").alias("a")
    right = b.where("NOT closed").drop("closed").withWatermark("b_ts", "0 seconds").alias("b")
    near = f"b_ts BETWEEN a_ts - INTERVAL {WINDOW} SECONDS AND a_ts + INTERVAL {WINDOW} SECONDS"
    return left.join(right, sf.expr(f"a.key = b.key AND {near}"))


def ours(algorithm: str) -> Callable[[Any, Any], Any]:
    def build(a: Any, b: Any) -> Any:
        import watersmeet as wm

        streams = []
        for name, df in (("a", a), ("b", b)):
            said = wm.when("closed", on="key") if algorithm == "pwjoin" else None
            rows = df if said else df.where("NOT closed").drop("closed")
            streams.append(wm.stream(rows, time=f"{name}_ts", window=f"{WINDOW} seconds", name=name, punctuation=said))
        return wm.join(*streams, on="key", algorithm=algorithm).df

    return build


CONTENDERS = {OWN: spark_own, PLAIN: ours("hash"), PWJOIN: ours("pwjoin")}


def run_query(df: Any, checkpoint: Path) -> list[dict[str, Any]]:
    """What a query says of every batch with input, until all of it is used up."""
    from pyspark.sql import functions as sf

    counted = df.observe("experiment", sf.count(sf.lit(1)).alias("results"))
    query = counted.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        query.processAllAvailable()
        return [json.loads(p.json) for p in query.recentProgress if p.numInputRows > 0]
    finally:
        query.stop()


def stored(progress: dict[str, Any]) -> int:
    """Rows in state after a batch, as each join tells it itself."""
    import watersmeet as wm

    own = wm.counters(progress)
    return int(own["stored"] if own else sum(o["numRowsTotal"] for o in progress["stateOperators"]))


def run_state(run: Run) -> Found:
    batches = run.size(36, 8)
    load = Streams(ASCENDING, round(batches * BATCH * 130), (WINDOW, WINDOW), BATCH, values=400, seed=run.seed)
    counts: Found = {"at": [(n + 1) * BATCH for n in range(batches)]}
    times: Found = {}
    with tempfile.TemporaryDirectory() as scratch, session() as spark:
        folder = Path(scratch)
        for name, made in zip("ab", load.made(), strict=True):
            save(parts(made, name, batches), folder / name)
        for name, build in run.told(list(CONTENDERS.items())):
            said = run_query(build(read(spark, folder, "a"), read(spark, folder, "b")), folder / f"checkpoint {name}")
            counts[name] = {
                "stored": [stored(p) for p in said],
                "results": sum(p["observedMetrics"]["experiment"]["results"] for p in said),
            }
            times[name] = [p["durationMs"]["triggerExecution"] / 1e3 for p in said]
    return {"counts": counts, "times": times}


def later(found: Found, name: str) -> float:
    """Mean rows in state over the second half."""
    values = found["counts"][name]["stored"]
    return mean(values[len(values) // 2 :])


def check_state(found: Found) -> Verdict:
    sizes = {name: later(found, name) for name in CONTENDERS}
    return Verdict(
        sizes[PWJOIN] < sizes[PLAIN] <= sizes[OWN], ", ".join(f"{name} {size:,.0f}" for name, size in sizes.items())
    )


def check_same(found: Found) -> Verdict:
    results = {name: found["counts"][name]["results"] for name in CONTENDERS}
    return Verdict(len(set(results.values())) == 1, ", ".join(f"{name} {n:,}" for name, n in results.items()))


def draw_state(figure: Figure, found: Found) -> None:
    axes = figure.subplots()
    for style, name in enumerate(CONTENDERS):
        drawing.line(axes, found["counts"]["at"], found["counts"][name]["stored"], style, name)
    axes.set_xlabel("stream time, s")
    axes.set_ylabel("rows in state")
    axes.set_ylim(bottom=0)
    drawing.thousands(axes)
    drawing.below(figure, axes)


ON_SPARK = (
    Experiment(
        id="spark-state",
        row="On Spark",
        title="The streams of PWJoin 8 through Spark",
        setup="Two punct-asc-100-40 streams over 400 values, a tuple every 10 ms, windows of 15 s, as parquet files "
        "of 5 s of stream time, one of each stream a micro-batch, 180 s; two shards. Spark's own stream-stream join "
        "with watermarks of no delay and a condition on the times; ours as window join and, with the punctuations, "
        "as PWJoin. Rows in state as each join reports them after a batch.",
        run=run_state,
        claims=(
            Claim("all three give the same number of results", check_same),
            Claim("rows in state: PWJoin < window join ≤ Spark's own join", check_state),
        ),
        draw=draw_state,
        size=(6.4, 3.4),
        seconds=120,
        spark=True,
    ),
)
