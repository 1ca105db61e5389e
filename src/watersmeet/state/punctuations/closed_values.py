"""Values of a compared column that a stream will not bring any more, in a join without equality.

The punctuation set is that of a stream whose key is the column. The question differs: whether all values of an
interval are closed, not whether one is.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.model.batches import Batch
from watersmeet.model.linear_bounds import Bound, Floats, Intervals
from watersmeet.model.queries import StreamSpec
from watersmeet.state.arrays import Arrays
from watersmeet.state.key_order import Order
from watersmeet.state.keys import Bools, Int64s, encode
from watersmeet.state.punctuations.punctuation_set import PunctuationSet
from watersmeet.state.stream_state import Arrivals
from watersmeet.state.value_lists import ValueLists

#: A whole number of units, up to the rounding of a product; of a decimal also up to that of its units.
_NEAR = 1e-6
_ULPS = 4 * 2.0**-52
#: Ends from here on are not looked at: windows evict such tuples.
_FAR = 2.0**62


class ClosedValues:
    """The values that stream number `i` has closed of its column `compared`."""

    def __init__(self, i: int, spec: StreamSpec, arrays: Arrays | None, *, may_drop: bool) -> None:
        assert spec.compared is not None, "a stream without a compared column closes nothing"
        self.column = spec.compared
        self.kind = spec.schema.field(self.column).type
        keyed = replace(spec, key=(self.column,), compared=None)
        self.set = PunctuationSet(i, keyed, ValueLists(f"{i}.closed", arrays), may_drop=may_drop)

    def admit(self, arrivals: Arrivals, batch: Batch, watermark: int) -> Bools:
        """Add what a batch declares; returns which of its tuples are violations. A NULL is none."""
        keys = encode([batch.rows.column(self.column)])
        valued = keys.valid[arrivals.which]
        out = np.zeros(arrivals.which.size, np.bool_)
        known = Arrivals(arrivals.rows, arrivals.times, keys, arrivals.which[valued])
        out[valued] = self.set.admit(known, batch, watermark)
        return out

    def take_effect(self, watermark: int) -> bool:
        """Let punctuations take effect; returns whether any value is closed that was not before."""
        effect = self.set.keys.take_effect(watermark)
        return bool(effect.intervals)

    @property
    def any(self) -> bool:
        """Whether values are closed by now."""
        return bool(self.set.keys.ranges)

    def time_of(self, row: pa.RecordBatch) -> int | None:
        """When the value of this row was closed."""
        return self.set.keys.time_of(encode([row.column(self.column)]))

    def contains(self, intervals: Intervals, bounds: list[Bound]) -> Bools:
        """For which of these intervals, made of these bounds on the column, all values are closed."""
        ranges, order = self.set.keys.ranges, self.set.keys.order()
        if not ranges or not order.words:
            return np.zeros(intervals.low.size, np.bool_)
        least, most = order.ends
        low = self._ranks(order, intervals.low, intervals.low_open, up=True)
        high = self._ranks(order, intervals.high, intervals.high_open, up=False)
        low = np.where(np.isneginf(intervals.low), least, np.maximum(low, least))
        nan = pt.is_floating(self.kind) and all(bound.nan for bound in bounds)
        if nan:
            high = np.full_like(high, most)
        elif not pt.is_floating(self.kind):
            high = np.where(np.isposinf(intervals.high), most, np.minimum(high, most))
        at = ranges.which(low)
        ends = np.array(ranges.high, np.int64)[np.maximum(at, 0)]
        far = [np.isfinite(end) & (np.abs(end) >= _FAR) for end in (intervals.low, intervals.high)]
        inside: Bools = (at >= 0) & (high <= ends)
        closed: Bools = (inside | (low > high)) & ~(far[0] | far[1])
        return closed

    def _ranks(self, order: Order, values: Floats, is_open: Bools, *, up: bool) -> Int64s:
        """Ranks of the first (`up`) or last values inside of ends."""
        step = is_open.astype(np.int64) * (1 if up else -1)
        if pt.is_floating(self.kind):
            return np.asarray(order.of_keys(encode([pa.array(values)])) + step, np.int64)
        decimal = pt.is_decimal(self.kind)
        units = np.clip(values * 10.0**self.kind.scale if decimal else values, -_FAR, _FAR)
        room = np.maximum(_NEAR, _ULPS * np.abs(units)) if decimal else np.full(units.shape, _NEAR)
        nearest = np.rint(units)
        near = (np.abs(units - nearest) <= room) & (room < 0.5)
        outward = np.ceil(units - room) if up else np.floor(units + room)
        return np.where(near, nearest.astype(np.int64) + step, outward.astype(np.int64))
