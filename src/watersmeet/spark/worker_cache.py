"""Where the workers of one Spark application keep working states on one machine, and when these go."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from pyspark import SparkFiles

from watersmeet.state.cache import Cache

OWNER = "owner"
#: Working states of one application and machine take at most this (bytes); beyond, the oldest are rebuilt when needed.
LIMIT = int(os.environ.get("WATERSMEET_CACHE_BYTES", 8 << 30))


def base() -> Path:
    """Memory-backed where the machine has it and some room in it, else the temporary folder."""
    memory = Path("/dev/shm")
    if memory.is_dir() and os.access(memory, os.W_OK):
        room = os.statvfs(memory)
        if room.f_bavail * room.f_frsize > 1 << 30:
            return memory
    return Path(tempfile.gettempdir())


def application_cache() -> Cache:
    """The cache that all workers of this application on this machine share.

    It is named after the folder that Spark gives the application and deletes with it, so what a killed application
    left is known by an owner that is gone, and removed by the next one.
    """
    owner = os.path.abspath(SparkFiles.getRootDirectory()) if _in_spark() else f"process {os.getpid()}"
    root = folder(owner)
    if not (root / OWNER).exists():
        sweep()
        root.mkdir(mode=0o700, exist_ok=True)
        (root / OWNER).write_text(owner)
    room = os.statvfs(root)
    return Cache(root / "states", min(LIMIT, room.f_blocks * room.f_frsize // 2))


def folder(owner: str) -> Path:
    """Where the application that owns this folder of Spark's keeps its working states."""
    return base() / f"watersmeet-{os.getuid()}-{hashlib.sha256(owner.encode()).hexdigest()[:16]}"


def remove(root: Path) -> None:
    shutil.rmtree(root, ignore_errors=True)


def _in_spark() -> bool:
    return SparkFiles._is_running_on_worker or SparkFiles._root_directory is not None


def sweep() -> None:
    """Remove the caches of applications that have ended."""
    for root in base().glob(f"watersmeet-{os.getuid()}-*"):
        try:
            owner = (root / OWNER).read_text()
        except OSError:
            continue  # being made, or being removed
        kind, _, pid = owner.partition(" ")
        gone = not Path(f"/proc/{pid}").exists() if kind == "process" else not Path(owner).exists()
        if gone:
            remove(root)
