"""All experiments, quickly, as `./run experiments --quick` runs them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from experiments.catalogue import EXPERIMENTS, ROWS

pytestmark = pytest.mark.more


def run(folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "experiments", "--output", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """The output of a quick run of everything."""
    made = tmp_path_factory.mktemp("experiments")
    run(made, "--quick")
    return made


def test_every_claim_of_every_row_is_in_the_report(folder):
    text = (folder / "report.md").read_text()
    table = text.split("## Claims")[1].split('<a id="')[0]
    for experiment in EXPERIMENTS.values():
        assert (folder / "figures" / f"{experiment.id}.svg").stat().st_size < 100_000
        for claim in experiment.claims:
            assert claim.text.replace("|", "\\|") in table
    assert all(f"[{row}](#" in table for row in ROWS)
    assert "Not run yet" not in text
    assert (folder / "one-page.html").stat().st_size > 200_000


def test_results_say_what_they_depend_on(folder):
    for path in (folder / "results").iterdir():
        result = json.loads(path.read_text())
        assert result["quick"] is True
        assert result["machine"]["cores"] > 0
        assert set(result["found"]) == {"counts", "times"}


def test_a_redrawing_runs_nothing_and_changes_nothing(folder):
    before = {p.name: p.read_bytes() for p in (folder / "figures").iterdir()}
    text = (folder / "report.md").read_text()
    run(folder, "--redraw")
    assert {p.name: p.read_bytes() for p in (folder / "figures").iterdir()} == before
    assert (folder / "report.md").read_text() == text


def test_counts_are_the_same_in_a_second_run(folder, tmp_path):
    ids = ("pwjoin-8", "windowed-7", "multiway-4b", "wo-910")  # one of each family
    run(tmp_path, "--quick", *ids)
    for id in ids:
        one, two = (
            json.loads((f / "results" / f"{id}.json").read_text())["found"]["counts"] for f in (folder, tmp_path)
        )
        assert one == two, id
