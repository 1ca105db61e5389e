"""The join order of one shard: as given, or by the measured statistics.

An order affects work, never results. So each shard follows its own statistics (`shard_statistics`): after each batch
it decides the order for the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from watersmeet.cost.parameters import Parameters
from watersmeet.joins import Join
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.multiway_options import MultiwayJoin
from watersmeet.optimizer.adaptive import Adaptive

#: The share by which a statistic must change before the order is decided again.
MOVED = 0.05


def is_adaptive(join: Join[Any]) -> bool:
    """Whether the order of a join is to follow the statistics: three streams or more, and none given.

    The naive join keeps the order that it is given: it is the baseline.
    """
    algorithm = join.algorithm
    if not isinstance(algorithm, MultiwayJoin) or algorithm.traits.one_order:
        return False
    return len(join.query.streams) > 2 and algorithm.order is None


class FixedOrder:
    """The order of the query, even if another one is stored in the state."""

    def __init__(self, join: Join[Any], running: RunningMultiway) -> None:
        self.running = running
        running.order = getattr(join.algorithm, "order", None)

    def after(self, batch: int, p: Parameters) -> dict[str, Any]:
        """The order, for the shard's report of a batch."""
        return {"order": names_in_order(self.running)}

    def metadata(self) -> dict[str, Any]:
        return {}


class FollowedOrder:
    """The order that is best by the statistics of this shard's streams so far."""

    def __init__(self, running: RunningMultiway) -> None:
        self.running = running
        self.adaptive = Adaptive().start(running.collector_metadata.get("order"))
        self.decided_with: list[float] = running.collector_metadata.get("decided_with", [])

    def after(self, batch: int, p: Parameters) -> dict[str, Any]:
        """Set the order for the next batch by the statistics after this one; gives it for the shard's report."""
        now = [f for s in p.streams for f in (s.rate, s.distinct, s.window_tuples)]
        if self._moved(now):
            self.running.order, self.decided_with = self.adaptive.decide(batch, p), now
        report: dict[str, Any] = {"order": names_in_order(self.running)}
        if self.adaptive.change is not None:
            report["order_change"] = self.adaptive.change.as_dict()
        return report

    def metadata(self) -> dict[str, Any]:
        return {"order": self.adaptive.metadata(), "decided_with": self.decided_with}

    def _moved(self, now: Sequence[float]) -> bool:
        """Whether a statistic has changed since the order was last decided; a decision for six streams takes 40 ms."""
        if len(now) != len(self.decided_with):
            return True
        return any(abs(a - b) > MOVED * max(a, b) for a, b in zip(now, self.decided_with, strict=True))


def order_of(join: Join[Any], running: RunningJoin[Any], *, ended: bool) -> FixedOrder | FollowedOrder | None:
    """The order of a running join; None for joins without one. It is fixed for ended streams: no batch follows."""
    if not isinstance(running, RunningMultiway):
        return None
    return FollowedOrder(running) if is_adaptive(join) and not ended else FixedOrder(join, running)


def names_in_order(running: RunningMultiway) -> list[list[str]]:
    """For each stream as the origin of new tuples: the names of all streams, in join order."""
    names = [s.name for s in running.query.streams]
    return [[names[i] for i in order] for order in running.order]
