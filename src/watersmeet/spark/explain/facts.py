"""The explanation of a join, before and after it has run: as data, as text, and as a picture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from watersmeet.cost import asof, memory
from watersmeet.cost.parameters import Parameters
from watersmeet.joins.band import BandJoin, indexed
from watersmeet.joins.multiway_options import MultiwayJoin
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow
from watersmeet.optimizer.picture import picture
from watersmeet.optimizer.plan import JoinPlan
from watersmeet.spark.explain.analysis import Analysis
from watersmeet.spark.explain.asof_text import asof_facts
from watersmeet.spark.explain.cautions import cautions
from watersmeet.spark.explain.given_statistics import GivenStatistics, statistics_of
from watersmeet.spark.explain.join_order import order_facts
from watersmeet.spark.explain.memory_text import memory_cautions, memory_facts
from watersmeet.spark.explain.retention_text import bounds, stream_facts
from watersmeet.spark.explain.text import lines, title
from watersmeet.spark.explain.traps import traps
from watersmeet.spark.session import REQUIRED, shards_and_tasks

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined


@dataclass(frozen=True)
class Explanation:
    """`str()` is the text for the terminal, `to_dict()` the same as data, `to_svg()` a picture of the plan."""

    facts: dict[str, Any]
    draw: Callable[[], str]
    verbose: bool = False  # whether the text has all of it: statistics, costs, alternatives, settings

    def __repr__(self) -> str:
        return f"<Explanation of {title(self.facts)}; print it, or see to_dict() and to_svg()>"

    def to_dict(self) -> dict[str, Any]:
        return self.facts

    def to_svg(self) -> str:
        """The plan as a picture, with the statistics that the explanation has: assumed, given or measured."""
        return self.draw()

    def __str__(self) -> str:
        return "\n".join(lines(self.facts, verbose=self.verbose))


#: What explains that keys may be split.
HOT_KEYS_TEXT = "a key that has far more rows than others is split over the shards while wm.write runs the query"


def explain(
    joined: Joined,
    analysis: Analysis | None = None,
    statistics: GivenStatistics | None = None,
    *,
    verbose: bool = False,
    inside: bool = False,
) -> Explanation:
    """The explanation of a join, with the measurements of `analysis`.

    It renders the join's own plan; `statistics`, given or measured, make a new one through the same planner.
    `inside` a tree an operator has the cautions of its own plan; those about streams and settings are the tree's.
    """
    query, shards = joined.query, len(joined.ids)
    found = statistics_of(joined, analysis, statistics)
    plan = joined.plan if found is None else joined.planner.of(joined.operator, found)
    assert plan.statistics is not None, "the planner stores its statistics in the plan"
    parameters = replace(plan.statistics.parameters, asof=query.asof)
    counted = any(isinstance(s.window, RowsWindow) and not s.window.per_key for s in query.streams)
    settings = {name: value for name, (value, _) in REQUIRED.items()} if joined.streaming else {}
    warnings = [*plan.warnings, *memory_cautions(joined, plan)]
    if not inside:
        warnings += [c for one in (*joined.inner, joined) for s in one.streams for c in s.cautions] + traps(joined)
    spark = joined.streams[0].df.sparkSession
    if joined.streaming and not inside:
        warnings += cautions(spark, shards)
    tasks = shards_and_tasks(spark)[1]
    facts = {
        "algorithm": plan.algorithm,
        "forced": plan.forced,
        "how": query.how,
        "on": [k for k in query.streams[0].key if query.asof is None or k not in joined.hidden],
        "mode": "streaming" if joined.streaming else "static (one batch, nothing is kept)",
        "shards": shards,
        **({"tasks": tasks} if tasks < shards else {}),
        "divided": "one because rows of a whole stream are counted" if counted else _divided(query),
        **({"hot_keys": HOT_KEYS_TEXT} if joined.splits and not inside else {}),
        **bounds(joined),
        **memory_facts(joined, plan, parameters),
        **asof_facts(joined, plan),
        **({"order": order_facts(joined, plan)} if isinstance(joined.operator.algorithm, MultiwayJoin) else {}),
        "streams": [stream_facts(joined, i) | _numbers(plan, parameters, i) for i in range(len(query.streams))],
        "statistics": {"source": plan.statistics.source, "text": plan.statistics.text},
        "predicted": {
            "tuples": sum(plan.tuples),
            "bytes": plan.bytes,
            "results_per_s": plan.results,
            "cpu_ns_per_s": plan.cpu,
        },
        "rejected": plan.to_dict()["rejected"],
        "reasons": plan.to_dict()["reasons"],
        "warnings": warnings,
        **_indexed(joined),
        **_where(joined),
        **_tree(joined),
        **({"measured": analysis.facts} if analysis is not None else {}),
        "settings": settings,
    }
    return Explanation(facts, lambda: picture(plan, parameters), verbose)


def _divided(query: JoinQuery) -> str:
    """How rows are divided among the shards."""
    if not query.is_theta:
        return "keys divided by hash"
    names = [s.name for s in query.streams]
    return f"rows of {names.pop(query.spread)} divided by hash, those of {' and '.join(names)} copied to each"


def _indexed(joined: Joined) -> dict[str, str]:
    """What the sorted indexes of a join without equality are sorted by; empty for other joins."""
    query = joined.query
    if not isinstance(joined.operator.algorithm, BandJoin):
        return {}
    attributes = [(s.name, indexed(query, i)[0]) for i, s in enumerate(query.streams)]
    return {"indexed": ", ".join(f"{name} sorted by {attribute}" for name, attribute in attributes)}


def _numbers(plan: JoinPlan, p: Parameters, i: int) -> dict[str, Any]:
    """The predictions for one stream, and the statistics they come from."""
    s = p.streams[i]
    kept = memory.retention(p, i) if p.asof is None else asof.retention(p, i)
    return {
        "kept_s": kept if kept != float("inf") else None,
        "index": plan.indexes[i],
        "predicted": {"tuples": plan.tuples[i], "bytes": plan.tuples[i] * s.row_bytes},
        "statistics": {
            "rate": s.rate,
            "keys": s.distinct,
            "closed_keys": s.punctuation_rate,
            "row_bytes": s.row_bytes,
            "hottest": s.hottest,
            "stay_s": s.stay,
        },
    }


def _tree(joined: Joined) -> dict[str, Any]:
    """The operators before this one, and the windows of the results; empty unless the join is a tree."""
    if not joined.inner:
        return {}
    return {
        "windows": "a tree of window joins finds more than the join of all streams at once (its pairs have the time of "
        "their newer part), so a filter behind this operator keeps those results of which every tuple is in its own "
        "stream's window at the time of the newest",
        "inner": [explain(inner, inside=True).to_dict() for inner in joined.inner],
    }


def _where(joined: Joined) -> dict[str, str]:
    if joined.query.where is not None:
        return {
            "where": f"{joined.query.where.text}: checked for every pair in the operator, before it counts as a match"
        }
    if joined.condition is None or joined.inner:
        return {}
    return {"where": "(a condition that Spark applies to the results of the operator)"}
