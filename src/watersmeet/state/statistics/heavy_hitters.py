"""The keys that most tuples have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from watersmeet.state.keys import Int64s

Weights = npt.NDArray[np.float64]

#: Keys kept. One with more than a 33rd of all tuples is among them.
CAPACITY = 32
#: Tuples looked at in a batch: counting all would mean sorting them all.
SAMPLE = 1024


def drawn(which: Int64s, seed: int) -> Int64s:
    """`SAMPLE` of these tuples, some of them perhaps twice; the same for the same seed."""
    return which[np.random.default_rng(seed).integers(0, which.size, SAMPLE)]


def hottest_rows(words: Int64s, which: Int64s, most: int) -> list[tuple[int, float]]:
    """Of the keys that several of the tuples `which` have the most frequent: a row with each, and its share of them.

    Of more than `SAMPLE` tuples that many are looked at.
    """
    some = drawn(which, int(which.size)) if which.size > SAMPLE else which
    _, first, counts = np.unique(words[some], return_index=True, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:most]
    return [(int(some[first[k]]), float(counts[k] / some.size)) for k in order if counts[k] > 1]


class HotKeys:
    """Counters of Misra and Gries, a batch at a time, over words of keys.

    A key's weight is its number of tuples, less at most `error`, and ``error <= total / (CAPACITY + 1)``. Of a batch
    of more than `SAMPLE` rows that many are drawn, by a generator that begins with the number of tuples so far: the
    same input gives the same counters, and no rhythm of the stream can hide in the drawing. Keeps 32 numbers.
    """

    def __init__(self) -> None:
        self.words = np.empty(0, np.int64)
        self.weights: Weights = np.empty(0)
        self.total = 0.0
        self.error = 0.0
        self._drawn_from = 0

    def add(self, words: Int64s, which: Int64s) -> None:
        """Count the keys of the tuples `which`."""
        if not which.size:
            return
        self._drawn_from += int(which.size)
        each = 1.0
        if which.size > SAMPLE:
            each = which.size / SAMPLE
            which = drawn(which, self._drawn_from)
        found, counts = np.unique(words[which], return_counts=True)
        self._join(found, counts.astype(np.float64) * each, float(which.size * each))

    def merge(self, other: HotKeys) -> None:
        """Count what another has counted."""
        self._join(other.words, other.weights, other.total)
        self.error += other.error

    def fade(self, factor: float) -> None:
        """Let the past count less."""
        self.weights *= factor
        self.total *= factor
        self.error *= factor

    def hottest(self, most: int = CAPACITY) -> list[tuple[int, float]]:
        """Words of keys and their share of all tuples, the largest first; at most `error / total` too small."""
        order = np.lexsort((self.words, -self.weights))[:most]
        return [(int(self.words[k]), float(self.weights[k] / self.total)) for k in order]

    def metadata(self) -> dict[str, Any]:
        return {
            "words": self.words.tolist(),
            "weights": self.weights.tolist(),
            "total": self.total,
            "error": self.error,
            "drawn_from": self._drawn_from,
        }

    @classmethod
    def from_metadata(cls, metadata: dict[str, Any]) -> HotKeys:
        hot = cls()
        hot.words, hot.weights = np.array(metadata["words"], np.int64), np.array(metadata["weights"], np.float64)
        hot.total, hot.error, hot._drawn_from = metadata["total"], metadata["error"], metadata["drawn_from"]
        return hot

    def _join(self, words: Int64s, weights: Weights, total: float) -> None:
        """Add counters to counters; of more than there is room for, the first too many is taken from each."""
        keys, index = np.unique(np.concatenate([self.words, words]), return_inverse=True)
        sums = np.zeros(keys.size)
        np.add.at(sums, index, np.concatenate([self.weights, weights]))
        self.total += total
        if keys.size > CAPACITY:
            surplus = float(np.partition(sums, -CAPACITY - 1)[-CAPACITY - 1])
            keys, sums = keys[sums > surplus], sums[sums > surplus] - surplus
            self.error += surplus
        self.words, self.weights = keys, sums


def merged(several: Sequence[HotKeys]) -> HotKeys:
    """Counters of several shards as one."""
    whole = HotKeys()
    for one in several:
        whole.merge(one)
    return whole
