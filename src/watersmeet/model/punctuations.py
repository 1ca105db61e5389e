"""Punctuations and constraints: declarations of a stream about tuples that will not come any more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Value:
    """No more tuples with this key."""

    key: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class ValueList:
    """No more tuples with any of these keys."""

    keys: tuple[tuple[Any, ...], ...]


@dataclass(frozen=True, slots=True)
class Range:
    """No more tuples with a key between `low` and `high`; None leaves that end unbounded."""

    low: Any | None
    high: Any | None
    low_closed: bool = True
    high_closed: bool = True


@dataclass(frozen=True, slots=True)
class End:
    """No more tuples at all: any value on every attribute."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """No more tuples with an event time before `until` (microseconds)."""

    until: int


@dataclass(frozen=True, slots=True)
class Empty:
    """Matches nothing; passes through."""


Pattern = Value | ValueList | Range | End | Heartbeat | Empty


@dataclass(frozen=True, slots=True)
class Punctuation:
    """`pattern` holds for everything that stands after event time `time` in its stream."""

    pattern: Pattern
    time: int


@dataclass(frozen=True, slots=True)
class BatchPunctuations:
    """The punctuations of one stream in one batch, single values in columns: there may be millions of them."""

    keys: pa.RecordBatch  # the key columns
    times: npt.NDArray[np.int64]
    ranges: tuple[tuple[Range, int], ...] = ()
    heartbeat: int | None = None
    ended: bool = False

    @classmethod
    def of(cls, punctuations: Iterable[Punctuation], schema: pa.Schema) -> BatchPunctuations:
        """The same from single punctuations; `schema` is that of the key columns."""
        keys: list[tuple[Any, ...]] = []
        times: list[int] = []
        ranges: list[tuple[Range, int]] = []
        heartbeat: int | None = None
        ended = False
        for p in punctuations:
            match p.pattern:
                case Value(key):
                    keys.append(key)
                    times.append(p.time)
                case ValueList(several):
                    keys += several
                    times += [p.time] * len(several)
                case Range():
                    ranges.append((p.pattern, p.time))
                case Heartbeat(until):
                    heartbeat = until if heartbeat is None else max(heartbeat, until)
                case End():
                    ended = True
                case Empty():
                    continue
        columns = [pa.array([k[c] for k in keys], f.type) for c, f in enumerate(schema)]
        return cls(pa.record_batch(columns, schema=schema), np.array(times, np.int64), tuple(ranges), heartbeat, ended)


@dataclass(frozen=True, slots=True)
class Unique:
    """Every tuple closes its own key: no other tuple has it."""


@dataclass(frozen=True, slots=True)
class Clustered:
    """A key is closed by a tuple with another key and a larger event time."""


@dataclass(frozen=True, slots=True)
class Ordered:
    """A tuple with key k closes all keys before k - slack."""

    slack: Any = 0


Constraint = Unique | Clustered | Ordered


def describe(constraint: Constraint) -> dict[str, Any]:
    """A constraint as JSON."""
    match constraint:
        case Unique():
            return {"kind": "unique"}
        case Clustered():
            return {"kind": "clustered"}
        case Ordered(timedelta() as slack):
            return {"kind": "ordered", "slack": {"microseconds": slack // timedelta(microseconds=1)}}
        case Ordered(Decimal() as slack):
            return {"kind": "ordered", "slack": {"decimal": str(slack)}}
        case Ordered(slack):
            return {"kind": "ordered", "slack": slack}
