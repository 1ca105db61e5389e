"""Random numbers by index: the n-th draw for a purpose is a function of (seed, purpose, n) alone.

So any row of a stream can be generated without the rows before it. The function is the finaliser of SplitMix64 over an
arithmetic sequence, which is that generator itself.

References: Steele, Lea, Flood, Fast splittable pseudorandom number generators (2014).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def draw(seed: int, purpose: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """A value for each number, uniform in [0, 1)."""
    bits = numbers.astype(np.uint64)
    bits *= GOLDEN
    bits += np.random.SeedSequence((seed, purpose)).generate_state(1, np.uint64)[0]
    bits ^= bits >> np.uint64(30)
    bits *= FIRST
    bits ^= bits >> np.uint64(27)
    bits *= SECOND
    bits ^= bits >> np.uint64(31)
    bits >>= np.uint64(11)
    return bits.astype(np.float64) * 2.0**-53


def below(seed: int, purpose: int, numbers: NDArray[np.int64], bounds: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """An integer for each number, from 0 up to its bound, exclusive."""
    return (draw(seed, purpose, numbers) * bounds).astype(np.int64)
