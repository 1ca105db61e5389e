"""The time to the demo's first row: taken from what its terminal shows, in a clone that is removed."""

import os
import subprocess

import pytest

pytest.importorskip("rich")

from benchmarks import demo_start
from lab import ROOT

#: Waits for nothing: each line is there when the terminal has taken the one before.
SHOWN = r"""#!/bin/sh
echo "run: installing"
printf '\033[2mstarting Spark\033[0m \342\200\246\n'
printf '\033[2mrows read\033[0m      0\n'
{rows}
pwd > "$FOUND"
test -t 1 && test ! -e later
"""
ROWS = r"""printf '\033[2mrows read\033[0m      39,184\n'"""


@pytest.fixture
def repository(tmp_path):
    def make(rows):
        folder = tmp_path / "repository"
        folder.mkdir()
        (folder / "run").write_text(SHOWN.replace("{rows}", rows))
        (folder / "run").chmod(0o755)
        git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
        subprocess.run([*git, "init", "--quiet"], check=True)
        for file in ("run", "later"):
            (folder / file).touch()
            subprocess.run([*git, "add", file], check=True)
            subprocess.run([*git, "commit", "--quiet", "-m", file], check=True)
        return folder

    return make


def test_a_commit_is_cloned_timed_and_removed(repository, tmp_path):
    found = tmp_path / "found"
    measured = demo_start.run(repository(ROWS), "HEAD~1", {**os.environ, "FOUND": str(found)})
    assert measured.pop("commit") == "HEAD~1"
    assert list(measured) == ["spark_s", "first_row_s", "end_s"]
    assert sorted(measured.values()) == list(measured.values())
    assert not os.path.exists(found.read_text().strip())


@pytest.mark.parametrize(
    ("rows", "commit", "message"),
    [("", "HEAD~1", r"status 0 and showed \['spark_s'\]"), (ROWS, "HEAD", "status 1 and showed .*first_row_s")],
)
def test_a_demo_without_rows_or_with_an_error_has_no_time(repository, tmp_path, rows, commit, message):
    with pytest.raises(AssertionError, match=message):
        demo_start.run(repository(rows), commit, {**os.environ, "FOUND": str(tmp_path / "found")})


def test_a_run_has_nothing_of_this_environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    cached, anew = (demo_start.environment(cached=cached) for cached in (True, False))
    assert "PYTHONPATH" not in cached
    assert not {folder for folder in cached["PATH"].split(os.pathsep) if folder.startswith(str(ROOT))}
    assert anew == cached | {"PIP_NO_CACHE_DIR": "1", "UV_NO_CACHE": "1"}


def test_the_last_commit_is_quoted_by_its_medians():
    runs = [{"commit": "a", "first_row_s": 900, "end_s": 901}]
    runs += [{"commit": "b", "first_row_s": first, "end_s": first + 40} for first in (60, 70.6, 90)]
    results = {"machine": {"cores": 2}, "date": "2026-11-19", "cached": False, "runs": runs}
    quoted = demo_start.summary(results)
    assert "on 2 cores, with all packages downloaded, the first row came after 71 s and the end after 111 s" in quoted
