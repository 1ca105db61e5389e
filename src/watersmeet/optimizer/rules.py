"""The rules of the optimiser: each decides one thing about a plan, and says why."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from functools import lru_cache

from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.parameters import PER_KEY, SCAN, Parameters
from watersmeet.cost.work import Constants, Cost
from watersmeet.errors import QueryError
from watersmeet.joins import JOINS
from watersmeet.joins.tuple_at_a_time import INVALIDATION
from watersmeet.model.windows import RowsWindow
from watersmeet.optimizer.adaptive import spell
from watersmeet.optimizer.order import Choice, best_order, cpu
from watersmeet.optimizer.plan import Alternative, Asked, Plan

#: Of algorithms that cost the same the first is taken.
PREFERRED = ("hash", "pwjoin", "pjoin", "general_lazy", "eager", "lazy", "hybrid", "naive_multiway", "nested_loop")


#: Algorithms of two streams.
OF_TWO = ("hash", "nested_loop", "windowed_hash", "pjoin", "pwjoin")
#: Algorithms that take tuples one by one: for experiments, not for micro-batches.
ONE_BY_ONE = ("nested_loop", "naive_multiway", "eager", "lazy", "hybrid")
WITHOUT_WINDOWS = 'it is for streams without windows, and asked for by window="auto"'
#: Algorithms that do not listen to punctuations.
DEAF = ("hash", "nested_loop", "windowed_hash")


def able(plan: Plan, asked: Asked) -> Plan:
    """Which algorithms can run the query at all, and keep up with it in micro-batches."""
    candidates, rejected = [], []
    for name in JOINS:
        why = _unable(name, asked)
        if why is None or name == asked.algorithm:
            candidates.append(name)
        else:
            rejected.append(Alternative(name, None, None, why))
    if not candidates:
        reasons = "; ".join(f"{a.algorithm}: {a.why}" for a in rejected)
        raise QueryError(
            f"no algorithm can run this {asked.query.how} join of {len(asked.query.streams)} streams.", hint=reasons
        )
    plan = replace(plan, candidates=tuple(candidates), rejected=tuple(rejected))
    return plan.because("able", f"{', '.join(candidates)} can run it")


def index_windows(plan: Plan, asked: Asked) -> Plan:
    """A window gets an index where looking up a key costs less than scanning it."""
    constants, kinds = asked.machine.of("hybrid"), []
    for s in asked.parameters.streams:
        matches = s.window_tuples / s.distinct * constants.probed
        kinds.append("scan" if s.window_tuples * constants.scanned <= constants.lookups + matches else "hash")
    names = [s.name for s, kind in zip(asked.parameters.streams, kinds, strict=True) if kind == "scan"]
    why = f"{', '.join(names)}: so few tuples that a scan is cheaper" if names else "a lookup is cheaper than any scan"
    return replace(plan, indexes=tuple(kinds)).because("index_windows", why)


def choose_join(plan: Plan, asked: Asked) -> Plan:
    """The cheapest that fits in memory, each in its best order; if none does, the smallest."""
    costs = {name: _cost(name, plan, asked) for name in plan.candidates}
    fits = [n for n in costs if asked.memory is None or costs[n].bytes <= asked.memory]
    warnings = plan.warnings
    if asked.algorithm:
        chosen, why = asked.algorithm, "asked for by name"
    elif fits:
        chosen = min(fits, key=lambda n: (_rounded(asked.cpu(n, costs[n])), _preference(n)))
        why = "the cheapest" if asked.memory is None else "the cheapest that fits in memory"
    else:
        chosen = min(costs, key=lambda n: (_rounded(costs[n].bytes), _preference(n)))
        why = "the smallest; none fits in memory"
    if chosen not in fits:
        warnings += (f"needs about {_megabytes(costs[chosen].bytes)}, memory is {_megabytes(asked.memory or 0)}",)
    cost = costs[chosen]
    rejected = tuple(
        Alternative(n, asked.cpu(n, c), c.bytes, _why_not(asked.cpu(n, c), asked.cpu(chosen, cost), c, asked))
        for n, c in costs.items()
        if n != chosen
    )
    return replace(
        plan,
        algorithm=chosen,
        forced=bool(asked.algorithm),
        indexes=_indexes_of(chosen, plan.indexes),
        tuples=cost.tuples,
        results=cost.work.results,
        bytes=cost.bytes,
        cpu=asked.cpu(chosen, cost),
        rejected=rejected + tuple(_priced(a, plan, asked) for a in plan.rejected),
        warnings=warnings,
    ).because("choose_join", f"{chosen}: {why}")


def order_streams(plan: Plan, asked: Asked) -> Plan:
    """The order in which an arrival meets the other streams."""
    p, best = asked.parameters, _best_order(plan.algorithm, plan.indexes, asked)
    why = spell(p, best.orders)
    if best.runner_up is not None and best.runner_up_cost is not None:
        share = best.runner_up_cost / best.cost if best.cost else 1.0
        why += f"; next {spell(p, best.runner_up)}, {share:.2f} times the cost"
    return replace(plan, orders=best.orders).because("order_streams", why)


def invalidate(plan: Plan, asked: Asked) -> Plan:
    """Where arrivals look for tuples that have left their window; only buckets leave a choice.

    The cheapest strategy that lets at most half as many stale tuples gather as there are live ones.
    """
    if plan.algorithm != "windowed_hash":
        return plan
    costs = {}
    for strategy in INVALIDATION:
        there = replace(asked, parameters=replace(asked.parameters, invalidation=strategy))
        costs[strategy] = _cost(plan.algorithm, plan, there)
    live = sum(costs["all"].tuples)
    few = [strategy for strategy, cost in costs.items() if sum(cost.tuples) <= 1.5 * live]
    chosen = min(few, key=lambda strategy: (asked.cpu(plan.algorithm, costs[strategy]), strategy))
    stale = sum(costs[chosen].tuples) - live
    why = f"{chosen}: the cheapest of {', '.join(few)}; about {stale:.0f} stale tuples"
    return replace(plan, invalidation=chosen).because("invalidate", why)


def divide(plan: Plan, asked: Asked) -> Plan:
    """One shard per core, and no more than there are keys."""
    keys = max(s.distinct for s in asked.parameters.streams)
    shards = max(1, min(asked.cores, int(keys)))
    why = "one per core" if shards == asked.cores else f"there are {shards} keys"
    return replace(plan, shards=shards).because("divide", f"{shards} shards: {why}")


def warn(plan: Plan, asked: Asked) -> Plan:
    """What will go wrong if the figures are right."""
    warnings = plan.warnings
    p = asked.parameters
    for i, spec in enumerate(asked.query.streams):
        closes = all(o.punctuation_rate for o in p.others(i))
        grows = spec.name in asked.unbounded and plan.algorithm != "wo_join"  # that one goes by the keys themselves
        if grows and (not closes or plan.algorithm in DEAF):
            others = " and ".join(o.name for o in p.others(i))
            what = f"{spec.name} has no window and {others} closes no keys: it grows"
            when = f"after {p.elapsed:.0f} s" if math.isfinite(p.elapsed) else "now"
            warnings += (f"{what}; told as it is {when}",)
    for s in p.streams:
        if s.hottest * plan.shards > 1 and plan.shards > 1:
            warnings += (f"{s.hottest:.0%} of {s.name} have one key, and so one of {plan.shards} shards",)
        if not s.rate and any(o.rate for o in p.streams):
            warnings += (f"{s.name} is silent: the others are kept until it goes on",)
    cores = plan.cpu / 1e9
    if cores > min(asked.cores, plan.shards):
        warnings += (f"needs about {cores:.1f} cores, and can use {min(asked.cores, plan.shards)}",)
    return replace(plan, warnings=warnings)


# ------------------------------------------------------------ what the rules ask


def _unable(name: str, asked: Asked) -> str | None:
    """Why an algorithm is not taken for a query, whatever it costs; None if it may be."""
    query = asked.query
    if name == "wo_join":
        return WITHOUT_WINDOWS
    if name in OF_TWO and len(query.streams) != 2:
        return f"it joins two streams, not {len(query.streams)}"
    if name in OF_TWO and any(isinstance(s.window, RowsWindow) for s in query.streams):
        return "it knows windows of time alone"
    known = [f.name for f in fields(JOINS[name])]
    for option in asked.options:
        if option not in known:
            return f"it has no option `{option}`"
    if name not in OF_TWO and len(query.streams) == 2 and asked.by_time and not asked.options and not asked.one_by_one:
        return "two streams have joins of their own"
    if query.how != "inner" and name not in ("pjoin", "pwjoin"):
        return f"it computes inner joins, not {query.how} ones"
    if name == "pjoin":
        return None if len(asked.unbounded) == 2 else "it knows no windows"
    if asked.promising and name in DEAF:
        return f"it does not hear the promises of {' and '.join(asked.promising)}"
    if asked.unbounded and name in DEAF:
        return f"without a window it would keep {', '.join(asked.unbounded)} for ever"
    if name == "windowed_hash" and not asked.one_by_one:
        return "its number of buckets is for you to give"
    if name in ONE_BY_ONE and asked.parameters.interval and not asked.one_by_one:
        return "it takes tuples one by one, and here they come in batches"
    if name == "general_lazy" and not asked.parameters.interval:
        return "it takes tuples by the batch, and here they come one by one"
    return None


def _cost(name: str, plan: Plan, asked: Asked) -> Cost:
    indexes = _indexes_of(name, plan.indexes)
    p = _indexed(asked.parameters, indexes)
    if name == "windowed_hash":  # its buckets are given, or one for each key there is
        p = p.indexed([min(s.buckets, s.distinct) for s in asked.parameters.streams])
    best = _best_order(name, indexes, asked)
    orders = (best.order,) * len(p.streams) if name == "naive_multiway" and best.order else best.orders
    return COST_MODELS[name](replace(p, orders=orders))


def _best_order(name: str, indexes: tuple[str, ...], asked: Asked) -> Choice:
    """The best order over these indexes; the naive join has one for all arrivals."""
    p = _indexed(asked.parameters, indexes)
    return _ordered(p, asked.machine.of(name), name != "naive_multiway")


@lru_cache(maxsize=64)
def _ordered(p: Parameters, constants: Constants, per_origin: bool) -> Choice:
    """Several algorithms ask for the same."""
    return best_order(p, cpu(constants), per_origin=per_origin)


def _priced(alternative: Alternative, plan: Plan, asked: Asked) -> Alternative:
    """What it would have cost, if its model knows; how scrambled keys are, nobody knows of streams with windows."""
    if alternative.algorithm == "wo_join":
        return alternative
    try:
        cost = _cost(alternative.algorithm, plan, asked)
    except QueryError:
        return alternative
    return replace(alternative, cpu=asked.cpu(alternative.algorithm, cost), bytes=cost.bytes)


def _indexes_of(name: str, chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Indexes as an algorithm has them: only `hybrid` takes the choice."""
    if name == "hybrid":
        return chosen
    return (("scan",) if name == "nested_loop" else ("hash",)) * len(chosen)


def _indexed(p: Parameters, kinds: tuple[str, ...]) -> Parameters:
    return p.indexed([PER_KEY if kind == "hash" else SCAN for kind in kinds])


def _why_not(cpu: float, taken: float, cost: Cost, asked: Asked) -> str:
    if asked.memory is not None and cost.bytes > asked.memory:
        return f"needs about {_megabytes(cost.bytes)}, memory is {_megabytes(asked.memory)}"
    ratio = cpu / taken if taken else 1.0
    return f"{ratio:.2f} times the CPU" if abs(ratio - 1) >= 0.005 else "costs the same"


def _preference(name: str) -> int:
    return PREFERRED.index(name) if name in PREFERRED else len(PREFERRED)


def _rounded(cost: float) -> float:
    return float(f"{cost:.9g}")


def _megabytes(size: float) -> str:
    return f"{size / 1e6:,.1f} MB"
