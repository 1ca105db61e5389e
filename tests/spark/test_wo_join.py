"""Joins without windows on a real Spark, against DuckDB: restarts, shards, strategies, ends, SQL, measured delays."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import watersmeet as wm
from lab.joins.plain_pairs import arrivals
from lab.spark.feeds import Feed, QueryOutput, failure, remove_working_states, run
from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.spark.runtime.spark_versions import joins_static
from watersmeet.spark.streams import Stream
from watersmeet.workload.scrambled import Scrambled

pytestmark = pytest.mark.spark

NAMES = "abc"


class Sensors:
    """Streams of files whose epochs ascend in the long run; kept as plain rows, too, for DuckDB."""

    def __init__(self, spark: SparkSession, folder: Path, scrambling: Sequence[int]) -> None:
        self.names = NAMES[: len(scrambling)]
        self.keys = [Scrambled(k).keys(6000, seed=i) for i, k in enumerate(scrambling)]
        self.at = [0] * len(scrambling)
        self.feeds = [Feed(spark, folder / n, f"epoch long, {n}_at timestamp, {n}_n long") for n in self.names]
        self.rows: list[list[tuple[int, int]]] = [[] for _ in scrambling]

    def add(self, *counts: int) -> None:
        """A batch with so many rows of each stream. Times go backwards: they mean nothing here."""
        for i, count in enumerate(counts):
            numbers = range(self.at[i], self.at[i] + count)
            keys = self.keys[i][self.at[i] : self.at[i] + count].tolist()
            self.feeds[i].add_rows([(k, 10**15 - n * 10**6, n) for k, n in zip(keys, numbers, strict=True)])
            self.rows[i] += list(zip(keys, numbers, strict=True))
            self.at[i] += count

    def streams(self, *, static: bool = False, **options: Any) -> list[Stream]:
        made = []
        for n, feed in zip(self.names, self.feeds, strict=True):
            df = feed.static() if static else feed.stream()
            made.append(wm.stream(df, time=f"{n}_at", name=n, **options))
        return made

    def whole(self) -> Counter[tuple[int, ...]]:
        """The numbers of the rows that DuckDB combines."""
        with duckdb.connect(config={"threads": 1}) as database:
            for n, rows in zip(self.names, self.rows, strict=True):
                keys, numbers = zip(*rows, strict=True)
                database.register(n, pa.table({"epoch": pa.array(keys), f"{n}_n": pa.array(numbers)}))
            tables = self.names[0] + "".join(f" JOIN {n} USING (epoch)" for n in self.names[1:])
            found = ", ".join(f"{n}_n" for n in self.names)
            return Counter(database.execute(f"SELECT {found} FROM {tables}").fetchall())


def numbers(given: QueryOutput | pa.Table, names: str) -> Counter[tuple[int, ...]]:
    table = given.table if isinstance(given, QueryOutput) else given
    return Counter(tuple(row[f"{n}_n"] for n in names) for row in table.to_pylist())


def test_nothing_is_lost_over_a_restart_and_little_is_kept(spark: SparkSession, tmp_path: Path) -> None:
    """c lags by 300 rows and catches up; factors are measured; on two shards; a machine that forgets in between."""
    sensors = Sensors(spark, tmp_path, (10, 40, 20))
    for n in range(6):
        sensors.add(400, 400, 100 if n == 0 else 400)
    joined = wm.join(*sensors.streams(), on="epoch", window="auto")
    first = run(joined.df, tmp_path / "checkpoint")
    remove_working_states()
    for _ in range(3):
        sensors.add(300, 300, 400)
    second = run(joined.df, tmp_path / "checkpoint")
    assert numbers(first, "abc") + numbers(second, "abc") == sensors.whole()
    given = [*first.metrics, *second.metrics]
    assert sum(m["too_late"] for m in given) == 0
    assert sum(m["results"] for m in given) == sensors.whole().total()
    assert given[-1]["stored"] < 500 < given[1]["stored"]
    assert len(given[-1]["shards"]) == 2
    assert given[-1]["shards"][0]["scrambling"] == given[-1]["shards"][1]["scrambling"]
    assert 10 <= given[-1]["shards"][0]["scrambling"][0] < 40
    assert given[-1]["worker_bytes"] > 50 << 20
    if joins_static(spark):
        static = wm.join(*sensors.streams(static=True), on="epoch", window="auto")
        assert numbers(static.df.toArrow(), "abc") == sensors.whole()
    text = str(joined.explain())
    assert "wo_join (inner) of a, b, c on epoch" in text
    assert "until b and c are past its epoch by the measured disorder" in text
    assert "late: none by its a_at" in text


@pytest.mark.parametrize("strategy", ["dbf", None])
def test_a_leader_waits_in_the_store(spark: SparkSession, tmp_path: Path, strategy: str | None) -> None:
    """a is there before b begins: with little memory it waits, and the results are those without."""
    sensors = Sensors(spark, tmp_path, (10, 20))
    for _ in range(2):
        sensors.add(2000, 1)
    joined = wm.join(*sensors.streams(), on="epoch", window="auto", memory="220 kB", strategy=strategy)
    first = run(joined.df, tmp_path / "checkpoint")
    assert first.metrics[-1]["spilled"] > (2500 if strategy else 1500)  # auto begins when it has to
    remove_working_states()
    for _ in range(2):
        sensors.add(1, 2000)
    second = run(joined.df, tmp_path / "checkpoint")
    found = numbers(first, "ab") + numbers(second, "ab")
    held = [second.metrics[-1][name] for name in ("deferred", "spilled")]
    assert found <= sensors.whole()
    assert found == sensors.whole() or held[0] > 0  # who sorts first waits for what may still be smaller
    assert found.total() > 0.95 * sensors.whole().total()
    assert held[1] < 500
    assert "strategy" in str(joined.explain())


def test_what_does_not_fit_stops_the_query(spark: SparkSession, tmp_path: Path) -> None:
    sensors = Sensors(spark, tmp_path, (10, 20))
    sensors.add(3000, 1)
    strict = wm.join(*sensors.streams(), on="epoch", window="auto", memory="20 kB", strategy="none")
    message = failure(lambda: run(strict.df, tmp_path / "strict"))
    assert "`memory` is 10240 bytes" in message
    assert "shed=True" in message
    lossy = wm.join(*sensors.streams(), on="epoch", algorithm=wm.WOJoin(memory="20 kB", strategy="none", shed=True))
    output = run(lossy.df, tmp_path / "lossy")
    assert output.metrics[-1]["shed"] + output.metrics[-1]["stored"] == 3000  # b's row has gone: a is past it


def test_an_end_and_punctuations_evict(spark: SparkSession, tmp_path: Path) -> None:
    """b says that it is through with all up to 500, then ends; a's rows go at once."""
    a = Feed(spark, tmp_path / "a", "epoch long, a_at timestamp, a_n long")
    b = Feed(spark, tmp_path / "b", "epoch long, b_at timestamp, through long, over boolean")
    a.add_rows([(n, n, n) for n in range(1000)])
    b.add_rows([(1, 1, None, False), (2, 2, 500, False)])
    punctuations = [wm.when("through is not null", high="through"), wm.end("over")]
    streams = [
        wm.stream(a.stream(), time="a_at", name="a"),
        wm.stream(b.stream(), time="b_at", name="b", punctuation=punctuations),
    ]
    joined = wm.join(*streams, on="epoch", window="auto")
    output = run(joined.df, tmp_path / "checkpoint")
    assert (output.metrics[-1]["stored"], output.table.num_rows) == (499, 1)
    a.add_rows([(7, 7, 7)])
    b.add_rows([(3, 3, None, True)])
    output = run(joined.df, tmp_path / "checkpoint")
    assert output.metrics[-1]["stored"] == 0


def test_queries_say_auto(spark: SparkSession, tmp_path: Path) -> None:
    sensors = Sensors(spark, tmp_path, (10, 20))
    sensors.add(600, 500)
    a, b = sensors.streams(static=True)
    text = "SELECT A.epoch, a_n, b_n FROM a [AUTO] A, b [AUTO] B WHERE A.epoch = B.epoch AND a_n > 3"
    found = numbers(wm.sql(text, a=a, b=b).df.toArrow(), "ab")
    assert found == Counter({pair: n for pair, n in sensors.whole().items() if pair[0] > 3})
    assert found
    streaming = wm.sql(text, **dict(zip("ab", sensors.streams(), strict=True)))
    assert numbers(run(streaming.df, tmp_path / "checkpoint"), "ab") == found


KINDS = {
    "date": [date(2026, 1, 1) + timedelta(days=n) for n in range(40)],
    "timestamp": [datetime(2026, 1, 1) + timedelta(seconds=n) for n in range(40)],
    "double": [n / 4 for n in range(40)],
    "decimal(10,2)": list(range(40)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_keys_are_numbers_timestamps_or_dates(spark: SparkSession, kind: str) -> None:
    at = "timestamp_seconds(cast(1e9 as bigint))"
    frames = [
        spark.createDataFrame([(str(v), n) for n, v in enumerate(values)], f"k string, {n_} long").selectExpr(
            f"cast(k as {kind}) k", n_, f"{at} {n_}_at"
        )
        for n_, values in (("a", KINDS[kind]), ("b", KINDS[kind][::-1]))
    ]
    a, b = (wm.stream(df, time=f"{n}_at", name=n) for n, df in zip("ab", frames, strict=True))
    rows = wm.join(a, b, on="k", window="auto").df.collect()
    assert sorted((r.a, r.b) for r in rows) == [(n, 39 - n) for n in range(40)]


def test_the_delay_follows_the_disorder(spark: SparkSession, tmp_path: Path) -> None:
    """Late rows are counted and handed out, and the join is that of the others."""
    feeds = [Feed(spark, tmp_path / n, f"k long, {n}_at timestamp") for n in "ab"]
    times = [arrivals(seed, 0.3, 3000) for seed in (1, 2)]
    for feed, of in zip(feeds, times, strict=True):
        for part in np.array_split(of, 5):
            feed.add_rows([(int(t) % 20, int(t)) for t in part])
    streams = [
        wm.stream(f.stream(), time=f"{n}_at", name=n, window="2 seconds", delay="auto", late_share=0.01)
        for n, f in zip("ab", feeds, strict=True)
    ]
    joined = wm.join(*streams, on="k")
    assert "the delay measured (1.00% of the rows may be late)" in str(joined.explain())
    output = run(joined.tagged, tmp_path / "checkpoint")
    rows = output.table.to_pylist()
    late = [r for r in rows if r["kind"] == "late"]
    assert sum(m["late"] for m in output.metrics) == len(late) < 0.03 * 6000
    found = Counter((micros(r["a_at"]), micros(r["b_at"])) for r in rows if r["kind"] == "result")
    gone: dict[str, set[int]] = {"a": set(), "b": set()}
    for r in late:
        gone[r["stream"]].add(micros(datetime.fromisoformat(json.loads(r["row"])[f"{r['stream']}_at"])))
    a, b = (sorted(set(t.tolist()) - gone[n]) for n, t in zip("ab", times, strict=True))
    with duckdb.connect(config={"threads": 1}) as database:
        database.register("a", pa.table({"x": a}))
        database.register("b", pa.table({"y": b}))
        whole = database.execute("SELECT x, y FROM a, b WHERE x % 20 = y % 20 AND abs(x - y) <= 2000000").fetchall()
    assert found == Counter(whole)
    assert output.metrics[-1]["stored"] < 2500


def micros(time: datetime) -> int:
    from datetime import UTC

    aware = time if time.tzinfo else time.replace(tzinfo=UTC)
    return round((aware - datetime(1970, 1, 1, tzinfo=UTC)) / timedelta(microseconds=1))


def test_errors(spark: SparkSession, tmp_path: Path) -> None:
    sensors = Sensors(spark, tmp_path, (10, 20, 20))
    a, b, c = sensors.streams(static=True)
    text = wm.stream(
        spark.createDataFrame([("x",)], "epoch string").selectExpr("*", "current_timestamp() d_at"),
        time="d_at",
        name="d",
    )
    with pytest.raises(ColumnError, match=r"(?s)key of stream `d` is string; .*numbers, timestamps or dates.*Hint"):
        wm.join(text, wm.stream(text.df.withColumnRenamed("d_at", "e_at"), time="e_at"), on="epoch", window="auto")
    windowed = wm.stream(sensors.feeds[0].static(), time="a_at", name="a", window="1 hour")
    with pytest.raises(WindowError, match=r"(?s)knows no windows, and stream `a` has one.*Hint"):
        wm.join(windowed, b, on="epoch", window="auto")
    with pytest.raises(QueryError, match=r"(?s)`window` is \"auto\" and `algorithm` is \"hash\".*Hint: leave"):
        wm.join(a, b, on="epoch", window="auto", algorithm="hash")
    with pytest.raises(QueryError, match=r"(?s)`strategy` is about joins that find.*Hint: use window"):
        wm.join(windowed, b, on="epoch", window="1 hour", strategy="dbf")
    with pytest.raises(QueryError, match=r"(?s)`memory` is 'much'; .*Hint: write it like \"256 MB\""):
        wm.join(a, b, on="epoch", window="auto", memory="much")
    with pytest.raises(QueryError, match=r"(?s)computes inner joins of two to 8 streams; got \"left\" of 2.*Hint"):
        wm.join(a, b, on="epoch", window="auto", how="left")
    with pytest.raises(QueryError, match=r"(?s)`buffer` is \"eq8\" and `shards` is 2; .*Hint: leave `shards` out"):
        wm.join(a, b, on="epoch", algorithm=wm.WOJoin(buffer="eq8"), shards=2)
    assert len(wm.join(a, b, on="epoch", window="auto", algorithm=wm.WOJoin(buffer="eq7")).ids) == 1
    with pytest.raises(QueryError, match=r"(?s)`a`, `b`, `c` have no key common to all.*Hint: join on one column"):
        wm.join(a, b, c, on=["a.epoch = b.epoch", "b.b_n = c.c_n"], window="auto")
    auto = wm.stream(sensors.feeds[0].static(), time="a_at", name="a", delay="auto")
    with pytest.raises(WindowError, match=r"(?s)`window` is \"auto\" and `delay` of stream `a` as well.*Hint: leave"):
        wm.join(auto, b, on="epoch", window="auto")
    with pytest.raises(WindowError, match=r"(?s)`late_share` of stream `a` is given, and .*Hint: use"):
        wm.stream(sensors.feeds[0].static(), time="a_at", name="a", delay="1 second", late_share=0.1)
    assert wm.join(a, b, on="epoch", window="1 hour").streams[0].window == 3600 * 10**6
