"""What `explain` says of the order in which streams meet: its cost and the runner-up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from watersmeet.cost.multiway import without
from watersmeet.cost.parameters import Order, Parameters
from watersmeet.joins.naive_multiway import NaiveMultiwayJoin
from watersmeet.joins.orders import per_origin
from watersmeet.optimizer.adaptive import spell
from watersmeet.optimizer.order import best_order, cost_of
from watersmeet.spark.ordering import is_adaptive
from watersmeet.spark.statistics import Known

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined


def order_facts(joined: Joined, known: Known) -> dict[str, Any]:
    """The order and, if the streams' figures are more than assumed, what it costs beside the best and the runner-up."""
    names = [s.name for s in joined.query.streams]
    adaptive = joined.streaming and is_adaptive(joined.operator)
    given = getattr(joined.operator, "order", None)
    in_place = isinstance(joined.operator, NaiveMultiwayJoin)
    orders = per_origin(given, len(names), in_place=in_place)
    facts: dict[str, Any] = {
        "chosen": "by figures" if adaptive else "fixed",
        "orders": [[names[i] for i in order] for order in orders],
    }
    figures = known.parameters
    if known.source == "assumed":
        if adaptive:
            first = "it begins as the streams are given, and is chosen by cost from the rates measured, batch by batch"
        else:
            first = "as given" if given is not None else "as the streams are given"
        return facts | {"text": first}
    if adaptive:
        choice = best_order(figures)
        runner_up = None
        if choice.runner_up is not None and choice.runner_up_cost is not None:
            runner_up = {"order": spell(figures, choice.runner_up), "cost": choice.runner_up_cost}
        facts |= {"orders": _named(choice.orders, names), "cost": choice.cost, "runner_up": runner_up}
        second = f"; next best {runner_up['order']}: {runner_up['cost']:,.4g}" if runner_up else ""
        text = f"{spell(figures, choice.orders)}, looking at about {choice.cost:,.4g} tuples a second{second}"
        return facts | {"text": f"{text} (it follows the rates measured)", "figures": _told(figures)}
    cost = cost_of(figures, [without(order, i) for i, order in enumerate(orders)])
    text = f"{'as given' if given is not None else 'as the streams are given'}, looking at about {cost:,.4g} tuples"
    text += " a second"
    return facts | {"cost": cost, "text": text, "figures": _told(figures)}


def _named(orders: Sequence[Order], names: Sequence[str]) -> list[list[str]]:
    return [[names[i], *(names[j] for j in order if j != i)] for i, order in enumerate(orders)]


def _told(p: Parameters) -> list[dict[str, Any]]:
    return [{"stream": s.name, "rate": s.rate, "keys": s.distinct, "tuples": s.window_tuples} for s in p.streams]
