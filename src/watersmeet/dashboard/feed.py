"""Events on their way to pages: kept for those that come later, handed to those that wait."""

from __future__ import annotations

from collections import deque
from threading import Condition

from watersmeet.model.events import Event, spell

#: Batches that a page can be shown; of older ones the event file tells.
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
        self.plan: Event | None = None
        self.closed = False

    def publish(self, event: Event) -> None:
        with self._changed:
            self._last += 1
            kept = self._batches if event["kind"] == "batch" else self._others
            kept.append((self._last, spell(event)))
            if event["kind"] == "plan":
                self.plan = event
            self._changed.notify_all()

    def close(self) -> None:
        """Let those go who wait."""
        with self._changed:
            self.closed = True
            self._changed.notify_all()

    def since(self, number: int, seconds: float) -> list[Numbered]:
        """What came after this number, in order; waits for something so long."""
        with self._changed:
            self._changed.wait_for(lambda: self._last > number or self.closed, seconds)
            return sorted(line for kept in (self._others, self._batches) for line in kept if line[0] > number)
