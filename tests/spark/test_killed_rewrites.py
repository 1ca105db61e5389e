"""A process that is killed while it seeds or evolves a checkpoint: the old one is untouched, the new one is not there
or refused; done again, the results are exact. Rescaling writes its checkpoint as evolving does."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.processes import environment

pytestmark = [pytest.mark.spark, pytest.mark.more]


@pytest.mark.parametrize(("kind", "moment"), [("bootstrap", "written"), ("bootstrap", "moving"), ("evolve", "moving")])
def test_a_killed_rewrite_is_done_again(tmp_path: Path, kind: str, moment: str) -> None:
    command = [sys.executable, "-m", "lab.spark.killed_rewrite", kind, str(tmp_path)]
    killed = subprocess.run(
        [*command, "--kill", moment], env=environment(), capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    again = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr[-3000:]
    report = json.loads(again.stdout.splitlines()[-1])
    assert report["unchanged"], "the old checkpoint is only read"
    assert report["left"] == (moment == "moving"), "what is half moved stands in its place"
    if report["left"]:
        started, rewritten = report["errors"]
        assert "StateMismatchError" in started
        assert "is there already, and not empty" in rewritten
    assert report["found"] == report["expected"]
    assert report["expected"]
