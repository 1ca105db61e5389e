"""The order in which the streams of a join meet, in one shard: as given, or as the measured figures have it.

An order decides about work, never about results, so each shard follows its own figures (`watching`), which are looked
at once a batch, for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.cost.parameters import Parameters
from watersmeet.joins import MULTIWAY, Join
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.naive_multiway import NaiveMultiwayJoin
from watersmeet.joins.running import RunningJoin
from watersmeet.optimizer.adaptive import Adaptive

#: By how much a figure must have changed for the order to be looked at again.
MOVED = 0.05


def is_adaptive(join: Join) -> bool:
    """Whether the order of a join is to follow the figures: three streams or more, and none given.

    The naive join has the order that it is given; that is what it is for.
    """
    several = isinstance(join, MULTIWAY) and not isinstance(join, NaiveMultiwayJoin)
    return several and len(join.query.streams) > 2 and getattr(join, "order", None) is None


class FixedOrder:
    """The order that the query gives, also where a state remembers another."""

    def __init__(self, join: Join, running: RunningMultiway) -> None:
        self.running = running
        running.order = getattr(join, "order", None)

    def after(self, batch: int, p: Parameters) -> dict[str, Any]:
        """What a shard says of its order after a batch."""
        return {"order": spelled(self.running)}

    def notes(self) -> dict[str, Any]:
        return {}


class FollowedOrder:
    """The order that is best by the figures of this shard's streams so far."""

    def __init__(self, running: RunningMultiway) -> None:
        self.running = running
        self.adaptive = Adaptive().start(running.remarks.get("order"))
        self.asked_with: list[float] = running.remarks.get("asked_with", [])

    def after(self, batch: int, p: Parameters) -> dict[str, Any]:
        """Set the order for the next batch by the figures after this one; what the shard says of it."""
        now = [f for s in p.streams for f in (s.rate, s.distinct, s.window_tuples)]
        if self._moved(now):
            self.running.order, self.asked_with = self.adaptive.decide(batch, p), now
        said: dict[str, Any] = {"order": spelled(self.running)}
        if self.adaptive.change is not None:
            said["order_change"] = self.adaptive.change.as_dict()
        return said

    def notes(self) -> dict[str, Any]:
        return {"order": self.adaptive.notes(), "asked_with": self.asked_with}

    def _moved(self, now: Sequence[float]) -> bool:
        """Whether some figure is another than when the order was last asked for; of six streams, that takes 40 ms."""
        if len(now) != len(self.asked_with):
            return True
        return any(abs(a - b) > MOVED * max(a, b) for a, b in zip(now, self.asked_with, strict=True))


def order_of(join: Join, running: RunningJoin[Any], *, ended: bool) -> FixedOrder | FollowedOrder | None:
    """Who sets the order of a join at work; nobody for joins that have none. Ended streams have no next batch."""
    if not isinstance(running, RunningMultiway):
        return None
    return FollowedOrder(running) if is_adaptive(join) and not ended else FixedOrder(join, running)


def spelled(running: RunningMultiway) -> list[list[str]]:
    """For each stream that new tuples come from, the names of all in the order in which they meet."""
    names = [s.name for s in running.query.streams]
    return [[names[i] for i in order] for order in running.order]
