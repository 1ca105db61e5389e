"""The fuzz targets under Hypothesis, and the runner: cases are counted, crashes and hangs are findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.processes import environment
from soak import fuzz, guided, report, targets
from soak.targets import TARGETS

SLOW = ("two_streams", "several_streams")


@pytest.mark.parametrize("name", TARGETS)
@settings(max_examples=max(40, settings().max_examples // 2))
@given(seed=st.integers(0, 1 << 32))
def test_a_case_is_exact_or_refused_by_name(name: str, seed: int) -> None:
    assert TARGETS[name](Random(seed))


def test_every_target_has_its_share_and_says_what_it_does() -> None:
    assert set(fuzz.SHARES) == set(TARGETS)
    assert all(targets.about(name) for name in TARGETS)


def test_chunks_are_all_cases_and_begin_with_every_target() -> None:
    some = fuzz.chunks(100_000, list(TARGETS))
    assert 100_000 <= sum(count for _, _, count in some) < 100_000 + len(TARGETS)
    assert {name for name, _, _ in some[: len(TARGETS)]} == set(TARGETS)


def test_a_run_is_counted_and_goes_on_where_it_was_left(tmp_path: Path) -> None:
    results = tmp_path / "fuzz.jsonl"
    done = fuzz.run(results, cases=60, seed=1, wanted=["times", "state_bytes"])
    assert sum(d["cases"] for d in done) == sum(sum(d["ended"].values()) for d in done) >= 60
    assert not [f for d in done for f in d["findings"]]
    assert fuzz.read(results) == done
    assert fuzz.run(results, cases=60, seed=1, wanted=["times", "state_bytes"]) == []
    assert "| `times` |" in report.fuzz_table(done)


def test_what_raises_is_a_finding_with_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(chance: Random) -> str:
        raise KeyError("oh")

    monkeypatch.setitem(TARGETS, "times", fails)
    found = fuzz.chunk("times", 1, 10, 3)
    assert found["ended"] == {"finding": 3}
    assert [f["number"] for f in found["findings"]] == [10, 11, 12]
    assert "KeyError: 'oh'" in found["findings"][0]["what"]


@pytest.mark.parametrize(("program", "reason"), [("os.abort()", "ended with"), ("time.sleep(60)", "not through after")])
def test_a_crash_and_a_hang_are_findings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, reason: str
) -> None:
    stand_in = tmp_path / "python"
    stand_in.write_text(f"#!/bin/sh\nexec {os.sys.executable} -c 'import os, time; {program}'\n")  # type: ignore[attr-defined]
    stand_in.chmod(0o700)
    monkeypatch.setattr(fuzz.sys, "executable", str(stand_in))
    monkeypatch.setattr(fuzz, "LONGEST", 3.0)
    began = time.monotonic()
    (done,) = fuzz.run(tmp_path / "fuzz.jsonl", cases=5, seed=1, wanted=["times"])
    assert time.monotonic() - began < 30
    assert reason in done["findings"][0]["what"]
    assert fuzz.totals([done])["times"]["finding"] == 1
    assert json.loads((tmp_path / "fuzz.jsonl").read_text())["cases"] == 5


@pytest.mark.parametrize("name", guided.GUIDED)
@settings(max_examples=40)
@given(seed=st.integers(0, 1 << 32))
def test_what_the_guided_fuzzer_calls_reads_or_refuses_by_name(name: str, seed: int) -> None:
    """Here without atheris: its first inputs, as they are and damaged."""
    chance = Random(seed)
    whole = chance.choice(guided.seeds(name))
    guided.GUIDED[name](whole)
    guided.GUIDED[name](targets.damaged(whole, chance))


#: Runs a chunk of every reader, each case under the audit; then deeds that it must see.
AUDITED = """
import json, os, pickle, socket, subprocess, tempfile
from soak import fuzz, targets

out = {name: fuzz.audited(name, 7, 0, 40) for name in targets.TARGETS if name not in SLOW}
deeds = {
    "eval": lambda: eval("1"),
    "pickle": lambda: pickle.loads(b"cos\\nsystem\\n."),
    "import": lambda: __import__("this_is_no_module"),
    "popen": lambda: subprocess.Popen(["true"]),
    "system": lambda: os.system("true"),
    "socket": lambda: socket.create_connection(("127.0.0.1", 1)),
    "write": lambda: open("owned", "w"),
    "remove": lambda: os.remove("owned"),
    "swallowed": lambda: [1 for _ in range(1) if not swallowed()],
}

def swallowed():
    try:
        eval("1")
    except Exception:
        return False

for name, deed in deeds.items():
    targets.TARGETS[name] = lambda chance, deed=deed: str(deed())
    out[name] = fuzz.chunk(name, 1, 0, 1, fuzz._audit())
print(json.dumps(out))
"""


def test_what_is_read_makes_nothing_happen(tmp_path: Path) -> None:
    """Forged and damaged states, pipelines, events and queries: nothing is loaded, run, written or sent by reading."""
    program = AUDITED.replace("SLOW", repr(SLOW))
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=120
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    found = json.loads(ended.stdout)
    deeds = {name: found.pop(name) for name in list(found) if name not in TARGETS}
    assert {name: chunk["findings"] for name, chunk in found.items() if chunk["findings"]} == {}
    assert set(found) == set(TARGETS) - set(SLOW)
    assert all(chunk["ended"] for chunk in found.values())
    assert {name: "DeedError" in str(chunk["findings"]) for name, chunk in deeds.items()} == dict.fromkeys(deeds, True)
    assert list(tmp_path.iterdir()) == []


def test_damage_is_damage() -> None:
    whole = bytes(range(200))
    assert sum(targets.damaged(whole, Random(n)) != whole for n in range(200)) > 180
