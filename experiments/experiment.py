"""The parts of an experiment: a set-up, a run, claims computed from its results, and a figure drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from matplotlib.figure import Figure

from lab.measure.claims import Claim, Found

T = TypeVar("T")


@dataclass
class Run:
    """The settings of a run: full or quick size, seed, and a callback for the share that is done."""

    quick: bool = False
    seed: int = 1
    on_progress: Callable[[float], None] = field(default=lambda share: None)

    def size(self, full: T, quick: T) -> T:
        return quick if self.quick else full

    def each(self, things: Sequence[T]) -> list[T]:
        """The things as a list, with `on_progress` called after each."""
        return list(self.steps(things))

    def steps(self, things: Sequence[T]) -> Any:
        """The things one by one, with `on_progress` called after each."""
        for number, thing in enumerate(things):
            yield thing
            self.on_progress((number + 1) / len(things))


@dataclass(frozen=True)
class Experiment:
    """One figure or table of a paper. `row` is its row in the list of all; `seconds` is its estimated full duration."""

    id: str
    row: str
    title: str
    setup: str
    run: Callable[[Run], Found]
    claims: tuple[Claim, ...]
    draw: Callable[[Figure, Found], None]
    size: tuple[float, float] = (7.2, 3.4)  # inches
    differs: str = ""  # differences from the paper
    seconds: float = 10.0
    tables: Callable[[Found], list[tuple[str, ...]]] | None = None  # numbers that the figure does not show
