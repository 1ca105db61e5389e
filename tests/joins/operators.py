"""The joins of the registry, each in every configuration that its tests go through."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from tests.oracle import Row, Scenario, canonical, step
from watersmeet.joins import JOINS, Join, plan
from watersmeet.joins.reference import Tuple
from watersmeet.joins.running import RunningJoin
from watersmeet.joins.tuple_at_a_time import INVALIDATION
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import Unbounded

STRATEGIES = tuple(INVALIDATION)


@dataclass(frozen=True)
class Operator:
    """A join by its name in the registry, with its options."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join(map(str, (self.name, *self.options.values())))

    def __call__(self, query: JoinQuery) -> Join:
        return plan(query, self.name, **self.options)

    def start(self, scenario: Scenario) -> RunningJoin[Any]:
        return self(scenario.query()).start()

    def run(self, scenario: Scenario) -> list[list[Row]]:
        join = self.start(scenario)
        return [step(join, scenario.batches(n)) for n in range(len(scenario))]

    def fit(self, scenario: Scenario) -> Scenario:
        """The scenario, or one as near to it as the join takes."""
        if self.name not in ("pjoin", "wo_join"):
            return scenario
        a, b = (replace(side, window=Unbounded()) for side in scenario.sides)
        fitted = replace(scenario, sides=(a, b))
        return fitted if self.name == "pjoin" else with_ascending_type(fitted)

    def draw(self, data: st.DataObject, strategy: st.SearchStrategy[Scenario]) -> Scenario:
        return self.fit(data.draw(strategy))

    @property
    def exact(self) -> bool:
        """Whether after a batch nothing is stored but what may still match."""
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


#: Nothing is ever so far behind: a window-oblivious join that keeps everything, as no window and no promise would.
ANY = 1 << 40
OPERATORS = [Operator(name) for name in JOINS if name not in ("windowed_hash", "wo_join")]
OPERATORS += [Operator("wo_join", {"buffer": b, "scrambling": (ANY, ANY)}) for b in ("sound", "learned", "eq7", "eq8")]
OPERATORS += [
    Operator("windowed_hash", {"buckets": b, "invalidation": s}) for b in (1, 3, 100) for s in STRATEGIES
]  # fmt: skip
OPERATORS += [Operator(name, {"index": "scan"}) for name in ("naive_multiway", "eager", "lazy", "general_lazy")]
OPERATORS += [Operator("hybrid", {"index": ("b",)})]
