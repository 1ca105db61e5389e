"""The constants of a machine, from batches whose work was counted and whose time was taken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace

import numpy as np

from watersmeet.cost.work import Constants, Work


def fit(samples: Iterable[tuple[Work, float]], start: Constants | None = None) -> Constants:
    """Constants with which the work of each batch best explains its seconds; `Work.counted` makes it of counters.

    Least squares of the relative error, so that small batches count as much as large ones, over the events of `Work`
    and the batch as such. An event that no sample has keeps the constant of `start`. No constant is
    negative: NumPy has no solver for that, so an event whose constant comes out negative is left out (it costs
    nothing that the others do not explain) and the rest is fitted again, which comes near the constrained optimum
    and is it where no event left out would come back.
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
