"""A filter of closed keys: a bit for each of many classes of keys.

Most tuples have open keys. Testing one bit, which is in the processor's cache, saves a lookup in the table of nodes,
which is not. If the bit is set, the key may be closed; if not, it is open.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from watersmeet.kernels import closed_keys as kernel
from watersmeet.state.keys import Bools, Int64s, Keys
from watersmeet.state.value_lists import ValueLists

#: Bits per closed key: one in so many tuples with an open key is looked up in vain.
BITS = 32
_NONE: Int64s = np.empty(0, np.int64)
_NO_BITS = np.empty(0, np.uint64)


class ClosedKeyFilter:
    """Over the marks of one stream's value lists: built from them when it pays, then kept up to date with `add`.

    A key that is closed in mid-batch has many rows before that, which are none of its violations. So the bits of new
    punctuations wait for the rows that are later.
    """

    def __init__(self, lists: ValueLists) -> None:
        self.lists = lists
        self.bits: npt.NDArray[np.uint64] | None = None
        self.count = 0
        self.looked_up = 0  # keys that have passed the filter, ever
        self._new_words, self._new_times = _NONE, _NONE  # whose bits are not set yet, by time

    def add(self, words: Int64s, times: Int64s = _NONE) -> None:
        """Keys with these words are closed or, if `times` are given, are pending: closed from those times on."""
        if self.bits is None:
            return
        self.settle()
        self.count += words.size
        if self.count * BITS // 2 > self.bits.size * 64:
            self.reset()
        elif times.size and (times[1:] >= times[:-1]).all():
            self._new_words, self._new_times = words, times
        else:
            kernel.set_bits(self.bits, words)

    def settle(self) -> None:
        """Pending keys may be closed from now on, whatever the times of rows."""
        if self._new_words.size and self.bits is not None:
            kernel.set_bits(self.bits, self._new_words)
        self._new_words, self._new_times = _NONE, _NONE

    def reset(self) -> None:
        """Drop the filter, because marks have changed in another way."""
        self.bits = None
        self._new_words, self._new_times = _NONE, _NONE

    def marked(self, which: Int64s, keys: Keys, least: int, times: Int64s = _NONE) -> Bools:
        """Which of the keys `which` have at least the mark `least`.

        With `times` of the rows, by which they are ordered, also those that are pending and closed before their row.
        """
        out, bits = np.empty(which.size, np.bool_), self._bits(which.size)
        new = (self._new_words, self._new_times)
        self._new_words, self._new_times = _NONE, _NONE
        self.looked_up += kernel.marked(
            self.lists.lists, bits, *new, which, times, keys.words, keys.data, keys.offsets, np.uint8(least), out
        )
        return out

    def _bits(self, rows: int) -> npt.NDArray[np.uint64]:
        """The filter, made if there is none; empty if that does not pay for so many rows."""
        if self.bits is None:
            if self.lists.keys > 16 * rows:  # making the filter walks all nodes
                return _NO_BITS
            words = self.lists.lists.word[self.lists.marked()]
            self.count = words.size
            cells = 1 << max(6, int(words.size * BITS // 64).bit_length())
            self.bits = np.zeros(cells, np.uint64)
            kernel.set_bits(self.bits, words)
        return self.bits
