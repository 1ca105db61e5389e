"""Which keys may be closed: a bit for each of many classes of keys.

Most tuples have keys that nobody has closed. Asking one bit, which is in the processor's cache, spares them a look into
the table of nodes, which is not. A bit that is set says "perhaps"; one that is not says "certainly open".
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import closings as kernel
from watersmeet.state.keys import Int64s, Keys
from watersmeet.state.value_lists import ValueLists

#: Bits per closed key: one tuple in so many with an open key is looked up all the same.
BITS = 32


class ClosedFilter:
    """Over the marks of one stream's value lists: made from them when it pays, and told of every new mark after."""

    def __init__(self, lists: ValueLists) -> None:
        self.lists = lists
        self.bits: npt.NDArray[np.uint64] | None = None
        self.noted = 0

    def note(self, words: Int64s) -> None:
        """Keys with these words are closed, or about to be."""
        if self.bits is None:
            return
        self.noted += words.size
        if self.noted * BITS // 2 > self.bits.size * 64:
            self.bits = None
        else:
            kernel.note(self.bits, words)

    def reset(self) -> None:
        """Marks have changed in some other way."""
        self.bits = None

    def suspects(self, which: Int64s, keys: Keys) -> Int64s:
        """Of the keys `which` those that may be closed, as places in `which`."""
        if self.bits is None:
            if self.lists.keys > 16 * which.size:  # making the filter walks all nodes
                return np.arange(which.size)
            words = self.lists.lists.word[self.lists.marked()]
            self.noted = words.size
            cells = 1 << max(6, int(words.size * BITS // 64).bit_length())
            self.bits = np.zeros(cells, np.uint64)
            kernel.note(self.bits, words)
        out = np.empty(which.size, np.int64)
        return out[: kernel.suspects(self.bits, which, keys.words, out)]
