"""The as-of join: how long tuples of either stream are stored, and how many these are."""

from __future__ import annotations

import math

from watersmeet.cost.parameters import Parameters
from watersmeet.cost.work import Work
from watersmeet.model.asof import AsOf

MICROSECONDS = 1e6


def tolerance(p: Parameters) -> float:
    """Seconds between a left tuple and its answer, at most."""
    given = (p.asof or AsOf()).tolerance
    return math.inf if given is None else given / MICROSECONDS


def retention(p: Parameters, i: int) -> float:
    """Seconds for which a tuple is stored, at most; a version that nothing succeeds may stay for ever.

    A left tuple waits for the right watermark to pass it (``δ_R``), or what it looks ahead for (``τ + δ_R``); a right
    one for left tuples that look back for it (``τ + δ_L``), or that come with the left delay (``δ_L``).
    """
    looks = (p.asof or AsOf()).forward if i == 0 else (p.asof or AsOf()).backward
    return p.streams[1 - i].delay + (tolerance(p) if looks else 0.0)


def waiting(p: Parameters) -> float:
    """Left tuples that are not final: ``λ_L δ_R``, looking ahead ``λ_L (min(τ, v/λ_R) + δ_R)``.

    The next version of a key comes after v/λ_R seconds, for v keys.
    """
    left, right = p.streams
    gap = right.distinct / right.rate if right.rate else math.inf
    ahead = min(tolerance(p), gap) if (p.asof or AsOf()).forward else 0.0
    return left.rate * (min(ahead, p.elapsed) + right.delay) if left.rate else 0.0


def versions(p: Parameters) -> float:
    """Right tuples that may be answers: ``λ_R δ_L``; looking back also one version of each key, ``min(v, λ_R τ)``."""
    left, right = p.streams
    current = min(right.distinct, right.rate * tolerance(p)) if right.rate and (p.asof or AsOf()).backward else 0.0
    return current + right.rate * left.delay


def work(p: Parameters) -> Work:
    """Every tuple enters and leaves; a left one looks up its key and finds one answer."""
    left, right = p.streams
    both = left.rate + right.rate
    return Work(rows_in=both, lookups=both, probed=left.rate, results=left.rate, inserted=both, expired=both)
