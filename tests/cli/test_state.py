"""`watersmeet state` on a checkpoint that lies in the repository."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("typer")

from lab.golden import checkpoint as golden
from watersmeet.state.durable import log

pytestmark = [pytest.mark.spark, pytest.mark.more]

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return golden.unpack(log.FORMAT, tmp_path_factory.mktemp("state"))


def state(*words: object) -> tuple[int, str, str]:
    given = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "COLUMNS": "200"}
    given["TMPDIR"] = str(Path(str(words[0])).parent)  # where the log of a run that failed stays
    command = [sys.executable, "-m", "watersmeet.cli", "state", *map(str, words)]
    ran = subprocess.run(command, capture_output=True, text=True, env=os.environ | given, check=False)
    return ran.returncode, ran.stdout, ran.stderr


def test_what_is_held_and_what_is_heavy_and_what_changed(checkpoint: Path) -> None:
    code, printed, _ = state(checkpoint)
    assert code == 0
    assert {"a", "b"} <= {word for line in printed.splitlines() for word in line.split()}
    code, printed, _ = state(checkpoint, "--rows", "a", "--limit", "2", "--keys", "--diff", "0", golden.WRITTEN - 1)
    assert code == 0
    lines = printed.splitlines()
    assert [line.split()[:2] for line in lines if line.startswith("stream")] == [["stream", "operator"]] * 2
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    assert len(rows) == 2
    assert {"k", "a_ts", "a_n"} <= set(rows[0])


def test_a_checkpoint_for_another_number_of_shards(checkpoint: Path, tmp_path: Path) -> None:
    for shards, tasks, words in ((3, 3, ()), (4, 2, ("--tasks", 2))):
        new = tmp_path / str(shards)
        code, printed, _ = state(checkpoint, "--rescale", shards, new, *words)
        assert code == 0
        assert f"start the query with shards={shards}" in printed
        assert (new / "metadata").exists()
        kept = [json.loads(f.read_text().splitlines()[1]) for f in (new / "offsets").glob("[0-9]*")]
        assert {offsets["conf"]["spark.sql.shuffle.partitions"] for offsets in kept} == {str(tasks)}


@pytest.mark.parametrize(("words", "named"), [(("--rows", "bids"), "bids"), (("--diff", "0", "999"), "999")])
def test_what_is_not_there_is_named(checkpoint: Path, words: tuple[str, ...], named: str) -> None:
    code, _, errors = state(checkpoint, *words)
    assert code != 0
    assert named in errors
    assert "Traceback" not in errors


def test_a_folder_that_is_no_checkpoint(tmp_path: Path) -> None:
    code, _, errors = state(tmp_path)
    assert code != 0
    assert str(tmp_path) in errors
    assert "Traceback" not in errors
