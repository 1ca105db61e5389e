"""Redirects Spark's own log to a file, so that users see messages instead of Java stack traces."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def aside() -> Iterator[Path | None]:
    """A file for Spark's log, to use with `redirected`. It is removed at the end; an error keeps it and names it.

    With `-v` it is None: the log is shown.
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
    Path(name).unlink(missing_ok=True)  # another process may have cleaned the temporary folder


@contextmanager
def redirected(log: Path | None) -> Iterator[None]:
    """Processes that are started in this context write standard error to the file."""
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
