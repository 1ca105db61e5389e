"""How many distinct keys a sketch has seen.

A sketch is a row of registers (`kernels.hyperloglog`), as in HyperLogLog: 512 bytes, whatever it has seen. The
maximum of two rows, register by register, is the sketch of both. Standard error 1.04 / √512 = 4.6 %.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from watersmeet.kernels.hyperloglog import PLACE_BITS, RANK_BITS

REGISTERS = 1 << PLACE_BITS

Registers = npt.NDArray[np.uint8]


def merged(sketches: Registers) -> Registers:
    """The sketch of all that the rows have seen."""
    return sketches.max(axis=0) if len(sketches) else np.zeros(REGISTERS, np.uint8)


def estimate(sketch: Registers) -> float:
    """Distinct keys seen; exactly 0 for none, infinite beyond all ranks (some 2³² keys).

    Ertl's estimator (New cardinality estimation algorithms for HyperLogLog sketches, 2017, algorithm 6): one formula
    from the histogram of the registers for few and for many keys, with no tables to correct a bias.
    """
    m = float(REGISTERS)
    counts = np.bincount(sketch, minlength=RANK_BITS + 2).tolist()
    if counts[0] == REGISTERS:
        return 0.0
    z = m * _tau(1 - counts[RANK_BITS + 1] / m)
    for k in range(RANK_BITS, 0, -1):
        z = 0.5 * (z + counts[k])
    z += m * _sigma(counts[0] / m)
    return m * m / (2 * math.log(2) * z) if z else math.inf


def _sigma(x: float) -> float:
    """``x + Σ x^(2^k) 2^(k-1)``, for x < 1: the part of the registers that nothing fell to."""
    total, weight = x, 1.0
    while True:
        x *= x
        before = total
        total += x * weight
        weight *= 2
        if total == before:
            return total


def _tau(x: float) -> float:
    """``(1 − x − Σ (1 − x^(2^-k))² 2^-k) / 3``: the part of the registers that are full."""
    if x in (0.0, 1.0):
        return 0.0
    total, weight = 1 - x, 1.0
    while True:
        x = math.sqrt(x)
        before = total
        weight /= 2
        total -= (1 - x) ** 2 * weight
        if total == before:
            return total / 3
