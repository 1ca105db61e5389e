"""From a query and its figures to a plan: an ordered tuple of rules and one loop."""

from __future__ import annotations

import math
from collections.abc import Callable

from watersmeet.cost.figures import assumed
from watersmeet.cost.parameters import Parameters
from watersmeet.cost.work import Constants
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


def make_plan(
    query: JoinQuery,
    parameters: Parameters | None = None,
    *,
    memory: float | None = None,
    cores: int = 1,
    constants: Constants | None = None,
    algorithm: str | None = None,
) -> Plan:
    """The plan for a query; the same for the same input. Without `parameters` figures are assumed, and it says so."""
    if algorithm is not None and algorithm not in JOINS:
        raise QueryError(f'`algorithm` is "{algorithm}"; known are {", ".join(JOINS)}.')
    p = parameters or assumed(query)
    if any(math.isinf(s.window) and s.tuples is None for s in p.streams):
        p = p.after(HORIZON if math.isinf(p.elapsed) else p.elapsed)
    asked = Asked(query, p, memory, cores, constants or Constants(), algorithm)
    plan = Plan() if parameters else Plan(warnings=("nothing is measured yet: rates and keys are assumed",))
    for rule in RULES:
        plan = rule(plan, asked)
    return plan
