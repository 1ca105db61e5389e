"""The kinds of faults by name, and what they have in common. The first line of each says it in the table.

A fault begins with streams of which nothing is handed out yet and a driver that stands ready, and leaves the query in
any state; `Trial.finish` then brings it to its end and compares.
"""

from __future__ import annotations

from collections.abc import Callable

import psutil

from soak.processes import kill
from soak.trial import FILES, Trial

Fault = Callable[[Trial], None]
#: Kinds by name; those of a cluster of several executors apart, as they need one.
LOCAL: dict[str, Fault] = {}
CLUSTER: dict[str, Fault] = {}


def local(fault: Fault) -> Fault:
    LOCAL[fault.__name__.replace("_", "-")] = fault
    return fault


def on_cluster(fault: Fault) -> Fault:
    CLUSTER[fault.__name__.replace("_", "-")] = fault
    return fault


def about(kind: str) -> str:
    """What a kind of fault does, in a line."""
    return ((LOCAL | CLUSTER)[kind].__doc__ or "").strip().splitlines()[0].rstrip(".")


def begin(trial: Trial, first: int | None = None) -> int:
    """Start with a few files; batches that are committed when the fault may come."""
    some = trial.chance.randint(2, FILES - 3) if first is None else first
    trial.hand_out(some)
    trial.start()
    trial.after(some)
    return some


def held(trial: Trial, moment: str) -> int:
    """Go on with all the rest until a process is held at the moment; its number."""
    trial.driver.traps.arm(moment)
    trial.hand_out()
    return trial.driver.traps.reached(moment)


def kill_held(trial: Trial, moment: str) -> None:
    begin(trial)
    pid = held(trial, moment)
    kill(psutil.Process(pid))
    trial.driver.traps.clear()
    trial.seen.append(f"batch {trial.committed()}")
