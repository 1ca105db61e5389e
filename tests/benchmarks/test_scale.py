"""What `./run bench scale` computes: the simulator, bytes of stages, drift of a series, processor time, the report."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("rich")
pytest.importorskip("matplotlib")

from benchmarks import data, scale, scale_charts, scale_report
from benchmarks.scale_parts import cost, event_log, one_shard, simulator_runs
from benchmarks.scale_parts.all_to_all import about, from_log
from benchmarks.scale_parts.cluster_driver import ClusterDriver
from benchmarks.scale_parts.simulator import Model, PerBlob, Prediction, Sample, Size, fit, makespan, predict
from lab.measure.processor_time import interpolated
from watersmeet.state.keys import encode_key

PER_BLOB = PerBlob(packing=0.01, joining=0.02)
TRUTH = Model((200.0, 5.0), (30.0, 0.002), (50.0, 0.004), PER_BLOB, *(np.ones(1) for _ in range(3)))


def sample(size: Size, late: float = 1.0) -> Sample:
    """A batch that takes what TRUTH says; its first joining task `late` times as long."""
    packing = (TRUTH.packing_ms(size),) * size.partitions
    joining = (TRUTH.joining_ms(size) * late, *(TRUTH.joining_ms(size),) * (size.shards - 1))
    driver = TRUTH.driver_ms(size)
    return Sample(size, driver + makespan(packing, size.cores) + makespan(joining, size.cores), packing, joining)


MEASURED = [
    sample(Size(rows, 4, shards, 1)) for rows in (10_000, 100_000, 400_000) for shards in (1, 4, 12) for _ in range(3)
]


def test_tasks_take_the_next_free_core() -> None:
    assert makespan([3.0, 3.0, 2.0, 2.0], 2) == 5.0
    assert makespan([5.0, 1.0, 1.0, 1.0], 2) == 5.0
    assert makespan([1.0, 2.0], 8) == 2.0
    assert makespan([], 4) == 0.0


def test_the_fit_finds_the_coefficients_that_made_the_batches() -> None:
    model = fit(MEASURED, PER_BLOB)
    assert model.driver == pytest.approx(TRUTH.driver)
    assert model.packing == pytest.approx(TRUTH.packing)
    assert model.joining == pytest.approx(TRUTH.joining)


def test_no_coefficient_is_negative() -> None:
    shrinking = [replace(s, batch_ms=s.batch_ms - 4.9 * s.size.tasks - 150 + 900 / s.size.tasks) for s in MEASURED]
    model = fit(shrinking, PER_BLOB)
    assert min(*model.driver, *model.packing, *model.joining) >= 0


def test_only_batches_of_one_core_fit_the_simulator() -> None:
    with pytest.raises(AssertionError, match="driver's part"):
        fit([sample(Size(1000, 4, 2, 2))], PER_BLOB)


@pytest.mark.parametrize("size", [Size(200_000, 4, 2, 2), Size(3_200_000, 64, 32, 16), Size(1_000_000, 8, 12, 5)])
def test_a_prediction_is_the_batch_if_nothing_varies(size: Size) -> None:
    found = predict(MEASURED, PER_BLOB, size, draws=5)
    assert (found.low, found.median, found.high) == pytest.approx((sample(size).batch_ms,) * 3)


def test_late_tasks_widen_the_range_and_cost_more_on_many_cores() -> None:
    late = [sample(s.size, late=1.5) if n % 3 == 0 else s for n, s in enumerate(MEASURED)]
    few, many = (predict(late, PER_BLOB, Size(100_000 * c, 2 * c, c, c)) for c in (2, 64))
    assert few.low < few.median < few.high
    slowdown = [p.median / sample(Size(100_000 * c, 2 * c, c, c)).batch_ms for p, c in ((few, 2), (many, 64))]
    assert slowdown[1] > slowdown[0]


def test_judged_predictions_say_how_far_off_they_were() -> None:
    slower = [replace(s, batch_ms=s.batch_ms * 1.25) for s in [sample(Size(100_000, 4, 2, 2))] * 3]
    found = simulator_runs.judge([*MEASURED, *slower], PER_BLOB)
    (row,) = found["compared"]
    assert row["error"] == pytest.approx(-0.2)
    assert found["worst_error"] == pytest.approx(0.2)
    assert simulator_runs.samples_of(json.loads(json.dumps(found)))[0] == MEASURED[0]
    first = found["beyond"][0]
    assert (first["rows"], first["partitions"], first["shards"], first["cores"]) == (200_000, 4, 2, 2)
    assert (first["low"], first["high"]) == pytest.approx((first["median"] * 0.8, first["median"] * 1.2))


def test_ranges_are_widened_on_both_sides() -> None:
    assert simulator_runs.widened(Prediction(10.0, 8.0, 12.0), 0.5) == Prediction(10.0, 4.0, 18.0)


def test_cores_to_pass_a_speed() -> None:
    def speed(cores: int) -> float:
        size = Size(100_000 * cores, 2 * cores, cores, cores)
        return size.rows / simulator_runs.fitted_time(TRUTH, size) * 1000

    assert simulator_runs.cores_to_pass(MEASURED, PER_BLOB, 0.999 * speed(9), None) == 9
    assert simulator_runs.cores_to_pass(MEASURED, PER_BLOB, 1e12, None) is None
    assert cost.cores_if_linear(400_000, 2, 2_000_000) == 10
    assert cost.cores_if_linear(300_000, 2, 1_000_000) == 7


def test_a_log_of_events_gives_the_bytes_and_times_of_its_stages(tmp_path) -> None:
    def task(stage: int, launched: int, finished: int, written: int, read: int) -> dict[str, object]:
        metrics = {
            "Shuffle Write Metrics": {"Shuffle Bytes Written": written},
            "Shuffle Read Metrics": {"Remote Bytes Read": read, "Local Bytes Read": 2 * read},
            "Input Metrics": {"Records Read": 7},
        }
        info = {"Launch Time": launched, "Finish Time": finished}
        return {"Event": "SparkListenerTaskEnd", "Stage ID": stage, "Task Info": info, "Task Metrics": metrics}

    def stage(id: int, event: str, **more: object) -> dict[str, object]:
        info = {"Stage ID": id, "Submission Time": 100, "Completion Time": 200}
        return {"Event": f"SparkListenerStage{event}", "Stage Info": info, **more}

    events = [
        {"Event": "SparkListenerApplicationStart"},
        stage(3, "Submitted", Properties={event_log.BATCH: "5", event_log.DESCRIPTION: "x"}),
        task(3, 110, 130, 50, 0),
        task(3, 130, 190, 60, 4),
        stage(3, "Completed"),
        stage(4, "Submitted"),
    ]
    (tmp_path / "log").write_text("\n".join(map(json.dumps, events)))
    (found,) = event_log.stages(tmp_path)
    assert (found.id, found.batch, found.description, found.tasks) == (3, 5, "x", 2)
    assert (found.shuffle_write, found.shuffle_read, found.input_rows) == (110, 12, 14)
    assert (found.runs, found.run_ms) == ([20, 60], 80)


def test_bytes_of_blobs_are_those_of_the_first_shuffle_alone() -> None:
    stages = [
        event_log.Stage(1, "all to all 2 10", None, 2, 700, 0, 0, 0, 9, [5, 6]),
        event_log.Stage(2, "all to all 2 10", None, 10, 90, 700, 0, 0, 9, [1] * 10),
        event_log.Stage(3, "gathered 2 10", None, 2, 8, 0, 0, 0, 9, [1, 1]),
    ]
    found = from_log({"job": "all to all", "partitions": 2, "shards": 10}, stages)
    assert found == {"shuffle_bytes": 700, "tasks": 12, "task_ms": 21}


def test_drift_compares_the_first_third_with_the_last() -> None:
    assert one_shard.drift([1.0, 1.0, 1.0, 9.0, 2.0, 2.0, 3.0]) == {"first": 1.0, "last": 2.5, "ratio": 2.5}


def test_a_series_of_any_length_has_few_points() -> None:
    series = one_shard.Series(most=4)
    for n in range(10):
        series.add({"a": float(n)})
    assert (series.points, series.stretch) == ([{"a": 1.5}, {"a": 5.5}], 4)


def test_keys_of_the_one_shard_belong_to_it() -> None:
    import pyarrow as pa

    keys = one_shard.own_keys(3, 200)
    assert len(set(keys.tolist())) == 200
    words = encode_key([pa.array(keys)], (False,)).words
    assert one_shard.ShardKeys(3, one_shard.SHARDS)(words).all()
    assert not one_shard.ShardKeys(4, one_shard.SHARDS)(words).any()


def test_a_short_run_of_the_one_shard_stays_flat_in_rows() -> None:
    found = one_shard.run(one_shard.Load(partitions=3, rows=60), seconds=0)
    assert found["batches"] == one_shard.WARM_UP + 30
    assert found["results"] > 1000
    assert 0.8 < found["drift"]["state_rows"]["ratio"] < 1.25
    assert found["blobs_a_batch"] == 6


def test_empty_blobs_have_no_payload() -> None:
    found = about(0, 50)
    assert (found["payload_bytes"], found["shards"]) == (0, 50)
    assert found["pack_us_a_shard"] > 0 < found["unpack_us_a_blob"]
    assert about(100, 50)["payload_bytes"] > 100 * 24


def test_processor_time_between_two_looks_is_on_their_line() -> None:
    assert [interpolated([1.0, 3.0], [10.0, 20.0], t) for t in (0.0, 1.0, 2.0, 3.0, 9.0)] == [10, 10, 15, 20, 20]


def test_every_part_has_tables_and_a_section_of_a_document() -> None:
    assert set(scale.PARTS) == set(scale_report.TABLES)
    assert set(scale_charts.CHARTS) < set(scale.PARTS)
    for name in scale.PARTS:
        assert f"<!-- scale {name}: begin -->" in scale.PAGES.get(name, scale.PAGE).read_text()


def test_a_machine_without_namespaces_is_reported_in_words(tmp_path) -> None:
    about = {"quick": False, "date": "2026-11-19", "machine": {"cores": 2, "CPU": "x", "memory": "1 GB"}}
    results = {"parts": {"network": about | {"load_before": 0.0, "found": [{"skipped": "`tc` is missing"}]}}}
    text = scale_report.section("network", results)
    assert text.endswith("Not measured. This machine does not allow network namespaces: `tc` is missing")
    assert scale_charts.draw(results, tmp_path) == []


def test_a_driver_that_ends_is_named_with_its_log(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(data, "SCRATCH", tmp_path)
    driver = ClusterDriver("spark://nowhere:1", "watersmeet", 2, tmp_path, quick=True)
    driver.command = [sys.executable, "-c", "print('words')"]
    with driver, pytest.raises(RuntimeError, match=r"^the driver ended \(reason in scale-cluster-watersmeet-2.log\)$"):
        driver.batches(1)


def memory_run(name: str, most: int, digest: str = "1", **more: object) -> dict[str, object]:
    sizes = {"state_bytes": 260_000_000, "spilled_bytes": 0, "most_bytes": most, "median_bytes": most - 1}
    about = {"name": name, "rows": 40_000, "memory": None, "batch_ms": 900.0, "digest": digest, "processes": 4}
    return about | sizes | more


def test_the_memory_of_a_join_is_judged_beside_that_of_tiny_state() -> None:
    about = {
        "quick": False,
        "date": "2026-11-19",
        "machine": {"cores": 2, "CPU": "x", "memory": "1 GB"},
        "load_before": 0,
    }
    tiny, large = memory_run("tiny", 300_000_000, digest="0"), memory_run("large", 560_000_000)
    bounded = memory_run("bounded", 370_000_000, memory=80_000_000, spilled_bytes=180_000_000)

    def text(*found: dict[str, object]) -> str:
        return scale_report.section("memory", {"parts": {"memory": about | {"found": list(found)}}})

    assert "the state is 3.2 times as large" in text(tiny, large, bounded)
    assert "over that of the same join with tiny state: 70.0 MB, holds." in text(tiny, large, bounded)
    assert "90.0 MB, does not hold." in text(tiny, large, bounded | {"most_bytes": 390_000_000})
    assert "Not measured, or the results differ." in text(tiny, large, bounded | {"digest": "2"})
    failed = text({"name": "tiny", "error": "exit 1"}, large, bounded)
    assert "Not measured" in failed
    assert "| of tiny state | exit 1 |" in failed
