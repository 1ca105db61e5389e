"""The registry of faults, and their common parts. The first line of a fault's docstring is its line in the table.

A fault begins with streams of which no file is handed out yet and with a driver that is ready. It leaves the query in
any state; `Trial.finish` then brings it to its end and compares.
"""

from __future__ import annotations

from collections.abc import Callable

import psutil

from lab.processes import kill
from soak.trial import FILES, Trial

Fault = Callable[[Trial], None]
#: Faults by name: those of a single driver, and those that need a cluster of several executors.
LOCAL: dict[str, Fault] = {}
CLUSTER: dict[str, Fault] = {}


def local(fault: Fault) -> Fault:
    LOCAL[fault.__name__.replace("_", "-")] = fault
    return fault


def on_cluster(fault: Fault) -> Fault:
    CLUSTER[fault.__name__.replace("_", "-")] = fault
    return fault


def about(kind: str) -> str:
    """The description of a kind of fault, in one line."""
    return ((LOCAL | CLUSTER)[kind].__doc__ or "").strip().splitlines()[0].rstrip(".")


def begin(trial: Trial, first: int | None = None) -> int:
    """Start with a few files and wait until their batches are committed; returns the number of batches."""
    some = trial.chance.randint(2, FILES - 3) if first is None else first
    trial.hand_out(some)
    trial.start()
    trial.after(some)
    return some


def held(trial: Trial, moment: str) -> int:
    """Hand out all files and wait until a process is held at the moment; returns its process id."""
    trial.driver.traps.arm(moment)
    trial.hand_out()
    return trial.driver.traps.reached(moment)


def kill_held(trial: Trial, moment: str) -> None:
    begin(trial)
    pid = held(trial, moment)
    kill(psutil.Process(pid))
    trial.driver.traps.clear()
    trial.seen.append(f"batch {trial.committed()}")
