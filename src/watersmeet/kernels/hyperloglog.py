"""Sketches of distinct keys, by sub-windows of event time. Pure-Python twin: ``tests/kernels/twins.py``."""

from __future__ import annotations

import numpy as np

from watersmeet.kernels.compile import kernel, part
from watersmeet.kernels.hashing import mix

#: Bits of the mixed word that choose a register, and bits that give the rank. The high half of the word chooses the
#: shard: inside a shard its bits are not random, so they are not used.
PLACE_BITS = 9
RANK_BITS = 23


@part
def raise_register(sketch, register, rest):
    """Raise a register to the rank of `rest`; most ranks are lower, and one test rejects them."""
    known = np.int64(sketch[register])
    if rest & ((np.int64(1) << known) - 1) == 0:
        while rest & (np.int64(1) << known) == 0:
            known += 1
        sketch[register] = known + 1


@kernel
def observe(words, times, which, width, first, rows, registers):
    """Enter the tuples `which`: rows[s] counts those of sub-window first + s, registers[1 + s] sketches their keys.

    registers[0] sketches the keys of all of them, also of sub-windows that are not kept. A register holds the largest
    rank of its keys; a rank is 1 + the number of zeros at the low end.
    """
    begin, end, place = np.int64(0), np.int64(0), np.int64(0)
    for i in which:
        h = mix(words[i])
        register = np.int64(h & np.uint64((1 << PLACE_BITS) - 1))
        rest = np.int64((h >> np.uint64(PLACE_BITS)) & np.uint64((1 << RANK_BITS) - 1)) | np.int64(1 << RANK_BITS)
        raise_register(registers[0], register, rest)
        if times[i] < begin or times[i] >= end:  # neighbours mostly share a sub-window and need no division
            place = times[i] // width
            begin = place * width
            end = begin + width
            place -= first
        if 0 <= place < rows.size:
            rows[place] += 1
            raise_register(registers[1 + place], register, rest)
