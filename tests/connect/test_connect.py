"""The core of the Spark tests once more, over a local Spark Connect server, in a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("grpc")

ROOT = Path(__file__).parents[2]
#: What a user does: joins over restarts, punctuations, groups, several streams, sinks, the state.
CORE = (
    "tests/spark/test_column_equalities.py",
    "tests/spark/test_join.py::test_a_query_that_starts_again_after_every_batch_gives_the_batch_join",
    "tests/spark/test_group_by.py::test_final_groups_over_restarts",
    "tests/spark/test_group_by.py::test_groups_by_another_column_come_from_a_second_operator",
    "tests/spark/test_write.py::test_folders_hold_each_batch_once_whatever_happens",
    "tests/spark/test_state_reader.py",
    "tests/spark/test_rescale.py",
    "tests/spark/test_monitor.py::test_all_outputs_say_what_the_progress_says",
)


@pytest.mark.more
def test_the_core_over_spark_connect() -> None:
    environment = os.environ | {
        "WATERSMEET_TEST_REMOTE": "local[2]",
        "SPARK_TESTING": "1",  # any free port
        "PYSPARK_PYTHON": sys.executable,
    }
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not more", *CORE],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1500,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-5000:]
    assert " passed" in ran.stdout
