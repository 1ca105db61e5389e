"""The joins of the registry, each in every tested configuration."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from lab.joins.oracle import Row, Scenario, canonical, step
from watersmeet.joins import Join, plan
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.baselines.tuple_at_a_time import INVALIDATION
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.asof import AsOf
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Unbounded

STRATEGIES = tuple(INVALIDATION)


@dataclass(frozen=True)
class Operator:
    """A join by its name in the registry, with its options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)
    asof: AsOf | None = None

    def __str__(self) -> str:
        kind = () if self.asof is None else (self.asof.direction, self.asof.tolerance, self.asof.allow_exact)
        return "-".join(map(str, (self.name, *self.options.values(), *kind)))

    def __call__(self, query: JoinQuery) -> Join[Any]:
        return plan(query, self.name, **self.options)

    def start(self, scenario: Scenario) -> RunningJoin[Any]:
        return self(scenario.query()).start()

    def run(self, scenario: Scenario) -> list[list[Row]]:
        join = self.start(scenario)
        return [step(join, scenario.batches(n)) for n in range(len(scenario))]

    def fit(self, scenario: Scenario) -> Scenario:
        """The scenario, or a similar one that the join accepts."""
        if self.name not in ("pjoin", "wo_join", "asof"):
            return scenario
        a, b = (replace(side, window=Unbounded()) for side in scenario.sides)
        fitted = replace(scenario, sides=(a, b), asof=self.asof)
        return with_ascending_type(fitted) if self.name == "wo_join" else fitted

    def draw(self, data: st.DataObject, strategy: st.SearchStrategy[Scenario]) -> Scenario:
        return self.fit(data.draw(strategy))

    @property
    def exact(self) -> bool:
        """Whether only tuples that may still match are stored after a batch."""
        return self.options.get("invalidation", "all") == "all"


def with_ascending_type(scenario: Scenario) -> Scenario:
    """The scenario with numbers for keys, unless these are in an order of 64 bits already."""
    if scenario.kind in ("int64", "int32", "date", "timestamp", "decimal10", "float64"):
        return scenario
    numbers: dict[Row, int] = {}

    def numbered(t: Tuple) -> Tuple:
        key = tuple(map(canonical, t.key))
        return replace(t, key=(None if None in key else numbers.setdefault(key, len(numbers)),))

    sides = tuple(replace(s, batches=tuple(tuple(map(numbered, b)) for b in s.batches)) for s in scenario.sides)
    return replace(scenario, kind="int64", sides=sides)


#: Joins without equality; `lab.joins.theta_scripts` has streams and conditions for them.
WITHOUT_EQUALITY = ("theta", "band")
#: A scrambling factor that no stream reaches: a window-oblivious join that evicts nothing.
ANY = 1 << 40
OPERATORS = [Operator(name) for name in ("hash", "nested_loop", "pjoin", "pwjoin")]
OPERATORS += [Operator(name) for name in ("naive_multiway", "eager", "lazy", "general_lazy", "hybrid")]
OPERATORS += [Operator("wo_join", {"buffer": b, "scrambling": (ANY, ANY)}) for b in ("sound", "learned", "eq7", "eq8")]
OPERATORS += [
    Operator("windowed_hash", {"buckets": b, "invalidation": s}) for b in (1, 3, 100) for s in STRATEGIES
]  # fmt: skip
OPERATORS += [Operator(name, {"index": "scan"}) for name in ("naive_multiway", "eager", "lazy", "general_lazy")]
OPERATORS += [Operator("hybrid", {"index": ("b",)})]
OPERATORS += [Operator("asof", asof=AsOf(d, t, e)) for d, t, e in (
    ("backward", None, True), ("backward", 4, False), ("forward", 6, True), ("nearest", None, True)
)]  # fmt: skip
