"""Keys in the order of their values: what ranges are compared with.

The order of a single-column key is a 64-bit word (integers, dates, times, floats, short decimals) or a string of bytes
(strings, binary, long decimals). Floats are ordered as Spark orders them: NaN is larger than everything.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError
from watersmeet.model.outputs import plain
from watersmeet.model.punctuations import Range
from watersmeet.state.keys import Bytes, Int64s, Keys, decode, encode

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
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
        kind = self.kind
        return not (pt.is_string(kind) or pt.is_binary(kind) or (pt.is_decimal(kind) and kind.precision > 18))

    def of_keys(self, keys: Keys) -> Orders:
        """Places of keys in the order."""
        return self.of_parts(keys.words, keys.data, keys.offsets[:-1], np.diff(keys.offsets))

    def of_parts(self, words: Int64s, data: Bytes, starts: Int64s, lengths: npt.NDArray[Any]) -> Orders:
        if self.words:
            return _float_order(words) if pt.is_floating(self.kind) else words
        whole = data.tobytes()
        out = np.empty(len(starts), object)
        for i, (a, n) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
            out[i] = _decimal_order(whole[a : a + n]) if pt.is_decimal(self.kind) else whole[a : a + n]
        return out

    def interval(self, pattern: Range) -> tuple[Any, Any] | None:
        """The range's ends in the order; None if nothing lies between them."""
        low, high = self._place(pattern.low), self._place(pattern.high)
        if self.words:
            a = LEAST if low is None else low + (not pattern.low_closed)
            b = MOST if high is None else high - (not pattern.high_closed)
            return (a, b) if a <= b else None
        lo = b"" if low is None else low if pattern.low_closed else low + b"\0"
        hi = ABOVE if high is None else high + b"\0" if pattern.high_closed else high
        return (lo, hi) if lo < hi else None

    def spell(self, low: Any, high: Any) -> dict[str, Any]:
        """An interval as values: ends that are missing are unbounded."""
        out: dict[str, Any] = {}
        if self.words:
            out |= {} if low == LEAST else {"low": self._value(low)}
            out |= {} if high == MOST else {"high": self._value(high)}
            return out
        out |= {} if low == b"" else {"low": self._value(low)}
        return out if high is ABOVE else out | {"below": self._value(high)}

    def _value(self, place: Any) -> Any:
        """The value at a place of the order, as JSON has it."""
        if not self.words:
            return plain(place.decode(errors="replace") if pt.is_string(self.kind) else place)
        words = np.array([place], np.int64)
        words = _float_order(words) if pt.is_floating(self.kind) else words  # its own inverse
        none = np.zeros(1, np.int64)
        return plain(decode(words, np.empty(0, np.uint8), none, none.astype(np.int32), [self.kind])[0][0].as_py())

    def _place(self, value: Any) -> Any:
        if value is None:
            return None
        place = self.of_keys(encode([pa.array([value], self.kind)]))[0]
        return int(place) if self.words else place


def _float_order(words: Int64s) -> Int64s:
    return np.where(words >= 0, words, words ^ MOST)


def _decimal_order(data: bytes) -> bytes:
    flipped = bytearray(reversed(data))
    flipped[0] ^= 0x80
    return bytes(flipped)


class Ranges:
    """Disjoint closed intervals of an order, each with the time of its latest punctuation; neighbours are merged."""

    def __init__(self, order: Order) -> None:
        self.order = order
        self.low: list[Any] = []
        self.high: list[Any] = []
        self.time: list[int] = []

    def __len__(self) -> int:
        return len(self.low)

    def add(self, low: Any, high: Any, time: int) -> None:
        """Close an interval (ends as `Order.interval` gives them)."""
        reach = (low - 1, high + 1) if self.order.words else (low, high)
        first = bisect_left(self.high, reach[0])
        last = bisect_right(self.low, reach[1])
        if first < last:
            low, high = min(low, self.low[first]), max(high, self.high[last - 1])
            time = max(time, *self.time[first:last])
        self.low[first:last] = [low]
        self.high[first:last] = [high]
        self.time[first:last] = [time]

    def holds(self, places: Orders) -> npt.NDArray[np.bool_]:
        """Which of these places are closed."""
        if not self.low or not len(places):
            return np.zeros(len(places), np.bool_)
        return self.which(places) >= 0

    def which(self, places: Orders) -> Int64s:
        """The interval in which each place lies, -1 for none."""
        kind = np.int64 if self.order.words else object
        low, high = np.array(self.low, kind), np.empty(len(self.high), kind)
        high[:] = self.high
        at = np.searchsorted(low, places, side="right") - 1
        ends = high[np.maximum(at, 0)]
        inside = (at >= 0) & ((places <= ends) if self.order.words else np.array(places < ends, np.bool_))
        return np.where(inside, at, -1)
