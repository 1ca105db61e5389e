"""Medians, means and ranges of repeated measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Spread:
    median: float
    low: float
    high: float


def spread(values: Iterable[float]) -> Spread | None:
    """Median, smallest and largest; None of nothing."""
    found = sorted(values)
    return Spread(median(found), found[0], found[-1]) if found else None


def spread_text(values: Sequence[float], form: str = "{:.2f}") -> str:
    """A median with its range, as text."""
    if len(values) == 1:
        return form.format(values[0])
    found = Spread(median(values), min(values), max(values))
    return f"{form.format(found.median)} ({form.format(found.low)}–{form.format(found.high)})"


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def median(values: Sequence[float]) -> float:
    return float(np.median(values))
