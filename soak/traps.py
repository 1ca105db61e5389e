"""Moments at which a process of the query can be held, so that it can be killed there.

Only processes that the soak starts know of them: `soak.daemon` installs them in Python workers, `soak.driver` asks for
its own. A trap is armed by a file in the folder that `SOAK_TRAPS` names. The first process to reach the moment takes
the file (a rename, so one only can), which tells who waits there, and goes on when the file is gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

FOLDER = "SOAK_TRAPS"
#: Small segments beyond which a shard compacts; small, so that compaction is frequent.
SMALL_SEGMENTS = "SOAK_SMALL_SEGMENTS"
#: Where working states live, if not where the product would keep them.
CACHE = "SOAK_CACHE"
LONGEST_WAIT = 600.0  # seconds; after that the process goes on, and the trial that forgot it fails
BETWEEN_LOOKS = 0.01

#: In workers: name → (module, name in it of what has just been done).
MOMENTS = {
    "half-written": ("watersmeet.state.log", "_Writer._put"),
    "state-written": ("watersmeet.state.log", "commit"),
    "compaction": ("watersmeet.state.stream_state", "StreamState.rewrite"),
    "cache-kept": ("watersmeet.spark.processor", "_Working.keep"),
    "results-half": ("watersmeet.spark.processor", "Sheet.results"),
    "loading": ("watersmeet.state.log", "_restore"),
}


def reach(moment: str) -> None:
    """Wait here if the trap of this name is armed."""
    folder = os.environ.get(FOLDER)
    if not folder:
        return
    mine = Path(folder) / f"{moment}.{os.getpid()}"
    try:
        (Path(folder) / moment).rename(mine)
    except OSError:
        return
    deadline = time.monotonic() + LONGEST_WAIT
    while mine.exists() and time.monotonic() < deadline:
        time.sleep(BETWEEN_LOOKS)


def install() -> None:
    """Let this process pass by the traps for workers."""
    import importlib

    from watersmeet.spark import worker_cache
    from watersmeet.state import stream_state

    stream_state.MAX_SMALL_SEGMENTS = int(os.environ.get(SMALL_SEGMENTS, stream_state.MAX_SMALL_SEGMENTS))
    if CACHE in os.environ:
        worker_cache.base = lambda: Path(os.environ[CACHE])
    for moment, (module, path) in MOMENTS.items():
        owner: Any = importlib.import_module(module)
        *holders, name = path.split(".")
        for holder in holders:
            owner = getattr(owner, holder)
        setattr(owner, name, _followed_by(getattr(owner, name), moment))


def _followed_by(real: Callable[..., Any], moment: str) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        value = real(*args, **options)
        reach(moment)
        return value

    return call
