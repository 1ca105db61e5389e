"""Buffers of a window-oblivious join (Wu, Tan and Zhou), in tuples: from disorder, rates and lags.

k is a stream's scrambling factor, r its rate, Mul its multiplicity; a lag from i to j counts the tuples by which i is
ahead of j, and is negative where i is behind.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.errors import MemoryLimitError, QueryError


def synchronised_buffer(i: Statistics, j: Statistics) -> float:
    """Tuples of i that streams without a lag need for joining with j. Eq. 6: ``k_i + r_i · k_j / r_j``."""
    return i.scrambling + _meanwhile(i, j, j.scrambling)


def pair_buffer(i: Statistics, j: Statistics, lag: float) -> float:
    """Tuples of i that streams with a lag need for joining with j. Eq. 7: ``max{1, k_i + r_i · k_j / r_j + L_i→j}``.

    It is an estimate: results can be lost when rates and lags change between two arrivals (spec section 7).
    """
    return max(1.0, synchronised_buffer(i, j) + lag)


def buffer(p: Parameters, i: int) -> float:
    """Tuples of stream i that joining with all others needs. Eq. 8: the largest of Eq. 7 over j ≠ i."""
    lags = _lags(p, i)
    return max(pair_buffer(p.streams[i], s, lags[j]) for j, s in enumerate(p.streams) if j != i)


def output_scrambling(streams: Sequence[Statistics]) -> float:
    """Scrambling factor of the results, at most. Theorem 3.1, Eq. 10: ``k_o ≤ Σ_i k_i Π_{j≠i} Mul_j``."""
    return sum(s.scrambling * _multiplied(streams, i) for i, s in enumerate(streams))


def sorted_first_buffer(p: Parameters, i: int) -> float:
    """`msf`: Mul instead of k, and k tuples that wait to be sorted.

    ``k_i + Mul_i + max_j { r_i · Mul_j / r_j + L_i→j }``, at least ``k_i + 1``.
    """
    own, lags = p.streams[i], _lags(p, i)
    most = max(_meanwhile(own, s, s.multiplicity) + lags[j] for j, s in enumerate(p.streams) if j != i)
    return own.scrambling + max(1.0, own.multiplicity + most)


def disk_first_buffer(p: Parameters, i: int, ahead: float) -> float:
    """`dbf`: tuples ahead are spilled and read back C = `ahead` early: ``k_i + C + max_j r_i · k_j / r_j``."""
    own = p.streams[i]
    return own.scrambling + ahead + max(_meanwhile(own, s, s.scrambling) for s in p.others(i))


def sorted_on_disk_buffer(p: Parameters, i: int, ahead: float) -> float:
    """`hybrid`: both: ``Mul_i + C + max_j r_i · Mul_j / r_j``, without the tuples that wait to be sorted."""
    own = p.streams[i]
    return own.multiplicity + ahead + max(_meanwhile(own, s, s.multiplicity) for s in p.others(i))


#: Strategies in ascending cost: nothing, latency of the disk, waiting for k successors, both.
STRATEGIES = ("none", "dbf", "msf", "hybrid")


def strategy_bytes(p: Parameters, strategy: str, ahead: float) -> float:
    """Bytes in memory under a strategy, with the tuples that wait to be sorted."""
    held: dict[str, Callable[[int], float]] = {
        "none": lambda i: buffer(p, i),
        "dbf": lambda i: disk_first_buffer(p, i, ahead),
        "msf": lambda i: sorted_first_buffer(p, i),
        "hybrid": lambda i: p.streams[i].scrambling + sorted_on_disk_buffer(p, i, ahead),
    }
    return sum(held[strategy](i) * s.row_bytes for i, s in enumerate(p.streams))


def cheapest_strategy(p: Parameters, memory: float, ahead: float) -> str:
    """The cheapest strategy that fits in `memory` bytes; `ahead` tuples are read from disk early."""
    needed = {strategy: strategy_bytes(p, strategy, ahead) for strategy in STRATEGIES}
    for strategy, size in needed.items():
        if size <= memory:
            return strategy
    raise MemoryLimitError(
        f"`memory` is {memory:.0f} bytes; the buffers of this join need "
        f"{', '.join(f'{size:.0f} with {strategy}' for strategy, size in needed.items())}.",
        hint="give more memory, divide the keys over more shards, or let the join shed tuples.",
    )


def _meanwhile(i: Statistics, j: Statistics, count: float) -> float:
    """Tuples of i that come while j brings `count`: ``r_i · count / r_j``."""
    if not count:
        return 0.0
    if not j.rate:
        raise QueryError(
            f"stream `{j.name}` is silent; how much of `{i.name}` comes until it shows {count:g} tuples is unknown.",
            hint="estimate again when it has a rate.",
        )
    return i.rate * count / j.rate


def _lags(p: Parameters, i: int) -> Sequence[float]:
    return p.lags[i] if p.lags else [0.0] * len(p.streams)


def _multiplied(streams: Sequence[Statistics], i: int) -> float:
    return math.prod(s.multiplicity for j, s in enumerate(streams) if j != i)
