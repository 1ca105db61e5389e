"""Parameters of a join with its options: indexes, intervals and orders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.multiway import without
from watersmeet.cost.parameters import PER_KEY, SCAN, Parameters
from watersmeet.cost.work import Cost
from watersmeet.joins import Algorithm, Join
from watersmeet.joins.baselines.nested_loop import NestedLoopJoin
from watersmeet.joins.multiway_options import MultiwayJoin, Order, per_origin
from watersmeet.joins.theta import ThetaJoin

MICROSECONDS = 1e6


def parameters_of(join: Join[Any], p: Parameters, order: Order | None = None) -> Parameters:
    """The same statistics with the options of this join; `order` is its current order, if that has changed."""
    n, algorithm, has = len(p.streams), join.algorithm, _option(join.algorithm)
    if isinstance(algorithm, MultiwayJoin):
        index = has("index", "hash")
        names = (s.name for s in join.query.streams)
        each = [name in index for name in names] if isinstance(index, tuple) else [index == "hash"] * n
        p = p.indexed([PER_KEY if indexed else SCAN for indexed in each])
        in_place = algorithm.traits.one_order
        orders = per_origin(order or has("order", None), n, in_place=in_place)
        orders = orders if in_place else tuple(without(o, i) for i, o in enumerate(orders))
        p = replace(p, orders=orders, expiration=(has("expiration", None) or 0) / MICROSECONDS)
        return replace(p, interval=max(p.interval, (has("every", None) or 0) / MICROSECONDS))
    if has("buckets", None):
        return replace(p.indexed([float(has("buckets", None))] * n), invalidation=has("invalidation", "probe_insert"))
    p = replace(p, asof=join.query.asof)
    return p.indexed([SCAN if isinstance(algorithm, NestedLoopJoin | ThetaJoin) else PER_KEY] * n)


def cost_of_join(join: Join[Any], p: Parameters, order: Order | None = None) -> Cost:
    """The cost of a join by its own model."""
    return COST_MODELS[join.name](parameters_of(join, p, order))


def _option(algorithm: Algorithm[Any]) -> Any:
    return lambda name, otherwise: getattr(algorithm, name, otherwise)
