"""`wm.monitor`: what a query does, into a file, onto a live page, to Prometheus, into a log."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from watersmeet.dashboard.feed import Feed
from watersmeet.dashboard.files import EventFile
from watersmeet.dashboard.prometheus import Metrics
from watersmeet.dashboard.server import MetricsServer, PageServer
from watersmeet.errors import QueryError
from watersmeet.model.events import Event, spell
from watersmeet.spark.grouping import Grouped
from watersmeet.spark.listener import Listener
from watersmeet.spark.pipeline import Joined

#: Where events go that are logged.
LOGGER = "watersmeet.events"
#: Seconds that closing waits for Spark to tell of what has ended.
PATIENCE = 10.0
#: Fields of a batch that a log does without.
LONG = ("counters", "shards", "operators", "spark_ms")


class Monitor:
    """Follows the queries of a join until it is closed. `url` is the live page, `metrics_url` that of Prometheus."""

    def __init__(
        self,
        joined: Joined | Grouped,
        *,
        events: str | Path | None,
        page: int | None,
        prometheus: int | None,
        logger: logging.Logger | None,
    ) -> None:
        self._open = True
        self._closing: list[Any] = []
        self._takers: list[Any] = []
        self._page: PageServer | None = None
        self._metrics: MetricsServer | None = None
        try:
            if events is not None:
                file = EventFile(events)
                self._closing.append(file)
                self._takers.append(file.write)
            if page is not None:
                feed = Feed()
                self._page = PageServer(feed, page)
                self._closing.append(self._page)
                self._takers.append(feed.publish)
            if prometheus is not None:
                metrics = Metrics()
                self._metrics = MetricsServer(metrics, prometheus)
                self._closing.append(self._metrics)
                self._takers.append(metrics.take)
            if logger is not None:
                self._takers.append(lambda event: _log(logger, event))
            self._listener = Listener(joined, self._publish)
            self._listener.session.streams.addListener(self._listener)
        except BaseException:
            self._close_all()
            raise

    @property
    def url(self) -> str | None:
        return None if self._page is None else self._page.url

    @property
    def metrics_url(self) -> str | None:
        return None if self._metrics is None else self._metrics.url

    def flush(self, seconds: float = PATIENCE) -> bool:
        """Wait until all is told of the queries that have ended; False if it is not by then."""
        return self._listener.wait(seconds)

    def close(self) -> None:
        """Stop following. Queries go on; those that have ended are told of to the end."""
        if self._open:
            self._open = False
            self.flush()
            self._listener.session.streams.removeListener(self._listener)
            self._close_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _publish(self, event: Event) -> None:
        for take in self._takers:
            take(event)

    def _close_all(self) -> None:
        while self._closing:
            self._closing.pop().close()


def monitor(
    joined: Joined | Grouped,
    *,
    events: str | Path | None = None,
    ui: bool | int = False,
    prometheus: int | None = None,
    log: bool | logging.Logger = False,
) -> Monitor:
    """Follow the queries of a join from now on: call it before the query is started.

    `events` is a file to which a line of JSON is added for every batch (docs/monitoring.md has its fields; look at it
    again with ``watersmeet.dashboard.serve``). `ui=True` serves the live page at a free port (a number is the port).
    `prometheus` is a port at which /metrics is served, 0 for a free one. `log=True` logs each event as a line of JSON
    to the logger "watersmeet.events", or to one that you give. Both servers listen on 127.0.0.1 only.

    Use it in a ``with``, or close it. It cannot make a query fail: what goes wrong in here is logged.
    """
    page = None if ui is False else 0 if ui is True else ui
    logger = logging.getLogger(LOGGER) if log is True else log or None
    if events is None and page is None and prometheus is None and logger is None:
        raise QueryError(
            "`monitor` has nowhere to tell what it sees.", hint="give `events`, `ui=True`, `prometheus` or `log=True`."
        )
    if not joined.streaming:
        raise QueryError(
            "`monitor` follows a streaming query, and these streams are static DataFrames.",
            hint="read the inputs with spark.readStream.",
        )
    return Monitor(joined, events=events, page=page, prometheus=prometheus, logger=logger)


def _log(logger: logging.Logger, event: Event) -> None:
    """A batch in a line of about a kilobyte; the plan without its picture."""
    short = {name: value for name, value in event.items() if name not in (*LONG, "svg")}
    logger.log(logging.ERROR if event.get("error") else logging.INFO, "%s", spell(short))
