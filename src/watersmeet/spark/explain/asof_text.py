"""Text about as-of joins: what the answer is, and what is kept of either stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from watersmeet.model import durations
from watersmeet.model.asof import AsOf
from watersmeet.optimizer.plan import JoinPlan

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined

_SIDES = {
    "backward": "the last row of {right} that is not after it",
    "forward": "the first row of {right} that is not before it",
    "nearest": "the nearest row of {right}, on equal distance the earlier one",
}


def asof_facts(joined: Joined, plan: JoinPlan) -> dict[str, Any]:
    """What each left row is joined with, and the table that stays; empty for other joins."""
    asof = joined.query.asof
    if asof is None:
        return {}
    left, right = joined.query.streams
    text = f"a row of {left.name} is joined with {_SIDES[asof.direction].format(right=right.name)}"
    text += "" if asof.allow_exact else ", not of the same time"
    if asof.tolerance is not None:
        text += f", at most {durations.formatted(asof.tolerance)} away"
    if not asof.backward or asof.tolerance is not None:
        return {"asof": text}
    key = ", ".join(k for k in right.key if k not in joined.hidden)
    one = f"one version of {right.name} per {key}" if key else f"one version of {right.name}"
    assert plan.statistics is not None, "the planner stores its statistics in the plan"
    known = plan.statistics.source != "assumed" and bool(key)
    keys = f" of about {plan.statistics.parameters.streams[1].distinct:,.0f} keys" if known else ""
    return {"asof": f"{text}; {one} stays for ever (a table{keys})"}


def retention_ends(joined: Joined, asof: AsOf, i: int) -> list[str]:
    """Until when a row of stream i is kept."""
    left, right = joined.query.streams
    far = "" if asof.tolerance is None else f" + {durations.formatted(asof.tolerance)}"
    key = ", ".join(k for k in joined.query.streams[i].key if k not in joined.hidden)
    ends = []
    if i == 0:
        if asof.forward:
            ends.append(f"{right.name} is past the first candidate after it")
        if far or not asof.forward:
            ends.append(f"{right.name} is past its {left.time}{far if asof.forward else ''}")
        if joined.streams[1].closes and key:
            ends.append(f"{right.name} has closed its {key}")
        return ends
    if asof.backward:
        ends.append(f"{left.name} is past a later row{f' of its {key}' if key else ''}")
    if far or not asof.backward:
        ends.append(f"{left.name} is past its {right.time}{far if asof.backward else ''}")
    if joined.streams[0].closes and key:
        ends.append(f"{left.name} has closed its {key}")
    return ends
