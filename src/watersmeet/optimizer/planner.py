"""From a query and its statistics to a plan: an ordered tuple of rules and one loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from watersmeet.cost.machine import Machine, here
from watersmeet.cost.measured_parameters import assumed
from watersmeet.cost.parameters import Parameters
from watersmeet.errors import QueryError
from watersmeet.joins import REGISTRY
from watersmeet.model.queries import JoinQuery
from watersmeet.optimizer.plan import JoinPlan, PlanRequest
from watersmeet.optimizer.rules import (
    able,
    choose_expiry,
    choose_join,
    divide,
    index_windows,
    order_streams,
    warn,
)

#: State that grows without bound is estimated at this time, in seconds after the start.
HORIZON = 3600.0

RULES: tuple[Callable[[JoinPlan, PlanRequest], JoinPlan], ...] = (
    able,
    index_windows,
    choose_join,
    order_streams,
    choose_expiry,
    divide,
    warn,
)


def within_horizon(p: Parameters) -> Parameters:
    """The same at a finite time after the start, if the state of a stream would be infinite."""
    if any(math.isinf(s.window) and s.tuples is None for s in p.streams):
        return p.after(HORIZON if math.isinf(p.elapsed) else p.elapsed)
    return p


def make_plan(
    query: JoinQuery,
    parameters: Parameters | None = None,
    *,
    memory: float | None = None,
    cores: int = 1,
    machine: Machine | None = None,
    algorithm: str | None = None,
    options: Sequence[str] = (),
    punctuated: Sequence[str] = (),
    one_by_one: bool = False,
) -> JoinPlan:
    """The plan for a query; the same for the same input. Without `parameters` statistics are assumed, with a warning.

    `memory` is in bytes. `machine` is this one by default, with the constants fitted here or the defaults. `algorithm`
    is taken whatever it costs. `options` are names of options that the algorithm must have, `punctuated` names of
    streams whose punctuations it must use, in addition to those in the query and the statistics. Joins that take the
    tuples of a batch one by one, and those for experiments, are candidates with `one_by_one` only: batches may grow.
    """
    if algorithm is not None and algorithm not in REGISTRY:
        raise QueryError(f'`algorithm` is "{algorithm}"; known are {", ".join(REGISTRY)}.')
    p = replace(within_horizon(parameters or assumed(query)), asof=query.asof)
    request = PlanRequest(
        query, p, memory, cores, machine or here(), algorithm, tuple(options), one_by_one, tuple(punctuated)
    )
    plan = JoinPlan() if parameters else JoinPlan(warnings=("nothing is measured yet: rates and keys are assumed",))
    for rule in RULES:
        plan = rule(plan, request)
    return plan
