"""Spark's own log lines: aside in a file, so that a user reads messages and not stack traces of Java."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def aside() -> Iterator[Path | None]:
    """What `redirected` starts in here writes to a file, which is removed in the end, or named if something failed.

    With `-v` there is no such file (None): all is shown.
    """
    if logging.getLogger().isEnabledFor(logging.INFO):
        yield None
        return
    number, name = tempfile.mkstemp(prefix="watersmeet-", suffix=".log")
    os.close(number)
    try:
        yield Path(name)
    except Exception as error:
        error.add_note(f"Spark's own log: {name}")
        raise
    Path(name).unlink(missing_ok=True)  # who tidies the temporary folder meanwhile does no harm


@contextmanager
def redirected(log: Path | None) -> Iterator[None]:
    """Processes that are started in here have the file as their standard error."""
    if log is None:
        yield
        return
    kept = os.dup(2)
    try:
        with log.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
