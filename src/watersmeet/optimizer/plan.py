"""Plans as data: what is asked, what will run, and what was not taken."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.cost.machine import Machine
from watersmeet.cost.parameters import Order, Parameters
from watersmeet.cost.work import Cost
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import TimeWindow, Unbounded


@dataclass(frozen=True, slots=True)
class Asked:
    """What is to be planned, and with what."""

    query: JoinQuery
    parameters: Parameters
    memory: float | None  # bytes, of all shards together
    cores: int
    machine: Machine
    algorithm: str | None  # asked for by name: it is taken, and shown as such
    options: tuple[str, ...] = ()  # that the algorithm must have
    one_by_one: bool = False  # whether a join may take the tuples of a batch one by one
    told: tuple[str, ...] = ()  # streams that are known to bring punctuations

    def cpu(self, algorithm: str, cost: Cost) -> float:
        """Nanoseconds of one core per second of event time, those of the micro-batches as such included."""
        constants, interval = self.machine.of(algorithm), self.parameters.interval
        return cost.cpu(constants) + (constants.batch / interval if interval else 0.0)

    @property
    def unbounded(self) -> list[str]:
        """Streams without a window."""
        return [s.name for s in self.query.streams if isinstance(s.window, Unbounded)]

    @property
    def by_time(self) -> bool:
        """Whether time alone says what is in a window."""
        return all(isinstance(s.window, TimeWindow | Unbounded) for s in self.query.streams)

    @property
    def promising(self) -> list[str]:
        """Streams with punctuations: who breaks a promise is no result, so the join must hear them."""
        pairs = zip(self.query.streams, self.parameters.streams, strict=True)
        return [spec.name for spec, s in pairs if spec.promises or s.punctuation_rate or spec.name in self.told]


@dataclass(frozen=True, slots=True)
class Alternative:
    """An algorithm that was not taken; costs are None if its model does not fit the query."""

    algorithm: str
    cpu: float | None  # nanoseconds per second of event time
    bytes: float | None
    why: str


@dataclass(frozen=True, slots=True)
class Plan:
    """What will run. Rules fill it in, from first to last; `reasons` has one sentence of each."""

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

    def because(self, rule: str, reason: str) -> Plan:
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
