"""Runs that have a process of their own, and say what they measured as JSON on their last line."""

import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

LONGEST_RUN = 3600  # seconds


def measured(
    command: Sequence[str],
    log: Path,
    *,
    tick: Callable[[float], None] = lambda seconds: None,
    longest: float = LONGEST_RUN,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What the process says, or `error`: what went wrong if it did not finish. Its own messages go to the log."""
    began, too_long = time.monotonic(), False
    own = {**os.environ, **(environment or {})}
    output: str | None = None
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=own, start_new_session=True
        ) as process,
    ):
        try:
            while output is None and not too_long:
                try:
                    output, _ = process.communicate(timeout=1)
                except subprocess.TimeoutExpired:
                    tick(time.monotonic() - began)
                    too_long = time.monotonic() - began > longest
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # what it started ends with it
    if output is None:
        return {"error": f"not finished after {longest:.0f} s ({log.name})"}
    if process.returncode != 0:
        return {"error": f"exit {process.returncode}, {_reason(log)}"}
    return dict(json.loads(output.strip().splitlines()[-1]))


def _reason(log: Path) -> str:
    """The last line that names an exception, with the place of the rest."""
    errors = re.findall(r"^[\w.]*(?:Error|Exception)\b.*", log.read_text(), re.MULTILINE)
    return f"{errors[-1][:160] if errors else 'no message'} ({log.name})"
