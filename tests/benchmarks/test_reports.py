"""What the benchmarks' tables say of results, of runs that failed and of wrong numbers."""

import pytest

pytest.importorskip("rich")
pytest.importorskip("duckdb")

from benchmarks import command, joins, joins_report, nexmark, peers, peers_report
from benchmarks.join_contenders import CASES, CONTENDERS
from lab.measure.sections import fill

WHERE = {
    "date": "2026-01-01",
    "machine": {"cores": 2},
    "versions": {"Python": "3.11"},
    "load_before": 0.5,
    "quick": False,
    "about": "a join",
}


def peer(name, seconds, results=10):
    return {"peer": name, "rows": 1000, "seconds": seconds, "results": results, "version": "1", "process_s": 9.0}


def batch(rows, ms, state, groups=0):
    own = {"open_groups": groups}
    return {
        "phase": "steady",
        "rows": rows,
        "durations": {"triggerExecution": ms},
        "state_rows": state,
        "state_bytes": state * 10,
        "watersmeet": own,
    }


def nexmark_run(contender, ms, state, missing=0):
    batches = [batch(1000, ms, state, groups=5), {**batch(9, 9, 10**6), "phase": "end"}]
    return {"contender": contender, "results": 7, "missing": missing, "unexpected": 0, "batches": batches}


def test_peers_are_judged_one_by_one():
    failed = {"peer": "pathway", "error": "pathway==1 does not install on Python 3.11 (x.log says why)"}
    runs = [peer("watersmeet", 2.0), peer("flink-heap", 1.0), peer("bytewax", 4.0, results=9), failed]
    results = WHERE | {"runs": runs, "expected": 10, "rows": 3000}
    answers = {name: (measured, answer) for name, _, measured, answer in peers_report.claims(results).rows}
    assert answers["flink-heap"] == ("0.50", "does not hold")
    assert answers["bytewax"] == ("2.00", "holds")
    assert answers["pathway"] == answers["spark-rocksdb"] == ("–", "not measured")
    found = {row[0]: row[-1] for row in peers_report.speeds(results).rows}
    assert found == {
        "watersmeet": "results as counted",
        "flink-heap": "results as counted",
        "bytewax": "10 expected",
        "pathway": failed["error"],
    }


def test_a_quick_run_of_peers_is_not_judged():
    results = WHERE | {
        "quick": True,
        "runs": [peer("watersmeet", 1.0), peer("bytewax", 4.0)],
        "expected": 10,
        "rows": 3,
    }
    assert "holds" not in {row[-1] for row in peers_report.claims(results).rows}


def test_everybody_is_described():
    assert set(peers_report.DOES) == set(peers.CONTENDERS)
    assert set(peers_report.STREAMING_AND_DURABLE) < set(peers.CONTENDERS)


def test_nexmark_is_reported_by_steady_batches():
    runs = [
        nexmark_run("watersmeet", 500, 10),
        nexmark_run("native-memory", 1000, 60),
        nexmark_run("native-rocksdb", 2000, 30, 2),
    ]
    case = WHERE | {"size": "small", "runs": runs}
    results = {"queries": {"q4": case}}
    assert nexmark.summary(results).rows == [("q4", "4.00", "2.00", "2.33", "not all equal")]
    found = {row[0]: row[1:] for row in nexmark.query_table("q4", case).rows}
    assert found["watersmeet"] == ("2,000", "–", "–", "1.00", "15", "1.00", "0.00", "1.00", "7", "equal")
    assert found["native-rocksdb"][-1] == "2 missing, 0 too many"


def test_nexmark_counts_all_events_of_the_generator_and_the_cores_in_use():
    ours = nexmark_run("watersmeet", 500, 10) | {"core_seconds": 0.8}
    case = WHERE | {"size": "small", "events_a_batch": 20_000, "runs": [ours, nexmark_run("native-memory", 1, 1)]}
    found = {row[0]: row[1:4] for row in nexmark.query_table("q3", case | {"about": "q3"}).rows}
    assert found == {"watersmeet": ("2,000", "40,000", "25,000"), "native-memory": ("1,000,000", "–", "–")}
    text = nexmark.counted({"queries": {"q3": case}})
    assert "| q3 | watersmeet | 40,000 | 25,000 |" in text
    assert "native-memory" not in text
    assert nexmark.counted({"queries": {}}) == "Not measured."


def test_a_failed_run_of_nexmark_is_shown():
    runs = [nexmark_run("watersmeet", 500, 10), {"contender": "native-memory", "error": "exit 1"}]
    results = {"queries": {"q3": WHERE | {"size": "small", "runs": runs}}}
    assert "native-memory failed: exit 1." in nexmark.markdown(results)
    assert nexmark.summary(results).rows[0][-1] == "all equal, some failed"


def join_run(contender, ms, found=7):
    return {
        "contender": contender,
        "repetition": 0,
        "found": {"results": found},
        "expected": {"results": 7},
        "batches": [batch(1000, ms, 10)],
    }


def test_joins_are_judged_by_ratios_of_right_results():
    runs = {
        "band-20k": [join_run("band", 100), join_run("native-band", 3000)],
        "band-200k": [join_run("band", 400), join_run("equality", 100)],
        "asof-200k": [join_run("asof", 100), join_run("hash", 90), join_run("per-key", 900, found=6)],
    }
    results = {"cases": {name: WHERE | {"runs": some} for name, some in runs.items()}}
    found = [(case, measured, answer) for case, _, _, measured, answer in joins_report.claims(results).rows]
    assert found == [
        ("band-20k", "30.00", "holds"),
        ("band-200k", "4.00", "does not hold"),
        ("asof-200k", "9.00", "does not hold"),  # a wrong result
        ("asof-few-keys", "–", "not measured"),
        ("asof-200k", "1.11", "holds"),
    ]
    assert "{'results': 7} expected" in joins_report.markdown(results)
    runs["band-20k"][1] = {"contender": "native-band", "repetition": 0, "error": "exit 1"}
    assert "native-band failed: exit 1." in joins_report.markdown(results)


def test_every_contender_of_the_joins_has_a_case_and_slow_ones_run_once():
    assert {name for case in CASES.values() for name in case.contenders} == set(CONTENDERS)
    assert {ratio.case for ratio in joins_report.RATIOS} == set(CASES)
    assert sorted(joins.runs_of(CASES["band-20k"])) == [(0, "band"), (0, "native-band"), (1, "band"), (2, "band")]


@pytest.mark.parametrize("section", ["results", "profile", "punctuations", "multiway", "nexmark", "peers", "joins"])
def test_the_page_has_a_place_for_every_section(section, tmp_path):
    page = tmp_path / "README.md"
    page.write_text(command.README.read_text())
    fill(page, {section: "filled in"})
    assert f"<!-- {section}: begin -->\n\nfilled in\n\n<!-- {section}: end -->" in page.read_text()
