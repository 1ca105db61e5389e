"""Work, in the counters of the running joins, and the time that it takes on a machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class Work:
    """Events of one second, or of one batch; the names are those of `model.outputs.Counters`."""

    rows_in: float = 0.0  # tuples that arrive
    lookups: float = 0.0  # searches of an index for the tuples of a key
    probed: float = 0.0  # stored tuples looked at, found by an index with a list per key
    scanned: float = 0.0  # stored tuples looked at in a row, in a window or a bucket of several keys
    results: float = 0.0
    inserted: float = 0.0
    checked: float = 0.0  # buckets looked into for expired tuples
    expired: float = 0.0
    purged: float = 0.0  # tuples removed because their key was closed
    punctuations: float = 0.0  # keys closed by punctuations of a stream
    bytes: float = 0.0  # of rows added to the state, and so to its log
    levels: float = 0.0  # nested loops of a batch evaluated as a whole, whatever its number of rows

    def __add__(self, other: Work) -> Work:
        return Work(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    def times(self, factor: float) -> Work:
        return Work(*(factor * getattr(self, f.name) for f in fields(self)))

    @property
    def looked_at(self) -> float:
        """Stored tuples looked at: the cost of the multi-way paper, and the scan term of Kostowski and Claypool."""
        return self.probed + self.scanned

    @classmethod
    def counted(cls, counters: Mapping[str, float], *, scans: bool = False, punctuations: int = 0) -> Work:
        """Work from the counters of a running join; `scans`: its `probed` are scanned tuples (circular buffers).

        A join that does not count its lookups makes one for each tuple that it accepts. `punctuations` is their number.
        """
        known = {f.name: float(counters[f.name]) for f in fields(cls) if counters.get(f.name)}
        if scans:
            known["scanned"] = known.pop("probed", 0.0)
        accepted = known.get("rows_in", 0.0) - counters.get("late", 0) - counters.get("null_keys", 0)
        return cls(**{"lookups": accepted, "punctuations": float(punctuations)} | known)


@dataclass(frozen=True, slots=True)
class Constants:
    """Nanoseconds of each event of `Work`, and the fixed ones of a batch.

    The defaults fit no join in particular; `machine.DEFAULT` has those of each family.
    """

    rows_in: float = 150.0
    lookups: float = 100.0
    probed: float = 15.0
    scanned: float = 1.0
    results: float = 15.0
    inserted: float = 150.0
    checked: float = 1.0
    expired: float = 25.0
    purged: float = 70.0
    punctuations: float = 150.0
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
        """The constants of an `as_dict`; a missing one has its default."""
        return cls(**{f.name: float(known[f.name]) for f in fields(cls) if f.name in known})


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a join in the long run."""

    work: Work  # per second of event time
    tuples: tuple[float, ...]  # stored, of each stream
    bytes: float

    def cpu(self, constants: Constants) -> float:
        """Nanoseconds of one core per second of event time."""
        return constants.price(self.work)
