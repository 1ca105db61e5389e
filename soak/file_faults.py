"""Torn, changed or lost files, and full disks: of checkpoints and of working states."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from soak.kinds import begin, local
from soak.trial import FILES, NotPossibleError, Trial, flip, newest, truncate


def _standing(trial: Trial) -> None:
    """A query that was killed after some batches, and a copy of its checkpoint."""
    begin(trial)
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


def _lose_commit(trial: Trial) -> str:
    """Remove the newest commit and its checksum, as if the batch had not ended."""
    file = _log_file(trial, "commits")
    file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return file.name


@local
def commit_lost(trial: Trial) -> None:
    """Delete the newest file of the commit log, then restart: the batch runs again."""
    _standing(trial)
    trial.seen.append(f"commit {_lose_commit(trial)}")


@local
def commit_torn(trial: Trial) -> None:
    """Truncate the newest file of the commit log, then restart."""
    _standing(trial)
    trial.seen.append(truncate(_log_file(trial, "commits"), trial.chance))


@local
def offsets_torn(trial: Trial) -> None:
    """Truncate the newest file of the offset log, as a crash while it is written would, then restart."""
    _standing(trial)
    _lose_commit(trial)
    trial.seen.append(truncate(_log_file(trial, "offsets"), trial.chance))


@local
def disk_full(trial: Trial) -> None:
    """Fill the disk of the checkpoint (a small tmpfs) until the query fails; make room; restart."""
    with tmpfs(trial.checkpoint, "24m"):
        begin(trial, 2)
        filler = trial.checkpoint / ".filler"
        _fill(filler)
        trial.hand_out()
        if not trial.drain():
            trial.seen.append(_reason(trial.errors[-1]))
        filler.unlink()
        trial.must_finish()
        shutil.copytree(trial.checkpoint, trial.folder / "kept")
    shutil.copytree(trial.folder / "kept", trial.checkpoint, dirs_exist_ok=True)


@local
def cache_full(trial: Trial) -> None:
    """Fill the disk of the working states (a small tmpfs) while the query runs; make room."""
    place = trial.machine.cache
    trial.driver.close()
    with tmpfs(place, "64m"):
        trial.machine.launch().expect("ready")
        begin(trial, 2)
        filler = place / ".filler"
        _fill(filler)
        trial.hand_out(FILES - 2)
        if not trial.drain():
            trial.seen.append(_reason(trial.errors[-1]))
        filler.unlink()
        trial.must_finish()
        trial.driver.kill()


def _fill(filler: Path) -> None:
    with suppress(OSError), filler.open("wb", buffering=0) as file:
        while file.write(b"\0" * 4096):
            pass


def _reason(error: str) -> str:
    """The reason why the query stopped, in one line."""
    full = "No space left on device"
    if full in error:
        return full
    lines = [line for line in error.splitlines() if "Error" in line or "Exception" in line or "space" in line]
    return (lines or error.splitlines() or ["?"])[-1][:160]


class tmpfs:  # noqa: N801  # reads like the command
    """A tmpfs of this size, mounted at the folder; needs root."""

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


@local
def cache_lost(trial: Trial) -> None:
    """Remove the working states under the running query."""
    begin(trial)
    trial.hand_out(FILES - 1)
    trial.at_random(0.5)
    trial.seen.append(f"{_working_states(trial, shutil.rmtree)} states")


@local
def cache_torn(trial: Trial) -> None:
    """Truncate files of the working states under the running query, which is idle."""
    some = begin(trial)
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
