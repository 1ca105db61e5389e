"""The page is written from the results, and says so where there are none."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lab.measure.sections import filled
from soak import faults, guided, report


def test_the_page_is_filled_from_the_results(tmp_path: Path) -> None:
    page = tmp_path / "reliability.md"
    page.write_text(report.PAGE.read_text())
    results = tmp_path / "results"
    results.mkdir()
    fault = {"seed": 1, "number": 0, "kind": "commit-lost", "case": "inner", "outcome": "exact"}
    (results / "faults.jsonl").write_text(json.dumps(fault | {"seen": [], "restarts": 1, "seconds": 12.0}) + "\n")
    recovery = {"watersmeet": {"rows": 5, "recovery_s": 1.25, "build_s": 2.0, "checkpoint_mb": 3.0}}
    (tmp_path / "recovery.json").write_text(json.dumps(recovery))
    report.write(page, results, tmp_path / "recovery.json")
    text = page.read_text()
    assert "1 faults of 1 kinds" in text
    assert f"| `commit-lost` | {faults.about('commit-lost')} | 1 | 1 | 1 exact |" in text
    assert "| `watersmeet` | 5 | 1.2 s |" in text
    assert text.count(report.NOTHING) == 3, "of the others there is no run"
    report.write(page, results, tmp_path / "recovery.json")
    assert page.read_text() == text


def test_guided_runs_are_reported() -> None:
    given = "#2 INITED cov: 15 ft: 15\n#9 NEW cov: 18 ft: 20\nDone 900 runs in 90 second(s)\n"
    table = report.guided_table({"state_bytes": guided.outcome(given, 0)})
    assert "| 900 | 2 minutes | 15 at first, 18 at the end | 0 |" in table
    assert "KeyError" in guided.outcome("KeyError: oh", 77)["finding"]


def test_a_page_without_the_part_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 pairs of markers <!-- faults: begin -->"):
        filled("nothing", "faults", "x")
