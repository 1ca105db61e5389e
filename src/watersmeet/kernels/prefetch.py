"""Prefetch: load memory into the cache before it is needed.

A state of a million tuples does not fit a cache, and each access to a random tuple or key waits some 100 ns for memory.
Kernels therefore work in groups of rows: they prefetch all places of a group, then process its rows. The waits of a
group overlap and cost about one wait.

References: Chen, Ailamaki, Gibbons, Mowry, Improving hash join performance through prefetching (2004).
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.arrayobj import make_array

#: Rows of a group: enough to hide a wait, few enough for the nearest cache.
GROUP = 32


@intrinsic
def prefetch(_typing: Any, array: Any, index: Any) -> Any:
    """Prefetch the cache line of array[index]: faster, no other effect. The index must be inside the array."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        view = make_array(kind)(context, builder, arguments[0])
        place = cgutils.get_item_pointer(context, builder, kind, view, [arguments[1]], wraparound=False)
        pointer, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        signature = ir.FunctionType(ir.VoidType(), [pointer, flag, flag, flag])
        instruction = cgutils.get_or_insert_function(builder.module, signature, "llvm.prefetch.p0")
        to_read, to_keep, data = flag(0), flag(3), flag(1)
        builder.call(instruction, [builder.bitcast(place, pointer), to_read, to_keep, data])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate
