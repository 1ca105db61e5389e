"""Many faults, one after the other: seeded, each outcome written at once, so that a run can continue later."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, takewhile
from pathlib import Path
from random import Random
from typing import Any

from lab.processes import TooLongError
from soak import cases, faults
from soak.machine import Machine
from soak.trial import GOOD, NotPossibleError, Trial, seed_of

KINDS = [*faults.LOCAL, *faults.CLUSTER]


@dataclass(frozen=True)
class Planned:
    number: int
    kind: str
    case: str


def plan(seed: int, kinds: list[str]) -> Iterator[Planned]:
    """Rounds with each kind once, in random order, the kinds that need a cluster together."""
    number, turn = 0, 0
    while True:
        for family in (faults.LOCAL, faults.CLUSTER):
            chance = Random(seed_of(seed, "round", turn, family is faults.CLUSTER))
            chosen = [kind for kind in family if kind in kinds]
            chance.shuffle(chosen)
            for kind in chosen:
                yield Planned(number, kind, chance.choice(list(cases.CASES)))
                number += 1
        turn += 1


def run(results: Path, *, count: int, seed: int, minutes: float | None, kinds: list[str]) -> list[dict[str, Any]]:
    """Run the planned faults that are not in the file yet; returns the outcomes of this run."""
    known = {(r["seed"], r["number"], r["kind"]) for r in read(results)}
    deadline = time.monotonic() + minutes * 60 if minutes else float("inf")
    done = []
    left = (
        p for p in takewhile(lambda p: p.number < count, plan(seed, kinds)) if (seed, p.number, p.kind) not in known
    )
    with tempfile.TemporaryDirectory(prefix="soak-") as scratch:
        for clustered, block in groupby(left, lambda p: p.kind in faults.CLUSTER):
            with Machine(Path(tempfile.mkdtemp(dir=scratch)), clustered=clustered) as machine:
                for planned in block:
                    if time.monotonic() > deadline:
                        return done
                    outcome = one(planned, seed, machine, Path(scratch), keep=results.parent / "kept")
                    append(results, outcome)
                    done.append(outcome)
                    print(line(outcome), flush=True)
    return done


def one(planned: Planned, seed: int, machine: Machine, scratch: Path, keep: Path) -> dict[str, Any]:
    """One fault and its outcome. Its files are removed, or kept for inspection if the outcome is not a good one."""
    folder = scratch / f"{planned.number:04d}-{planned.kind}"
    chance = Random(seed_of(seed, planned.number, planned.kind))
    trial = Trial(planned.kind, folder, planned.case, chance, machine)
    began = time.monotonic()
    try:
        if not machine.driver.alive():
            machine.launch().expect("ready")
        trial.prepare()
        (faults.LOCAL | faults.CLUSTER)[planned.kind](trial)
        outcome = trial.finish()
    except NotPossibleError as error:
        outcome = "not possible here"
        trial.seen.append(str(error))
    except (TooLongError, AssertionError) as error:
        outcome = f"{type(error).__name__}: {error}"
    machine.driver.traps.clear()
    if outcome not in GOOD:  # a driver that hangs must not spoil the next trial
        machine.driver.kill()
        shutil.copytree(folder, keep / f"{seed}-{folder.name}", dirs_exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "seed": seed,
        "number": planned.number,
        "kind": planned.kind,
        "case": planned.case,
        "outcome": outcome,
        "seen": trial.seen,
        "restarts": trial.restarts,
        "seconds": round(time.monotonic() - began, 1),
        "load": round(os.getloadavg()[0], 1),
    }


def line(outcome: dict[str, Any]) -> str:
    what = f"{outcome['number']:4d}  {outcome['kind']:24} {outcome['case']:7} {outcome['seconds']:6.1f} s"
    return f"{what}  {outcome['outcome']}  ({'; '.join(outcome['seen'])})"


def read(results: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in results.read_text().splitlines()] if results.exists() else []


def append(results: Path, outcome: dict[str, Any]) -> None:
    results.parent.mkdir(parents=True, exist_ok=True)
    with results.open("a") as file:
        file.write(json.dumps(outcome) + "\n")
