"""A driver killed while it makes a checkpoint from another one or from tables, and two drivers on one checkpoint."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from soak.kinds import begin, local
from soak.trial import LONGEST, Trial

#: Files of each stream in the tables of a bootstrap; rows are late from the file after them on.
TABLE_FILES = 2


@local
def rescale_killed(trial: Trial) -> None:
    """kill -9 the driver while it divides a checkpoint into three shards; divide it again, back into two, and go on."""
    begin(trial)
    trial.stop()
    before, three, two = digest(trial.checkpoint), trial.folder / "three", trial.folder / "two"
    _killed_once(trial, "rescale", three, checkpoint=str(trial.checkpoint), shards=3)
    _make(trial, "rescale", two, checkpoint=str(three), shards=2)
    _continue_from(trial, two, before)


@local
def evolve_killed(trial: Trial) -> None:
    """kill -9 the driver while it carries a checkpoint over to a changed query; do it again, and go on there."""
    begin(trial)
    trial.stop()
    before, evolved = digest(trial.checkpoint), trial.folder / "evolved"
    _killed_once(trial, "evolve", evolved, checkpoint=str(trial.checkpoint), **_where(trial))
    trial.changed = True
    _continue_from(trial, evolved, before)


@local
def bootstrap_killed(trial: Trial) -> None:
    """kill -9 the driver while it makes a checkpoint from tables; do it again, and go on with the rest as streams."""
    trial.in_table = TABLE_FILES
    _killed_once(trial, "bootstrap", trial.checkpoint, files=TABLE_FILES, **_where(trial))


@local
def second_driver(trial: Trial) -> None:
    """Start a second driver on the checkpoint of a running query: both find the same files, and one of them stops."""
    begin(trial)
    other = trial.machine.second()
    try:
        other.expect("ready")
        trial.send_start(other)
        reply = other.expect("started", "failed")
        trial.hand_out()
        if reply["event"] == "started":
            other.send("drain")
            reply = other.expect("drained", "failed", seconds=LONGEST)
        trial.seen.append(f"the second driver has {reply['event']}")
    finally:
        other.close()


def _where(trial: Trial) -> dict[str, Any]:
    return {"case": trial.case, "folder": str(trial.folder)}


def _killed_once(trial: Trial, what: str, to: Path, **facts: Any) -> None:
    """Make a checkpoint in a driver that is killed meanwhile; then again, unless it was made before."""
    trial.driver.send(what, to=str(to), **facts)
    trial.at_random(5)
    trial.kill_driver()
    trial.seen.append("made before the kill" if to.exists() else "nothing was made")
    if not to.exists():
        _make(trial, what, to, **facts)


def _make(trial: Trial, what: str, to: Path, **facts: Any) -> None:
    if not trial.driver.alive():
        trial.machine.launch().expect("ready")
        trial.restarts += 1
    trial.driver.send(what, to=str(to), **facts)
    reply = trial.driver.expect("made", "failed")
    assert reply["event"] == "made", reply


def _continue_from(trial: Trial, made: Path, before: str) -> None:
    """Give the query the new checkpoint; the old one must not have changed."""
    assert digest(trial.checkpoint) == before, "the checkpoint that is only read was changed"
    trial.place = made.name


def digest(folder: Path) -> str:
    """A digest of the names and bytes of all files in a folder."""
    found = hashlib.sha256()
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        found.update(f"{path.relative_to(folder)} {path.stat().st_size} ".encode() + path.read_bytes())
    return found.hexdigest()
