"""A filter of closed keys: a bit for each of many classes of keys.

Most tuples have open keys. Testing one bit, which is in the processor's cache, saves a lookup in the table of nodes,
which is not. If the bit is set, the key may be closed; if not, it is open.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import closed_keys as kernel
from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.value_lists import ValueLists

#: Bits per closed key: one in so many tuples with an open key is looked up in vain.
BITS = 32


class ClosedKeyFilter:
    """Over the marks of one stream's value lists: built from them when it pays, then kept up to date with `add`."""

    def __init__(self, lists: ValueLists) -> None:
        self.lists = lists
        self.bits: npt.NDArray[np.uint64] | None = None
        self.count = 0

    def add(self, words: Int64s) -> None:
        """Keys with these words are closed, or about to be."""
        if self.bits is None:
            return
        self.count += words.size
        if self.count * BITS // 2 > self.bits.size * 64:
            self.bits = None
        else:
            kernel.set_bits(self.bits, words)

    def reset(self) -> None:
        """Drop the filter, because marks have changed in another way."""
        self.bits = None

    def suspects(self, which: Int64s, keys: Keys) -> Int64s:
        """Positions in `which` of the keys that may be closed."""
        if self.bits is None:
            if self.lists.keys > 16 * which.size:  # making the filter walks all nodes
                return np.arange(which.size)
            words = self.lists.lists.word[self.lists.marked()]
            self.count = words.size
            cells = 1 << max(6, int(words.size * BITS // 64).bit_length())
            self.bits = np.zeros(cells, np.uint64)
            kernel.set_bits(self.bits, words)
        out = np.empty(which.size, np.int64)
        return out[: kernel.suspects(self.bits, which, keys.words, out)]
