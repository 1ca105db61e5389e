"""Two streams, a window each: nested loops and hash tables."""

from __future__ import annotations

from dataclasses import replace

from watersmeet.cost.parameters import PER_KEY, Statistics
from watersmeet.cost.work import Work


def results(a: Statistics, b: Statistics) -> float:
    """Results per second: ``(λa Cb + λb Ca) / max(va, vb)``, for uniform keys, one set within the other."""
    return (a.rate * b.window_tuples + b.rate * a.window_tuples) / max(a.distinct, b.distinct)


def nested_loops(a: Statistics, b: Statistics) -> Work:
    """Every arrival is compared with the whole of the other window.

    Kostowski and Claypool, Eq. 1: ``(λa + λb)(c_inv + c_ins) + λa λb (Ta + Tb) c_scan``, here as numbers of
    invalidations, insertions and scanned tuples per second, which `Constants.price` multiplies by their costs.
    """
    arriving = a.rate + b.rate
    return Work(
        rows_in=arriving,
        scanned=a.rate * b.window_tuples + b.rate * a.window_tuples,
        results=results(a, b),
        inserted=arriving,
        expired=arriving,
    )


def hashed(a: Statistics, b: Statistics) -> Work:
    """Every arrival is compared with the bucket of its key in the other window.

    Kostowski and Claypool, Eq. 2: the scan term of Eq. 1 divided by the number of buckets N (here each side's own).
    More buckets than distinct keys separate no further tuples: N counts as ``min(N, max(va, vb))``.
    """
    keys = max(a.distinct, b.distinct)
    work = replace(nested_loops(a, b), scanned=0.0)
    for arriving, probed in ((a, b), (b, a)):
        looked_at = arriving.rate * probed.window_tuples / min(probed.buckets, keys)
        work += Work(probed=looked_at) if probed.buckets == PER_KEY else Work(scanned=looked_at)
        work += Work(lookups=arriving.rate) if probed.indexed else Work()
    return work


def checked_buckets(a: Statistics, b: Statistics, invalidation: str) -> float:
    """Buckets looked into per second for expired tuples.

    One per arrival for `probe`, two for `probe_insert`, all of the probed side for `probe_all`, all there are for
    `all`.
    """
    arriving = a.rate + b.rate
    return {
        "probe": arriving,
        "probe_insert": 2 * arriving,
        "probe_all": a.rate * b.buckets + b.rate * a.buckets,
        "all": arriving * (a.buckets + b.buckets),
    }[invalidation]


def stale_tuples(probed: Statistics, arriving: Statistics, invalidation: str) -> float:
    """Tuples of stream `probed` that a bucket collects beyond its window between two invalidations, on average.

    The time between invalidations of a bucket times the rate at which it fills (Kostowski and Claypool, 3.2):
    ``λb / λa`` for `probe`, ``λb / (λa + λb)`` for `probe_insert`, 0 for `all`. For `probe_all`, which the paper
    leaves out, every arrival of a cleans all N buckets: ``λb / (N λa)``.
    """
    if invalidation == "all" or not probed.rate:
        return 0.0
    if invalidation == "probe_insert":
        return probed.rate / (arriving.rate + probed.rate)
    if not arriving.rate:
        return float("inf")
    share = probed.buckets if invalidation == "probe_all" else 1.0
    return probed.rate / (arriving.rate * share)
