"""What a join will do, and what it has done: as data, in words, and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from watersmeet.cost import memory
from watersmeet.cost.machine import here
from watersmeet.cost.models import COST_MODELS
from watersmeet.cost.options import parameters_of
from watersmeet.joins import MULTIWAY, name_of
from watersmeet.model.windows import RowsWindow
from watersmeet.optimizer.picture import picture
from watersmeet.optimizer.plan import Plan
from watersmeet.optimizer.planner import make_plan, within_horizon
from watersmeet.spark.analysis import Analysis
from watersmeet.spark.cautions import cautions
from watersmeet.spark.explained import lines
from watersmeet.spark.order_report import order_facts
from watersmeet.spark.ordering import is_adaptive
from watersmeet.spark.retention import bounds, stream_facts
from watersmeet.spark.session import REQUIRED
from watersmeet.spark.statistics import Given, Known, known

if TYPE_CHECKING:
    from watersmeet.spark.pipeline import Joined


@dataclass(frozen=True)
class Explanation:
    """`str()` is the text for the terminal, `to_dict()` the same as data, `to_svg()` a picture of the plan."""

    facts: dict[str, Any]
    draw: Callable[[], str]

    def to_dict(self) -> dict[str, Any]:
        return self.facts

    def to_svg(self) -> str:
        """The plan as a picture, with the figures that the explanation has: assumed, given or measured."""
        return self.draw()

    def __str__(self) -> str:
        return "\n".join(lines(self.facts))


def explain(joined: Joined, analysis: Analysis | None = None, statistics: Given | None = None) -> Explanation:
    """The explanation of a join that is defined, with what was measured of it and what is known of its streams."""
    query, shards = joined.query, len(joined.ids)
    figures = known(joined, analysis, statistics)
    plan = planned(joined, figures)
    counted = any(isinstance(s.window, RowsWindow) and not s.window.per_key for s in query.streams)
    settings = {name: value for name, (value, _) in REQUIRED.items()} if joined.streaming else {}
    warnings = list(plan.warnings)
    if joined.streaming:
        warnings += cautions(joined.streams[0].df.sparkSession, shards)
    facts = {
        "algorithm": plan.algorithm,
        "forced": plan.forced,
        "how": query.how,
        "on": list(query.streams[0].key),
        "mode": "streaming" if joined.streaming else "static (one batch, nothing is kept)",
        "shards": shards,
        "divided": "one because rows of a whole stream are counted" if counted else "keys divided by hash",
        **bounds(joined),
        **({"order": order_facts(joined, figures)} if isinstance(joined.operator, MULTIWAY) else {}),
        "streams": [stream_facts(joined, i) | _numbers(plan, figures, i) for i in range(len(query.streams))],
        "statistics": {"source": figures.source, "text": figures.text},
        "predicted": {
            "tuples": sum(plan.tuples),
            "bytes": plan.bytes,
            "results_per_s": plan.results,
            "cpu_ns_per_s": plan.cpu,
        },
        "rejected": plan.to_dict()["rejected"],
        "reasons": plan.to_dict()["reasons"],
        "warnings": warnings,
        **_where(joined),
        **_tree(joined),
        **({"measured": analysis.facts} if analysis is not None else {}),
        "settings": settings,
    }
    return Explanation(facts, lambda: picture(plan, figures.parameters))


def planned(joined: Joined, figures: Known) -> Plan:
    """The plan that runs, with the alternatives to it; a note if with these figures another would be taken."""
    about: dict[str, Any] = {
        "cores": len(joined.ids),
        "options": () if joined.forced or joined.query.how != "inner" else joined.options,
        "promising": [s.name for s in joined.streams if s.signs],
    }
    running = name_of(joined.operator)
    plan = make_plan(joined.query, figures.parameters, algorithm=running, **about)
    plan = replace(_as_run(plan, joined, figures), shards=len(joined.ids), forced=joined.forced)
    if joined.forced:
        return plan
    best = make_plan(joined.query, figures.parameters, **about)
    reasons = tuple((rule, why) for rule, why in best.reasons if rule == "choose_join")
    if best.algorithm != running:
        return replace(plan, warnings=(*plan.warnings, f"with these figures {best.algorithm} would be taken"))
    return replace(plan, reasons=(*(r for r in plan.reasons if r[0] != "choose_join"), *reasons))


def _as_run(plan: Plan, joined: Joined, figures: Known) -> Plan:
    """The plan with the options that the join was given; an order that follows the figures is the best one."""
    join, p = joined.operator, within_horizon(figures.parameters)
    order = plan.orders if joined.streaming and is_adaptive(join) else None
    q = parameters_of(join, p, order)
    cost, constants = COST_MODELS[plan.algorithm](q), here().of(plan.algorithm)
    return replace(
        plan,
        indexes=tuple("hash" if s.indexed else "scan" for s in q.streams),
        tuples=cost.tuples,
        bytes=cost.bytes,
        results=cost.work.results,
        cpu=cost.cpu(constants) + constants.batch / p.interval,
    )


def _numbers(plan: Plan, figures: Known, i: int) -> dict[str, Any]:
    """Of one stream what the models say, and from what."""
    p = figures.parameters
    s = p.streams[i]
    kept = memory.retention(p, i)
    return {
        "kept_s": kept if kept != float("inf") else None,
        "index": plan.indexes[i],
        "predicted": {"tuples": plan.tuples[i], "bytes": plan.tuples[i] * s.row_bytes},
        "figures": {
            "rate": s.rate,
            "keys": s.distinct,
            "closings": s.punctuation_rate,
            "row_bytes": s.row_bytes,
            "hottest": s.hottest,
            "stay_s": s.stay,
        },
    }


def _tree(joined: Joined) -> dict[str, Any]:
    """Of a join on different attributes: the operators before this one, and which windows hold in the end."""
    if not joined.inner:
        return {}
    return {
        "windows": "a tree of window joins finds more than the join of all streams at once (its pairs have the time of "
        "their newer part), so a filter behind this operator keeps those results of which every tuple is in its own "
        "stream's window at the time of the newest",
        "inner": [explain(inner).to_dict() for inner in joined.inner],
    }


def _where(joined: Joined) -> dict[str, str]:
    if joined.query.where is not None:
        return {"where": f"{joined.query.where.text}: asked of every pair in the operator, before it counts as a match"}
    if joined.condition is None or joined.inner:
        return {}
    return {"where": "… by Spark, which filters the results behind the operator"}
