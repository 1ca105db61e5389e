"""A driver that is killed while its sources are silent: the batch that it had in hand is the same again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.processes import environment
from lab.spark.silent_driver import KINDS, ROWS

pytestmark = [pytest.mark.spark, pytest.mark.more]


def ran(kind: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lab.spark.silent_driver", kind, str(folder), *arguments]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=900)


def timestamp(folder: Path, batch: int) -> int:
    """When the batch was planned, as Spark's offset log has it."""
    lines = (folder / "checkpoint" / "offsets" / str(batch)).read_text().splitlines()
    return int(json.loads(lines[1])["batchTimestampMs"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_batch_that_a_killed_driver_had_in_hand_is_the_same_again(tmp_path: Path, kind: str) -> None:
    killed = ran(kind, tmp_path, "--kill")
    assert killed.returncode == -signal.SIGKILL, killed.stderr[-3000:]
    (first,) = [json.loads(line) for line in (tmp_path / "batches.jsonl").read_text().splitlines()]
    number, found = first
    planned = timestamp(tmp_path, number)
    assert number > 0, "in a batch without rows of the sources"
    assert not (tmp_path / "checkpoint" / "commits" / str(number)).exists()
    again = ran(kind, tmp_path)
    assert again.returncode == 0, again.stderr[-3000:]
    _, second, third = [json.loads(line) for line in (tmp_path / "batches.jsonl").read_text().splitlines()]
    assert second == first, "although the clock has gone on"
    assert timestamp(tmp_path, number) == planned
    assert third[0] > number
    assert 0 < len(found) < ROWS
    whole = found + third[1]
    assert whole == list(range(len(whole))), "none is missing, and none is there twice"
