"""A query that is seeded from tables and goes on live: nothing is missing and nothing comes twice; refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import watersmeet as wm
from lab.spark.feeds import Feed, partitions
from lab.spark.three_streams import DDL, Three, at
from watersmeet.errors import ColumnError, QueryError, StateMismatchError
from watersmeet.spark.bootstrap import Bootstrapped, _before, _micros

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}
CUT = at(15)
#: How a stream is read: over the live feed, or over all rows as a static DataFrame.
Make = Callable[..., wm.Stream]


def window_join(make: Make) -> wm.Joined:
    return wm.join(make("a", window="15 seconds"), make("b", window="5 seconds"), on="k")


def full_join(make: Make) -> wm.Joined:
    return wm.join(
        make("a", window="5 seconds", filter="a_at IS NOT NULL"), make("b", window="3 seconds"), on="k", how="full"
    )


def punctuated(make: Make) -> wm.Joined:
    closes = {n: wm.when(f"{n}_over", on="k") for n in "ab"}
    return wm.join(*(make(n, window="15 seconds", punctuation=closes[n]) for n in "ab"), on="k", how="left")


def groups(make: Make) -> wm.Grouped:
    return window_join(make).group_by("k", wm.bucket("b_at", "10 seconds")).agg(n=wm.count(), last=wm.max("a"))


def chain(make: Make) -> wm.Joined:
    ab = window_join(make).as_stream(window="8 seconds")
    return wm.join(ab, make("c", window="8 seconds"), on="k", how="left")


def as_of_join(make: Make) -> wm.Joined:
    return wm.join_asof(make("a"), make("b"), on="k", tolerance="4 seconds")


def in_sql(make: Make) -> Any:
    text = "SELECT X.k, X.a, Y.b FROM one [RANGE 5 SECONDS] X, two [RANGE 5 SECONDS] Y WHERE X.k = Y.k AND X.a_over"
    return wm.sql(text, one=make("a"), two=make("b"))


class Life:
    """Rows of batches 0 to 3; the tables have those of 0 to 2, the live feeds those from 1 on."""

    def __init__(self, spark: SparkSession, folder: Path, names: str = "ab") -> None:
        self.spark, self.folder, self.names = spark, folder, names
        self.live, self.whole = (Three(spark, folder / part, names) for part in ("live", "whole"))
        for n in range(4):
            self.whole.add(n)

    def stream(self, n: str, **options: Any) -> wm.Stream:
        return self.live.stream(n, **options)

    def static(self, n: str, **options: Any) -> wm.Stream:
        return self.whole.stream(n, static=True, **options)

    def tables(self) -> dict[str, DataFrame]:
        return {n: self.whole.feeds[n].static().where(F.col(f"{n}_at") < F.lit(at(30))) for n in self.names}

    def write(self, joined: Any, checkpoint: str = "c", **options: Any) -> None:
        folder = self.folder / checkpoint
        sinks = {"results": folder.with_name(f"{checkpoint}-out"), "late": folder.with_name(f"{checkpoint}-late")}
        wm.write(joined, checkpoint=folder, **{"trigger": NOW, **sinks, **options}).awaitTermination()

    def written(self, part: str, checkpoint: str = "c") -> list[dict[str, Any]]:
        rows = self.spark.read.parquet(str(self.folder / f"{checkpoint}-{part}")).collect()
        return [row.asDict() for row in rows]


def bag(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(repr(sorted((k, v) for k, v in row.items() if k != "batch")) for row in rows)


def collected(df: DataFrame) -> list[dict[str, Any]]:
    return [row.asDict() for row in df.collect()]


MORE = [pytest.param(define, marks=pytest.mark.more) for define in (window_join, as_of_join, in_sql)]


@pytest.mark.parametrize("define", [full_join, punctuated, groups, chain, *MORE])
def test_seed_and_live_together_are_the_join_over_both(
    spark: SparkSession, tmp_path: Path, define: Callable[[Make], Any]
) -> None:
    """The tables reach beyond the cut and the live rows before it; one row of each stream stands exactly at it."""
    life = Life(spark, tmp_path, "abc" if define is chain else "ab")
    tables: dict[str, Any] = life.tables()
    if define is in_sql:
        tables = {"one": tables["a"], "two": tables["b"]}
    seeded = wm.bootstrap(define(life.stream), tmp_path / "c", tables, as_of=CUT)
    before = rows_before_cut(life, define, [0, 1])
    if define is not chain:
        assert seeded.counters["rows_in"] == before, "the cut itself is live"
    watermarks = {held.watermark for held in seeded.state.summary if held.stream in life.names}
    assert watermarks <= {CUT}
    assert watermarks or define is in_sql
    for n in (1, 2):
        life.live.add(n)
        life.write(define(life.stream))
    life.live.add(3)
    life.write(define(life.stream), ends=True, trigger=None)
    assert bag(life.written("out")) == bag(collected(define(life.static).df))
    assert {r["batch"] for r in life.written("out")} >= {0, 1} or define is groups
    late = [json.loads(r["row"]) for r in life.written("late") if r["kind"] == "late"]
    assert len(late) == rows_before_cut(life, define, [1]), "all live rows that the tables had, and no others"


def rows_before_cut(life: Life, define: Callable[[Make], Any], batches: list[int]) -> int:
    """Tuples of the join: no closings where rows close keys, and in SQL only those for which its condition holds."""
    rows = [(n, r) for n in life.names for batch in batches for r in life.whole.rows[n][batch] if r[1] < CUT]
    if define is punctuated:
        rows = [(n, r) for n, r in rows if not r[3]]
    if define is in_sql:
        rows = [(n, r) for n, r in rows if n == "b" or r[3]]
    return len(rows)


def test_results_of_the_seed_come_once_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    """Without `as_of` the position of the sources is the seam; a sink that fails in batch 0 gets it again."""
    life = Life(spark, tmp_path)
    tables = {n: life.whole.feeds[n].static().where(F.col(f"{n}_at") < F.lit(at(20))) for n in "ab"}
    some = {
        emit: wm.bootstrap(window_join(life.stream), tmp_path / emit, tables, emit=emit) for emit in ("all", "none")
    }
    newest = {rows[-1][1] for rows in (life.whole.rows[n][1] for n in "ab")}
    assert {held.watermark for held in some["all"].state.summary} == newest, "an ordinary batch"
    own = collected(some["all"].results)
    counted = some["all"].counters
    assert len(own) == counted["results"] == some["none"].counters["results"] > 0
    assert str(some["all"]) == (
        f"{tmp_path / 'all'} is seeded, and continues with batch 1.\n"
        f"80 rows came, 0 of them late; {counted['stored']} are stored.\n"
        f"{counted['results']} results among them: delivered by wm.write as batch 0."
    )
    assert str(some["none"]).endswith("results among them: not kept.")
    assert repr(some["all"]) == f"Bootstrapped(checkpoint='{tmp_path / 'all'}', emit='all')"
    with pytest.raises(QueryError, match=r'the results of the seed were not kept: `emit` was "none"'):
        _ = some["none"].results

    def fails(df: DataFrame, number: int) -> None:
        raise RuntimeError(f"no room for batch {number}")

    with pytest.raises(RuntimeError, match="no room for batch 0"):
        life.write(window_join(life.stream), "all", late=fails)
    life.live.add(2)
    for emit in ("all", "none"):
        life.write(window_join(life.stream), emit)
    everything, live = life.written("out", "all"), life.written("out", "none")
    assert bag([r for r in everything if r["batch"] == 0]) == bag(own)
    assert bag([r for r in everything if r["batch"] > 0]) == bag(live)
    until = [
        s.where(F.col(f"{n}_at") < F.lit(at(30)))
        for n, s in zip("ab", (life.static("a").df, life.static("b").df), strict=True)
    ]
    streams = (
        wm.stream(df, time=f"{n}_at", window=w, name=n)
        for df, n, w in zip(until, "ab", ("15 seconds", "5 seconds"), strict=True)
    )
    assert bag(everything) == bag(collected(wm.join(*streams, on="k").df))
    assert (tmp_path / "all" / "seed" / "delivered").exists()
    life.write(window_join(life.stream), "all", late=lambda df, number: fails(df, number) if number == 0 else None)


def test_a_seed_is_rescaled_before_it_is_delivered(spark: SparkSession, tmp_path: Path) -> None:
    life = Life(spark, tmp_path)
    seeded = wm.bootstrap(window_join(life.stream), tmp_path / "first", life.tables(), as_of={"a": CUT, "b": str(CUT)})
    own = collected(seeded.results)
    with pytest.raises(StateMismatchError, match="has results of its seed that are not delivered; those of a changed"):
        wm.evolve_state(tmp_path / "first", tmp_path / "evolved", window_join(life.stream))
    wm.rescale_state(spark, tmp_path / "first", tmp_path / "c", shards=3)
    life.live.add(1)
    with partitions(spark, 3):
        life.write(window_join(life.stream))
    assert bag([r for r in life.written("out") if r["batch"] == 0]) == bag(own)
    assert any(r["batch"] == 1 for r in life.written("out"))


def test_punctuations_apart_a_measured_delay_and_sources_without_rows(spark: SparkSession, tmp_path: Path) -> None:
    """Key 1 is closed by the tables, so its row comes out alone at once; the rest when the streams end."""
    feeds = {n: Feed(spark, tmp_path / n, DDL.format(n=n)) for n in "ab"}
    closings = Feed(spark, tmp_path / "closings", "k bigint, b_at timestamp")
    column = feeds["b"].stream()
    over = wm.when("true", on="k", df=closings.stream())

    def join(**options: Any) -> wm.Joined:
        a = wm.stream(feeds["a"].stream(), time="a_at", name="a", delay="auto")
        b = wm.stream(column, time="b_at", name="b", punctuation=over, **options)
        return wm.join(a, b, on=a.df.k == b.df.k, how="left", allow_unbounded=True)

    rows = spark.createDataFrame(
        [(1, at(1), "a1", False), (2, at(2), "a2", False), (3, at(9), "new", False)], DDL.format(n="a")
    )
    empty = spark.createDataFrame([], DDL.format(n="b"))
    closed = spark.createDataFrame([(1, at(3)), (2, at(9))], "k bigint, b_at timestamp")
    tables = {"a": rows.withColumn("more", F.lit(1)), "b": (empty, closed)}
    seeded = wm.bootstrap(join(), tmp_path / "c", tables, as_of="2026-01-01 00:00:05")
    assert [(r["a"], r["b"]) for r in collected(seeded.results)] == [("a1", None)]
    assert {held.watermark for held in seeded.state.summary} == {at(5)}
    wm.write(join(), checkpoint=tmp_path / "c", results=tmp_path / "out", ends=True).awaitTermination()
    found = [(r["a"], r["batch"]) for r in spark.read.parquet(str(tmp_path / "out")).collect()]
    assert sorted(found) == [("a1", 0), ("a2", 1)]
    with pytest.raises(QueryError, match="stream `b` cannot be made of its table: "):
        wm.bootstrap(join(filter=column["b_over"]), tmp_path / "d", tables, as_of=at(5))
    assert not (tmp_path / "d").exists()
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")], "nothing is left behind"


@pytest.mark.parametrize(("kind", "moment"), [("timestamp", at(15)), ("timestamp_ntz", datetime(2026, 1, 1, 0, 0, 15))])
def test_rows_before_a_moment_of_either_type(spark: SparkSession, kind: str, moment: datetime) -> None:
    texts = ["2026-01-01 00:00:14.999999", "2026-01-01 00:00:15", None]
    df = spark.createDataFrame([(text,) for text in texts], "at string").select(F.col("at").cast(kind))
    until = _micros(spark, moment, df.schema["at"].dataType)
    assert until == _micros(spark, "2026-01-01 00:00:15", df.schema["at"].dataType)
    kept = _before(df, "at", until).select(F.col("at").cast("string")).collect()
    assert [row["at"] for row in kept] == [texts[0], None]
    other = datetime(2026, 1, 1) if kind == "timestamp" else CUT
    has = "has no time zone (2026-01-01T00:00:00)" if kind == "timestamp" else f"has a time zone ({CUT.isoformat()})"
    text = refused(QueryError, lambda: _micros(spark, other, df.schema["at"].dataType))
    assert text.startswith(f"`as_of` {has}, and event times are {kind}.")


def refused(kind: type[Exception], call: Callable[[], Any]) -> str:
    with pytest.raises(kind) as wrong:
        call()
    return str(wrong.value)


def test_refusals(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    three = Three(spark, tmp_path)
    tables: dict[str, Any] = {n: three.feeds[n].static() for n in "ab"}
    joined, place = three.window_join(), tmp_path / "checkpoint"

    def text(tables: Any = tables, joined: Any = joined, kind: type[Exception] = QueryError, **options: Any) -> str:
        return refused(kind, lambda: wm.bootstrap(joined, options.pop("checkpoint", place), tables, **options))

    assert text({"a": tables["a"]}) == (
        "`tables` has no table for stream `b`.\n"
        "Hint: give an empty one if it has no rows yet: spark.createDataFrame([], df.schema)."
    )
    assert text({**tables, "bb": tables["b"]}).startswith(
        "`tables` has a table for `bb`, which is no stream of the join."
    )
    assert text([tables["a"]]).startswith("`tables` is a list; it is a dictionary with a table for each stream.")
    assert text({**tables, "a": three.feeds["a"].stream()}) == (
        "`tables` has a streaming DataFrame for stream `a`; a table is a static DataFrame.\n"
        'Hint: {"a": spark.read.parquet("…")}.'
    )
    assert text({**tables, "a": (tables["a"], tables["a"])}).startswith(
        "`tables` has 2 DataFrames for stream `a`, which has no DataFrames of punctuations alone."
    )
    narrow = tables["a"].withColumn("k", F.col("k").cast("int"))
    assert text({**tables, "a": narrow}, kind=ColumnError) == (
        "column `k` is int in the table of stream `a`, and bigint in the stream.\n"
        'Hint: cast it: table.withColumn("k", F.col("k").cast("bigint")).'
    )
    missing = text({**tables, "a": tables["a"].drop("a_over")}, kind=ColumnError)
    assert missing.startswith("the table of stream `a` has no column `a_over`.")
    assert text(as_of={"a": CUT}).startswith("`as_of` has no event time for stream `b`.")
    assert text(as_of="tomorrow-ish").startswith("`as_of` is 'tomorrow-ish'; it is an event time.")
    assert text(as_of=5).startswith("`as_of` is an int; it is an event time.")
    assert text(emit="some") == '`emit` is \'some\'; results of the seed among itself come ("all") or not ("none").'
    static = wm.join(*(three.stream(n, window="5 seconds", static=True) for n in "ab"), on="k")
    assert text(joined=static).startswith(
        "`joined` is of static DataFrames; a state is continued by a streaming query."
    )
    assert text(joined=joined.df).startswith("`bootstrap` takes a join or its groups; got a DataFrame.")
    ascending = wm.join(three.stream("a"), three.stream("b"), on="k", window="auto")
    assert text(joined=ascending).startswith(
        '`joined` has window="auto"; what it keeps follows from the order in which rows come, which tables do not have.'
    )
    measured = wm.join(
        three.stream("a", window="5 seconds", delay="auto"), three.stream("b", window="5 seconds"), on="k"
    )
    assert text(joined=measured).startswith('stream `a` has delay="auto", and there is no `as_of`; a delay is measured')
    distinct = wm.stream(three.feeds["a"].stream().dropDuplicates(["k"]), time="a_at", window="5 seconds", name="a")
    assert text(joined=wm.join(distinct, three.stream("b", window="5 seconds"), on="k")).startswith(
        "the DataFrame of stream `a` keeps state of its own (Deduplicate), which no table fills."
    )
    other = wm.stream(three.feeds["c"].stream(), time="c_at", window="5 seconds", name="a")
    twice = wm.join(joined.as_stream("ab", window="5 seconds"), other, on="k")
    assert text(joined=twice).startswith("two streams are called `a`; `tables` could not tell them apart.")
    with partitions(spark, 3):
        assert text(kind=StateMismatchError).startswith("the join over the tables is another one than that over the st")
    with monkeypatch.context() as patched:
        patched.setattr(spark, "_jvm", None)
        assert text().startswith("`bootstrap` is called over Spark Connect: a client has no JVM that tells the sources")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    assert text(checkpoint=tmp_path / "full").startswith(f"`checkpoint` {tmp_path / 'full'} is there already, and not ")
    assert not place.exists()
    assert not [f for f in tmp_path.iterdir() if f.name.startswith(".")], "nothing is left behind"


def test_rows_that_violate_a_constraint_are_counted_in_the_words(spark: SparkSession) -> None:
    """They are not in the state, and the table may have many of them: it has no order."""
    counted = {"rows_in": 1000, "late": 1, "violations": 20, "stored": 979, "results": 0}
    assert str(Bootstrapped("c", counted, "none", (), spark)).splitlines()[1:] == [
        "1,000 rows came, 1 of them late, 20 violate punctuations or constraints; 979 are stored.",
        "0 results among them: not kept.",
    ]
