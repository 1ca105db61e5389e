"""Killed or stopped processes (Python workers, the driver, executors), and stopped sources."""

from __future__ import annotations

import signal
from contextlib import suppress

import psutil

from lab.processes import family, kill, wait_for
from soak.kinds import begin, held, kill_held, local, on_cluster
from soak.trial import FILES, Trial

# ---------------------------------------------------------------- Python workers


@local
def worker_at_random(trial: Trial) -> None:
    """kill -9 a Python worker at any moment."""
    begin(trial)
    trial.hand_out()
    trial.at_random()
    workers = trial.driver.workers()
    if workers:
        kill(trial.chance.choice(sorted(workers, key=lambda p: p.pid)))
    trial.seen.append(f"1 of {len(workers)} workers, batch {trial.committed()}")


@local
def worker_half_written(trial: Trial) -> None:
    """kill -9 a Python worker between two writes of a shard's state."""
    kill_held(trial, "half-written")


@local
def worker_state_written(trial: Trial) -> None:
    """kill -9 a Python worker after the state was written and before the batch commits."""
    kill_held(trial, "state-written")


@local
def worker_cache_kept(trial: Trial) -> None:
    """kill -9 a Python worker whose working state is warm already; the task is tried again in another."""
    kill_held(trial, "cache-kept")


@local
def worker_in_compaction(trial: Trial) -> None:
    """kill -9 a Python worker in mid-compaction."""
    kill_held(trial, "compaction")


@local
def worker_results_half(trial: Trial) -> None:
    """kill -9 a Python worker that has handed out a part of its results."""
    kill_held(trial, "results-half")


@local
def worker_stopped(trial: Trial) -> None:
    """SIGSTOP a Python worker for a while, then SIGCONT."""
    begin(trial)
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
    begin(trial)
    trial.hand_out()
    trial.at_random()
    daemons = trial.driver.daemons()
    kill(*[p for d in daemons for p in family(d.pid)])
    trial.seen.append(f"{len(daemons)} daemons, batch {trial.committed()}")


# ---------------------------------------------------------------- the driver


@local
def driver_at_random(trial: Trial) -> None:
    """kill -9 the driver at any moment."""
    begin(trial)
    trial.hand_out()
    trial.at_random()
    trial.kill_driver()
    trial.seen.append(f"batch {trial.committed()}")


@local
def driver_source_ahead(trial: Trial) -> None:
    """kill -9 the driver after a source has logged a file and before the offset log has its batch: one batch of two."""
    begin(trial)
    jvm, before = trial.driver.jvm(), trial.logged()
    sources = trial.chance.randint(1, len(before))
    trial.hand_out()
    wait_for("files logged", lambda: sum(trial.logged()) >= sum(before) + sources, 60, between=0)
    kill(jvm)
    trial.kill_driver()
    ahead = [n - o for n, o in zip(trial.logged(), trial.planned(), strict=True)]
    trial.seen.append(f"sources ahead by {ahead} files, batch {trial.committed()}")


@local
def driver_state_written(trial: Trial) -> None:
    """kill -9 the driver while a task has written its state and the batch is not committed."""
    begin(trial)
    held(trial, "state-written")
    trial.kill_driver()


@local
def driver_output_half(trial: Trial) -> None:
    """kill -9 the driver after the results were written and before the late rows were."""
    begin(trial)
    held(trial, "results-out")
    trial.kill_driver()


@local
def driver_before_commit(trial: Trial) -> None:
    """kill -9 the driver after all output was written and before the batch is in the commit log."""
    begin(trial)
    held(trial, "output-written")
    trial.kill_driver()


@local
def driver_while_restarting(trial: Trial) -> None:
    """kill -9 the driver, and again while it restarts, and again while it reads its state back."""
    begin(trial)
    trial.hand_out()
    trial.at_random(0.7)
    trial.kill_driver()
    trial.machine.launch()
    trial.at_random(6)
    trial.kill_driver()
    trial.machine.launch()
    trial.driver.expect("ready")
    trial.driver.traps.arm("loading")
    trial.send_start(trial.driver)
    trial.driver.traps.reached("loading", 600)
    trial.kill_driver()
    trial.restarts += 2


# ---------------------------------------------------------------- sources


@local
def source_stopped(trial: Trial) -> None:
    """One stream brings nothing for several batches, then all of it."""
    streams = "abc" if trial.case == "three" else "ab"
    idle = trial.chance.choice(streams)
    trial.hand_out(2)
    trial.start()
    trial.after(2)
    trial.hand_out(FILES, streams.replace(idle, ""))
    trial.after(FILES)
    if trial.chance.random() < 0.5:
        trial.kill_driver()
    trial.seen.append(f"stream {idle} idle for {FILES - 2} batches")


@local
def driver_stopped(trial: Trial) -> None:
    """SIGSTOP everything for a while, then SIGCONT."""
    begin(trial)
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
    begin(trial)
    trial.hand_out()
    trial.at_random()
    executors = trial.machine.executors()
    kill(*family(trial.chance.choice(sorted(executors, key=lambda p: p.pid)).pid))
    trial.seen.append(f"1 of {len(executors)} executors, batch {trial.committed()}")


@on_cluster
def executor_state_written(trial: Trial) -> None:
    """kill -9 an executor after a task there has written its state and before the batch commits."""
    begin(trial)
    pid = held(trial, "state-written")
    kill(*family(_executor_of(pid).pid))
    trial.driver.traps.clear()


@on_cluster
def executor_in_compaction(trial: Trial) -> None:
    """kill -9 an executor in mid-compaction."""
    begin(trial)
    pid = held(trial, "compaction")
    kill(*family(_executor_of(pid).pid))
    trial.driver.traps.clear()


@on_cluster
def two_executors(trial: Trial) -> None:
    """kill -9 two of three executors at once."""
    begin(trial)
    trial.hand_out()
    trial.at_random()
    executors = sorted(trial.machine.executors(), key=lambda p: p.pid)
    kill(*[p for e in trial.chance.sample(executors, min(2, len(executors))) for p in family(e.pid)])


@on_cluster
def speculation(trial: Trial) -> None:
    """Hold a task after it has written its state until its twin has committed; then let it go on."""
    begin(trial)
    pid = held(trial, "state-written")
    before = trial.committed()
    wait_for("a twin that commits", lambda: trial.committed() > before, 120)
    trial.seen.append("the twin won")
    with suppress(psutil.NoSuchProcess):
        trial.seen.append("the loser " + ("is still there" if psutil.Process(pid).is_running() else "is gone"))
    trial.driver.traps.clear()
