"""The rules of the optimiser: each decides one thing about a plan and adds its reason."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache

from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.parameters import PER_KEY, SCAN, Parameters
from watersmeet.cost.work import Constants, Cost
from watersmeet.errors import QueryError
from watersmeet.joins import REGISTRY
from watersmeet.joins.band import indexable
from watersmeet.joins.baselines.tuple_at_a_time import INVALIDATION
from watersmeet.model import durations
from watersmeet.model.windows import Interval, RowsWindow, Tumbling
from watersmeet.optimizer.adaptive import format_orders
from watersmeet.optimizer.order import OrderPlan, best_order, cpu
from watersmeet.optimizer.plan import Alternative, JoinPlan, PlanRequest


def able(plan: JoinPlan, request: PlanRequest) -> JoinPlan:
    """Which algorithms can run the query at all, and keep up with it in micro-batches."""
    candidates, rejected = [], []
    query = request.query
    for name, kind in REGISTRY.items():
        if kind.traits.theta != query.is_theta or kind.traits.asof != (query.asof is not None):
            continue  # for another kind of join
        if name not in COST_MODELS and name != request.algorithm:
            continue  # without a price it runs by its name alone
        why = _unable(name, request)
        if why is None or name == request.algorithm:
            candidates.append(name)
        else:
            rejected.append(Alternative(name, None, None, why))
    if not candidates:
        reasons = "; ".join(f"{a.algorithm}: {a.why}" for a in rejected)
        raise QueryError(
            f"no algorithm can run this {request.query.how} join of {len(request.query.streams)} streams.", hint=reasons
        )
    plan = replace(plan, candidates=tuple(candidates), rejected=tuple(rejected))
    return plan.because("able", f"{', '.join(candidates)} can run it")


def index_windows(plan: JoinPlan, request: PlanRequest) -> JoinPlan:
    """A window gets an index where looking up a key costs less than scanning it."""
    constants, kinds = request.machine.of("hybrid"), []
    for s in request.parameters.streams:
        matches = s.window_tuples / s.distinct * constants.probed
        kinds.append("scan" if s.window_tuples * constants.scanned <= constants.lookups + matches else "hash")
    names = [s.name for s, kind in zip(request.parameters.streams, kinds, strict=True) if kind == "scan"]
    why = f"{', '.join(names)}: so few tuples that a scan is cheaper" if names else "a lookup is cheaper than any scan"
    return replace(plan, indexes=tuple(kinds)).because("index_windows", why)


def choose_join(plan: JoinPlan, request: PlanRequest) -> JoinPlan:
    """The cheapest algorithm that fits in memory, each in its best order; if none fits, the smallest."""
    costs = {name: _cost(name, plan, request) for name in plan.candidates}
    fits = [n for n in costs if request.memory is None or costs[n].bytes <= request.memory]
    warnings = plan.warnings
    if request.algorithm:
        chosen, why = request.algorithm, "chosen by name"
    elif fits:
        chosen = min(fits, key=lambda n: (_rounded(request.cpu(n, costs[n])), _preference(n)))
        why = "the cheapest" if request.memory is None else "the cheapest that fits in memory"
    else:
        chosen = min(costs, key=lambda n: (_rounded(costs[n].bytes), _preference(n)))
        why = "the smallest; none fits in memory"
    if chosen not in fits:
        warnings += (f"needs about {_megabytes(costs[chosen].bytes)}, memory is {_megabytes(request.memory or 0)}",)
    cost = costs[chosen]
    rejected = tuple(
        Alternative(n, request.cpu(n, c), c.bytes, _why_not(request.cpu(n, c), request.cpu(chosen, cost), c, request))
        for n, c in costs.items()
        if n != chosen
    )
    return replace(
        plan,
        algorithm=chosen,
        forced=bool(request.algorithm),
        indexes=_indexes_of(chosen, plan.indexes),
        tuples=cost.tuples,
        results=cost.work.results,
        bytes=cost.bytes,
        cpu=request.cpu(chosen, cost),
        rejected=rejected + tuple(_priced(a, plan, request) for a in plan.rejected),
        warnings=warnings,
    ).because("choose_join", f"{chosen}: {why}")


def order_streams(plan: JoinPlan, request: PlanRequest) -> JoinPlan:
    """The order in which an arrival meets the other streams."""
    p, best = request.parameters, _best_order(plan.algorithm, plan.indexes, request)
    why = format_orders(p, best.orders)
    if best.runner_up is not None and best.runner_up_cost is not None:
        share = best.runner_up_cost / best.cost if best.cost else 1.0
        why += f"; next {format_orders(p, best.runner_up)}, {share:.2f} times the cost"
    return replace(plan, orders=best.orders).because("order_streams", why)


def choose_expiry(plan: JoinPlan, request: PlanRequest) -> JoinPlan:
    """The buckets in which arrivals look for expired tuples, of an algorithm that has the option.

    The cheapest strategy with at most half as many stale tuples as live ones.
    """
    if "invalidation" not in _options(plan.algorithm):
        return plan
    costs = {}
    for strategy in INVALIDATION:
        with_strategy = replace(request, parameters=replace(request.parameters, invalidation=strategy))
        costs[strategy] = _cost(plan.algorithm, plan, with_strategy)
    live = sum(costs["all"].tuples)
    few = [strategy for strategy, cost in costs.items() if sum(cost.tuples) <= 1.5 * live]
    chosen = min(few, key=lambda strategy: (request.cpu(plan.algorithm, costs[strategy]), strategy))
    stale = sum(costs[chosen].tuples) - live
    why = f"{chosen}: the cheapest of {', '.join(few)}; about {stale:.0f} stale tuples"
    return replace(plan, invalidation=chosen).because("choose_expiry", why)


def divide(plan: JoinPlan, request: PlanRequest) -> JoinPlan:
    """One shard per core, and no more than there are keys."""
    keys = max(s.distinct for s in request.parameters.streams)
    shards = request.cores if request.query.is_theta else max(1, min(request.cores, int(keys)))
    why = "one per core" if shards == request.cores else f"there are {shards} keys"
    return replace(plan, shards=shards).because("divide", f"{shards} shards: {why}")


def warn(plan: JoinPlan, request: PlanRequest) -> JoinPlan:
    """Warnings of problems that the statistics predict."""
    warnings = plan.warnings
    p = request.parameters
    for i, spec in enumerate(request.query.streams):
        closes = all(o.punctuation_rate for o in p.others(i))
        traits = REGISTRY[plan.algorithm].traits
        grows = spec.name in request.unbounded and not traits.bounded
        if grows and (not closes or not traits.punctuations):
            others = " and ".join(o.name for o in p.others(i))
            why = f"{others} {'never closes keys' if len(p.streams) == 2 else 'do not all close keys'}"
            why = f"{plan.algorithm} ignores punctuations" if closes else why
            when = f"at {durations.formatted(round(p.elapsed * 1e6))}" if math.isfinite(p.elapsed) else "now"
            what = f"{spec.name} has no window and {why}, so its state grows without bound"
            warnings += (f"{what} (estimated {when})",)
    for s in p.streams:
        if s.hottest * plan.shards > 1 and plan.shards > 1 and not request.query.is_theta:
            warnings += (f"{s.hottest:.0%} of {s.name} have one key, and so one of {plan.shards} shards",)
        if not s.rate and any(o.rate for o in p.streams):
            warnings += (f"{s.name} is silent: the others are kept until it goes on",)
    cores = plan.cpu / 1e9
    if cores > min(request.cores, plan.shards):
        warnings += (f"needs about {cores:.1f} cores, and can use {min(request.cores, plan.shards)}",)
    return replace(plan, warnings=warnings)


# ------------------------------------------------------------ helpers of the rules


def _unable(name: str, request: PlanRequest) -> str | None:
    """Why an algorithm is not taken for a query, whatever it costs; None if it may be."""
    query, traits = request.query, REGISTRY[name].traits
    if traits.index == "sorted" and not indexable(query):
        return "no condition bounds a column of one stream by the other"
    if traits.on_request is not None:
        return traits.on_request
    if len(query.streams) > traits.streams:
        return f"it joins two streams, not {len(query.streams)}"
    if "rows" not in traits.windows and any(isinstance(s.window, RowsWindow) for s in query.streams):
        return "it knows windows of time alone"
    for window, what in ((Interval, "bounds between two streams"), (Tumbling, "joins within a piece of time")):
        if window.kind not in traits.windows and any(isinstance(s.window, window) for s in query.streams):
            return f"it does not know {what}"
    for option in request.options:
        if option not in _options(name):
            return f"it has no option `{option}`"
    if (
        traits.streams > 2
        and not traits.theta
        and len(query.streams) == 2
        and request.by_time
        and not request.options
        and not request.one_by_one
    ):
        return "two streams have joins of their own"
    if query.how not in traits.how:
        return f"it computes inner joins, not {query.how} ones"
    if traits.windows == ("none",):
        return None if len(request.unbounded) == len(query.streams) else "it knows no windows"
    if request.punctuated and not traits.punctuations:
        return f"it does not use the punctuations of {' and '.join(request.punctuated)}"
    if request.unbounded and not traits.punctuations:
        return f"without a window it would keep {', '.join(request.unbounded)} for ever"
    if "buckets" in _options(name) and not request.one_by_one:
        return "its number of buckets is for you to give"
    if traits.baseline and request.parameters.interval and not request.one_by_one:
        return "it takes tuples one by one, and here they come in batches"
    if traits.family == "general_lazy" and not request.parameters.interval:
        return "it takes tuples by the batch, and here they come one by one"
    return None


def _cost(name: str, plan: JoinPlan, request: PlanRequest) -> Cost:
    indexes = _indexes_of(name, plan.indexes)
    p = _indexed(request.parameters, indexes)
    if "buckets" in _options(name):  # they are given, or one for each key there is
        p = p.indexed([min(s.buckets, s.distinct) for s in request.parameters.streams])
    best = _best_order(name, indexes, request)
    one_order = best.order if REGISTRY[name].traits.one_order else None
    orders = (one_order,) * len(p.streams) if one_order else best.orders
    return COST_MODELS[name](replace(p, orders=orders))


def _best_order(name: str, indexes: tuple[str, ...], request: PlanRequest) -> OrderPlan:
    """The best order over these indexes."""
    p = _indexed(request.parameters, indexes)
    return _ordered(p, request.machine.of(name), not REGISTRY[name].traits.one_order)


@lru_cache(maxsize=64)
def _ordered(p: Parameters, constants: Constants, per_origin: bool) -> OrderPlan:
    """Cached: several algorithms need the same search."""
    return best_order(p, cpu(constants), per_origin=per_origin)


def _priced(alternative: Alternative, plan: JoinPlan, request: PlanRequest) -> Alternative:
    """The alternative with its cost, if the planner could take it and its model applies."""
    if REGISTRY[alternative.algorithm].traits.on_request is not None:
        return alternative
    try:
        cost = _cost(alternative.algorithm, plan, request)
    except QueryError:
        return alternative
    return replace(alternative, cpu=request.cpu(alternative.algorithm, cost), bytes=cost.bytes)


def _indexes_of(name: str, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """The indexes of an algorithm; those chosen, if it leaves the choice."""
    index = REGISTRY[name].traits.index
    return chosen if index is None else (index,) * len(chosen)


def _options(name: str) -> list[str]:
    return [option.name for option in REGISTRY[name].option_fields()]


def _indexed(p: Parameters, kinds: tuple[str, ...]) -> Parameters:
    return p.indexed([SCAN if kind == "scan" else PER_KEY for kind in kinds])


def _why_not(cpu: float, taken: float, cost: Cost, request: PlanRequest) -> str:
    if request.memory is not None and cost.bytes > request.memory:
        return f"needs about {_megabytes(cost.bytes)}, memory is {_megabytes(request.memory)}"
    ratio = cpu / taken if taken else 1.0
    return f"{ratio:.2f} times the CPU" if abs(ratio - 1) >= 0.005 else "costs the same"


def _preference(name: str) -> int:
    return REGISTRY[name].traits.preference


def _rounded(cost: float) -> float:
    return float(f"{cost:.9g}")


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
