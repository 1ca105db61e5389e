"""Text about the memory bound of a join with windows or punctuations: what is spilled, and from when on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from watersmeet.cost.measured_parameters import LIST_BYTES
from watersmeet.cost.parameters import Parameters
from watersmeet.model import durations, sizes
from watersmeet.optimizer.plan import JoinPlan

#: Bytes from which on a predicted state is not shown as a number.
TOO_MANY = 1e12

if TYPE_CHECKING:
    from watersmeet.spark.joined import Joined


def memory_facts(joined: Joined, plan: JoinPlan, p: Parameters) -> dict[str, Any]:
    """The bound and the predicted state under "memory"; empty without a bound, and for static joins."""
    if joined.memory is None or not joined.streaming:
        return {}
    spills = _reached(plan, p, joined.memory) if plan.bytes > joined.memory else None
    bound = f"{sizes.in_units(joined.memory)} of lists and rows"
    state = f"state predicted {sizes.formatted(plan.bytes)}"
    if plan.bytes >= TOO_MANY:
        state = f"state predicted more than {sizes.formatted(TOO_MANY)}"
    if spills is None:
        text = f"{bound}; {state}: no rows spill to disk"
    else:
        text = f"{bound}; {state}: rows spill to disk from about {_about(spills)} on"
    return {"memory": {"bytes": joined.memory, "spills_after_s": spills, "text": text}}


def _about(seconds: float) -> str:
    """A duration in whole seconds; in whole minutes from ten of them on."""
    unit = 1 if seconds < 600 else 60
    return durations.formatted(max(1, round(seconds / unit)) * unit * 1_000_000)


def memory_cautions(joined: Joined, plan: JoinPlan) -> Iterator[str]:
    """A bound that cannot be kept: the lists stay in memory."""
    lists = sum(plan.tuples) * LIST_BYTES
    if joined.memory is not None and joined.streaming and lists > joined.memory:
        yield (
            f"`memory` is {sizes.in_units(joined.memory)}, and the lists alone, which stay in memory, are predicted to "
            f"take {sizes.formatted(lists)}; give more, shorten the windows, or close keys by punctuations"
        )


def _reached(plan: JoinPlan, p: Parameters, memory: float) -> float:
    """Seconds of event time until the state takes so much, if each stream fills its state at its rate."""
    streams = [
        (s.rate * s.row_bytes, tuples / s.rate) for s, tuples in zip(p.streams, plan.tuples, strict=True) if s.rate
    ]
    size, before = 0.0, 0.0
    for full in sorted({until for _, until in streams}):
        growth = sum(growth for growth, until in streams if until >= full)
        if size + growth * (full - before) >= memory:
            return before + (memory - size) / growth
        size += growth * (full - before)
        before = full
    return before
