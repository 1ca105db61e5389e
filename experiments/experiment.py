"""What an experiment is: a set-up, a run, claims computed from what was found, and a figure drawn from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
from matplotlib.figure import Figure

T = TypeVar("T")
#: Plain values, as JSON has them. `counts` are the same in every run with a seed, `times` are not.
Found = dict[str, Any]


@dataclass(frozen=True)
class Verdict:
    """Whether a claim holds in what was found, and the numbers that say so."""

    holds: bool
    numbers: str


@dataclass(frozen=True)
class Claim:
    """A sentence about the results, and how to check it. `otherwise` says why it may not hold here."""

    text: str
    check: Callable[[Found], Verdict]
    otherwise: str = ""


@dataclass
class Run:
    """How an experiment is to be run: at full size or quickly, from which seed, and whom to tell how far it is."""

    quick: bool = False
    seed: int = 1
    tell: Callable[[float], None] = field(default=lambda share: None)

    def size(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    def each(self, things: Sequence[T]) -> list[T]:
        """The same things, telling after each how far it is."""
        return list(self.told(things))

    def told(self, things: Sequence[T]) -> Any:
        for number, thing in enumerate(things):
            yield thing
            self.tell((number + 1) / len(things))


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper. `row` is its row in the list of all; `seconds` a guess at its full duration."""

    id: str
    row: str
    title: str
    setup: str
    run: Callable[[Run], Found]
    claims: tuple[Claim, ...]
    draw: Callable[[Figure, Found], None]
    size: tuple[float, float] = (7.2, 3.4)  # inches
    differs: str = ""  # from the paper, whatever comes out
    seconds: float = 10.0
    tables: Callable[[Found], list[tuple[str, ...]]] | None = None  # numbers that a figure does not tell


def mean(values: Sequence[float]) -> float:
    return float(np.mean(values))


def spread(values: Sequence[float], form: str = "{:.2f}") -> str:
    """A median with its range, for people."""
    if len(values) == 1:
        return form.format(values[0])
    low, middle, high = (form.format(f(values)) for f in (min, np.median, max))
    return f"{middle} ({low}–{high})"


def median(values: Sequence[float]) -> float:
    return float(np.median(values))
