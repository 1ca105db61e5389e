"""Random numbers by number: the n-th draw of a purpose is a function of (seed, purpose, n) alone.

So any row of a stream can be made without the rows before it. The function is the finisher of SplitMix64 over an
arithmetic sequence, which is that generator itself.

References: Steele, Lea, Flood, Fast splittable pseudorandom number generators (2014).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST, SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def draw(seed: int, purpose: int, numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """For each number a value, uniform in [0, 1)."""
    words = numbers.astype(np.uint64)
    words *= GOLDEN
    words += np.random.SeedSequence((seed, purpose)).generate_state(1, np.uint64)[0]
    words ^= words >> np.uint64(30)
    words *= FIRST
    words ^= words >> np.uint64(27)
    words *= SECOND
    words ^= words >> np.uint64(31)
    words >>= np.uint64(11)
    return words.astype(np.float64) * 2.0**-53


def below(seed: int, purpose: int, numbers: NDArray[np.int64], bounds: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """For each number a whole one from 0 up to its bound, exclusive."""
    return (draw(seed, purpose, numbers) * bounds).astype(np.int64)
