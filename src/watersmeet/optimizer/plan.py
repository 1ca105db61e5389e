"""Plans as data: the request, the plan that runs, and the rejected alternatives."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.cost.machine import Machine
from watersmeet.cost.parameters import Order, Parameters
from watersmeet.cost.work import Cost
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import RowsWindow, Unbounded
from watersmeet.optimizer.order import OrderPlan


@dataclass(frozen=True, slots=True)
class PlanRequest:
    """The query to plan, its statistics, and the limits of the machine."""

    query: JoinQuery
    parameters: Parameters
    memory: float | None  # bytes, of all shards together
    cores: int
    machine: Machine
    algorithm: str | None  # requested by name: it is taken, and shown as such
    options: tuple[str, ...] = ()  # that the algorithm must have
    one_by_one: bool = False  # whether a join may take the tuples of a batch one by one
    with_punctuations: tuple[str, ...] = ()  # streams declared to have punctuations

    def cpu(self, algorithm: str, cost: Cost) -> float:
        """Nanoseconds of one core per second of event time, the fixed ones of the micro-batches included."""
        constants, interval = self.machine.of(algorithm), self.parameters.interval
        return cost.cpu(constants) + (constants.batch / interval if interval else 0.0)

    @property
    def unbounded(self) -> list[str]:
        """Streams without a window."""
        return [s.name for s in self.query.streams if isinstance(s.window, Unbounded)]

    @property
    def by_time(self) -> bool:
        """Whether every window is bounded by time, or unbounded."""
        return not any(isinstance(s.window, RowsWindow) for s in self.query.streams)

    @property
    def punctuated(self) -> list[str]:
        """Streams with punctuations. The join must use them: a violation never becomes a result."""
        pairs = zip(self.query.streams, self.parameters.streams, strict=True)
        return [
            spec.name
            for spec, s in pairs
            if spec.constraints or s.punctuation_rate or spec.name in self.with_punctuations
        ]


@dataclass(frozen=True, slots=True)
class Alternative:
    """An algorithm that was not taken; costs are None if its model does not fit the query."""

    algorithm: str
    cpu: float | None  # nanoseconds per second of event time
    bytes: float | None
    why: str


@dataclass(frozen=True, slots=True)
class PlanStatistics:
    """Statistics of a join's streams, and their source, as a keyword and as a sentence."""

    parameters: Parameters
    source: str  # "assumed", "given", "measured", "stored" or "sampled"
    text: str


@dataclass(frozen=True, slots=True)
class JoinPlan:
    """The plan that runs, and the rejected alternatives. The rules fill it in one by one; each adds one of `reasons`.

    `order` is the order in which the operator lets several streams meet, with its cost; None without measurements.
    """

    algorithm: str = ""
    forced: bool = False
    orders: tuple[Order, ...] = ()
    indexes: tuple[str, ...] = ()  # "hash" or "scan", of each window
    invalidation: str | None = None
    shards: int = 1
    tuples: tuple[float, ...] = ()  # predicted, of each stream
    results: float = 0.0  # predicted, rows per second of event time
    bytes: float = 0.0  # predicted, of all shards together
    cpu: float = 0.0  # predicted, nanoseconds of one core per second of event time
    rejected: tuple[Alternative, ...] = ()
    warnings: tuple[str, ...] = ()
    reasons: tuple[tuple[str, str], ...] = ()
    candidates: tuple[str, ...] = field(default=(), repr=False)
    statistics: PlanStatistics | None = field(default=None, repr=False)
    order: OrderPlan | None = None

    def because(self, rule: str, reason: str) -> JoinPlan:
        return replace(self, reasons=(*self.reasons, (rule, reason)))

    def to_dict(self) -> dict[str, Any]:
        return {
            "algorithm": self.algorithm,
            "forced": self.forced,
            "orders": [list(order) for order in self.orders],
            "indexes": list(self.indexes),
            "invalidation": self.invalidation,
            "shards": self.shards,
            "predicted": {
                "tuples": list(self.tuples),
                "results_per_s": self.results,
                "bytes": self.bytes,
                "cpu_ns_per_s": self.cpu,
            },
            "rejected": [
                {"algorithm": a.algorithm, "cpu_ns_per_s": a.cpu, "bytes": a.bytes, "why": a.why} for a in self.rejected
            ],
            "warnings": list(self.warnings),
            "reasons": [list(reason) for reason in self.reasons],
        }
