"""What `explain` says of the order in which streams meet: its cost and the runner-up, from figures a query measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryProgress

from watersmeet.cost.figures import assumed
from watersmeet.cost.multiway import without
from watersmeet.cost.parameters import Order, Parameters, Statistics
from watersmeet.joins.naive_multiway import NaiveMultiwayJoin
from watersmeet.joins.orders import per_origin
from watersmeet.optimizer.adaptive import spell
from watersmeet.optimizer.order import best_order, cost_of
from watersmeet.optimizer.picture import picture
from watersmeet.optimizer.planner import make_plan
from watersmeet.spark.counters import METRICS, counters
from watersmeet.spark.ordering import FIGURES, is_adaptive

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined

#: Of a running query: its `lastProgress`, one of its `recentProgress`, or the same as a dictionary.
Progress = StreamingQueryProgress | Mapping[str, Any]


def order_facts(joined: Joined, progress: Progress | None) -> dict[str, Any]:
    """The order and, if a progress tells figures, what it costs beside the best and the runner-up."""
    names = [s.name for s in joined.query.streams]
    adaptive = joined.streaming and is_adaptive(joined.operator)
    figures = measured_figures(joined, progress)
    given = getattr(joined.operator, "order", None)
    in_place = isinstance(joined.operator, NaiveMultiwayJoin)
    orders = per_origin(given, len(names), in_place=in_place)
    whole = [[names[i] for i in order] for order in orders]
    facts: dict[str, Any] = {"chosen": "by figures" if adaptive else "fixed", "orders": whole}
    if figures is None:
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
        return facts | {"text": f"{text} (from measured rates; it follows them)", "figures": _told(figures)}
    cost = cost_of(figures, [without(order, i) for i, order in enumerate(orders)])
    text = f"as given, looking at about {cost:,.4g} tuples a second"
    return facts | {"cost": cost, "text": text, "figures": _told(figures)}


def measured_figures(joined: Joined, progress: Progress | None) -> Parameters | None:
    """Figures of the whole streams, from what the shards of a running query said in a batch."""
    if progress is None:
        return None
    shards = [s["figures"] for s in counters(progress, metrics=METRICS).get("shards", ()) if "figures" in s]
    if not shards:
        return None
    known = assumed(joined.query)
    return replace(
        known, streams=tuple(_merged(s, each) for s, each in zip(known.streams, zip(*shards, strict=True), strict=True))
    )


def _merged(s: Statistics, shards: Sequence[Mapping[str, float]]) -> Statistics:
    """Keys are divided among the shards, so sums of their figures are the stream's."""
    rate, distinct, tuples, closed = (sum(f[name] for f in shards) for name in FIGURES)
    row_bytes = max(f["row_bytes"] for f in shards)
    return replace(
        s, rate=rate, distinct=max(distinct, 1.0), tuples=tuples, punctuation_rate=closed, row_bytes=row_bytes
    )


def drawn(joined: Joined, algorithm: str, progress: Progress | None) -> str:
    """A picture of the plan, with measured figures or with assumed ones."""
    figures = measured_figures(joined, progress)
    plan = make_plan(joined.query, figures, cores=len(joined.ids), algorithm=algorithm)
    return picture(replace(plan, shards=len(joined.ids)), figures or assumed(joined.query))


def _named(orders: Sequence[Order], names: Sequence[str]) -> list[list[str]]:
    return [[names[i], *(names[j] for j in order if j != i)] for i, order in enumerate(orders)]


def _told(p: Parameters) -> list[dict[str, Any]]:
    return [{"stream": s.name, "rate": s.rate, "keys": s.distinct, "tuples": s.window_tuples} for s in p.streams]
