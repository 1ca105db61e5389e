"""What is done to a running query: one function per kind of fault. The first line of each says it in the table.

A fault begins with streams of which nothing is handed out yet and a driver that stands ready, and leaves the query in
any state; `Trial.finish` then brings it to its end and compares.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from soak.processes import TooLongError, family, kill, wait_for
from soak.trial import FILES, Trial, flip, newest, truncate

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


def _begin(trial: Trial, first: int | None = None) -> int:
    """Start with a few files; batches that are committed when the fault may come."""
    some = trial.chance.randint(2, FILES - 3) if first is None else first
    trial.hand_out(some)
    trial.start()
    trial.after(some)
    return some


def _held(trial: Trial, moment: str) -> int:
    """Go on with all the rest until a process is held at the moment; its number."""
    trial.driver.traps.arm(moment)
    trial.hand_out()
    return trial.driver.traps.reached(moment)


def _kill_held(trial: Trial, moment: str) -> None:
    _begin(trial)
    pid = _held(trial, moment)
    kill(psutil.Process(pid))
    trial.driver.traps.clear()
    trial.seen.append(f"batch {trial.committed()}")


# ---------------------------------------------------------------- Python workers


@local
def worker_at_random(trial: Trial) -> None:
    """kill -9 a Python worker at any moment."""
    _begin(trial)
    trial.hand_out()
    trial.at_random()
    workers = trial.driver.workers()
    if workers:
        kill(trial.chance.choice(sorted(workers, key=lambda p: p.pid)))
    trial.seen.append(f"1 of {len(workers)} workers, batch {trial.committed()}")


@local
def worker_half_written(trial: Trial) -> None:
    """kill -9 a Python worker between two writes of a shard's state."""
    _kill_held(trial, "half-written")


@local
def worker_state_written(trial: Trial) -> None:
    """kill -9 a Python worker after the state was written and before the batch commits."""
    _kill_held(trial, "state-written")


@local
def worker_cache_kept(trial: Trial) -> None:
    """kill -9 a Python worker whose working state is warm already; the task is tried again in another."""
    _kill_held(trial, "cache-kept")


@local
def worker_in_compaction(trial: Trial) -> None:
    """kill -9 a Python worker in mid-compaction."""
    _kill_held(trial, "compaction")


@local
def worker_results_half(trial: Trial) -> None:
    """kill -9 a Python worker that has handed out a part of its results."""
    _kill_held(trial, "results-half")


@local
def worker_stopped(trial: Trial) -> None:
    """SIGSTOP a Python worker for a while, then SIGCONT."""
    _begin(trial)
    trial.hand_out()
    trial.at_random(0.5)
    stopped = trial.driver.workers()
    for worker in stopped:
        with suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGSTOP)
    trial.at_random(3)
    for worker in stopped:
        with suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGCONT)
    trial.seen.append(f"{len(stopped)} workers")


@local
def daemon_killed(trial: Trial) -> None:
    """kill -9 the daemon that forks the workers, and all of these."""
    _begin(trial)
    trial.hand_out()
    trial.at_random()
    daemons = trial.driver.daemons()
    kill(*[p for d in daemons for p in family(d.pid)])
    trial.seen.append(f"{len(daemons)} daemons, batch {trial.committed()}")


# ---------------------------------------------------------------- the driver


@local
def driver_at_random(trial: Trial) -> None:
    """kill -9 the driver at any moment."""
    _begin(trial)
    trial.hand_out()
    trial.at_random()
    trial.kill_driver()
    trial.seen.append(f"batch {trial.committed()}")


@local
def driver_state_written(trial: Trial) -> None:
    """kill -9 the driver while a task has written its state and the batch is not committed."""
    _begin(trial)
    _held(trial, "state-written")
    trial.kill_driver()


@local
def driver_output_half(trial: Trial) -> None:
    """kill -9 the driver after the results were written and before the late rows were."""
    _begin(trial)
    _held(trial, "results-out")
    trial.kill_driver()


@local
def driver_before_commit(trial: Trial) -> None:
    """kill -9 the driver after all output was written and before the batch is in the commit log."""
    _begin(trial)
    _held(trial, "output-written")
    trial.kill_driver()


@local
def driver_while_restarting(trial: Trial) -> None:
    """kill -9 the driver, and again while it restarts, and again while it reads its state back."""
    _begin(trial)
    trial.hand_out()
    trial.at_random(0.7)
    trial.kill_driver()
    trial.machine.launch()
    trial.at_random(6)
    trial.kill_driver()
    trial.machine.launch()
    trial.driver.expect("ready")
    trial.driver.traps.arm("loading")
    trial.driver.tell("start", case=trial.case, folder=str(trial.folder))
    trial.driver.traps.reached("loading", 600)
    trial.kill_driver()
    trial.restarts += 2


# ---------------------------------------------------------------- files


def _standing(trial: Trial) -> None:
    """A query that was killed after some batches, and a copy of its checkpoint."""
    _begin(trial)
    trial.drain()
    trial.kill_driver()
    trial.save_copy()
    trial.may_refuse = True


def _damage(trial: Trial, how: Callable[..., str], *suffixes: str) -> None:
    _standing(trial)
    file = newest(trial.checkpoint / "state", *suffixes)
    if file is None:
        trial.seen.append(f"no {' or '.join(suffixes)} yet")
        return
    trial.seen.append(how(file, trial.chance))


@local
def changelog_torn(trial: Trial) -> None:
    """Truncate the newest file of state changes, then restart."""
    _damage(trial, truncate, ".changelog")


@local
def changelog_flipped(trial: Trial) -> None:
    """Flip a bit of the newest file of state changes, then restart."""
    _damage(trial, flip, ".changelog")


@local
def snapshot_torn(trial: Trial) -> None:
    """Truncate the newest snapshot of the state (its archive or one of its tables), then restart."""
    _damage(trial, truncate, ".zip", ".sst")


@local
def snapshot_flipped(trial: Trial) -> None:
    """Flip a bit of the newest snapshot of the state, then restart."""
    _damage(trial, flip, ".zip", ".sst")


@local
def state_file_lost(trial: Trial) -> None:
    """Delete the newest file of the state, then restart."""
    _standing(trial)
    file = newest(trial.checkpoint / "state", ".changelog", ".zip", ".sst")
    assert file is not None, "there is state"
    file.unlink()
    trial.seen.append(file.name)


def _log_file(trial: Trial, log: str) -> Path:
    return max((f for f in (trial.checkpoint / log).iterdir() if f.name.isdigit()), key=lambda f: int(f.name))


@local
def commit_lost(trial: Trial) -> None:
    """Delete the newest file of the commit log, then restart: the batch runs again."""
    _standing(trial)
    file = _log_file(trial, "commits")
    file.unlink()
    trial.seen.append(f"commit {file.name}")


@local
def commit_torn(trial: Trial) -> None:
    """Truncate the newest file of the commit log, then restart."""
    _standing(trial)
    trial.seen.append(truncate(_log_file(trial, "commits"), trial.chance))


@local
def offsets_torn(trial: Trial) -> None:
    """Truncate the newest file of the offset log, as a crash while it is written would, then restart."""
    _standing(trial)
    _log_file(trial, "commits").unlink()
    trial.seen.append(truncate(_log_file(trial, "offsets"), trial.chance))


@local
def disk_full(trial: Trial) -> None:
    """Fill the disk of the checkpoint (a small tmpfs) until the query fails; make room; restart."""
    with tmpfs(trial.checkpoint, "24m"):
        _begin(trial, 2)
        filler = trial.checkpoint / ".filler"
        _fill(filler)
        trial.hand_out()
        if not trial.drain():
            trial.seen.append(_reason(trial.errors[-1]))
        filler.unlink()
        outcome = trial.finish()
        trial.seen.append(f"with room again: {outcome}")
        shutil.copytree(trial.checkpoint, trial.folder / "kept")
    shutil.copytree(trial.folder / "kept", trial.checkpoint, dirs_exist_ok=True)


@local
def cache_full(trial: Trial) -> None:
    """Fill the disk of the working states (a small tmpfs) while the query runs; make room."""
    place = trial.machine.cache
    trial.driver.close()
    with tmpfs(place, "16m"):
        trial.machine.launch().expect("ready")
        _begin(trial, 2)
        filler = place / ".filler"
        _fill(filler)
        trial.hand_out(FILES - 2)
        if not trial.drain():
            trial.seen.append(_reason(trial.errors[-1]))
        filler.unlink()
        outcome = trial.finish()
        trial.seen.append(f"with room again: {outcome}")
        trial.driver.kill()


def _fill(filler: Path) -> None:
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


def _reason(error: str) -> str:
    lines = [line for line in error.splitlines() if "Error" in line or "Exception" in line or "space" in line]
    return (lines or error.splitlines() or ["?"])[-1][:160]


class tmpfs:  # noqa: N801  # reads like the command
    """A file system of its own at a folder, of a size; needs root."""

    def __init__(self, folder: Path, size: str) -> None:
        self.folder, self.size = folder, size

    def __enter__(self) -> None:
        if os.geteuid() != 0:
            raise NotPossibleError("mounting a tmpfs needs root")
        self.folder.mkdir(exist_ok=True)
        command = ["mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", str(self.folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise NotPossibleError(done.stderr.strip())

    def __exit__(self, *exc: object) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


class NotPossibleError(Exception):
    """This machine does not allow the fault."""


@local
def cache_lost(trial: Trial) -> None:
    """Remove the working states under the running query."""
    _begin(trial)
    trial.hand_out(FILES - 1)
    trial.at_random(0.5)
    trial.seen.append(f"{_working_states(trial, shutil.rmtree)} states")


@local
def cache_torn(trial: Trial) -> None:
    """Truncate files of the working states under the running query, which is idle."""
    some = _begin(trial)
    trial.drain()

    def tear(folder: Path) -> None:
        for file in folder.iterdir():
            if trial.chance.random() < 0.4:
                os.truncate(file, trial.chance.randrange(file.stat().st_size + 1))

    trial.seen.append(f"{_working_states(trial, tear)} states after batch {some}")


def _working_states(trial: Trial, change: Callable[[Path], object]) -> int:
    """Do something to each kept working state of the driver's application."""
    done = 0
    for root in trial.machine.cache.glob(f"watersmeet-{os.getuid()}-*/states/*"):
        if ".taken-" not in root.name:
            with suppress(OSError):
                change(root)
                done += 1
    return done


# ---------------------------------------------------------------- sources


@local
def source_stopped(trial: Trial) -> None:
    """One stream brings nothing for several batches, then all of it."""
    streams = "abc" if trial.case == "three" else "ab"
    silent = trial.chance.choice(streams)
    trial.hand_out(2)
    trial.start()
    trial.after(2)
    trial.hand_out(FILES, streams.replace(silent, ""))
    trial.after(FILES)
    if trial.chance.random() < 0.5:
        trial.kill_driver()
    trial.seen.append(f"stream {silent} silent for {FILES - 2} batches")


@local
def driver_stopped(trial: Trial) -> None:
    """SIGSTOP everything for a while, then SIGCONT."""
    _begin(trial)
    trial.hand_out()
    trial.at_random(0.5)
    everyone = family(trial.driver.process.pid)
    for process in everyone:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGSTOP)
    trial.at_random(3)
    for process in everyone:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGCONT)
    trial.seen.append(f"{len(everyone)} processes")


# ---------------------------------------------------------------- executors of a cluster


def _executor_of(pid: int) -> psutil.Process:
    return next(p for p in psutil.Process(pid).parents() if p.name() == "java")


@on_cluster
def executor_at_random(trial: Trial) -> None:
    """kill -9 an executor at any moment; it is replaced."""
    _begin(trial)
    trial.hand_out()
    trial.at_random()
    executors = trial.machine.executors()
    kill(*family(trial.chance.choice(sorted(executors, key=lambda p: p.pid)).pid))
    trial.seen.append(f"1 of {len(executors)} executors, batch {trial.committed()}")


@on_cluster
def executor_state_written(trial: Trial) -> None:
    """kill -9 an executor after a task there has written its state and before the batch commits."""
    _begin(trial)
    pid = _held(trial, "state-written")
    kill(*family(_executor_of(pid).pid))
    trial.driver.traps.clear()


@on_cluster
def executor_in_compaction(trial: Trial) -> None:
    """kill -9 an executor in mid-compaction."""
    _begin(trial)
    pid = _held(trial, "compaction")
    kill(*family(_executor_of(pid).pid))
    trial.driver.traps.clear()


@on_cluster
def two_executors(trial: Trial) -> None:
    """kill -9 two of three executors at once."""
    _begin(trial)
    trial.hand_out()
    trial.at_random()
    executors = sorted(trial.machine.executors(), key=lambda p: p.pid)
    kill(*[p for e in trial.chance.sample(executors, min(2, len(executors))) for p in family(e.pid)])


@on_cluster
def speculation(trial: Trial) -> None:
    """Hold a task after it has written its state until its twin has committed; then let it go on."""
    _begin(trial)
    pid = _held(trial, "state-written")
    before = trial.committed()
    with suppress(TooLongError):
        wait_for("a twin", lambda: trial.committed() > before, 45)
    trial.seen.append("the twin won" if trial.committed() > before else "no twin came")
    with suppress(psutil.NoSuchProcess):
        trial.seen.append("the loser " + ("is still there" if psutil.Process(pid).is_running() else "is gone"))
    trial.driver.traps.clear()
