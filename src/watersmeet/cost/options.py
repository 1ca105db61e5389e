"""Parameters as the options of a join have them: its indexes, intervals and orders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.multiway import without
from watersmeet.cost.parameters import PER_KEY, SCAN, Parameters
from watersmeet.cost.work import Cost
from watersmeet.joins import MULTIWAY, Join, name_of
from watersmeet.joins.naive_multiway import NaiveMultiwayJoin
from watersmeet.joins.nested_loop import NestedLoopJoin
from watersmeet.joins.orders import Order, per_origin

MICROSECONDS = 1e6


def parameters_of(join: Join, p: Parameters, order: Order | None = None) -> Parameters:
    """The same figures, for this join; `order` is what it follows now, if that is not the one it was given."""
    n, has = len(p.streams), _option(join)
    if isinstance(join, MULTIWAY):
        index = has("index", "hash")
        names = (s.name for s in join.query.streams)
        each = [name in index for name in names] if isinstance(index, tuple) else [index == "hash"] * n
        p = p.indexed([PER_KEY if indexed else SCAN for indexed in each])
        in_place = isinstance(join, NaiveMultiwayJoin)
        orders = per_origin(order or has("order", None), n, in_place=in_place)
        told = orders if in_place else tuple(without(o, i) for i, o in enumerate(orders))
        p = replace(p, orders=told, expiration=(has("expiration", None) or 0) / MICROSECONDS)
        return replace(p, interval=max(p.interval, (has("every", None) or 0) / MICROSECONDS))
    if has("buckets", None):
        return replace(p.indexed([float(has("buckets", None))] * n), invalidation=has("invalidation", "probe_insert"))
    return p.indexed([SCAN if isinstance(join, NestedLoopJoin) else PER_KEY] * n)


def cost_of_join(join: Join, p: Parameters, order: Order | None = None) -> Cost:
    """What a join costs by its own model."""
    return COST_MODELS[name_of(join)](parameters_of(join, p, order))


def _option(join: Join) -> Any:
    return lambda name, otherwise: getattr(join, name, otherwise)
