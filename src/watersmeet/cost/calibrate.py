"""Fit the constants of a machine to batches with counted work and measured time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np

from watersmeet.cost.work import Constants, Work


def fit(samples: Iterable[tuple[Work, float]], start: Constants | None = None) -> Constants:
    """Constants with which the work of each batch best predicts its seconds; `Work.counted` turns counters into work.

    Least squares of the relative error, so that small batches count as much as large ones, over the events of `Work`
    and the fixed cost of a batch. An event that no sample contains keeps the constant of `start`. No constant is
    negative. NumPy has no solver with that constraint, so an event with a negative constant is left out (its cost is
    0) and the rest is fitted again. The result is close to the constrained optimum; it is the optimum if no event
    left out would get a positive constant in the end.
    """
    start = start or Constants()
    pairs = [(work, seconds) for work, seconds in samples if seconds > 0]
    names = [f.name for f in fields(Work)]
    events = np.array([[getattr(work, n) for n in names] + [1.0] for work, _ in pairs])
    nanoseconds = np.array([seconds * 1e9 for _, seconds in pairs])
    names.append("batch")
    used = [c for c in range(len(names)) if pairs and events[:, c].any()]
    found = {names[c]: 0.0 for c in used}
    while used:
        relative = events[:, used] / nanoseconds[:, None]
        scale = np.abs(relative).max(axis=0)  # events are counted in ones and in millions
        solution = np.linalg.lstsq(relative / scale, np.ones(nanoseconds.size), rcond=None)[0] / scale
        if (solution >= 0).all():
            found |= {names[c]: float(x) for c, x in zip(used, solution, strict=True)}
            break
        used = [c for c, x in zip(used, solution, strict=True) if x >= 0]
    return replace(start, **found)
