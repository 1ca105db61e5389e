"""Nothing stalls: filtered rows move the watermark, silent streams follow the clock, a run that ends writes out all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

import watersmeet as wm
from lab.spark.feeds import Feed, partitions, rows, run
from watersmeet.errors import ColumnError, QueryError, StateMismatchError, WindowError
from watersmeet.spark.session import EMPTY_BATCHES

pytestmark = pytest.mark.spark
START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


class Two:
    """Streams a (k, at, x) and b (k, bt, y) with windows of ten seconds."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.a = Feed(spark, folder / "a", "k bigint, at timestamp, x bigint")
        self.b = Feed(spark, folder / "b", "k bigint, bt timestamp, y bigint")

    def join(
        self, how: str = "left", a: dict[str, Any] | None = None, b: dict[str, Any] | None = None, shards: int = 2
    ) -> wm.Joined:
        left = wm.stream(self.a.stream(), time="at", window="10 seconds", name="a", **(a or {}))
        right = wm.stream(self.b.stream(), time="bt", window="10 seconds", name="b", **(b or {}))
        return wm.join(left, right, on="k", how=how, shards=shards)


@pytest.fixture
def two(spark: SparkSession, tmp_path: Path) -> Two:
    return Two(spark, tmp_path)


# ---------------------------------------------------------------- filter


def test_rows_that_a_filter_removes_move_the_watermark(two: Two, tmp_path: Path) -> None:
    two.a.add_rows([(1, at(0), 1)])
    two.b.add_rows([(1, at(1), 1), (2, at(2), -5)])
    two.a.add_rows([(9, at(1), 9)])
    two.b.add_rows([(3, at(30), -5), (4, at(11), None)])
    out = run(two.join(b={"filter": "y > 0"}).df, tmp_path / "checkpoint")
    assert rows(out.table, ["k", "x", "y"]) == [(1, 1, 1), (9, 9, None)], "9 is final: b is past 11 seconds"
    assert sum(m["rows_in"] for m in out.metrics) == 3, "removed rows are no tuples"


def test_removed_rows_are_no_punctuations_and_break_no_constraint(two: Two, tmp_path: Path) -> None:
    two.a.add_rows([(1, at(0), 1)])
    two.b.add_rows([(1, at(1), -1), (1, at(1), 7), (2, at(1), 0)])
    two.a.add_rows([(2, at(2), 2)])
    two.b.add_rows([(2, at(2), 3)])
    closes = [wm.when("y <= 0", on="k"), wm.unique("k")]
    out = run(two.join(b={"filter": "y <> 0 AND y <> -1", "punctuation": closes}).tagged, tmp_path / "checkpoint")
    assert rows(
        out.table.filter(out.table.column("kind").to_numpy(zero_copy_only=False) == "result"), ["k", "x", "y"]
    ) == [
        (1, 1, 7),
        (2, 2, 3),
    ]
    assert "violation" not in out.table.column("kind").to_pylist()


def test_a_filter_that_is_no_condition_is_refused(two: Two) -> None:
    with pytest.raises(QueryError, match="`filter` of stream `b` is bigint; rows for which it is true are kept"):
        two.join(b={"filter": "y + 1"})
    with pytest.raises(ColumnError, match="`filter` names column `z`, which stream `b` does not have"):
        two.join(b={"filter": "z > 1"})
    with pytest.raises(QueryError, match=r"`filter` of stream `b` is .*; it is a condition on its rows"):
        two.join(b={"filter": 5})


# ---------------------------------------------------------------- idle_clock


class Collected:
    """Rows of all batches by number; `until` waits for a row."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[Any, ...]]] = {}
        self.changed = threading.Condition()

    def __call__(self, batch: DataFrame, number: int) -> None:
        found = [tuple(row) for row in batch.collect()]
        with self.changed:
            self.batches[number] = found
            self.changed.notify_all()

    def rows(self) -> list[tuple[Any, ...]]:
        return sorted((row for batch in self.batches.values() for row in batch), key=str)

    def until(self, count: int, query: StreamingQuery) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.rows()) >= count or not query.isActive, 120), self.rows()
        if not query.isActive:
            query.awaitTermination()


@pytest.fixture
def started() -> Iterator[list[StreamingQuery]]:
    queries: list[StreamingQuery] = []
    yield queries
    for query in queries:
        query.stop()


def test_unmatched_rows_come_although_all_sources_are_silent(
    two: Two, tmp_path: Path, started: list[StreamingQuery]
) -> None:
    now = datetime.now(UTC)
    two.a.add_rows([(1, now, 1), (2, now, 2)])
    two.b.add_rows([(1, now, 1)])
    out = Collected()
    joined = two.join(b={"idle_clock": "1 second"})
    started.append(wm.write(joined, checkpoint=tmp_path / "checkpoint", results=out, trigger="0 seconds"))
    out.until(2, started[0])
    assert [(k, x, y) for k, _, x, _, y in out.rows()] == [(1, 1, 1), (2, 2, None)]
    last = next(n for n, batch in out.batches.items() if any(row[0] == 2 for row in batch))
    assert last > 0, "in a batch without rows"


def test_groups_come_although_all_sources_are_silent(two: Two, tmp_path: Path, started: list[StreamingQuery]) -> None:
    now = datetime.now(UTC)
    two.a.add_rows([(1, now, 1), (2, now, 2)])
    two.b.add_rows([(1, now, 1), (1, now, 2)])
    clock, out = {"idle_clock": "1 second"}, Collected()
    groups = two.join("inner", a=clock, b=clock).group_by("k", wm.bucket("at", "1 second")).agg(n=wm.count())
    started.append(wm.write(groups, checkpoint=tmp_path / "checkpoint", results=out, trigger="0 seconds"))
    out.until(1, started[0])
    ((k, _, n),) = out.rows()
    assert (k, n) == (1, 2)
    assert 0 not in [number for number, batch in out.batches.items() if batch], "in a batch without rows"


def test_as_of_answers_come_although_all_sources_are_silent(
    two: Two, tmp_path: Path, started: list[StreamingQuery]
) -> None:
    now = datetime.now(UTC)
    two.a.add_rows([(1, now, 1), (2, now, 2)])
    two.b.add_rows([(1, now - timedelta(seconds=1), 5), (1, now - timedelta(seconds=2), 4)])
    a = wm.stream(two.a.stream(), time="at", name="a")
    b = wm.stream(two.b.stream(), time="bt", name="b", idle_clock="1 second")
    out, joined = Collected(), wm.join_asof(a, b, on="k", shards=2)
    started.append(wm.write(joined, checkpoint=tmp_path / "checkpoint", results=out, trigger="0 seconds"))
    out.until(2, started[0])
    assert [(k, x, y) for k, _, x, _, y in out.rows()] == [(1, 1, 5), (2, 2, None)]
    assert 0 not in [number for number, batch in out.batches.items() if batch], "in a batch without rows"


def test_a_batch_that_is_run_again_follows_the_same_clock(
    two: Two, tmp_path: Path, started: list[StreamingQuery]
) -> None:
    now = datetime.now(UTC)
    two.a.add_rows([(2, now, 2)])
    out, joined = Collected(), two.join(b={"idle_clock": "1 second"})
    failed: list[int] = []

    def once_failing(batch: DataFrame, number: int) -> None:
        if batch.isEmpty() or failed:
            out(batch, number)
        else:
            failed.append(number)
            raise RuntimeError("the driver dies with the unmatched row in its hands")

    def start() -> StreamingQuery:
        started.append(wm.write(joined, checkpoint=tmp_path / "c", results=once_failing, trigger="0 seconds"))
        return started[-1]

    with pytest.raises(Exception, match="dies with"):
        start().awaitTermination()
    out.until(1, start())
    assert [n for n, batch in out.batches.items() if batch] == failed, "the row is one of the same batch"


def test_rows_that_came_while_the_query_was_down_are_on_time(
    two: Two, tmp_path: Path, started: list[StreamingQuery]
) -> None:
    """However long it was down: the clock counts when the sources have been read."""
    clock, out, late = {"idle_clock": "1 millisecond"}, Collected(), Collected()

    def start(**options: Any) -> StreamingQuery:
        joined = two.join("inner", a=clock, b=clock)
        started.append(wm.write(joined, checkpoint=tmp_path / "c", results=out, late=late, **options))
        return started[-1]

    for k in (1, 2):
        now = datetime.now(UTC)
        two.a.add_rows([(k, now, k)])
        two.b.add_rows([(k, now, k)])
        if k == 1:
            start(trigger={"availableNow": True}).awaitTermination()
    query = start(trigger="0 seconds")
    with late.changed:
        assert late.changed.wait_for(lambda: len(late.batches) >= 3 or not query.isActive, 120)
    assert late.rows() == []
    assert [(k, x, y) for k, _, x, _, y in out.rows()] == [(1, 1, 1), (2, 2, 2)]


def test_a_run_that_is_started_again_stops_the_one_before(
    spark: SparkSession, two: Two, tmp_path: Path, started: list[StreamingQuery]
) -> None:
    """As Spark does it; unless Spark is set to refuse the second run, which leaves the first one as it is."""
    stops = "spark.sql.streaming.stopActiveRunOnRestart"
    two.a.add_rows([(1, datetime.now(UTC), 1)])
    two.b.add_rows([(1, datetime.now(UTC), 1)])
    for _ in range(2):
        out, joined = Collected(), two.join(b={"idle_clock": "1 hour"})
        started.append(wm.write(joined, checkpoint=tmp_path / "c", results=out, trigger="0 seconds"))
        with out.changed:
            assert out.changed.wait_for(lambda: len(out.batches) >= 2, 120)  # noqa: B023  # called at once
    assert [query.isActive for query in started] == [False, True]
    assert started[0].exception() is None
    spark.conf.set(stops, "false")
    try:
        with pytest.raises(Exception, match="already active"):
            wm.write(joined, checkpoint=tmp_path / "c", results=out, trigger="0 seconds")
    finally:
        spark.conf.unset(stops)
    number = max(out.batches)
    with out.changed:
        assert out.changed.wait_for(lambda: max(out.batches) > number + 1, 120)


@pytest.mark.parametrize("shards", [2, 3])
def test_a_query_that_starts_again_in_silence_follows_the_clock(
    spark: SparkSession, two: Two, tmp_path: Path, started: list[StreamingQuery], shards: int
) -> None:
    """As it was, or rescaled: timers are part of the state."""
    now, clock, out, place = datetime.now(UTC), {"idle_clock": "1 second"}, Collected(), tmp_path / "2"
    two.a.add_rows([(k, now, k) for k in range(4)])
    two.b.add_rows([(1, now, 1)])
    before = run(two.join(b=clock).df, place)
    assert rows(before.table, ["k", "x", "y"]) == [(1, 1, 1)]
    if shards == 3:
        wm.rescale_state(spark, place, tmp_path / "3", shards=shards)
    with partitions(spark, shards):
        joined = two.join(b=clock, shards=shards)
        started.append(wm.write(joined, checkpoint=tmp_path / str(shards), results=out, trigger="0 seconds"))
        out.until(3, started[0])
    assert [(k, x, y) for k, _, x, _, y in out.rows()] == [(k, k, None) for k in (0, 2, 3)]


def test_a_run_that_takes_what_is_there_ends_with_a_clock(two: Two, tmp_path: Path) -> None:
    two.a.add_rows([(1, at(0), 1)])
    two.b.add_rows([(1, at(1), 1)])
    joined, out = two.join(b={"idle_clock": "1 hour"}), Collected()
    query = wm.write(joined, checkpoint=tmp_path / "c", results=out, trigger={"availableNow": True})
    query.awaitTermination()
    assert [(k, x, y) for k, _, x, _, y in out.rows()] == [(1, 1, 1)]
    assert list(out.batches) == [0], "no batches run for the clock"
    assert joined.streams[0].df.sparkSession.conf.get(EMPTY_BATCHES, "true") == "true", "of this run alone"


def test_clocks_that_cannot_be_followed_are_refused(spark: SparkSession, two: Two) -> None:
    local = spark.createDataFrame([], "k bigint, bt timestamp_ntz")
    with pytest.raises(ColumnError, match="`idle_clock` of the stream is given, and its `time` `bt` is timestamp_ntz"):
        wm.stream(local, time="bt", idle_clock="1 minute")
    a = wm.stream(two.a.stream(), time="at", idle_clock="1 minute", name="a")
    b = wm.stream(two.b.stream(), time="bt", name="b")
    with pytest.raises(WindowError, match='`window` is "auto" and `idle_clock` of stream `a` is given'):
        wm.join(a, b, on="k", window="auto")


# ---------------------------------------------------------------- ends


def test_a_run_that_ends_writes_out_what_nothing_can_change(two: Two, tmp_path: Path) -> None:
    checkpoint, out = tmp_path / "checkpoint", tmp_path / "out"
    two.a.add_rows([(1, at(0), 1), (2, at(0), 2)])
    two.b.add_rows([(1, at(1), 1), (3, at(1), 3)])
    wm.write(two.join("full"), checkpoint=checkpoint, results=out, trigger={"availableNow": True}).awaitTermination()
    two.a.add_rows([(3, at(2), 3)])
    wm.write(two.join("full"), checkpoint=checkpoint, results=out, ends=True).awaitTermination()
    found = [(row["k"], row["x"], row["y"]) for row in two.a.spark.read.parquet(str(out)).collect()]
    assert sorted(found) == [(1, 1, 1), (2, 2, None), (3, 3, 3)]
    for ends in (False, True):
        with pytest.raises(StateMismatchError, match="the checkpoint has ended: its query was run with ends=True"):
            wm.write(two.join("full"), checkpoint=checkpoint, results=out, ends=ends)
    two.a.add_rows([(4, at(3), 4)])
    with pytest.raises(Exception, match="the checkpoint has ended"):
        run(two.join("full").df, checkpoint)


def test_a_last_batch_that_is_interrupted_is_completed_and_not_doubled(two: Two, tmp_path: Path) -> None:
    """A sink that skips batches it has, as tables do: the batch that ends the run comes again with the same rows."""
    two.a.add_rows([(1, at(0), 1), (2, at(0), 2)])
    two.b.add_rows([(1, at(1), 1)])
    table: dict[int, list[Any]] = {}
    fails = [True]

    def sink(df: Any, batch: int) -> None:
        rows = sorted((row["k"], row["x"], row["y"]) for row in df.collect())
        assert table.setdefault(batch, rows) == rows, "a batch has the same rows whenever it runs"
        if fails and any(row[2] is None for row in rows):
            raise RuntimeError(f"dies with batch {fails.pop()} in the sink")

    def write(**arguments: Any) -> Any:
        return wm.write(two.join("left"), checkpoint=tmp_path / "checkpoint", results=sink, **arguments)

    with pytest.raises(Exception, match="dies with batch"):
        write(ends=True).awaitTermination()
    with pytest.raises(StateMismatchError, match="was interrupted in its last batch, after which its streams end"):
        write()
    two.b.add_rows([(2, at(1), 2)])  # not of the run that ends
    write(ends=True).awaitTermination()
    assert [row for batch in table.values() for row in batch] == [(1, 1, 1), (2, 2, None)]


def test_groups_and_further_joins_end_too(two: Two, spark: SparkSession, tmp_path: Path) -> None:
    two.a.add_rows([(1, at(0), 1), (2, at(0), 2)])
    two.b.add_rows([(1, at(1), 1), (1, at(2), 2)])
    c = Feed(spark, tmp_path / "c", "k bigint, ct timestamp, z bigint")
    c.add_rows([(1, at(3), 5)])
    chain = wm.join(
        two.join("inner").as_stream(window="10 seconds"),
        wm.stream(c.stream(), time="ct", window="10 seconds", name="c", idle_clock="1 hour"),
        on="k",
        how="left",
        shards=2,
    )
    c.add_rows([(7, at(3), 7)])
    found: list[Any] = []
    wm.write(
        chain, checkpoint=tmp_path / "chain", results=lambda df, n: found.extend(df.collect()), ends=True
    ).awaitTermination()
    assert sorted((row["k"], row["y"], row["z"]) for row in found) == [(1, 1, 5), (1, 2, 5)]
    groups = two.join("inner").group_by("k", wm.bucket("at", "1 hour")).agg(n=wm.count())
    per_key: list[Any] = []
    wm.write(
        groups, checkpoint=tmp_path / "groups", results=lambda df, n: per_key.extend(df.collect()), ends=True
    ).awaitTermination()
    assert [(row["k"], row["n"]) for row in per_key] == [(1, 2)]


def test_a_run_that_ends_takes_no_other_trigger(two: Two, tmp_path: Path) -> None:
    with pytest.raises(QueryError) as wrong:
        wm.write(two.join(), checkpoint=tmp_path / "c", results=tmp_path / "o", ends=True, trigger="10 seconds")
    assert str(wrong.value) == (
        "`ends` is true and `trigger` is '10 seconds'; a run that ends processes the input that is there.\n"
        'Hint: leave `trigger` out, or use trigger={"availableNow": True}.'
    )
