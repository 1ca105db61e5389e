"""Many cases, in separate processes: one that crashes, hangs, or does anything but compute (loads or makes code, writes
a file, starts a process, opens a socket) is a finding, too, and does not end the run.

A case is identified by target, seed and number: `python -m soak fuzz --target T --seed S --only N` repeats it in this
process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TextColumn

from lab import ROOT
from lab.audit import Audit
from lab.processes import environment
from soak.trial import seed_of

CHUNK = 2_000
#: Cases before the audit of a chunk begins.
WARM = 20
#: Seconds for a chunk; a case takes milliseconds.
LONGEST = 600.0
#: The shares of the targets in all cases.
SHARES = {"two_streams": 30, "several_streams": 15, "state_bytes": 30, "queries": 8, "conditions": 7, "times": 5}
SHARES |= {"pipeline_files": 5, "forged_states": 5, "reopened_states": 5, "forged_segments": 5, "event_files": 5}
SHARES |= {"operator_states": 10}


def chunks(cases: int, wanted: list[str]) -> list[tuple[str, int, int]]:
    """(target, first case, how many), all targets side by side from the beginning."""
    total = sum(SHARES.get(name, 5) for name in wanted)
    out = []
    for name in wanted:
        share = -(-cases * SHARES.get(name, 5) // total)
        out += [(name, at, min(CHUNK, share - at)) for at in range(0, share, CHUNK)]
    return sorted(out, key=lambda c: (c[1], c[0]))


def run(results: Path, *, cases: int, seed: int, wanted: list[str], jobs: int = 2) -> list[dict[str, Any]]:
    """Run all chunks that are not in the file yet, `jobs` at a time; each outcome is written when it is there."""
    results.parent.mkdir(parents=True, exist_ok=True)
    known = {(r["target"], r["seed"], r["first"]) for r in read(results)}
    planned = chunks(cases, wanted)
    left = [c for c in planned if (c[0], seed, c[1]) not in known]
    done = []
    bar = Progress(*Progress.get_default_columns(), MofNCompleteColumn(), TextColumn("cases"))
    with bar as progress, ThreadPoolExecutor(jobs) as pool:
        shown = progress.add_task("fuzzing", total=sum(c[2] for c in planned))
        progress.advance(shown, sum(c[2] for c in planned if c not in left))
        try:
            for running in as_completed([pool.submit(_in_a_process, c, seed) for c in left]):
                outcome = running.result()
                with results.open("a") as file:
                    file.write(json.dumps(outcome) + "\n")
                done.append(outcome)
                progress.advance(shown, outcome["cases"])
        finally:
            pool.shutdown(cancel_futures=True)
    return done


def _in_a_process(chunk: tuple[str, int, int], seed: int) -> dict[str, Any]:
    """The outcome of a chunk in a process of its own, which may crash or hang."""
    began = time.monotonic()
    command = [sys.executable, "-m", "soak.fuzz", chunk[0], str(seed), str(chunk[1]), str(chunk[2])]
    env = environment(PYTHONFAULTHANDLER="1")
    try:
        ended = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT, timeout=LONGEST)
        if ended.returncode == 0 and ended.stdout:
            outcome = json.loads(ended.stdout.splitlines()[-1])
        else:
            outcome = _ended(chunk, f"the interpreter ended with {ended.returncode}: {ended.stderr[-2000:]}")
    except subprocess.TimeoutExpired:
        outcome = _ended(chunk, f"not through after {LONGEST:.0f} seconds")
    took = round(time.monotonic() - began, 1)
    return outcome | {"target": chunk[0], "seed": seed, "first": chunk[1], "seconds": took}


def _ended(chunk: tuple[str, int, int], how: str) -> dict[str, Any]:
    return {"cases": chunk[2], "ended": {}, "findings": [{"number": chunk[1], "what": how}]}


def read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in results.read_text().splitlines()] if results.exists() else []


def one(target: str, seed: int, number: int) -> str:
    """Run one case in this process."""
    from soak.targets import TARGETS

    return TARGETS[target](Random(seed_of(seed, target, number)))


def chunk(target: str, seed: int, first: int, count: int, audit: Audit | None = None) -> dict[str, Any]:
    """Run a chunk of cases in this process. Under an audit a case that does anything but compute is a finding."""
    ended: Counter[str] = Counter()
    findings = []
    for number in range(first, first + count):
        try:
            with audit or nullcontext():
                end = one(target, seed, number)
            ended[end] += 1
        except Exception:
            ended["finding"] += 1
            findings.append({"number": number, "what": traceback.format_exc()[-1500:]})
    return {"cases": count, "ended": dict(ended), "findings": findings[:20]}


def audited(target: str, seed: int, first: int, count: int) -> dict[str, Any]:
    """A chunk under the audit of this process, after a few cases without: these load modules and fill caches."""
    chunk(target, seed + 1, 0, WARM)
    return chunk(target, seed, first, count, _audit())


@cache
def _audit() -> Audit:
    return Audit()


def totals(results: list[dict[str, Any]]) -> dict[str, Counter[str]]:
    """The ends of the cases of each target, counted."""
    out: dict[str, Counter[str]] = {}
    for outcome in results:
        counted = out.setdefault(outcome["target"], Counter())
        counted.update(outcome["ended"])
        counted["finding"] += len(outcome["findings"]) if not outcome["ended"] else 0
    return out


if __name__ == "__main__":
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    name, *numbers = sys.argv[1:]
    print(json.dumps(audited(name, *map(int, numbers))))
