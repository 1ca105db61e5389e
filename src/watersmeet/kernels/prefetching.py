"""Asking for memory before it is needed.

A state of a million tuples does not fit a cache, and each look at a random tuple or key waits some 100 ns for memory.
Kernels therefore go through their rows in groups: first all places of a group are asked for, then the rows are worked
off, and the waits of a group are one wait.

References: Chen, Ailamaki, Gibbons, Mowry, Improving hash join performance through prefetching (2004).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

#: Rows of a group: enough to hide a wait, few enough for what they ask for to stay in the nearest cache.
GROUP = 32


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Ask for the cache line of array[index]; no effect but on time. The index must be inside the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        view = make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, view, [arguments[1]], wraparound=False)
        byte, word = ir.IntType(8).as_pointer(), ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [byte, word, word, word])
        ask = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        builder.call(ask, [builder.bitcast(place, byte), word(0), word(3), word(1)])  # to read, to keep, data
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
