"""The examples run, print what the README shows, and find what DuckDB finds."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("rich")
pytest.importorskip("matplotlib")
pytest.importorskip("duckdb")

from rich.console import Console

from examples import auction

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.spark
@pytest.mark.more
def test_first_join_prints_the_table_of_the_readme():
    ran = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "first_join.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    printed = [line for line in ran.stdout.splitlines() if line.startswith(("+", "|"))]
    assert len(printed) == 7
    assert "\n".join(printed) in (ROOT / "README.md").read_text()


@pytest.mark.spark
@pytest.mark.more
def test_the_auction_is_exact_and_its_state_small(spark, tmp_path):
    said = io.StringIO()
    picture = tmp_path / "state.svg"
    house = auction.House(hours=4, rate=400, seed=3)
    runs, different = auction.show(spark, house, picture, Console(file=said, width=160))
    assert different == 0
    assert "exact: " in said.getvalue()
    assert [run.contender.name for run in runs] == [c.name for c in auction.CONTENDERS]
    most = {run.contender.build: max(tuples for _, tuples, _ in run.state) for run in runs}
    assert most[auction.punctuated] * 10 < most[auction.windows_alone]
    assert most[auction.punctuated] < most[auction.bids_do_not_wait]
    assert all([hours for hours, _, _ in run.state][-1] == 4 for run in runs)
    assert 1_000 < picture.stat().st_size < 100_000


def test_help_teaches(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["auction.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        auction.main()
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("--seconds", "--rate", "--seed", "--out", "wm.unique", "wm.when"))
