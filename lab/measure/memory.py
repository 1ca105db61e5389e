"""Memory of processes and of the files that they share, looked at from outside."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

#: Seconds between two looks.
INTERVAL = 0.2


def proportional(pid: int) -> dict[str, int]:
    """Bytes of a process by kind, those that it shares divided among the sharers; nothing if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return {}
    fields = (line.split() for line in lines if line.startswith("Pss"))
    return {name.rstrip(":"): int(kilobytes) << 10 for name, kilobytes, _ in fields}


def file_bytes(folder: Path) -> int:
    """Bytes that the files in a folder take; links are not followed."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):  # removed meanwhile
                found = os.lstat(os.path.join(path, name))
                total += found.st_blocks * 512 * stat.S_ISREG(found.st_mode)
    return total


def used(pids: Iterable[int], folder: Path) -> int:
    """Bytes in memory of processes and of a folder in memory, of which they may have mapped files.

    What is in the folder counts once, mapped or not; files that are removed and still mapped count as mapped ones.
    """
    found = [proportional(pid) for pid in pids]
    own = sum(one.get("Pss", 0) - one.get("Pss_Shmem", 0) for one in found)
    return own + max(file_bytes(folder), sum(one.get("Pss_Shmem", 0) for one in found))


class MemoryUsed:
    """What `look` gives again and again, inside a `with`, since `begin` was called last."""

    def __init__(self, look: Callable[[], int]) -> None:
        self.look = look
        self.samples: list[int] = []
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> MemoryUsed:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        self._thread.join()

    def begin(self) -> None:
        self.samples = [self.look()]

    def _run(self) -> None:
        while not self._stop.wait(INTERVAL):
            self.samples.append(self.look())
