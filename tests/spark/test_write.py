"""`wm.write`: results and late rows to sinks of their own, each batch computed once, restarts included."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from lab.spark.feeds import Feed, failure, metrics_of, run
from watersmeet.errors import QueryError, StateCorruptError, StateError, StateMismatchError, ViolationError, found_in
from watersmeet.spark.checkpoints.result_folder import Folder, query_id
from watersmeet.spark.checkpoints.state_reader import compare
from watersmeet.spark.session import FILE_MANAGER, LOCAL_FILE_MANAGER

pytestmark = pytest.mark.spark

NOW = {"availableNow": True}
#: A text column of each stream, called like a column of `tagged`.
KINDS = {"a": "kind", "b": "stream"}


class Pair:
    """Two streams on key `k`. In batch n stream a brings keys 0 to 4, and 5 late ones; b brings keys 2 to 6."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.folder = folder
        self.feeds = [
            Feed(spark, folder / n, f"k bigint, {n}_ts timestamp, {kind} string") for n, kind in KINDS.items()
        ]

    def add(self, batches: int) -> None:
        for n in range(self.feeds[0].files, self.feeds[0].files + batches):
            late = [(k, n - 100) for k in range(5)] if n else []
            self.feeds[0].add(table("a", [*((k, n) for k in range(5)), *late]))
            self.feeds[1].add(table("b", [(k, n) for k in range(2, 7)]))

    def joined(self, *, named: bool = True, window: str = "0 seconds", **options: Any) -> wm.Joined:
        streams = (
            wm.stream(feed.stream(), time=f"{n}_ts", window=window, name=n if named else None)
            for feed, n in zip(self.feeds, "ab", strict=True)
        )
        return wm.join(*streams, on="k", **options)

    def write(self, joined: wm.Joined | None = None, *, checkpoint: str = "checkpoint", **sinks: Any) -> StreamingQuery:
        query = wm.write(joined or self.joined(), checkpoint=self.folder / checkpoint, trigger=NOW, **sinks)
        query.awaitTermination()
        return query


def table(name: str, rows: list[tuple[int, int]]) -> pa.Table:
    times = pa.array([1_000_000 * second for _, second in rows], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table({"k": [k for k, _ in rows], f"{name}_ts": times, KINDS[name]: [f"{k}" for k, _ in rows]})


class Rows:
    """A function sink that remembers what each batch gave it."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}

    def __call__(self, df: DataFrame, number: int) -> None:
        self.batches[number] = sorted(tuple(row) for row in df.collect())


def test_results_and_late_rows_go_to_a_sink_each_and_a_batch_is_computed_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    pair, results, late = Pair(spark, tmp_path), Rows(), Rows()
    pair.add(2)
    query = pair.write(results=results, late=late)
    assert {n: [row[0] for row in rows] for n, rows in results.batches.items()} == {0: [2, 3, 4], 1: [2, 3, 4]}
    assert {len(row) for rows in results.batches.values() for row in rows} == {5}
    assert {n: len(rows) for n, rows in late.batches.items()} == {0: 0, 1: 5}
    events = [(stream, json.loads(row)["k"]) for stream, row, *_ in late.batches[1]]
    assert sorted(events) == [("a", k) for k in range(5)]
    # a batch that was computed twice would be counted twice
    assert [metrics["rows_in"] for metrics in metrics_of(query)] == [10, 15]
    assert [metrics["late"] for metrics in metrics_of(query)] == [0, 5]
    assert [metrics["results"] for metrics in metrics_of(query)] == [3, 3]


def test_a_sink_need_not_look_at_everything(spark: SparkSession, tmp_path: Path) -> None:
    """State is written by what reads a batch; a sink that reads a part of it, or nothing, must not lose the rest."""
    pair, seen = Pair(spark, tmp_path), []
    pair.add(3)

    def first_row(df: DataFrame, number: int) -> None:
        if number == 0:
            seen.append(df.isEmpty())
        elif number == 2:
            seen.extend(sorted(row.k for row in df.collect()))

    query = pair.write(results=first_row)
    assert seen == [False, 2, 3, 4]
    assert [metrics["rows_in"] for metrics in metrics_of(query)] == [10, 15, 15]


def test_one_folder_is_written_without_a_copy_of_the_batch(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("the batch is read once")

    pair = Pair(spark, tmp_path)
    pair.add(2)
    monkeypatch.setattr(type(spark.range(1)), "persist", refuse)
    monkeypatch.setattr(type(spark.range(1)), "count", refuse)
    query = pair.write(results=tmp_path / "results")
    assert [metrics["rows_in"] for metrics in metrics_of(query)] == [10, 15]
    assert [metrics["results"] for metrics in metrics_of(query)] == [3, 3]
    stored = spark.read.parquet(str(tmp_path / "results")).collect()
    assert sorted((row["batch"], row["k"]) for row in stored) == [(n, k) for n in (0, 1) for k in (2, 3, 4)]


def test_late_rows_and_violations_can_have_a_sink_each(spark: SparkSession, tmp_path: Path) -> None:
    pair, late, violations = Pair(spark, tmp_path), Rows(), Rows()
    pair.add(2)  # a brings its keys again, and late ones
    first, second = pair.feeds
    streams = (
        wm.stream(first.stream(), time="a_ts", window="1 hour", name="a", punctuation=wm.unique("k")),
        wm.stream(second.stream(), time="b_ts", window="1 hour", name="b"),
    )
    pair.write(wm.join(*streams, on="k"), late=late, violations=violations)
    assert [(row[0], row[3]) for row in late.batches[1]] == [("a", "late")] * 5
    assert [(row[0], row[3]) for row in violations.batches[1]] == [("a", "violation")] * 5


def test_folders_hold_each_batch_once_whatever_happens(spark: SparkSession, tmp_path: Path) -> None:
    pair, late = Pair(spark, tmp_path), Rows()
    pair.add(2)

    def fails(df: DataFrame, number: int) -> None:
        if number == 1:
            raise OSError("the sink for late rows is full")
        late(df, number)

    text = failure(lambda: pair.write(results=tmp_path / "results", late=fails))
    assert "the sink for late rows is full" in text
    written = sorted(path.name for path in (tmp_path / "results").iterdir())
    assert written == ["_watersmeet", "batch=000000", "batch=000001"]
    query = pair.write(results=str(tmp_path / "results"), late=tmp_path / "late")
    assert [metrics["rows_in"] for metrics in metrics_of(query)] == [15], "the interrupted batch, again"
    stored = spark.read.parquet(str(tmp_path / "results"))
    assert sorted((row["batch"], row["k"]) for row in stored.collect()) == [(n, k) for n in (0, 1) for k in (2, 3, 4)]
    assert stored.columns == ["k", "a_ts", "kind", "b_ts", "stream", "batch"]
    rows = spark.read.parquet(str(tmp_path / "late")).collect()
    assert sorted((row["stream"], json.loads(row["row"])["k"], row["batch"]) for row in rows) == [
        ("a", k, 1) for k in range(5)
    ]


@pytest.mark.parametrize("log", ["commits", "offsets"])
def test_a_second_driver_on_a_checkpoint_is_refused(spark: SparkSession, tmp_path: Path, log: str) -> None:
    """One of two drivers finds the file of its next batch written by the other one, and stops."""
    assert spark.conf.get(FILE_MANAGER) == LOCAL_FILE_MANAGER
    streams = Pair(spark, tmp_path)
    streams.add(3)
    written = tmp_path / "checkpoint" / log

    def other_driver(_: DataFrame, number: int) -> None:
        """Between the offsets and the commit of batch 1 another driver goes on by one step."""
        if number == 1:
            last = max(int(file.name) for file in written.iterdir() if file.name.isdigit())
            shutil.copy(written / str(last), written / str(last + 1))

    with pytest.raises(StreamingQueryException, match=r"CONCURRENT_STREAM_LOG_UPDATE"):
        streams.write(results=other_driver)


def test_what_cannot_be_written_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path)
    pair.add(1)
    with pytest.raises(QueryError) as caught:
        wm.write(pair.joined(), checkpoint=tmp_path / "checkpoint")
    assert str(caught.value).startswith("`write` has no sink.\nHint: give `results`")
    with pytest.raises(QueryError) as caught:
        wm.write(pair.joined(), checkpoint=tmp_path / "checkpoint", results=3)  # type: ignore[arg-type]
    assert str(caught.value) == (
        "`results` is an int; a sink is a folder, a table, or a function of (DataFrame, batch number).\n"
        'Hint: results="out/results", wm.delta("out/results"), or results=lambda df, batch: ….'
    )
    for table in ("results", "out/results", 3):
        with pytest.raises(QueryError, match="an Iceberg table is named with its catalog") as caught:
            wm.iceberg(table)  # type: ignore[arg-type]
        assert caught.value.hint == 'wm.iceberg("lake.shop.results").'
    with pytest.raises(QueryError, match="`late` and `results` are one folder"):
        wm.write(
            pair.joined(), checkpoint=tmp_path / "checkpoint", results=wm.delta(tmp_path / "t"), late=tmp_path / "t"
        )
    static = wm.join(
        *(wm.stream(f.static(), time=f"{n}_ts", window="1 second") for f, n in zip(pair.feeds, "ab", strict=True)),
        on="k",
    )
    with pytest.raises(QueryError) as caught:
        wm.write(static, checkpoint=tmp_path / "checkpoint", results=tmp_path / "results")
    assert str(caught.value) == (
        "`write` starts a streaming query, and these streams are static DataFrames.\n"
        "Hint: use joined.df.write, or read the inputs with spark.readStream."
    )


# ---------------------------------------------------------------- a folder belongs to its query


def test_a_folder_of_another_query_is_refused_and_nothing_of_it_is_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    pair = Pair(spark, tmp_path)
    pair.add(2)
    names = ("results", "late", "punctuations")
    pair.write(**{name: tmp_path / name for name in names})
    before = {file: file.read_bytes() for file in tmp_path.glob("*/batch=*/*")}
    id = json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    for name in names:
        with pytest.raises(QueryError) as caught:
            pair.write(checkpoint="another", **{name: str(tmp_path / name)})
        assert str(caught.value) == (
            f"`{name}` {tmp_path / name} holds the batches of another query ({id}); this one has batches of the same "
            "numbers, which would replace some of them and leave others.\n"
            "Hint: give a folder that is not there yet, or start with the checkpoint of the query that wrote it."
        )
    assert {file: file.read_bytes() for file in tmp_path.glob("*/batch=*/*")} == before
    assert not (tmp_path / "another").exists()
    pair.add(1)
    pair.write(results=tmp_path / "results")  # which goes on
    assert sorted({row["batch"] for row in spark.read.parquet(str(tmp_path / "results")).collect()}) == [0, 1, 2]


def test_a_folder_is_claimed_before_it_is_written_to(spark: SparkSession, tmp_path: Path) -> None:
    folder = Folder(str(tmp_path / "a [b] {c}"), "results")
    folder.claim(spark, "first")
    folder.claim(spark, "first")
    with pytest.raises(QueryError, match=r"holds the batches of another query \(first\)"):
        folder.claim(spark, "second")
    spark.range(1).selectExpr("'second' AS query").write.mode("append").text(f"{folder.path}/_watersmeet")
    with pytest.raises(QueryError, match=r"another query \(first, second\)"):  # two at once
        folder.claim(spark, "first")
    unknown = Folder(str(tmp_path / "unknown"), "late")
    unknown.write(spark.range(1).toDF("k"), 0)
    with pytest.raises(QueryError) as caught:
        unknown.check(spark, "first")
    assert str(caught.value) == (
        f"`late` {unknown.path} holds batches, and no _watersmeet that says which query wrote them; batches of the "
        "same numbers would replace some of them and leave others.\nHint: give a folder that is not there yet."
    )


# ---------------------------------------------------------------- a checkpoint belongs to its query


def test_a_checkpoint_without_an_id_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    assert query_id(spark, str(tmp_path / "nothing")) is None
    for torn in ('{"id":', '{"name": "x"}', "[]"):
        (tmp_path / "metadata").write_text(torn)
        with pytest.raises(StateCorruptError) as caught:
            query_id(spark, str(tmp_path))
        assert str(caught.value) == (
            f"`checkpoint` {tmp_path} is no checkpoint of a query: its `metadata` has no id.\n"
            "Hint: restore the checkpoint from a copy, or give another folder."
        )


def test_a_checkpoint_that_cannot_be_compared_is_left_to_the_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def unreadable(*_: Any) -> Any:
        raise StateError("Spark cannot read it.")

    monkeypatch.setattr("watersmeet.spark.checkpoints.state_reader.collected", unreadable)
    compare(spark, str(tmp_path), ())
    assert "the checkpoint was not compared with the query: Spark cannot read it." in caplog.text


@pytest.fixture(scope="module")
def ran(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    """A query that was started by Spark's own `writeStream`, of streams without names. No data comes after it."""
    pair = Pair(spark, tmp_path_factory.mktemp("ran"))
    pair.add(1)
    run(pair.joined(named=False).df, pair.folder / "checkpoint")
    return pair


CHANGES: dict[str, tuple[dict[str, Any], str, str]] = {
    "window": (
        {"window": "1 second"},
        "the checkpoint belongs to another query: streams[0].window was 0 seconds, is 1 second; ",
        'undo the change, or carry the state over: wm.evolve_state("checkpoint", "new-checkpoint", joined); else start '
        "from a new checkpoint, with new folders for what is written.",
    ),
    "name": (
        {"named": True},
        "the checkpoint belongs to another query: streams[0].name was 'stream1', is 'a'; ",
        'undo the change, or carry the state over: wm.evolve_state("checkpoint", "new-checkpoint", joined); else start '
        "from a new checkpoint, with new folders for what is written.",
    ),
    "shards": (
        {"shards": 3},
        "the checkpoint was written with 2 shards; the query now has 3. Keys would be looked for in the wrong shard.",
        "run with shards=2, or divide the state anew: "
        'wm.rescale_state(spark, "checkpoint", "new-checkpoint", shards=3).',
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_query_is_refused_before_it_starts(ran: Pair, change: str) -> None:
    options, text, hint = CHANGES[change]
    with pytest.raises(StateMismatchError) as caught:
        ran.write(ran.joined(**({"named": False} | options)), results=ran.folder / "results")
    assert str(caught.value).startswith(text)
    assert caught.value.hint == hint


def test_further_operators_are_another_query(ran: Pair) -> None:
    grouped = ran.joined(named=False).group_by("kind", wm.bucket("a_ts", "1 minute")).agg(n=wm.count())
    with pytest.raises(StateMismatchError) as caught:
        wm.write(grouped, checkpoint=ran.folder / "checkpoint", results=ran.folder / "results")
    assert str(caught.value).startswith(
        f"`checkpoint` {ran.folder / 'checkpoint'} belongs to another query: it has the state of 1 of our operators, "
        "and the query has 2.\nHint: undo the change"
    )


def test_the_same_lines_are_the_same_query(ran: Pair) -> None:
    """Runs after the refusals above: streams without names are called by their places, however often they are made."""
    assert [s.name for s in ran.joined(named=False).streams] == ["stream1", "stream2"]
    rows = Rows()
    ran.add(1)
    ran.write(ran.joined(named=False), results=rows)
    assert {n: len(found) for n, found in rows.batches.items()} == {1: 3}


# ---------------------------------------------------------------- what comes out of a query that fails


def test_an_error_of_ours_comes_out_of_a_failed_query(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path)
    pair.add(2)  # both bring keys 2 to 4 again
    first, second = pair.feeds
    streams = (
        wm.stream(first.stream(), time="a_ts", window="1 hour", name="a", punctuation=wm.unique("k")),
        wm.stream(second.stream(), time="b_ts", window="1 hour", name="b"),
    )
    joined = wm.join(*streams, on="k", on_violation="error")
    query = wm.write(joined, checkpoint=tmp_path / "checkpoint", results=Rows(), trigger=NOW)
    with pytest.raises(ViolationError) as caught:
        query.awaitTermination()
    assert str(caught.value).startswith("stream `a`")
    assert isinstance(caught.value.__cause__, StreamingQueryException)
    assert type(query).__mro__[2].__name__ == "StreamingQuery"  # Spark's own, or that of Spark Connect
    found = query.exception()
    assert isinstance(found, ViolationError)
    assert str(found) == str(caught.value)
    with pytest.raises(ViolationError):
        query.processAllAvailable()


# ---------------------------------------------------------------- batches that are not read to their end


def test_sinks_may_stop_early_and_a_batch_of_spark_may_not(spark: SparkSession, tmp_path: Path) -> None:
    pair, seen = Pair(spark, tmp_path), []
    pair.add(2)
    pair.write(results=lambda df, _: seen.append(len(df.limit(1).collect())))
    assert seen == [1, 1]
    writer = pair.joined().df.writeStream.foreachBatch(lambda df, _: df.limit(1).collect())
    query = writer.option("checkpointLocation", str(tmp_path / "other")).trigger(availableNow=True).start()
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination()
    assert str(found_in(str(caught.value))) == (
        "a batch was not read to its end (by `limit`, `take`, `first`, `head`, `show` or `isEmpty` in `foreachBatch`, "
        "say); a shard that is not read writes no state, and Spark refuses the batch.\n"
        "Hint: use wm.write, whose sinks may read what they like, or call batch.persist() and batch.count() first."
    )


# ---------------------------------------------------------------- several joins in one query


def test_two_joins_in_one_query_are_counted_each(spark: SparkSession, tmp_path: Path) -> None:
    pair = Pair(spark, tmp_path)
    pair.add(1)
    one, other = pair.joined(), pair.joined(named=False, window="1 second")
    writer = one.df.union(other.df).writeStream.foreachBatch(lambda df, _: df.collect())
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    (progress,) = query.recentProgress
    assert wm.counters(progress)["rows_in"] == 20
    assert [wm.counters(progress, streams=s)["results"] for s in (["a", "b"], ["stream1", "stream2"])] == [3, 3]
    numbered = sorted(name for name in progress.observedMetrics)
    assert [wm.counters(progress, metrics=name)["rows_in"] for name in numbered] == [10, 10]
    measured = other.explain(analyze=query).to_dict()["measured"]
    assert (measured["rows_in"], measured["results"]) == (10, 3)
