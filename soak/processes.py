"""Processes that the soak starts, and what it does to them: start, wait for, stop, kill for real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from soak import traps

T = TypeVar("T")
BETWEEN_LOOKS = 0.02
ROOT = Path(__file__).parent.parent


class TooLongError(Exception):
    """Something that should have happened did not."""


def wait_for(what: str, look: Callable[[], T | None], seconds: float, between: float = BETWEEN_LOOKS) -> T:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise TooLongError(f"{what}: not within {seconds:.0f} seconds")
        time.sleep(between)


def environment(**more: str) -> dict[str, str]:
    """Of every process of the soak: this interpreter, this tree, loopback."""
    paths = [str(ROOT / "src"), str(ROOT)]
    own = {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYTHONUNBUFFERED": "1",
    }
    return {**os.environ, **own, **more}


def family(pid: int) -> list[psutil.Process]:
    """The process and all below it."""
    try:
        head = psutil.Process(pid)
        return [head, *head.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def kill(*processes: psutil.Process) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)


def gone(processes: list[psutil.Process], seconds: float = 30) -> None:
    """Wait until they have ended."""
    _, alive = psutil.wait_procs(processes, timeout=seconds)
    if alive:
        raise TooLongError(f"still running after {seconds:.0f} seconds: {[p.pid for p in alive]}")


class Traps:
    """The moments at which a process can be held; see `traps`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def arm(self, moment: str) -> None:
        (self.folder / moment).touch()

    def reached(self, moment: str, seconds: float = 300) -> int:
        """The number of the process that waits at this moment."""

        def look() -> int | None:
            held = next(self.folder.glob(f"{moment}.*"), None)
            return int(held.suffix[1:]) if held else None

        return wait_for(f"moment {moment}", look, seconds)

    def clear(self) -> None:
        """Let everybody go on."""
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

    def tell(self, do: str, **facts: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((json.dumps({"do": do, **facts}) + "\n").encode())
        self.process.stdin.flush()

    def heard(self) -> Iterator[dict[str, Any]]:
        """Events since the last time that somebody listened."""
        if not self.events.exists():
            return
        data = self.events.read_bytes()[self.read :]
        for line in data.splitlines(keepends=True):
            if line.endswith(b"\n"):
                self.read += len(line)
                yield json.loads(line)

    def expect(self, *events: str, seconds: float = 600) -> dict[str, Any]:
        """The first of these to happen."""

        def look() -> dict[str, Any] | None:
            found = next((e for e in self.heard() if e["event"] in events), None)
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
        """kill -9 of the driver, both halves of it; what it had started ends with it."""
        everyone = family(self.process.pid)
        kill(*[p for p in everyone if p.name() == "java"])
        if self.alive():
            self.process.kill()
        self._hang_up()
        self.process.wait()
        self.traps.clear()
        try:
            gone([p for p in everyone if p.pid != self.process.pid], 10)
        except TooLongError:  # a worker that is held does not hear that its parent is gone
            kill(*everyone)
            gone(everyone)
        self.log.close()

    def _hang_up(self) -> None:
        """Nobody tells it anything any more."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # what was not read when it died
            self.process.stdin.close()

    def close(self) -> None:
        """End it in peace."""
        everyone = family(self.process.pid)
        self.traps.clear()
        self._hang_up()
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
