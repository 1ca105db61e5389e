"""The join order in an explanation: its cost and the runner-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.cost.parameters import Order, Parameters
from watersmeet.joins.multiway_options import per_origin
from watersmeet.optimizer.adaptive import format_orders
from watersmeet.optimizer.plan import JoinPlan
from watersmeet.spark.explain.text import amount
from watersmeet.spark.progress.adaptive_order import is_adaptive

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined


def order_facts(joined: Joined, plan: JoinPlan) -> dict[str, Any]:
    """The order and, where the statistics are more than assumed, its cost and the runner-up."""
    assert plan.statistics is not None, "the planner stores its statistics in the plan"
    names = [s.name for s in joined.query.streams]
    adaptive = joined.streaming and is_adaptive(joined.operator)
    given = getattr(joined.operator.algorithm, "order", None)
    fixed = "as given" if given is not None else "as the streams are given"
    orders = per_origin(given, len(names), in_place=joined.operator.algorithm.traits.one_order)
    facts: dict[str, Any] = {
        "chosen": "by statistics" if adaptive else "fixed",
        "orders": [[names[i] for i in order] for order in orders],
    }
    order, p = plan.order, plan.statistics.parameters
    if order is None:
        first = "it begins as the streams are given, and is chosen by cost from the rates measured, batch by batch"
        return facts | {"text": first if adaptive else fixed}
    facts |= {"cost": order.cost, "statistics": _statistics(p)}
    if not adaptive:
        return facts | {"text": f"{fixed}, looking at about {amount(order.cost)} tuples a second"}
    runner_up, second = None, ""
    if order.runner_up is not None and order.runner_up_cost is not None:
        runner_up = {"order": format_orders(p, order.runner_up), "cost": order.runner_up_cost}
        second = f"; next best {runner_up['order']}: {amount(order.runner_up_cost)}"
    text = f"{format_orders(p, order.orders)}, looking at about {amount(order.cost)} tuples a second{second}"
    facts |= {"orders": _named(order.orders, names), "runner_up": runner_up}
    return facts | {"text": f"{text} (it follows the rates measured)"}


def _named(orders: Sequence[Order], names: Sequence[str]) -> list[list[str]]:
    return [[names[i], *(names[j] for j in order if j != i)] for i, order in enumerate(orders)]


def _statistics(p: Parameters) -> list[dict[str, Any]]:
    return [{"stream": s.name, "rate": s.rate, "keys": s.distinct, "tuples": s.window_tuples} for s in p.streams]
