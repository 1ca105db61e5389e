"""What reports are made with: spreads, answers, tables, sections and charts."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("rich")

from lab.measure import memory
from lab.measure.charts import chart
from lab.measure.claims import DOES_NOT_HOLD, HOLDS, NOT_JUDGED, answer
from lab.measure.sections import fill, filled
from lab.measure.spreads import Spread, spread, spread_text
from lab.measure.tables import Table

SHARED = Path("/dev/shm")


def test_spreads() -> None:
    assert spread(iter([3.0, 1.0, 2.0, 10.0])) == Spread(2.5, 1.0, 10.0)
    assert spread([]) is None
    assert (spread_text([2.0]), spread_text([3.0, 1.0, 2.0], "{:.0f}")) == ("2.00", "2 (1–3)")


def test_quick_runs_are_not_judged() -> None:
    assert [answer(True), answer(False), answer(False, quick=True)] == [HOLDS, DOES_NOT_HOLD, NOT_JUDGED]


def test_a_bar_does_not_end_a_cell() -> None:
    text = Table("Plans", "Two.", ("plan", "cost"), [("a | b", "1")]).markdown(2)
    assert text == "## Plans\n\nTwo.\n\n| plan | cost |\n| --- | --- |\n| a \\| b | 1 |\n"


def test_a_section_is_between_its_markers_and_there_once(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a <!-- x: begin -->old<!-- x: end --> b <!-- y: begin --><!-- y: end -->")
    fill(page, {"x": "new\n", "y": r"\1"})
    text = "a <!-- x: begin -->\n\nnew\n\n<!-- x: end --> b <!-- y: begin -->\n\n\\1\n\n<!-- y: end -->"
    assert page.read_text() == text
    for wrong, pairs in ((text + text, 2), ("<!-- x: begin -->", 0)):
        with pytest.raises(ValueError, match=f"The page has {pairs} pairs of markers <!-- x: begin --> and"):
            filled(wrong, "x", "new")


def test_a_chart_is_the_same_when_drawn_again(tmp_path: Path) -> None:
    def drawn(name: str) -> bytes:
        with chart(tmp_path / "new" / name, 2, 1) as figure:
            figure.subplots().plot([1, 2], [3, 4])
        return (tmp_path / "new" / name).read_bytes()

    assert drawn("a.svg") == drawn("b.svg")


@pytest.mark.skipif(not SHARED.is_dir(), reason="this system has no files in memory")
def test_memory_of_a_process_and_of_files_that_it_maps_counts_once(tmp_path: Path) -> None:
    program = """
import mmap, sys
own = bytearray(b"x") * 40_000_000
file = open(sys.argv[1], "r+b")
mapped = mmap.mmap(file.fileno(), 0)
total = sum(mapped[::4096])
print("ready", flush=True)
sys.stdin.read()
"""
    with tempfile.TemporaryDirectory(dir=SHARED) as folder:
        file = Path(folder) / "mapped"
        file.write_bytes(bytes(30_000_000))
        (tmp_path / "elsewhere").write_bytes(bytes(1_000_000))
        (Path(folder) / "link").symlink_to(tmp_path / "elsewhere")
        assert 30_000_000 <= memory.file_bytes(Path(folder)) < 31_000_000
        command = [sys.executable, "-c", program, str(file)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"ready\n"
            found = memory.used([child.pid], Path(folder))
            child.communicate()
    assert 70_000_000 < found < 95_000_000
    assert memory.proportional(child.pid) == {}
