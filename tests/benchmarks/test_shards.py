"""What the tables of the cost of a shard say of results, of runs that failed and of quick ones."""

import pytest

pytest.importorskip("rich")

from benchmarks import shards_report as report

WHERE = {
    "date": "2026-01-01",
    "machine": {"cores": 2},
    "versions": {"Python": "3.11"},
    "load_before": 0.5,
    "quick": False,
    "about": {report.STEADY: "batches", report.IDLE: "one key"},
}


def run(contender, case, shards, ms, python=0.0):
    spent = {"jvm": 100.0 + 10 * shards, "python": python}
    head = {"contender": contender, "case": case, "shards": shards}
    return head | {"ms": [ms, ms + 1, ms - 1], "processor_ms": spent, "timers_us": {"load": 500.0}}


def progress(shards, size, ms):
    head = {"shards": shards, "report_bytes": 1000, "progress_bytes": size, "counters_ms": 2.0}
    spread = {"spread_ms": 2 * ms, "spread_without_ms": 70.0}
    return head | spread | {"batch_ms": ms, "tasks_ms": 40.0, "without_ms": 30.0}


def answers(results):
    return {text: (measured, answer) for text, _, measured, answer in report.claims(results).rows}


RESULTS = WHERE | {
    "runs": [
        run("watersmeet", report.STEADY, 2, 1000),
        run("watersmeet", report.STEADY, 64, 1500),
        run("native-rocksdb-v4", report.STEADY, 2, 2000),
        run("native-rocksdb-v4", report.STEADY, 64, 16000),
        run("watersmeet", report.IDLE, 2, 100, python=20.0),
        run("watersmeet", report.IDLE, 64, 300, python=20.0 + 62 * 6),
    ],
    "progress": [progress(10, 20_000, 50.0), progress(1_000, 150_000, 300.0)],
}


def test_the_claims_follow_from_the_runs():
    found = answers(RESULTS)
    assert found["64 shards over two, time of a batch"] == ("1.50 (Spark's own 8.00)", "holds")
    assert found["our processes, a shard without rows"] == ("6.00 ms", "does not hold")
    assert found["progress of up to 10,000 shards"] == ("150,000", "holds")
    assert found["reports of 1,000 shards, the driver's part"] == ("262 ms", "holds")
    assert found["the same from 100 tasks"] == ("532 ms", "does not hold")
    assert report.idle_ms(RESULTS) == {"jvm": pytest.approx(10.0), "python": pytest.approx(6.0)}


def test_what_failed_is_not_measured_and_quick_runs_are_not_judged():
    failed = {"contender": "watersmeet", "case": report.STEADY, "shards": 64, "error": "exit 1"}
    results = WHERE | {"runs": [failed, *RESULTS["runs"][2:5]], "progress": []}
    assert {answer for _, answer in answers(results).values()} == {"not measured"}
    assert report.batches(results).rows[0][-1] == "exit 1"
    assert {answer for _, answer in answers(RESULTS | {"quick": True}).values()} == {"quick, not judged"}
    assert "| Spark's own join, RocksDB | 64 | 16,000 |" in report.markdown(RESULTS)
