"""What the benchmarks of joins without windows find is reported: tables, pictures, and the measured parts of a page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from benchmarks import disorder_report, oblivious, oblivious_report
from benchmarks.disorder import CONTENDERS, LEAD, write_lead, write_streams
from lab.joins.window_oblivious import streams
from lab.measure.sections import filled

RUNS = {"accuracy": 0.999, "kept": 100.0, "too_late": 3.0}


def test_measured_parts_of_a_page_are_filled_in() -> None:
    page = "a\n<!-- windows: begin -->\n\nold\n\n<!-- windows: end -->\n<!-- lead: begin -->\nx\n<!-- lead: end -->\n"
    changed = filled(page, "windows", "26 %")
    assert changed == page.replace("\nold\n", "\n26 %\n")
    assert filled(changed, "windows", "26 %") == changed


def test_every_case_has_a_place_in_the_page() -> None:
    page = oblivious_report.DOCUMENT.read_text()
    for name in (*oblivious_report.PARTS, "disorder", "lead"):
        assert f"<!-- {name}: begin -->" in page
    assert set(oblivious_report.PARTS) == set(oblivious.CASES)


def test_tables_and_pictures(tmp_path: Path) -> None:
    found = {"learned": [RUNS, RUNS], "optimum": [RUNS | {"kept": 50.0}]}
    results = {"buffers": found, "windows": {"share": 0.26, "factor": 4.0}}
    written = oblivious_report.write(results, tmp_path, documents=False)
    assert [p.name for p in written] == ["window_oblivious.md", "window_oblivious.svg"]
    text = written[0].read_text()
    assert "| learned | 0.9990 | 0.9990 | 100 | 2.00 | 3.0 |" in text
    assert "find 26% of the results" in text
    runs = {
        name: {"results": 90 + n % 2, "expected": 100, "state": [1, 3 + n], "lost_rows": 7}
        for n, name in enumerate(CONTENDERS)
    }
    runs |= {
        name: {"results": 99, "expected": 100, "worker_bytes": 1 << 28, "spilled": [5], "state": [1]} for name in LEAD
    }
    runs[CONTENDERS[0]] = {"contender": CONTENDERS[0], "error": "no memory"}
    table, picture = disorder_report.write(runs, tmp_path, documents=False)
    assert "| watermark 4 s | 6 | 11 | 10.00% | 7 |" in table.read_text()
    assert "| dbf | 100 | 5 | 256 MB | 1.00% |" in table.read_text()
    assert picture.stat().st_size > 1000


def test_seeds_are_chosen_on_others_than_are_reported() -> None:
    assert not set(oblivious.CHOSEN_ON) & set(oblivious.REPORTED_ON)
    assert streams(oblivious.CHOSEN_ON[0]) != streams(oblivious.REPORTED_ON[0])


def test_streams_of_files(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    expected = write_streams(tmp_path / "disorder", 20)
    a, b = (pq.read_table(tmp_path / "disorder" / n).column("epoch").to_numpy() for n in "ab")
    assert expected == sum(np.count_nonzero(b == k) for k in a) > 0
    assert write_lead(tmp_path / "lead", 1_200_000) == 1_200_000
    sizes = [[pq.read_metadata(f).num_rows for f in sorted((tmp_path / "lead" / n).iterdir())] for n in "ab"]
    assert sizes == [[500_000, 500_000, 200_000, 0, 0, 0], [0, 0, 0, 500_000, 500_000, 200_000]]
