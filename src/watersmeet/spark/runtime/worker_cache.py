"""The folder where workers of one Spark application keep working states on one machine, and its removal."""

from __future__ import annotations

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from pyspark import SparkFiles

from watersmeet.state.durable.cache import Cache, remove
from watersmeet.state.durable.memory_bound import SPILLED

__all__ = ["application_cache", "base", "folder", "remove", "sweep"]

OWNER = "owner"
#: Working states of one application and machine take at most this (bytes); beyond, the oldest are rebuilt when needed.
LIMIT = int(os.environ.get("WATERSMEET_CACHE_BYTES", 8 << 30))


def base() -> Path:
    """/dev/shm if it exists and has more than 1 GiB free, else the temporary folder."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize > 1 << 30:
            return memory
    return Path(tempfile.gettempdir())


def disk() -> Path:
    """The folder for what is spilled: the first of Spark's local folders, which go with the application."""
    return Path(os.environ.get("SPARK_LOCAL_DIRS", tempfile.gettempdir()).split(",")[0]).absolute()


def application_cache() -> Cache:
    """The cache that all workers of one JVM (the driver of a local master, an executor) share.

    It is named after the folder that Spark gives the driver or the executor, and records that JVM. The cache of a
    killed JVM has an owner that no longer exists; the next application removes it. A standalone cluster keeps the
    folders of its executors for days, so the folder alone is not enough.
    """
    owner = os.path.abspath(SparkFiles.getRootDirectory()) if _in_spark() else f"process {os.getpid()}"
    root = folder(owner)
    if not (root / OWNER).exists():
        sweep()
        root.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileExistsError):
            (root / SPILLED).symlink_to(disk() / f"{root.name}-{os.urandom(8).hex()}", target_is_directory=True)
        whole = root / f"{OWNER}-{os.getpid()}"
        whole.write_text("\n".join([owner, *_jvm()]))
        whole.rename(root / OWNER)  # another process that sweeps must not read half of a name
    room = os.statvfs(root)
    return Cache(root / "states", min(LIMIT, room.f_blocks * room.f_frsize // 2), (root / SPILLED).readlink())


def folder(owner: str) -> Path:
    """The folder of working states of the application that `owner`, a folder of Spark's, belongs to."""
    return base() / f"watersmeet-{os.getuid()}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def _in_spark() -> bool:
    return SparkFiles._is_running_on_worker or SparkFiles._root_directory is not None


def sweep() -> None:
    """Remove the caches of applications that have ended."""
    for root in base().glob(f"watersmeet-{os.getuid()}-*"):
        try:
            owner = (root / OWNER).read_text()
        except OSError:
            continue  # being made, or being removed
        if _gone(*owner.split("\n")):
            remove(root)


def _gone(owner: str, *jvm: str) -> bool:
    kind, _, pid = owner.partition(" ")
    if kind == "process":
        return not Path(f"/proc/{pid}").exists()
    return not Path(owner).exists() or any(_started(process.partition(" ")[0]) != process for process in jvm)


def _jvm() -> list[str]:
    """The JVM that this process works for, by number and start; empty where the system has no /proc."""
    pid = os.getpid()
    try:
        while pid > 1:
            if Path(f"/proc/{pid}/comm").read_text().strip() == "java":
                return [_started(str(pid)) or ""]
            pid = int(_fields(str(pid))[1])
    except OSError:
        pass
    return []


def _started(pid: str) -> str | None:
    """A process by its number and the moment of its start: numbers are used again. None if there is no such process."""
    try:
        return f"{pid} {_fields(pid)[19]}"
    except OSError:
        return None


def _fields(pid: str) -> list[str]:
    """The fields of /proc/<pid>/stat from the state on; the name before it may contain any character."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
