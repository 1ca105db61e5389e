"""Rows by group, over Arrow columns: which rows belong together, and aggregates of their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.state.keys import Int64s, encode

#: Sums of no values are NULL.
_SOME = pc.ScalarAggregateOptions(skip_nulls=True, min_count=1)


def whole(column: pa.ChunkedArray | pa.Array) -> pa.Array:
    """A column in one piece."""
    if not isinstance(column, pa.ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


@dataclass(frozen=True, slots=True)
class Groups:
    """`number[i]` is the group of row i, `first[g]` a row of group g."""

    number: Int64s
    first: Int64s

    @classmethod
    def of(cls, columns: Sequence[pa.Array]) -> Groups:
        """Rows with equal values, NULLs being equal to each other."""
        keys = encode(columns)
        if len(columns) == 1 and not keys.data.size and keys.valid.all():
            codes = pa.array(keys.words)
        else:
            keys = encode(columns) if len(columns) > 1 else encode([columns[0], columns[0]])
            buffers = [None, pa.py_buffer(keys.offsets), pa.py_buffer(keys.data)]
            codes = pa.Array.from_buffers(pa.large_binary(), len(keys), buffers)
        encoded = codes.dictionary_encode()
        number = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        first = np.empty(len(encoded.dictionary), np.int64)
        first[number[::-1]] = np.arange(number.size)[::-1]
        return cls(number, first)

    @property
    def count(self) -> int:
        return int(self.first.size)

    @property
    def representatives(self) -> pa.Array:
        return pa.array(self.first)

    def sum(self, values: pa.Array) -> pa.Array:
        return self._by_arrow(values, "sum", _SOME)

    def least(self, values: pa.Array) -> pa.Array:
        return self._by_arrow(values, "min", None) if _plain(values.type) else self._sorted(values, last=False)

    def greatest(self, values: pa.Array) -> pa.Array:
        return self._by_arrow(values, "max", None) if _plain(values.type) else self._sorted(values, last=True)

    def _by_arrow(self, values: pa.Array, function: str, options: pc.FunctionOptions | None) -> pa.Array:
        table = pa.table({"group": self.number, "value": values})
        done = table.group_by("group", use_threads=False).aggregate([("value", function, options)])
        order = np.argsort(done.column("group").to_numpy())
        return whole(done.column(f"value_{function}")).take(pa.array(order)).cast(values.type)

    def _sorted(self, values: pa.Array, *, last: bool) -> pa.Array:
        """The first or last value by Spark's order, in which NaN is the largest; NULL where a group has none."""
        some = np.flatnonzero(np.asarray(values.is_valid()))
        order = some[_order([pa.array(self.number[some]), values.take(pa.array(some))])]
        numbers = self.number[order]
        at = np.full(self.count, -1, np.int64)
        if last:
            at[numbers] = order  # of repeated indices the last assignment counts
        else:
            at[numbers[::-1]] = order[::-1]
        return values.take(pa.array(at, mask=at < 0))

    def extreme(self, columns: Sequence[pa.Array], *, last: bool) -> pa.Array:
        """The row of each group that comes first, or last, by these columns."""
        order = _order([pa.array(self.number), *columns])
        at = np.empty(self.count, np.int64)
        chosen = order if last else order[::-1]
        at[self.number[chosen]] = chosen
        return pa.array(at)

    def concatenate(self, lists: pa.Array) -> pa.Array:
        """The lists of each group as one."""
        order = np.argsort(self.number, kind="stable")
        taken = lists.take(pa.array(order))
        lengths = pc.list_value_length(taken).to_numpy(zero_copy_only=False)
        ends = np.concatenate([[0], np.cumsum(lengths)])
        starts = np.searchsorted(self.number[order], np.arange(self.count + 1))
        return pa.LargeListArray.from_arrays(pa.array(ends[starts], pa.int64()), taken.flatten()).cast(lists.type)

    def unite(self, sets: pa.Array) -> pa.Array:
        """The lists of each group as one without repetitions."""
        both = self.concatenate(sets)
        values, owner = both.flatten(), pc.list_parent_indices(both).to_numpy(zero_copy_only=False)
        codes = values.dictionary_encode()
        width = max(1, len(codes.dictionary))
        pairs = owner * width + codes.indices.to_numpy(zero_copy_only=False)
        kept = np.unique(pairs, return_index=True)[1]
        ends = np.searchsorted(owner[kept], np.arange(self.count + 1))
        return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values.take(pa.array(kept))).cast(sets.type)


def lists_of(values: pa.Array, some: pa.Array) -> pa.Array:
    """One list per row: with the next value where `some` is true, else empty."""
    ends = np.concatenate([[0], np.cumsum(np.asarray(some))])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), values)


def sorted_values(lists: pa.Array, kind: pa.DataType) -> pa.Array:
    """Lists of (at, row, value) as lists of values in the order of (at, row)."""
    entries, owner = lists.flatten(), pc.list_parent_indices(lists)
    at, row, value = (entries.field(i) for i in range(3))
    order = _order([owner, at, row])
    ends = np.concatenate([[0], np.cumsum(pc.list_value_length(lists).to_numpy(zero_copy_only=False))])
    return pa.LargeListArray.from_arrays(pa.array(ends, pa.int64()), value.take(pa.array(order))).cast(kind)


def _order(columns: Sequence[pa.Array]) -> Int64s:
    names = [str(i) for i in range(len(columns))]
    table = pa.table(list(columns), names=names)
    found: Int64s = pc.sort_indices(table, [(n, "ascending") for n in names]).to_numpy().astype(np.int64)
    return found


def _plain(kind: pa.DataType) -> bool:
    """Types whose least value Arrow finds as Spark does: not floats, of which it leaves NaN out."""
    return any(of(kind) for of in (pt.is_integer, pt.is_decimal, pt.is_temporal, pt.is_boolean))
