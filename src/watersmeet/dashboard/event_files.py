"""Event files: written line by line while a query runs, read while it runs or later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event as Flag
from types import TracebackType
from typing import BinaryIO, Self

from watersmeet.errors import EventError
from watersmeet.model.events import Event, read, to_line

#: Seconds between two looks at a file that may have grown.
POLL = 0.3


class EventFile:
    """Appends events to a file that only its owner can read: hot keys are data of the streams."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        if self.path.is_file() and self.path.stat().st_size:
            next(iter(_lines(self.path)))  # refuses to append to a file of another kind
        try:
            self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")
        except OSError as error:
            raise EventError(
                f"events cannot be written to {self.path}: {error.strerror}.",
                hint="give a file in a folder that exists.",
            ) from error
        self._torn = not _ends_a_line(self.path)

    def write(self, event: Event) -> None:
        """Append an event; it is in the file when this returns."""
        line = to_line(event).encode() + b"\n"
        self._file.write(b"\n" + line if self._torn else line)
        self._torn = False
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def read_events(path: str | Path) -> list[Event]:
    """The events of a file. An incomplete line, which a killed writer leaves, is skipped."""
    return list(_lines(Path(path)))


def follow(path: str | Path, stop: Flag) -> Iterator[Event]:
    """The events of a file, then those that are added, until `stop` is set."""
    with _opened(Path(path)) as file:
        rest = b""
        first = True
        while True:
            rest += file.read()
            *lines, rest = rest.split(b"\n")
            for line in lines:
                event = _event(line, first=first)
                first = False
                if event is not None:
                    yield event
            if stop.wait(POLL):
                return


def _lines(path: Path) -> Iterator[Event]:
    with _opened(path) as file:
        for n, line in enumerate(file):
            event = _event(line, first=n == 0)
            if event is not None:
                yield event


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise EventError(
            f"events cannot be read from {path}: {error.strerror}.",
            hint="name the file that wm.monitor(joined, events=…) writes.",
        ) from error


def _event(line: bytes, *, first: bool) -> Event | None:
    """The event of a line, None for an incomplete one; if the first line is no event, the file is refused."""
    text = line.decode(errors="replace")
    event = read(text)
    if event is None and first:
        raise EventError(
            f"this is no event of Watersmeet: {text[:60].strip()!r}.",
            hint="event files are written by wm.monitor(joined, events=…), one JSON object a line.",
        )
    return event


def _ends_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        if not file.seek(0, os.SEEK_END):
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"
