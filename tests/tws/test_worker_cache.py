"""Whose working states they are, and when they go."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.worker_cache import OWNER

pytestmark = pytest.mark.tws

#: Stands in for a JVM: all that is read of one is its name, its number and its start.
WAITS = "import sys; sys.stdin.read()"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(worker_cache, "base", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def executor() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", WAITS], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.communicate()


def kept(owner: Path, *jvm: str) -> Path:
    """Working states that this executor left."""
    owner.mkdir(exist_ok=True)
    root = worker_cache.folder(str(owner))
    (root / "states" / "a token").mkdir(parents=True)
    (root / OWNER).write_text("\n".join([str(owner), *jvm]))
    return root


def test_states_go_with_the_executor_though_its_folder_stays(place: Path, executor: subprocess.Popen[bytes]) -> None:
    started = worker_cache._started(str(executor.pid))
    assert started is not None
    root = kept(place / "work", started)
    worker_cache.sweep()
    assert root.exists(), "the executor is alive"
    executor.kill()
    executor.wait()
    worker_cache.sweep()
    assert not root.exists()
    assert (place / "work").exists()


def test_a_number_that_is_used_again_is_another_process(place: Path, executor: subprocess.Popen[bytes]) -> None:
    root = kept(place / "work", f"{executor.pid} 1")
    worker_cache.sweep()
    assert not root.exists()


def test_states_go_with_the_folder(place: Path) -> None:
    root = kept(place / "work")
    worker_cache.sweep()
    assert root.exists()
    (place / "work").rmdir()
    worker_cache.sweep()
    assert not root.exists()


def test_the_jvm_above_a_process_is_found(tmp_path: Path) -> None:
    """A process called java, a shell below it, Python below that."""
    java = tmp_path / "java"
    shutil.copy("/bin/sh", java)
    program = "from watersmeet.spark.runtime import worker_cache; print(worker_cache._jvm()[0])"
    printed = subprocess.run(
        [str(java), "-c", f'echo $$; sh -c \'"{sys.executable}" -c "{program}"; true\'; true'],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert printed[0] == printed[1], "found by its number"
    assert int(printed[2]) > 0, "and its start"
    assert worker_cache._jvm() == [], "there is none above this one"
