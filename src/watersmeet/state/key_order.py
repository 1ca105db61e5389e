"""Keys in the order of their values, for ranges. The position of a key in the order is its rank.

The order of a single-column key is a 64-bit word (integers, dates, times, floats, short decimals) or a string of bytes
(strings, binary, long decimals). Floats are ordered as Spark orders them: NaN is larger than everything.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.errors import ColumnError
from watersmeet.model.json_values import plain, plain_column
from watersmeet.model.punctuations import Range
from watersmeet.state.keys import Bools, Bytes, Int64s, Keys, decode, encode, is_word

Orders = npt.NDArray[Any]


class _Above:
    """Larger than every string of bytes."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return other is not ABOVE

    def __le__(self, other: object) -> bool:
        return other is ABOVE

    def __ge__(self, other: object) -> bool:
        return True


ABOVE = _Above()


@dataclass(frozen=True, slots=True)
class Order:
    """How keys of one type are ordered. Intervals are [low, high] over words and [low, high) over bytes."""

    kind: pa.DataType

    @classmethod
    def of(cls, kinds: list[pa.DataType]) -> Order:
        if len(kinds) != 1 or pt.is_nested(kinds[0]):
            raise ColumnError(
                "a range closes an interval of one key column; this join's key is "
                f"{len(kinds)} columns ({', '.join(map(str, kinds))}).",
                hint="close single values, or join on one column of an ordered type.",
            )
        return cls(kinds[0])

    @property
    def words(self) -> bool:
        return is_word(self.kind)

    @property
    def ends(self) -> tuple[Any, Any]:
        """The interval of everything."""
        kind = self.kind
        if not self.words:
            return b"", ABOVE
        if pt.is_boolean(kind):
            return 0, 1
        if pt.is_floating(kind):
            return self.rank(-math.inf), self.rank(math.nan)
        if pt.is_decimal(kind):
            return 1 - 10**kind.precision, 10**kind.precision - 1
        if pt.is_unsigned_integer(kind):
            return 0, (1 << min(kind.bit_width, 63)) - 1
        return -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1

    def of_keys(self, keys: Keys) -> Orders:
        """Ranks of keys."""
        if self.words:
            return self.of_words(keys.words)
        return self.of_parts(keys.words, keys.data, keys.offsets[:-1], np.diff(keys.offsets))

    def of_words(self, words: Int64s) -> Int64s:
        return _float_order(words) if pt.is_floating(self.kind) else words

    def of_parts(self, words: Int64s, data: Bytes, starts: Int64s, lengths: npt.NDArray[Any]) -> Orders:
        if self.words:
            return self.of_words(words)
        whole = data.tobytes()
        out = np.empty(len(starts), object)
        for i, (a, n) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            out[i] = _decimal_order(whole[a : a + n]) if pt.is_decimal(self.kind) else whole[a : a + n]
        return out

    def interval(self, pattern: Range) -> tuple[Any, Any] | None:
        """The ranks of the range's ends; None if the range is empty."""
        low, high = self.rank(pattern.low), self.rank(pattern.high)
        least, most = self.ends
        if self.words:
            a = least if low is None else max(least, low + (not pattern.low_closed))
            b = most if high is None else min(most, high - (not pattern.high_closed))
            return (a, b) if a <= b else None
        lo = least if low is None else low if pattern.low_closed else low + b"\0"
        hi = most if high is None else high + b"\0" if pattern.high_closed else high
        return (lo, hi) if lo < hi else None

    def below(self, value: Any, slack: Any = 0) -> tuple[Any, Any] | None:
        """All before `value`, or before `value` - `slack`; None if nothing is."""
        try:
            end = value - slack if slack else value
            return self.interval(Range(None, end, high_closed=False))
        except (OverflowError, InvalidOperation, pa.ArrowInvalid):
            return None  # before the first value that there is

    def below_each(self, column: pa.Array, slack: Any) -> list[tuple[Any, Any] | None]:
        """The same for every value of a column; none is NULL."""
        least, _ = self.ends
        if self.words and (pt.is_integer(self.kind) or pt.is_timestamp(self.kind) or not slack):
            distance = slack // timedelta(microseconds=1) if isinstance(slack, timedelta) else int(slack)
            ends = [rank - distance - 1 for rank in self.of_keys(encode([column])).tolist()]
            return [(least, end) if end >= least else None for end in ends]
        if not self.words and not slack:
            return [(least, rank) if rank > least else None for rank in self.of_keys(encode([column]))]
        return [self.below(value, slack) for value in column.to_pylist()]

    def ranks(self, column: pa.Array) -> Int64s:
        """Numbers in the order of these values, none of which is NULL; equal values have one number."""
        if self.words:
            return self.of_keys(encode([column]))
        ranks: Int64s = pc.rank(column, tiebreaker="dense").to_numpy(zero_copy_only=False).astype(np.int64)
        return ranks

    def inside(self, ranks: Orders, low: Any, high: Any) -> Bools:
        """Which of these ranks are in the interval."""
        if self.words:
            within: Bools = (ranks >= low) & (ranks <= high)
            return within
        # one by one: in a comparison with an array NumPy would cut the zeros off the end of `low` and `high`
        return np.fromiter((low <= rank < high for rank in ranks), np.bool_, len(ranks))

    def cut(self, ranks: Orders, low: Any, high: Any) -> slice:
        """The slice of sorted ranks that is in the interval."""
        side: Any = "right" if self.words else "left"
        return slice(_search(ranks, low, "left"), _search(ranks, high, side))

    def pattern(self, low: Any, high: Any) -> Range:
        """The range of values that an interval of ranks stands for; of keys without words the high end is open."""
        least, most = self.ends
        ends = None if low == least else self._value(low), None if high == most else self._value(high)
        return Range(*ends, high_closed=self.words)

    def _value(self, rank: Any) -> Any:
        """The value of a rank, as JSON."""
        if pt.is_decimal(self.kind):
            whole = rank if self.words else int.from_bytes(_decimal_bytes(rank[:16]), "little", signed=True)
            digits = whole + (not self.words and len(rank) > 16)  # just after a value is before the next
            return str(Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -self.kind.scale)))
        if not self.words:
            text = pt.is_string(self.kind) or pt.is_large_string(self.kind)
            return plain(rank.decode(errors="replace") if text else rank)
        if pt.is_floating(self.kind):  # neighbours are those of doubles
            return plain(float(_float_order(np.array([rank], np.int64)).view(np.float64)[0]))
        none = np.zeros(1, np.int64)
        values = decode(np.array([rank], np.int64), np.empty(0, np.uint8), none, none.astype(np.int32), [self.kind])[0]
        return plain_column(values)[0]

    def rank(self, value: Any) -> Any:
        """The rank of a value."""
        if value is None:
            return None
        rank = self.of_keys(encode([pa.array([value], self.kind)]))[0]
        return int(rank) if self.words else rank


def _float_order(words: Int64s) -> Int64s:
    return np.where(words >= 0, words, words ^ np.iinfo(np.int64).max)


def _decimal_order(data: bytes) -> bytes:
    """Bytes of a 128-bit number, lowest first, as bytes that sort like it."""
    flipped = bytearray(reversed(data))
    flipped[0] ^= 0x80
    return bytes(flipped)


def _decimal_bytes(rank: bytes) -> bytes:
    """The inverse."""
    return bytes([rank[0] ^ 0x80, *rank[1:]])[::-1]


def _search(ranks: Orders, rank: Any, side: Any) -> int:
    boxed = np.empty(1, ranks.dtype)
    boxed[0] = rank
    return int(np.searchsorted(ranks, boxed, side)[0])


def to_json(rank: Any) -> Any:
    """A rank, or None, as JSON."""
    if isinstance(rank, bytes):
        return {"bytes": base64.b64encode(rank).decode()}
    return {"above": True} if rank is ABOVE else None if rank is None else int(rank)


def from_json(value: Any) -> Any:
    """The inverse."""
    if isinstance(value, dict):
        return ABOVE if "above" in value else base64.b64decode(value["bytes"])
    return value


class Ranges:
    """Disjoint closed intervals of an order, each with the time of its latest punctuation; neighbours are merged."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.low: list[Any] = []
        self.high: list[Any] = []
        self.time: list[int] = []
        self._ends: tuple[Orders, Orders] | None = None  # the same as arrays

    def __len__(self) -> int:
        return len(self.low)

    def replace(self, low: Int64s, high: Int64s, time: Int64s) -> None:
        """Hold these intervals of words instead; they are disjoint and in order."""
        self.low, self.high, self.time = low.tolist(), high.tolist(), time.tolist()
        self._ends = None

    def add(self, low: Any, high: Any, time: int) -> None:
        """Close an interval (ends as `Order.interval` gives them)."""
        reach = (low - 1, high + 1) if self.order.words else (low, high)
        first = bisect_left(self.high, reach[0])
        last = bisect_right(self.low, reach[1])
        if first < last:
            low, high = min(low, self.low[first]), max(high, self.high[last - 1])
            time = max(time, *self.time[first:last])
        self._ends = None
        self.low[first:last] = [low]
        self.high[first:last] = [high]
        self.time[first:last] = [time]

    def gaps(self, low: Any, high: Any) -> list[tuple[Any, Any]]:
        """The parts of an interval that are not closed yet."""
        parts = []
        for i in range(bisect_left(self.high, low), len(self.low)):
            if self.low[i] > high:
                break
            parts.append((low, self.low[i] - 1 if self.order.words else self.low[i]))
            low = self.high[i] + 1 if self.order.words else self.high[i]
        return [(a, b) for a, b in [*parts, (low, high)] if (a <= b if self.order.words else a < b)]

    def keep(self, which: list[int]) -> None:
        """Drop all intervals but these."""
        self._ends = None
        self.low, self.high, self.time = ([part[i] for i in which] for part in (self.low, self.high, self.time))

    def is_beyond(self, ranks: Orders) -> bool:
        """Whether all of these ranks are below or above all intervals, if that is quickly seen."""
        if not self.order.words or not self.low or not len(ranks):
            return not self.low
        return bool(ranks.min() > self.high[-1] or ranks.max() < self.low[0])

    def holds(self, ranks: Orders) -> npt.NDArray[np.bool_]:
        """Which of these ranks are closed."""
        out = np.zeros(len(ranks), np.bool_)
        if not self.low or not len(ranks):
            return out
        near = np.arange(len(ranks))
        if self.order.words:  # most are outside of all intervals
            near = np.flatnonzero((ranks >= self.low[0]) & (ranks <= self.high[-1]))
            if len(self.low) == 1:
                out[near] = True
                return out
        out[near] = self.which(ranks[near]) >= 0
        return out

    def which(self, ranks: Orders) -> Int64s:
        """The interval that contains each rank, -1 for none."""
        if self._ends is None:
            kind = np.int64 if self.order.words else object
            self._ends = np.array(self.low, kind), np.empty(len(self.high), kind)
            self._ends[1][:] = self.high
        low, high = self._ends
        at = np.searchsorted(low, ranks, side="right") - 1
        ends = high[np.maximum(at, 0)]
        inside = (at >= 0) & ((ranks <= ends) if self.order.words else np.array(ranks < ends, np.bool_))
        return np.where(inside, at, -1)
