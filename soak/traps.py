"""Moments at which a process of the query can be held, so that it can be killed there.

Only processes that the soak starts have them: `soak.daemon` installs them in Python workers, `soak.driver` calls
`reach`. A trap is armed by a file in the folder that `SOAK_TRAPS` names. The first process to reach the moment renames
the file, which only one can do, to a name with its process id. It continues when the file is removed.
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
#: The folder of working states, if not the product's own.
CACHE = "SOAK_CACHE"
LONGEST_WAIT = 600.0  # seconds; after that the process continues and the trial fails
BETWEEN_LOOKS = 0.01

#: Moments in workers: name → (module, function in it that has just returned).
MOMENTS = {
    "half-written": ("watersmeet.state.durable.log", "_Writer._put"),
    "state-written": ("watersmeet.state.durable.log", "commit"),
    "compaction": ("watersmeet.state.stream_state", "StreamState.rewrite"),
    "cache-kept": ("watersmeet.spark.runtime.working_state", "WorkingState.keep"),
    "results-half": ("watersmeet.spark.runtime.output_rows", "OutputRows.results"),
    "loading": ("watersmeet.state.durable.log", "_restore"),
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
    """Install the traps for workers in this process."""
    import importlib

    from watersmeet.spark.runtime import worker_cache
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
