"""The order in which the streams of a join meet, in one shard: as given, or as the measured figures have it.

An order decides about work, never about results, so each shard follows its own figures. They are remembered with the
join's notes, and looked at once a batch, for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.cost.figures import measured
from watersmeet.cost.parameters import Statistics
from watersmeet.joins import MULTIWAY, Join
from watersmeet.joins.group_by import GroupedJoin, RunningGroupedJoin
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.naive_multiway import NaiveMultiwayJoin
from watersmeet.joins.running import RunningJoin
from watersmeet.model.batches import Batch
from watersmeet.optimizer.adaptive import Adaptive
from watersmeet.state.statistics import StreamStatistics

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

    def after(self, batch: int, batches: Sequence[Batch]) -> dict[str, Any]:
        """What a shard says of its order after a batch."""
        return {"order": spelled(self.running)}


class FollowedOrder:
    """The order that is best by the figures of this shard's streams so far."""

    def __init__(self, running: RunningMultiway) -> None:
        self.running = running
        self.streams = [StreamStatistics(s.window.reach, s.delay) for s in running.query.streams]
        for stream, note in zip(self.streams, running.remarks.get("streams", ()), strict=False):
            stream.recall(note)
        self.adaptive = Adaptive().start(running.remarks.get("order"))
        self.asked_with: list[float] = running.remarks.get("asked_with", [])

    def after(self, batch: int, batches: Sequence[Batch]) -> dict[str, Any]:
        """Take note of a batch and set the order for the next; what the shard says of it."""
        running = self.running
        for stream, news, arrivals in zip(self.streams, batches, running.arrivals, strict=False):
            share = arrivals.which.size / max(1, arrivals.rows.num_rows)
            closed = 0 if news.closings is None else news.closings.keys.num_rows
            size = round(arrivals.rows.nbytes * share)
            stream.observe(arrivals.times, arrivals.keys.words, arrivals.which, size, news.seen, closed)
        figures = measured(running.query, self.streams)
        now = [f for s in figures.streams for f in (s.rate, s.distinct, s.window_tuples)]
        if self._moved(now):
            running.order, self.asked_with = self.adaptive.decide(batch, figures), now
        running.remarks = {
            "streams": [s.notes() for s in self.streams],
            "order": self.adaptive.notes(),
            "asked_with": self.asked_with,
        }
        said: dict[str, Any] = {"order": spelled(running), "figures": [_figures(s) for s in figures.streams]}
        if self.adaptive.change is not None:
            said["order_change"] = self.adaptive.change.as_dict()
        return said

    def _moved(self, now: Sequence[float]) -> bool:
        """Whether some figure is another than when the order was last asked for; of six streams, that takes 40 ms."""
        if len(now) != len(self.asked_with):
            return True
        return any(abs(a - b) > MOVED * max(a, b) for a, b in zip(now, self.asked_with, strict=True))


def order_of(join: Join, running: RunningJoin[Any], *, ended: bool) -> FixedOrder | FollowedOrder | None:
    """Who sets the order of a join at work; nobody for joins that have none. Ended streams have no next batch."""
    if isinstance(join, GroupedJoin) and isinstance(running, RunningGroupedJoin):
        return order_of(join.join, running.join, ended=ended)
    if not isinstance(running, RunningMultiway):
        return None
    return FollowedOrder(running) if is_adaptive(join) and not ended else FixedOrder(join, running)


def spelled(running: RunningMultiway) -> list[list[str]]:
    """For each stream that new tuples come from, the names of all in the order in which they meet."""
    names = [s.name for s in running.query.streams]
    return [[names[i] for i in order] for order in running.order]


#: What a shard tells of the streams' figures; sums of them over the shards are those of the whole streams.
FIGURES = ("rate", "distinct", "window_tuples", "punctuation_rate")


def _figures(s: Statistics) -> dict[str, float]:
    return {name: float(f"{getattr(s, name):.6g}") for name in FIGURES} | {"row_bytes": round(s.row_bytes, 1)}
