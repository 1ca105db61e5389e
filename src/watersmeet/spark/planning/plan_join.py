"""The operator that a join runs, and its options in the engine's form: streams by number, memory of one shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from watersmeet.cost.machine import here
from watersmeet.cost.measured_parameters import PER_KEY_TUPLES, RATE, assumed, assumed_stream
from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.multiway import without
from watersmeet.cost.options import parameters_of
from watersmeet.cost.parameters import Statistics
from watersmeet.errors import QueryError, WindowError
from watersmeet.joins import Join
from watersmeet.joins.multiway_options import MultiwayJoin, per_origin
from watersmeet.joins.wo_join.operator import EQUATIONS
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Interval, RowsWindow, Tumbling
from watersmeet.optimizer.order import OrderPlan, best_order, cost_of
from watersmeet.optimizer.plan import JoinPlan, PlanStatistics
from watersmeet.optimizer.planner import make_plan, within_horizon
from watersmeet.spark.planning.without_equality import open_ended
from watersmeet.spark.progress.adaptive_order import is_adaptive
from watersmeet.spark.punctuations import CLOSES_KEYS
from watersmeet.spark.streams import Stream


@dataclass(frozen=True)
class Planner:
    """Makes all plans of a join: calls the optimiser with what the streams and the user's options require.

    `options` are names of the options that the user gave. An operator that was named is taken as it is.
    """

    query: JoinQuery
    streams: Sequence[Stream]
    options: tuple[str, ...]
    shards: int
    streaming: bool
    forced: bool  # whether the user named the algorithm

    def best(self, statistics: PlanStatistics, algorithm: str | None = None) -> JoinPlan:
        """The optimiser's decision; with `algorithm`, what that costs and what the others would."""
        # a join of another kind than inner refuses by itself the options that it does not take
        required = self.options if self.query.how == "inner" and not self.forced else ()
        plan = make_plan(
            self.query,
            statistics.parameters,
            algorithm=algorithm,
            cores=self.shards,
            options=required,
            punctuated=punctuated(self.streams),
        )
        return replace(plan, statistics=statistics)

    def of(self, operator: Join[Any], statistics: PlanStatistics) -> JoinPlan:
        """The plan of an operator under these statistics; a warning if with them another would be taken."""
        name = operator.name
        plan = self.best(statistics, name if self.forced else None)
        if plan.algorithm != name:
            other = f"with these statistics {plan.algorithm} would be taken"
            plan = self.best(statistics, name)
            plan = replace(plan, warnings=(*plan.warnings, other))
        return replace(self._as_run(plan, operator, statistics), shards=self.shards, forced=self.forced)

    def _as_run(self, plan: JoinPlan, operator: Join[Any], statistics: PlanStatistics) -> JoinPlan:
        """The plan with the options that the operator has; an order that follows the statistics is the best one."""
        p = within_horizon(statistics.parameters)
        adaptive = self.streaming and is_adaptive(operator)
        q = parameters_of(operator, p, plan.orders if adaptive else None)
        cost, constants = COST_MODELS[plan.algorithm](q), here().of(plan.algorithm)
        index = operator.algorithm.traits.index
        return replace(
            plan,
            indexes=tuple(index if index == "sorted" else "hash" if s.indexed else "scan" for s in q.streams),
            tuples=cost.tuples,
            bytes=cost.bytes,
            results=cost.work.results,
            cpu=cost.cpu(constants) + constants.batch / p.interval,
            order=_order(operator, statistics, adaptive=adaptive),
        )


def _order(operator: Join[Any], statistics: PlanStatistics, *, adaptive: bool) -> OrderPlan | None:
    """The order in which a new tuple meets the streams of a multi-way join, with its cost."""
    p = statistics.parameters
    if not isinstance(operator.algorithm, MultiwayJoin) or statistics.source == "assumed":
        return None
    if adaptive:
        return best_order(p)
    given = getattr(operator.algorithm, "order", None)
    orders = per_origin(given, len(p.streams), in_place=operator.algorithm.traits.one_order)
    cost = cost_of(p, [without(order, i) for i, order in enumerate(orders)])
    return OrderPlan(orders, cost, None, None, None, exhaustive=False)


def assumed_statistics(query: JoinQuery, streams: Sequence[Stream]) -> PlanStatistics:
    """Assumed statistics, before anything is measured; streams with punctuations close their keys."""
    each = tuple(assumed_of(query, streams, i, RATE) for i in range(len(streams)))
    text = f"nothing is measured yet; assumed are {RATE:,.0f} rows a second of each stream and "
    text += f"{PER_KEY_TUPLES:.0f} rows of a key in a window"
    return PlanStatistics(replace(assumed(query), streams=each), "assumed", text)


def assumed_of(query: JoinQuery, streams: Sequence[Stream], i: int, rate: float) -> Statistics:
    """The same of one stream with this rate."""
    s, stream = assumed_stream(query.streams[i], rate), streams[i]
    # the output of a join can close keys, and mostly closes none
    closes = stream.upstream is None and any(rule.kind in CLOSES_KEYS for rule in stream.rules)
    return replace(s, punctuation_rate=rate / PER_KEY_TUPLES) if closes and not s.punctuation_rate else s


def punctuated(streams: Sequence[Stream]) -> list[str]:
    """Streams that have punctuations which the operator uses."""
    return [s.name for s in streams if any(rule.kind != "empty" for rule in s.rules)]


def engine_options(options: dict[str, Any], streams: Sequence[Stream], shards: int) -> dict[str, Any]:
    """Options with names of streams as their numbers, and the memory of one shard."""
    out = {name: value for name, value in options.items() if value is not None}
    names = [s.name for s in streams]
    if "order" in out:
        out["order"] = _numbered(out["order"], names)
    if "memory" in out:
        out["memory"] = max(1, out["memory"] // shards)  # keys are hashed, so shards need about as much each
    return out


def _numbered(order: Any, names: Sequence[str]) -> Any:
    if isinstance(order, list | tuple):
        return tuple(_numbered(one, names) for one in order)
    if not isinstance(order, str):
        return order
    if order not in names:
        raise QueryError(f"`order` names `{order}`; the streams are {', '.join(names)}.", hint=f"e.g. {list(names)!r}.")
    return names.index(order)


def shards_for(streams: Sequence[Stream], shards: int | None, by_default: int, options: dict[str, Any]) -> int:
    """The number of shards. Rows of a whole stream can be counted, and sorted, in one shard only."""
    if shards is not None and type(shards) is not int:
        raise QueryError(f"`shards` is {shards!r}; it is a whole number from 1 on.")
    if shards is not None and shards < 1:
        raise QueryError(f"`shards` is {shards}; there is at least one.")
    whole = next((s for s in streams if isinstance(s.window, RowsWindow) and not s.window.per_key), None)
    equation = options.get("buffer") in EQUATIONS
    count = shards or (1 if whole is not None or equation else by_default)
    if equation and count > 1:
        raise QueryError(
            f'`buffer` is "{options["buffer"]}" and `shards` is {count}; its lags are about the sorted stream as a '
            "whole, of which each shard would see its own keys only.",
            hint='leave `shards` out (it is 1 then), or use buffer="sound", which any number of shards can follow.',
        )
    if whole is not None and count > 1:
        raise WindowError(
            f"`window` of stream `{whole.name}` counts the rows of the whole stream, and `shards` is {count}; each "
            "shard would count its own rows only.",
            hint="leave `shards` out (it is 1 then), or count per key: wm.rows(n, per_key=True).",
        )
    return count


def refuse_unbounded(query: JoinQuery, streams: Sequence[Stream], algorithm: str, *, uses_punctuations: bool) -> None:
    """Refuse streams whose tuples neither a window nor a punctuation would ever remove."""
    for i, s in enumerate(streams):
        others = [o for o in streams if o is not s]
        not_closing = [o for o in others if not o.closes]
        # a key that one stream has closed, and that is no longer in its window, is finished for all streams
        ends = not not_closing or (
            not query.is_theta
            and any(isinstance(o.window, int | Interval | Tumbling) for o in others if o not in not_closing)
        )
        endless = open_ended(query, streams, i) if query.is_theta else None
        if s.window is None and not (uses_punctuations and ends and endless is None):
            names = " and ".join(f"`{o.name}`" for o in not_closing)
            given = 'wm.stream(df, time="…", window="10 minutes")'
            if s.upstream is not None:
                given = 'joined.as_stream(window="10 minutes")'
            why = f"{names} no punctuation" if uses_punctuations else f'"{algorithm}" does not use punctuations'
            why += " that would close its keys"
            if uses_punctuations and ends:
                why = f"{endless} that its tuples may match"
            raise WindowError(
                f"stream `{s.name}` has no window, and {why}; its tuples would be kept for ever.",
                hint=f"give it one: {given}, or set allow_unbounded=True.",
            )
