"""Several shards in a task: the results, the state and all that goes on from it are those of a task for each."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

import watersmeet as wm
from lab.spark.feeds import divided, partitions, run
from lab.spark.feeds import rows as rows_of_table
from lab.spark.refusals import refusal
from lab.spark.three_streams import START, Three, timedelta
from watersmeet.errors import SettingError
from watersmeet.spark.session import PARTITIONS, SHARDS

pytestmark = pytest.mark.spark


def tasks_of(checkpoint: Path) -> int:
    """The tasks that Spark keeps for a checkpoint."""
    last = max((f for f in (checkpoint / "offsets").iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
    return int(json.loads(last.read_text().splitlines()[1])["conf"][PARTITIONS])


def seen(output: Any) -> list[str]:
    rows = [r for r in output.table.to_pylist() if r["kind"] != "punctuation"]
    return sorted(repr({k: v for k, v in row.items() if k not in ("shard", "shards")}) for row in rows)


def queries(three: Three) -> dict[str, Any]:
    groups = three.window_join().group_by("a", wm.bucket("b_at", "10 seconds")).agg(n=wm.count())
    first = three.punctuated("inner").as_stream("ab", window="15 seconds")
    return {
        "groups-in-a-second-operator": groups,
        "outer-join-with-closings": three.punctuated("full"),
        "join-of-a-join": wm.join(first, three.stream("c", window="15 seconds"), on="k"),
    }


def test_results_and_state_are_those_of_a_task_for_each(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "abc")
    for n in range(2):
        three.add(n)
        with divided(spark, 6, 2):
            few = {name: run(q.tagged, tmp_path / f"few-{name}") for name, q in queries(three).items()}
        with partitions(spark, 6):
            each = {name: run(q.tagged, tmp_path / f"each-{name}") for name, q in queries(three).items()}
        for name in few:
            assert seen(few[name]) == seen(each[name])
            assert len(few[name].metrics[0]["shards"]) == 6
    for name in few:
        assert [tasks_of(tmp_path / f"{how}-{name}") for how in ("few", "each")] == [2, 6]
        state, other = (wm.read_state(spark, tmp_path / f"{how}-{name}") for how in ("few", "each"))
        assert [len(o.headers) for o in state.operators] == [len(o.headers) for o in other.operators]
        assert [h.tuples for h in state.summary] == [h.tuples for h in other.summary]
        for stream in state.streams:
            a, b = (s.rows(stream).toArrow() for s in (state, other))
            assert rows_of_table(a, a.column_names) == rows_of_table(b, b.column_names)


def test_a_restart_rescaling_and_evolution_take_any_number_of_tasks(spark: SparkSession, tmp_path: Path) -> None:
    """Beside a query that nothing happens to: restarted, 2 → 6 tasks, 4 shards in 2 tasks, another window."""
    three, alone = Three(spark, tmp_path, "ab"), tmp_path / "alone"

    def step(n: int, checkpoint: Path, shards: int, tasks: int) -> None:
        three.add(n)
        with divided(spark, shards, tasks):
            output = run(three.window_join().tagged, checkpoint)
        assert seen(output) == seen(run(three.window_join().tagged, alone))

    step(0, tmp_path / "c", 6, 2)
    step(1, tmp_path / "c", 6, 3)
    assert tasks_of(tmp_path / "c") == 2, "Spark keeps those of the checkpoint"
    wm.rescale_state(spark, tmp_path / "c", tmp_path / "six", shards=6, tasks=6)
    assert tasks_of(tmp_path / "six") == 6
    step(2, tmp_path / "six", 6, 1)
    wm.rescale_state(spark, tmp_path / "six", tmp_path / "four", shards=4)
    if not is_remote():
        assert tasks_of(tmp_path / "four") == 2, "this master has two cores"
    step(3, tmp_path / "four", 4, 2)
    with divided(spark, 6, 3):
        evolved = wm.evolve_state(tmp_path / "four", tmp_path / "new", three.window_join())
        assert evolved.changes == ("shards 4 → 6",)
        assert tasks_of(tmp_path / "new") == 3
    step(4, tmp_path / "new", 6, 2)


@pytest.mark.skipif(is_remote(), reason="`bootstrap` needs the driver's JVM")
def test_a_seed_has_several_shards_in_a_task(spark: SparkSession, tmp_path: Path) -> None:
    three, later = Three(spark, tmp_path / "table", "ab"), Three(spark, tmp_path / "live", "ab")
    three.add(0)
    cut = START + timedelta(seconds=10)
    with divided(spark, 6, 2):
        joined = later.window_join()
        tables = {n: three.feeds[n].static() for n in "ab"}
        own = wm.bootstrap(joined, tmp_path / "c", tables, as_of=cut).results.count()
        later.add(1)
        output = run(joined.df, tmp_path / "c")
    assert tasks_of(tmp_path / "c") == 2
    three.add(1)
    streams = [three.stream(n, static=True, window="15 seconds") for n in "ab"]
    assert own + output.table.num_rows == wm.join(*streams, on="k").df.count()


def test_all_shards_of_a_task_follow_the_clock(spark: SparkSession, tmp_path: Path) -> None:
    three = Three(spark, tmp_path, "ab")
    three.add(0)
    with divided(spark, 6, 2):
        streams = [three.stream(n, window="15 seconds", idle_clock="1 hour") for n in "ab"]
        joined = wm.join(*streams, on="k", how="full")
        (metrics,) = run(joined.tagged, tmp_path / "c").metrics
    assert [s["shard"] for s in metrics["shards"]] == list(range(6))
    assert metrics["rows_in"] == 40


def test_a_session_and_an_explanation_have_the_tasks(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if is_remote():
        pytest.skip("the address of the server is not a master")
    before = spark.conf.get(PARTITIONS)
    three = Three(spark, tmp_path, "ab")

    def made(**numbers: int) -> tuple[str | None, str | None, str]:
        with caplog.at_level(logging.INFO, logger="watersmeet"):
            caplog.clear()
            wm.session(master="local[2]", **numbers)
        line = next(r.getMessage() for r in caplog.records if r.getMessage().startswith("session on"))
        return spark.conf.get(PARTITIONS), spark.conf.get(SHARDS, None), line.partition(";")[0]

    try:
        assert made(shards=64) == ("2", "64", "session on local[2] with 64 shards in 2 tasks")
        joined = three.window_join()
        assert len(joined.ids) == 64
        explained = joined.explain()
        assert explained.to_dict()["tasks"] == 2
        assert "streaming, 64 shards in 2 tasks, keys divided by hash" in str(explained)
        assert made(shards=64, tasks=1) == ("1", "64", "session on local[2] with 64 shards in 1 tasks")
        assert "64 shards in 1 task, " in str(three.window_join().explain())
        assert made(shards=3) == ("3", None, "session on local[2] with 3 shards in 3 tasks")
        assert made() == ("2", None, "session on local[2] with 2 shards in 2 tasks")
        assert "tasks" not in three.window_join().explain().to_dict()
    finally:
        spark.conf.set(PARTITIONS, before or "2")
        spark.conf.unset(SHARDS)


def test_uneven_tasks_are_refused(spark: SparkSession) -> None:
    def text(**numbers: Any) -> str:
        return refusal(SettingError, lambda: wm.session(master="local[2]", **numbers))

    assert text(shards=6, tasks=4) == (
        "`tasks` is 4 and `shards` is 6; each task has as many shards as the others, or a batch would wait for one.\n"
        "Hint: give shards=8, or a number of tasks that divides it."
    )
    assert text(shards=6, tasks=0) == "`tasks` is 0; it is a whole number from 1 on."
    assert refusal(SettingError, lambda: wm.rescale_state(spark, "c", "new", shards=2, tasks=3)).startswith(
        "`tasks` is 3 and `shards` is 2; each task has as many shards as the others"
    )
