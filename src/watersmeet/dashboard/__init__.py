"""The live page of a query, running or finished: ``serve("run.jsonl")``. Imports nothing of Spark."""

from __future__ import annotations

import logging
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from types import TracebackType
from typing import Self

from watersmeet.dashboard.event_files import follow, read_events
from watersmeet.dashboard.feed import Feed
from watersmeet.dashboard.server import PageServer
from watersmeet.errors import EventError

log = logging.getLogger("watersmeet")


class Dashboard:
    """The live page of an event file, which may still grow, at `url`. Close it, or use it in a `with`."""

    def __init__(self, events: str | Path, port: int = 0) -> None:
        read_events(events)  # an invalid file is refused before a thread starts
        self._stop = Flag()
        self._feed = Feed()
        self._page = PageServer(self._feed, port)
        self._thread = Thread(target=self._read, args=(events,), daemon=True, name="watersmeet-events")
        self._thread.start()

    @property
    def url(self) -> str:
        return self._page.url

    def wait(self) -> None:
        """Serve until Ctrl-C, or until another thread closes the page."""
        while not self._stop.wait(1.0):
            pass

    def close(self) -> None:
        self._stop.set()
        self._page.close()
        self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _read(self, events: str | Path) -> None:
        try:
            for event in follow(events, self._stop):
                self._feed.publish(event)
        except EventError as error:  # a line that was added; the page shows what stands before it
            log.warning("%s", error)


def serve(events: str | Path, *, port: int = 0) -> Dashboard:
    """Serve the live page of an event file at 127.0.0.1, at a free port unless one is given.

    Works for a finished run and for one that still writes; returns at once. The address (`url`) holds a token, and
    requests without it are refused.
    """
    return Dashboard(events, port)
