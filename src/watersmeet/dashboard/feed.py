"""The events of a run, kept for pages that open later and handed to pages that wait."""

from __future__ import annotations

from collections import deque
from threading import Condition

from watersmeet.model.events import Event, to_line

#: Batches that a page can show; older ones are in the event file only.
ROOM = 5000
#: A numbered line.
Numbered = tuple[int, str]


class Feed:
    """The last `room` batches and everything else that was published, numbered from 1 on."""

    def __init__(self, room: int = ROOM) -> None:
        self._batches: deque[Numbered] = deque(maxlen=room)
        self._others: list[Numbered] = []
        self._last = 0
        self._changed = Condition()
        self.picture: str | None = None  # of the last plan
        self.closed = False

    def publish(self, event: Event) -> None:
        with self._changed:
            self._last += 1
            kept = self._batches if event["kind"] == "batch" else self._others
            kept.append((self._last, to_line(event)))
            if event["kind"] == "plan":
                picture = event.get("svg")
                self.picture = picture if isinstance(picture, str) else None
            self._changed.notify_all()

    def close(self) -> None:
        """End all waits in `since`."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def since(self, number: int, seconds: float) -> list[Numbered]:
        """The lines after this number, in order; waits up to `seconds` for the first."""
        with self._changed:
            self._changed.wait_for(lambda: self._last > number or self.closed, seconds)
            return sorted(line for kept in (self._others, self._batches) for line in kept if line[0] > number)
