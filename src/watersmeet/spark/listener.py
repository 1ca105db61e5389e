"""A listener that tells what a join does, as events, while Spark runs it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime
from threading import Condition
from typing import TYPE_CHECKING

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from watersmeet.model.events import Event
from watersmeet.pipelines.secrets import hide
from watersmeet.spark.batch_events import RunEvents, of_streams
from watersmeet.spark.grouping import Grouped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watersmeet.spark.pipeline import Joined

log = logging.getLogger("watersmeet")

#: Letters that are told of an error; Spark's have the plan and two stack traces behind the message.
ERROR_LETTERS = 2000


class Listener(StreamingQueryListener):
    """Publishes events of the queries that run a join, in the order in which Spark tells of them.

    A query is known as one of this join by the streams that its first progress names; then comes its `started`. A query
    that fails before any progress is told of if no query of this join has been seen. What fails in here is logged and
    never reaches the query.
    """

    def __init__(self, joined: Joined | Grouped, publish: Callable[[Event], None]) -> None:
        self.publish = publish
        self._join = joined.joined if isinstance(joined, Grouped) else joined
        self._grouped = isinstance(joined, Grouped)
        self._names = [s.name for s in self._join.query.streams]
        self._started: dict[str, Event] = {}  # runs by id, and those that are of this join ...
        self._runs: dict[str, RunEvents] = {}
        self._changed = Condition()
        explanation = joined.explain()
        self._publish({"kind": "plan", "at": now(), "plan": explanation.to_dict(), "svg": explanation.to_svg()})

    @property
    def session(self) -> SparkSession:
        return self._join.streams[0].df.sparkSession

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        about = {"run": str(event.runId), "query": str(event.id), "name": event.name, "at": event.timestamp}
        with self._changed:
            self._started[str(event.runId)] = about

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        try:
            self._tell(event)
        except Exception:
            log.exception("a batch could not be told of; the query goes on")

    def _tell(self, event: QueryProgressEvent) -> None:
        progress, run = event.progress, str(event.progress.runId)
        if run not in self._runs:
            if of_streams(progress) != self._names:
                return
            self._runs[run] = RunEvents(len(self._names), grouped=self._grouped)
            known = {"run": run, "query": str(progress.id), "name": progress.name, "at": progress.timestamp}
            self._publish({"kind": "started", **self._started.get(run, known)})
        told = self._runs[run].batch(progress)
        if told is not None:
            self._publish(told)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run = str(event.runId)
        if run in self._runs or (event.exception and not self._runs and run in self._started):
            error = hide(event.exception)[:ERROR_LETTERS] if event.exception else None
            self._publish({"kind": "ended", "run": run, "at": now(), "error": error})
        with self._changed:
            self._started.pop(run, None)
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until Spark has told of the end of all queries that ended, which it does when it finds the time.

        False if it has not by then.
        """
        with self._changed:
            return self._changed.wait_for(lambda: not self._untold(), seconds)

    def _untold(self) -> set[str]:
        return set(self._started) - {str(query.runId) for query in self.session.streams.active}

    def _publish(self, event: Event) -> None:
        try:
            self.publish(event)
        except Exception:
            log.exception("an event could not be published; the query goes on")


def now() -> str:
    """The time as Spark spells it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
