"""From a query and its figures to a plan: an ordered tuple of rules and one loop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from watersmeet.cost.figures import assumed
from watersmeet.cost.machine import Machine, here
from watersmeet.cost.parameters import Parameters
from watersmeet.errors import QueryError
from watersmeet.joins import JOINS
from watersmeet.model.queries import JoinQuery
from watersmeet.optimizer.plan import Asked, Plan
from watersmeet.optimizer.rules import (
    able,
    choose_join,
    divide,
    index_windows,
    invalidate,
    order_streams,
    warn,
)

#: State that grows without bound is told as it is after so many seconds.
HORIZON = 3600.0

RULES: tuple[Callable[[Plan, Asked], Plan], ...] = (
    able,
    index_windows,
    choose_join,
    order_streams,
    invalidate,
    divide,
    warn,
)


def within_horizon(p: Parameters) -> Parameters:
    """The same, some time after the start where what a stream holds would have no end."""
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
    promising: Sequence[str] = (),
    one_by_one: bool = False,
) -> Plan:
    """The plan for a query; the same for the same input. Without `parameters` figures are assumed, and it says so.

    `memory` is in bytes. `machine` is this one by default, with the constants fitted here or the defaults. `algorithm`
    is taken whatever it costs. `options` are names of options that the algorithm must have, `promising` names of
    streams whose punctuations it must hear, beside those that the query and the figures know of. Joins that take the
    tuples of a batch one by one, and those for experiments, are candidates with `one_by_one` only: batches may grow.
    """
    if algorithm is not None and algorithm not in JOINS:
        raise QueryError(f'`algorithm` is "{algorithm}"; known are {", ".join(JOINS)}.')
    p = within_horizon(parameters or assumed(query))
    asked = Asked(query, p, memory, cores, machine or here(), algorithm, tuple(options), one_by_one, tuple(promising))
    plan = Plan() if parameters else Plan(warnings=("nothing is measured yet: rates and keys are assumed",))
    for rule in RULES:
        plan = rule(plan, asked)
    return plan
