"""Orders that follow the measured statistics, from batch to batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.cost.multiway import one_order
from watersmeet.cost.parameters import Order, Parameters, Statistics
from watersmeet.optimizer.order import still_best


@dataclass(frozen=True, slots=True)
class Change:
    """A change of orders between two batches, for the progress report."""

    batch: int
    before: tuple[Order, ...]
    after: tuple[Order, ...]
    cost_before: float  # both with the statistics of this batch
    cost_after: float
    reason: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "before": [list(order) for order in self.before],
            "after": [list(order) for order in self.after],
            "cost_before": self.cost_before,
            "cost_after": self.cost_after,
            "reason": self.reason,
        }


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Orders change when, with the statistics measured, they cost over `tolerance` more than the best ones would.

    The tolerance prevents changes to and fro when statistics fluctuate. An order affects the work, never the results,
    so shards may follow different orders.
    """

    tolerance: float = 0.1
    per_origin: bool = True

    def start(self, metadata: dict[str, Any] | None = None) -> RunningAdaptive:
        """A running instance, new or restored from its `metadata`."""
        return RunningAdaptive(self, metadata)


class RunningAdaptive:
    """The current orders, and the statistics for which they were chosen.

    Its `metadata` are a few numbers per stream; `change` is the change of the last `decide`, if any.
    """

    def __init__(self, rule: Adaptive, metadata: dict[str, Any] | None = None) -> None:
        self.rule = rule
        self.orders: tuple[Order, ...] | None = None
        self.change: Change | None = None
        self._chosen_for: list[list[float]] = []
        if metadata:
            self.orders = tuple(tuple(order) for order in metadata["orders"])
            self._chosen_for = [list(statistics) for statistics in metadata["chosen_for"]]

    def decide(self, batch: int, p: Parameters) -> tuple[Order, ...]:
        """The orders for the next batch, with the statistics measured up to this one.

        Before the first measurement it is the order in which the streams are given.
        """
        self.change = None
        rule, before = self.rule, self.orders or one_order(range(len(p.streams)))
        if not any(s.rate for s in p.streams):
            return before
        check = still_best(before, p, rule.tolerance, per_origin=rule.per_origin)
        if check.holds and self.orders:
            return before
        if not check.holds:
            best = check.best
            costs = f"{format_orders(p, best.orders)} costs {_number(best.cost)}, present order {_number(check.cost)}"
            self.change = Change(batch, before, best.orders, check.cost, best.cost, f"{self._largest_move(p)}: {costs}")
        self.orders = self.change.after if self.change else before
        self._chosen_for = [_statistics(s) for s in p.streams]
        return self.orders

    def metadata(self) -> dict[str, Any]:
        """The orders and their statistics as JSON values, for a restart."""
        if self.orders is None:
            return {}
        return {"orders": [list(order) for order in self.orders], "chosen_for": self._chosen_for}

    def _largest_move(self, p: Parameters) -> str:
        """The statistic that has changed by the largest factor since the orders were chosen, as text."""
        if not self._chosen_for:
            return "first statistics"
        moved = []
        for i, (s, was) in enumerate(zip(p.streams, self._chosen_for, strict=True)):
            for k, (unit, now, then) in enumerate(zip(UNITS, _statistics(s), was, strict=True)):
                text = f"{s.name} now {_number(now)}{unit}, was {_number(then)}{unit}"
                moved.append((_factor(now, then), -k, -i, text))
        return max(moved)[3]


#: Units of `_statistics`. Of statistics that have changed by the same factor the first is named.
UNITS = ("/s", " keys", " tuples in its window")


def _statistics(s: Statistics) -> list[float]:
    return [s.rate, s.distinct, s.window_tuples]


def _factor(now: float, then: float) -> float:
    """The larger value divided by the smaller one; rounded, since rate and tuples change together."""
    low, high = sorted((now, then))
    return round(high / max(low, 1e-9), 6)


def format_orders(p: Parameters, orders: Sequence[Order]) -> str:
    """Orders by the names of the streams: "a, c, b", or for each origin its own, "a: c, b; b: a, c; …"."""
    single = _as_one(orders)
    if single is not None:
        return ", ".join(p.streams[i].name for i in single)
    each = (f"{p.streams[i].name}: {', '.join(p.streams[j].name for j in order)}" for i, order in enumerate(orders))
    return "; ".join(each)


def _as_one(orders: Sequence[Order]) -> Order | None:
    """The one order that all follow, if there is one: streams sorted by how many others they precede."""
    ahead = [0] * len(orders)
    for order in orders:
        for position, i in enumerate(order):
            ahead[i] += len(order) - position
    single = tuple(sorted(range(len(orders)), key=lambda i: (-ahead[i], i)))
    return single if one_order(single) == tuple(orders) else None


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
