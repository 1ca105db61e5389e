"""Work, counted as the running joins count it, and what it takes on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Work:
    """Events of one second, or of one batch; the names are those of `model.outputs.Counters`."""

    rows_in: float = 0.0  # tuples that arrive
    lookups: float = 0.0  # times that an index is asked for the tuples of a key
    probed: float = 0.0  # stored tuples looked at, found by an index with a list per key
    scanned: float = 0.0  # stored tuples looked at in a row, in a window or a bucket of several keys
    results: float = 0.0
    inserted: float = 0.0
    checked: float = 0.0  # buckets looked into for tuples to invalidate
    invalidated: float = 0.0
    purged: float = 0.0  # tuples that left because their key was closed
    told: float = 0.0  # keys that a stream said are closed
    bytes: float = 0.0  # of rows that enter the state, and so its log
    levels: float = 0.0  # loops inside loops of a batch that is evaluated as one, however few its rows are

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, factor: float) -> Work:
        return Work(*(factor * getattr(self, f.name) for f in fields(self)))

    @property
    def looked_at(self) -> float:
        """Stored tuples looked at: the cost of the multi-way paper, and the scan term of Kostowski and Claypool."""
        return self.probed + self.scanned

    @classmethod
    def counted(cls, counters: Mapping[str, float], *, scans: bool = False, closings: int = 0) -> Work:
        """What a running join counted; `scans`: one over circular buffers, which counts what it scans as `probed`.

        A join that does not count its lookups makes one for each tuple it takes in. `closings` are those it was told.
        """
        known = {f.name: float(counters[f.name]) for f in fields(cls) if counters.get(f.name)}
        if scans:
            known["scanned"] = known.pop("probed", 0.0)
        taken = known.get("rows_in", 0.0) - counters.get("late", 0) - counters.get("null_keys", 0)
        return cls(**{"lookups": taken, "told": float(closings)} | known)


@dataclass(frozen=True, slots=True)
class Constants:
    """Nanoseconds of each event of `Work`, and of a batch as such.

    The defaults are of no join in particular; `machine.DEFAULT` has those of each family.
    """

    rows_in: float = 150.0
    lookups: float = 100.0
    probed: float = 15.0
    scanned: float = 1.0
    results: float = 15.0
    inserted: float = 150.0
    checked: float = 1.0
    invalidated: float = 25.0
    purged: float = 70.0
    told: float = 150.0
    bytes: float = 1.0
    levels: float = 0.0
    batch: float = 1_000_000.0

    def price(self, work: Work) -> float:
        """Nanoseconds that the work takes; per second of event time if it is the work of a second."""
        return float(sum(getattr(self, f.name) * getattr(work, f.name) for f in fields(work)))

    def as_dict(self) -> dict[str, float]:
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @classmethod
    def of(cls, known: Mapping[str, Any]) -> Constants:
        """The constants that `as_dict` gave; what is not among them has its default."""
        return cls(**{f.name: float(known[f.name]) for f in fields(cls) if f.name in known})


@dataclass(frozen=True, slots=True)
class Cost:
    """What a join costs in the long run."""

    work: Work  # per second of event time
    tuples: tuple[float, ...]  # stored, of each stream
    bytes: float

    def cpu(self, constants: Constants) -> float:
        """Nanoseconds of one core per second of event time."""
        return constants.price(self.work)
