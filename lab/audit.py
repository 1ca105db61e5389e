"""What a program does beside computing, from Python's audit events: for tests that hostile input makes it do nothing.

An audit hook stays until the process ends, so it belongs into a process of its own. It sees what Python does, not what
Arrow does by itself; kernels that Numba loads at their first call are left out.
"""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Any, Self

#: Events of loading or making code, and of reaching out of the process. A name that ends in a dot is a family.
DEEDS = (
    *("exec", "compile", "import", "code.__new__", "function.__new__", "pickle.find_class", "marshal.", "ctypes."),
    *(
        "subprocess.",
        "os.system",
        "os.exec",
        "os.fork",
        "os.forkpty",
        "os.posix_spawn",
        "os.spawn",
        "os.startfile",
        "pty.",
    ),
    *("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    *("os.putenv", "os.unsetenv", "os.kill", "os.chdir", "shutil.", "tempfile.", "sqlite3.", "signal.", "syslog."),
    *("socket.", "urllib.", "http.", "ftplib.", "smtplib.", "imaplib.", "poplib.", "telnetlib.", "webbrowser."),
    *("sys.addaudithook", "sys.setprofile", "sys.settrace", "gc.get_objects", "builtins.input", "builtins.breakpoint"),
)
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class DeedError(AssertionError):
    """Something was done that reading does not do."""


class Audit:
    """Notes deeds while it is entered, and prevents them; raises `DeedError` when it is left, if there were some."""

    def __init__(self) -> None:
        self.deeds: list[str] = []
        self._entered = False
        sys.addaudithook(self._hook)

    def __enter__(self) -> Self:
        self.deeds.clear()
        self._entered = True
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._entered = False
        if self.deeds:
            raise DeedError("; ".join(self.deeds)) from error

    def _hook(self, event: str, values: tuple[Any, ...]) -> None:
        if self._entered and is_deed(event, values) and not _by_numba():
            self.deeds.append(f"{event}{values!r}"[:200])
            raise DeedError(self.deeds[-1])


def _by_numba() -> bool:
    """Whether Numba loads a compiled kernel, which it does at the first call, out of its own cache."""
    frame = sys._getframe(2)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith("numba."):
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def is_deed(event: str, values: tuple[Any, ...]) -> bool:
    """Whether the event is a deed; to open a file for reading is none."""
    if event == "open":
        return bool(int(values[2] or 0) & WRITES)
    return event in DEEDS or f"{event.partition('.')[0]}." in DEEDS
