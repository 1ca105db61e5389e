"""`wm.monitor`: what a query does, into a file, onto a live page, to Prometheus, into a log."""

from __future__ import annotations

import logging
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from watersmeet.dashboard.event_files import EventFile
from watersmeet.dashboard.feed import Feed
from watersmeet.dashboard.prometheus import Metrics
from watersmeet.dashboard.server import MetricsServer, PageServer
from watersmeet.errors import QueryError
from watersmeet.model.events import Event, to_line
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.joined import Joined
from watersmeet.spark.planning.arguments import require_join
from watersmeet.spark.progress.listener import Listener

#: The default logger of events.
LOGGER = "watersmeet.events"
#: Seconds for which `close` waits for Spark's last events of queries that have ended.
PATIENCE = 10.0
#: Fields of a batch that are not logged.
LONG = ("counters", "shards", "operators", "spark_ms")


class Monitor:
    """Follows the queries of a join until it is closed. `url` is the live page, `metrics_url` that of Prometheus."""

    def __init__(
        self,
        joined: Joined | Grouped,
        *,
        events: str | Path | None,
        page: int | None,
        prometheus: int | str | None,
        logger: logging.Logger | None,
    ) -> None:
        self._open = True
        self._resources: list[Any] = []
        self._subscribers: list[Any] = []
        self._page: PageServer | None = None
        self._metrics: MetricsServer | None = None
        try:
            if events is not None:
                file = EventFile(events)
                self._resources.append(file)
                self._subscribers.append(file.write)
            if page is not None:
                feed = Feed()
                self._page = PageServer(feed, page)
                self._resources.append(self._page)
                self._subscribers.append(feed.publish)
            if prometheus is not None:
                metrics = Metrics()
                self._metrics = MetricsServer(metrics, prometheus)
                self._resources.append(self._metrics)
                self._subscribers.append(metrics.take)
            if logger is not None:
                self._subscribers.append(lambda event: _log(logger, event))
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
        """Wait until all events of the queries that have ended are published; False on a timeout."""
        return self._listener.wait(seconds)

    def close(self) -> None:
        """Stop following. Queries go on; all events of those that have ended are published first."""
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
        for publish in self._subscribers:
            publish(event)

    def _close_all(self) -> None:
        while self._resources:
            self._resources.pop().close()


def monitor(
    joined: Joined | Grouped,
    *,
    events: str | Path | None = None,
    ui: bool | int = False,
    prometheus: int | str | None = None,
    log: bool | logging.Logger = False,
) -> Monitor:
    """Follow the queries of a join from now on: call it before the query is started.

    `events` is a file to which a line of JSON is added for every batch (docs/monitoring.md has its fields; look at it
    again with ``watersmeet.dashboard.serve``). `ui=True` serves the live page at a free port (a number is the port).
    `prometheus` is a port at which /metrics is served, 0 for a free one. `log=True` logs each event as a line of JSON
    to the logger "watersmeet.events", or to one that you give. Both servers listen on 127.0.0.1 only, unless
    `prometheus` names another address: ``"0.0.0.0:9108"`` lets other machines read the metrics.

    Use it in a ``with``, or close it. It cannot make a query fail: errors of the monitor itself are logged.
    """
    require_join(joined, "monitor")
    page = None if ui is False else 0 if ui is True else ui
    logger = logging.getLogger(LOGGER) if log is True else log or None
    if events is None and page is None and prometheus is None and logger is None:
        raise QueryError(
            "`monitor` has no destination for its events.", hint="give `events`, `ui=True`, `prometheus` or `log=True`."
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
    logger.log(logging.ERROR if event.get("error") else logging.INFO, "%s", to_line(short))
