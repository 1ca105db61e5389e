"""The process of a `soak.driver`, and the moments at which it can be held."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil

from lab import ROOT
from lab.processes import TooLongError, environment, family, gone, kill, wait_for
from soak import traps


class Traps:
    """The moments at which a process can be held; see `traps`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, moment: str) -> None:
        (self.folder / moment).touch()

    def reached(self, moment: str, seconds: float = 300) -> int:
        """The id of the process that is held at this moment."""

        def look() -> int | None:
            held = next(self.folder.glob(f"{moment}.*"), None)
            return int(held.suffix[1:]) if held else None

        return wait_for(f"moment {moment}", look, seconds)

    def clear(self) -> None:
        """Release all held processes and disarm all traps."""
        for file in self.folder.iterdir():
            file.unlink(missing_ok=True)


class Driver:
    """A `soak.driver`, from the outside."""

    def __init__(
        self, folder: Path, master: str = "local[2,4]", settings: dict[str, str] | None = None, **env: str
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.master = folder, master
        self.traps = Traps(folder / "traps")
        self.traps.clear()
        self.events = folder / "events.jsonl"
        self.events.unlink(missing_ok=True)
        self.read = 0
        given = [f"{name}={value}" for name, value in (settings or {}).items()]
        env = {traps.FOLDER: str(self.traps.folder), traps.SMALL_SEGMENTS: "2"} | env
        self.log = (folder / "driver.log").open("a")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "soak.driver", str(self.events), master, *given],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
            env=environment(**env),
            cwd=ROOT,
        )

    def alive(self) -> bool:
        return self.process.poll() is None

    def send(self, do: str, **facts: Any) -> None:
        """Send a command."""
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps({"do": do, **facts}) + "\n").encode())
        self.process.stdin.flush()

    def new_events(self) -> Iterator[dict[str, Any]]:
        """Events since the last call."""
        if not self.events.exists():
            return
        data = self.events.read_bytes()[self.read :]
        for line in data.splitlines(keepends=True):
            if line.endswith(b"\n"):
                self.read += len(line)
                yield json.loads(line)

    def expect(self, *events: str, seconds: float = 600) -> dict[str, Any]:
        """Wait for the first of these events."""

        def look() -> dict[str, Any] | None:
            found = next((e for e in self.new_events() if e["event"] in events), None)
            if found is None and not self.alive():
                raise TooLongError(f"the driver ended while {' or '.join(events)} was expected")
            return found

        return wait_for(" or ".join(events), look, seconds)

    def jvm(self) -> psutil.Process:
        return next(p for p in family(self.process.pid) if p.name() == "java")

    def workers(self) -> list[psutil.Process]:
        """Python workers, without the daemon that forks them."""
        return [w for d in self.daemons() for w in d.children()]

    def daemons(self) -> list[psutil.Process]:
        return [p for p in self.jvm().children() if "soak.daemon" in _line(p)]

    def kill(self) -> None:
        """kill -9 of the driver, its JVM and its Python process; its children end with it."""
        everyone = family(self.process.pid)
        kill(*[p for p in everyone if p.name() == "java"])
        if self.alive():
            self.process.kill()
        self._close_stdin()
        self.process.wait()
        self.traps.clear()
        try:
            gone([p for p in everyone if p.pid != self.process.pid], 10)
        except TooLongError:  # a held worker does not notice the end of its parent
            kill(*everyone)
            gone(everyone)
        self.log.close()

    def _close_stdin(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # unread commands of a dead process
            self.process.stdin.close()

    def close(self) -> None:
        """End the driver without a fault."""
        everyone = family(self.process.pid)
        self.traps.clear()
        self._close_stdin()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        kill(*everyone)
        self.process.wait()
        self.log.close()


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
