"""Punctuated streams from a seed: as `lab.joins.scripts`, but drawn from a `Random`, which is faster."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

from lab.joins.oracle import KEYS
from lab.joins.scripts import ORDERED, WHERE, Script
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements
from watersmeet.model.punctuations import (
    Clustered,
    Constraint,
    Empty,
    End,
    Heartbeat,
    Ordered,
    Punctuation,
    Range,
    Unique,
    Value,
    ValueList,
)
from watersmeet.model.queries import HOW
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window

KINDS, HOWS, CONDITIONS = sorted(KEYS), sorted(HOW), sorted(WHERE)
#: Event times begin at the first instant of year 1, before 1970, at 0, today, or just before the end of year 9999.
BASES = (0, -5, 1_700_000_000_000_000, -62_135_596_800_000_000, 253_402_300_799_999_000)


def script(chance: Random, *, counted: bool = False) -> Script:
    """Any script, violations included. `counted`: row windows, and more than two streams."""
    kind = chance.choice(KINDS)
    streams = chance.choice((2, 3)) if counted else 2
    base, stride = chance.choice(BASES), chance.choice((0, 2, 6))
    numbers, idle = count(), chance.choice((None, None, None, 0, 1))
    batches = []
    for n in range(chance.randint(1, 4)):
        batches.append(tuple(_elements(kind, base + n * stride, numbers, chance, i == idle) for i in range(streams)))
    how = "inner" if counted else chance.choice(HOWS)
    return Script(
        kind,
        how,
        tuple(_window(chance, counted) for _ in range(streams)),
        tuple(chance.choice((0, 0, 3, 8)) for _ in range(streams)),
        tuple(_constraints(kind, chance) for _ in range(streams)),
        tuple(batches),
        chance.choice(CONDITIONS) if not counted and base == 0 and chance.random() < 0.15 else None,
        tuple(chance.choice((None, None, 1, 6)) for _ in range(streams)),
    )


def _window(chance: Random, counted: bool) -> Window:
    if counted and chance.random() < 0.4:
        return RowsWindow(chance.randint(1, 4), chance.random() < 0.5)
    dice = chance.random()
    if dice < 0.1:
        return Unbounded()
    return TimeWindow(chance.randint(0, 12)) if dice < 0.8 else TimeWindow(chance.randint(1, 12), closed=False)


def _key(kind: str, chance: Random) -> tuple[Any, ...]:
    return tuple(None if chance.random() < 0.12 else chance.choice(values) for _, values in KEYS[kind])


def _elements(kind: str, base: int, numbers: Any, chance: Random, idle: bool) -> Elements:
    if idle and chance.random() < 0.8:
        return Elements()
    rows = chance.choice((0, 1, 2, 3, 5))
    tuples = tuple(
        Tuple(None if chance.random() < 0.05 else base + chance.randint(0, 9), _key(kind, chance), next(numbers))
        for _ in range(rows)
    )
    punctuations = tuple(_punctuation(kind, base, chance) for _ in range(chance.choice((0, 0, 1, 2))))
    return Elements(tuples, punctuations, chance.random() < 0.02)


def _punctuation(kind: str, base: int, chance: Random) -> Punctuation:
    time, dice = base + chance.randint(0, 9), chance.random()
    if dice < 0.06:
        return Punctuation(chance.choice((Empty(), Heartbeat(time), Heartbeat(time), End())), time)
    if kind in ORDERED and dice < 0.5:  # open, closed, unbounded, empty, reversed
        ends = [chance.choice([*KEYS[kind][0][1], None]) for _ in range(2)]
        return Punctuation(Range(ends[0], ends[1], chance.random() < 0.5, chance.random() < 0.5), time)
    if dice < 0.65:
        return Punctuation(ValueList(tuple(_key(kind, chance) for _ in range(chance.randint(1, 3)))), time)
    return Punctuation(Value(_key(kind, chance)), time)


def _constraints(kind: str, chance: Random) -> tuple[Constraint, ...]:
    known: list[tuple[Constraint, ...]] = [(), (), (), (Unique(),), (Clustered(),)]
    if kind in ORDERED:
        known += [(Ordered(),), (Unique(), Ordered())]
        known += [(Ordered(ORDERED[kind]),)] if ORDERED[kind] is not None else []
    return chance.choice(known)
