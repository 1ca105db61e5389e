"""Distances in classes: small ones one by one, large ones by about three in a hundred, so that few counts suffice."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64s = npt.NDArray[np.int64]

#: Distances up to this are counted one by one, larger ones in classes that are 1/32 wide.
_EXACT = 128
_STEPS = 32


def class_of(distances: Int64s) -> Int64s:
    """Distances as classes: themselves up to a bound, then 32 classes for every doubling."""
    large = np.maximum(distances, _EXACT)
    octave = np.floor(np.log2(large / _EXACT)).astype(np.int64)
    octave += (large >> (octave + 1)) >= _EXACT  # where the logarithm was rounded down
    octave -= (large >> octave) < _EXACT
    step = (large - (_EXACT << octave)) * _STEPS // (_EXACT << octave)
    return np.where(distances < _EXACT, distances, _EXACT + octave * _STEPS + step)


def largest_of(number: int) -> int:
    """The largest distance of a class."""
    if number < _EXACT:
        return number
    octave, step = divmod(number - _EXACT, _STEPS)
    base = _EXACT << octave
    return base + ((step + 1) * base - 1) // _STEPS
