"""Orders that follow the measured figures, from batch to batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.cost.multiway import one_order
from watersmeet.cost.parameters import Order, Parameters, Statistics
from watersmeet.optimizer.order import Objective, looked_at, still_best


@dataclass(frozen=True, slots=True)
class Change:
    """A change of orders between two batches, for the progress report."""

    batch: int
    before: tuple[Order, ...]
    after: tuple[Order, ...]
    cost_before: float  # both with the figures of this batch
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
    """Orders change when, with the figures measured, they cost over `tolerance` more than the best ones would.

    The tolerance keeps figures that only waver from turning the orders to and fro. An order decides about work, never
    about results, so shards may follow different ones.
    """

    tolerance: float = 0.1
    objective: Objective = looked_at
    per_origin: bool = True

    def start(self, notes: dict[str, Any] | None = None) -> RunningAdaptive:
        """At work, from the beginning or from where `notes` left it."""
        return RunningAdaptive(self, notes)


class RunningAdaptive:
    """The orders of now, and the figures for which they were chosen.

    Remembers a few numbers per stream (`notes`); `change` is what the last `decide` changed, if anything.
    """

    def __init__(self, rule: Adaptive, notes: dict[str, Any] | None = None) -> None:
        self.rule = rule
        self.orders: tuple[Order, ...] | None = None
        self.change: Change | None = None
        self._chosen_for: list[list[float]] = []
        if notes:
            self.orders = tuple(tuple(order) for order in notes["orders"])
            self._chosen_for = [list(figures) for figures in notes["chosen_for"]]

    def decide(self, batch: int, p: Parameters) -> tuple[Order, ...]:
        """The orders for the next batch, with the figures measured up to this one.

        Before anything has been measured they are those in which the streams are given.
        """
        self.change = None
        rule, before = self.rule, self.orders or one_order(range(len(p.streams)))
        if not any(s.rate for s in p.streams):
            return before
        verdict = still_best(before, p, rule.tolerance, rule.objective, per_origin=rule.per_origin)
        if verdict.holds and self.orders:
            return before
        if not verdict.holds:
            best = verdict.best
            costs = f"{spell(p, best.orders)} costs {_number(best.cost)}, present order {_number(verdict.cost)}"
            self.change = Change(batch, before, best.orders, verdict.cost, best.cost, f"{self._news(p)}: {costs}")
        self.orders = self.change.after if self.change else before
        self._chosen_for = [_figures(s) for s in p.streams]
        return self.orders

    def notes(self) -> dict[str, Any]:
        """What a restart needs, as JSON has it."""
        if self.orders is None:
            return {}
        return {"orders": [list(order) for order in self.orders], "chosen_for": self._chosen_for}

    def _news(self, p: Parameters) -> str:
        """The figure that has moved the most since the orders were chosen, in words."""
        if not self._chosen_for:
            return "first figures"
        moved = []
        for i, (s, was) in enumerate(zip(p.streams, self._chosen_for, strict=True)):
            for k, (unit, now, then) in enumerate(zip(UNITS, _figures(s), was, strict=True)):
                text = f"{s.name} now {_number(now)}{unit}, was {_number(then)}{unit}"
                moved.append((_factor(now, then), -k, -i, text))
        return max(moved)[3]


#: Units of what an order is chosen for. Of figures that have moved alike the first is named.
UNITS = ("/s", " keys", " tuples in its window")


def _figures(s: Statistics) -> list[float]:
    return [s.rate, s.distinct, s.window_tuples]


def _factor(now: float, then: float) -> float:
    """How many times one figure is the other, the larger the one above; rounded, for rate and tuples move together."""
    low, high = sorted((now, then))
    return round(high / max(low, 1e-9), 6)


def spell(p: Parameters, orders: Sequence[Order]) -> str:
    """Orders by the names of the streams: "a, c, b", or for each origin its own, "a: c, b; b: a, c; …"."""
    single = _as_one(orders)
    if single is not None:
        return ", ".join(p.streams[i].name for i in single)
    each = (f"{p.streams[i].name}: {', '.join(p.streams[j].name for j in order)}" for i, order in enumerate(orders))
    return "; ".join(each)


def _as_one(orders: Sequence[Order]) -> Order | None:
    """The one order that all follow, if there is one: a stream stands the earlier, the more others it precedes."""
    ahead = [0] * len(orders)
    for order in orders:
        for place, i in enumerate(order):
            ahead[i] += len(order) - place
    single = tuple(sorted(range(len(orders)), key=lambda i: (-ahead[i], i)))
    return single if one_order(single) == tuple(orders) else None


def _number(x: float) -> str:
    return f"{x:,.0f}" if x >= 100 else f"{x:.3g}"
