"""One fault: a query over fresh streams, the fault, and the comparison of the output with the oracle's."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from lab.processes import wait_for
from soak import cases
from soak.driver_process import Driver
from soak.machine import Machine

FILES, ROWS = 6, {2: 300, 3: 60}  # rows of a file, by the number of streams
#: Errors of a machine that is too busy: Spark gives a new Python process ten seconds. The trial is repeated.
BUSY = ("Python worker failed to connect back",)
#: Good outcomes of a fault.
GOOD = ("exact", "refused, then exact", "not possible here")
#: Seconds for a query to process all its input, restarts included.
LONGEST = 900.0
#: Errors that may refuse a damaged state: ours, and Spark's if Spark reads the damage first.
NAMED = (
    "StateCorruptError",
    "StateMismatchError",
    "StateFormatError",
    "CANNOT_LOAD_STATE_STORE",
    "STATE_STORE",
    "CANNOT_WRITE_STATE_STORE",
    "MISSING_METADATA",
    "Malformed",
    "Incomplete log file",
    "Unexpected end-of-input",
    "JsonEOFException",
    "JsonParseException",
    "MappingException",
    "Stream is corrupted",
    "ZipException",
    "checksum",
    "Checksum",
    "No space left on device",
    "EOFException",
    "does not exist",
    "FileNotFound",
    "truncated",
    "corrupt",
    "Corrupt",
)


class NotPossibleError(Exception):
    """This machine does not allow the fault."""


@dataclass
class Trial:
    """A query with its own folder, in a driver that may have run others before."""

    kind: str
    folder: Path
    case: str
    chance: Random
    machine: Machine
    seen: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    restarts: int = 0
    running: bool = False
    copy: Path | None = None
    may_refuse: bool = False
    place: str = "checkpoint"  # the name of the checkpoint's folder; Spark keeps its path in it, so it cannot be moved
    changed: bool = False  # whether the query is the changed one, to which its state has evolved
    in_table: int = 0  # files of each stream that a state was made of, and that the query does not see

    @property
    def checkpoint(self) -> Path:
        return self.folder / self.place

    @property
    def driver(self) -> Driver:
        return self.machine.driver

    def prepare(self) -> None:
        cases.make(self.case, FILES, ROWS[len(cases.CASES[self.case].streams)], self.chance, self.folder)

    # ---------------------------------------------------------------- the source

    def hand_out(self, upto: int = FILES, streams: str | None = None) -> None:
        """Let the query see the files up to this number."""
        for s in streams or cases.CASES[self.case].streams:
            for file in sorted((self.folder / "all" / s).iterdir())[self.in_table : upto]:
                target = self.folder / "in" / s / file.name
                if not target.exists():
                    shutil.copy2(file, target.with_name(f".{file.name}.new"))  # Spark ignores such names
                    target.with_name(f".{file.name}.new").rename(target)

    # ---------------------------------------------------------------- the query

    def start(self) -> None:
        """Start the query, in a new driver if the last one is gone."""
        if not self.driver.alive():
            self.machine.launch().expect("ready")
            self.restarts += 1
        self.send_start(self.driver)
        reply = self.driver.expect("started", "failed")
        self.running = reply["event"] == "started"
        if not self.running:
            self.errors.append(reply["error"])

    def send_start(self, driver: Driver) -> None:
        where = {"case": self.case, "folder": str(self.folder), "checkpoint": str(self.checkpoint)}
        driver.send("start", changed=self.changed, **where)

    def drain(self) -> bool:
        """Wait until all input is processed; False if the query failed."""
        self.driver.send("drain")
        reply = self.driver.expect("drained", "failed", seconds=LONGEST)
        if reply["event"] == "failed":
            self.running = False
            self.errors.append(reply["error"])
            return False
        for name in ("rebuilt", "caught_up", "split"):
            total = sum(c[name] for c in reply["counters"])
            if total:
                self.seen.append(f"{total} {name.replace('_', ' ')}")
        return True

    def stop(self) -> None:
        self.driver.send("stop")
        self.driver.expect("stopped")
        self.running = False

    def kill_driver(self) -> None:
        self.driver.kill()
        self.running = False

    def committed(self) -> int:
        """Batches in the commit log."""
        folder = self.checkpoint / "commits"
        return sum(f.name.isdigit() for f in folder.iterdir()) if folder.exists() else 0

    def logged(self) -> list[int]:
        """Files in Spark's log of each source, whether a batch contains them yet or not."""
        logs = [self.checkpoint / "sources" / str(n) for n in range(len(cases.CASES[self.case].streams))]
        return [sum(name.isdigit() for name in os.listdir(log)) for log in logs]

    def planned(self) -> list[int]:
        """Files of each source that batches contain, by the offset log."""
        log = self.checkpoint / "offsets"
        last = max((f for f in log.iterdir() if f.name.isdigit()), key=lambda f: int(f.name))
        return [json.loads(line)["logOffset"] + 1 for line in last.read_text().splitlines()[2:]]

    def after(self, batches: int) -> None:
        """Wait until this number of batches is committed."""
        wait_for(f"{batches} batches", lambda: self.committed() >= batches, 600)

    def at_random(self, most: float = 1.5) -> None:
        """Wait for a random time, which follows from the seed."""
        time.sleep(self.chance.uniform(0, most))

    # ---------------------------------------------------------------- the end of it

    def save_copy(self) -> None:
        """Copy the checkpoint, as the backup of a stopped query."""
        self.copy = self.folder / "copy"
        shutil.copytree(self.checkpoint, self.copy)

    def finish(self) -> str:
        """Bring the query to the end of its input; returns the outcome of the fault."""
        self.hand_out()
        refused = False
        for _ in range(6):
            before = self.errors[:]
            if not self.running:
                self.start()
            if self.running and self.drain():
                self.stop()
                break
            if any(busy in error for busy in BUSY for error in self.errors[len(before) :]):
                continue
            if len(self.errors) > len(before) and self.may_refuse and self.copy is not None:
                error = self.errors[-1]
                name = next((n for n in NAMED if n in error), None)
                if name is None:
                    return f"unclear error: {error[:300]}"
                self.seen.append(f"refused: {name}")
                self._check_so_far()
                refused = True
                shutil.rmtree(self.checkpoint)
                shutil.copytree(self.copy, self.checkpoint)
        else:
            return f"did not come to an end: {self.errors[-1][:300] if self.errors else ''}"
        wrong = self.compare()
        return wrong or ("refused, then exact" if refused else "exact")

    def must_finish(self) -> None:
        """Finish, and raise if the outcome is not a good one."""
        outcome = self.finish()
        if outcome not in GOOD:
            raise AssertionError(outcome)

    def _check_so_far(self) -> None:
        """Check that the output before the refusal is part of the answer."""
        have, want = cases.output(self.case, self.folder), cases.answer(self.case, self.folder)
        if have.results - want.results or have.late - want.late:
            raise AssertionError("rows came out that are not part of the answer")

    def compare(self) -> str | None:
        """The errors in the output, None if there are none."""
        have, want = cases.output(self.case, self.folder), cases.answer(self.case, self.folder)
        self.seen.append(f"{want.results.total()} results, {want.late.total()} late")
        found = []
        for name, got, expected in (("result", have.results, want.results), ("late row", have.late, want.late)):
            lost, extra = (expected - got).total(), (got - expected).total()
            if lost:
                found.append(f"{lost} {name}s lost")
            if extra:
                found.append(f"{extra} {name}s too many")
        return ", ".join(found) or None


def newest(folder: Path, *suffixes: str) -> Path | None:
    """The newest file with one of these suffixes."""
    files = [f for f in folder.rglob("*") if f.is_file() and f.suffix in suffixes and not f.name.startswith(".")]
    return max(files, key=lambda f: (f.stat().st_mtime_ns, f.name), default=None)


def truncate(file: Path, chance: Random) -> str:
    size = file.stat().st_size
    left = chance.randrange(size) if size else 0
    os.truncate(file, left)
    _remove_checksum(file)
    return f"{file.name}: {left} of {size} bytes left"


def flip(file: Path, chance: Random) -> str:
    data = bytearray(file.read_bytes())
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    file.write_bytes(data)
    _remove_checksum(file)
    return f"{file.name}: a bit of byte {place} of {len(data)} flipped"


def _remove_checksum(file: Path) -> None:
    """Remove Hadoop's checksum of a local file, which would reveal any damage; an object store has none."""
    (file.parent / f".{file.name}.crc").unlink(missing_ok=True)


def seed_of(*parts: object) -> int:
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big")
