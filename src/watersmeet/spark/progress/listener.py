"""A listener that publishes the batches of a join as events, while Spark runs it."""

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
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.progress.batch_events import RunEvents, is_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from watersmeet.spark.joined import Joined

log = logging.getLogger("watersmeet")

#: Letters of an error in an event; Spark's errors have the plan and two stack traces behind the message.
ERROR_LETTERS = 2000


class Listener(StreamingQueryListener):
    """Publishes events of the queries that run a join, in the order in which Spark reports them.

    A query belongs to this join if its first progress names the join's streams; then its `started` is published. A
    query that fails before any progress is published if no query of this join has been seen. An error in the listener
    is logged and never reaches the query.
    """

    def __init__(self, joined: Joined | Grouped, publish: Callable[[Event], None]) -> None:
        self.publish = publish
        self._join = joined.joined if isinstance(joined, Grouped) else joined
        self._grouped = isinstance(joined, Grouped)
        self._names = [s.name for s in self._join.query.streams]
        self._started: dict[str, Event] = {}  # all runs, by id
        self._runs: dict[str, RunEvents] = {}  # the runs of this join
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
            self._publish_batch(event)
        except Exception:
            log.exception("the event of a batch could not be made; the query goes on")

    def _publish_batch(self, event: QueryProgressEvent) -> None:
        progress, run = event.progress, str(event.progress.runId)
        if run not in self._runs:
            if not is_of(progress, self._names):
                return
            self._runs[run] = RunEvents(self._names, grouped=self._grouped)
            known = {"run": run, "query": str(progress.id), "name": progress.name, "at": progress.timestamp}
            self._publish({"kind": "started", **self._started.get(run, known)})
        batch = self._runs[run].batch(progress)
        if batch is not None:
            self._publish(batch)

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        run = str(event.runId)
        if run in self._runs or (event.exception and not self._runs and run in self._started):
            error = hide(event.exception)[:ERROR_LETTERS] if event.exception else None
            self._publish({"kind": "ended", "run": run, "at": now(), "error": error})
        with self._changed:
            self._started.pop(run, None)
            self._changed.notify_all()

    def wait(self, seconds: float) -> bool:
        """Wait until Spark has reported the end of all queries that ended; False if it has not in time."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._unreported(), seconds)

    def _unreported(self) -> set[str]:
        return set(self._started) - {str(query.runId) for query in self.session.streams.active}

    def _publish(self, event: Event) -> None:
        try:
            self.publish(event)
        except Exception:
            log.exception("an event could not be published; the query goes on")


def now() -> str:
    """The time, in the format of Spark's progress."""
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
