"""Processes: start, wait, measure, kill."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import psutil

from lab import ROOT

T = TypeVar("T")
BETWEEN_LOOKS = 0.02
HOST = "127.0.0.1"
LONGEST_RUN = 3600  # seconds


def free_port() -> int:
    with socket.socket() as one:
        one.bind((HOST, 0))
        return int(one.getsockname()[1])


class TooLongError(Exception):
    """An expected event did not happen in time."""


def wait_for(what: str, look: Callable[[], T | None], seconds: float, between: float = BETWEEN_LOOKS) -> T:
    """Call `look` until it returns something, and return that."""
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if found is not None and found is not False:
            return found
        if time.monotonic() > deadline:
            raise TooLongError(f"{what}: not within {seconds:.0f} seconds")
        time.sleep(between)


def environment(**more: str) -> dict[str, str]:
    """The environment of a child process: this interpreter, this tree, loopback."""
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


def measured(
    command: Sequence[str],
    log: Path,
    *,
    tick: Callable[[float], None] = lambda seconds: None,
    longest: float = LONGEST_RUN,
    environment: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """The last line that the process prints, as JSON; `error` with the reason if it did not finish.

    Its standard error goes to the log.
    """
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
                os.killpg(process.pid, signal.SIGKILL)  # its children end with it
    if output is None:
        return {"error": f"not finished after {longest:.0f} s ({log.name})"}
    if process.returncode != 0:
        return {"error": f"exit {process.returncode}, {_reason(log)}"}
    return dict(json.loads(output.strip().splitlines()[-1]))


def _reason(log: Path) -> str:
    """The last line that names an exception, with the place of the rest."""
    errors = re.findall(r"^[\w.]*(?:Error|Exception)\b.*", log.read_text(), re.MULTILINE)
    return f"{errors[-1][:160] if errors else 'no message'} ({log.name})"
