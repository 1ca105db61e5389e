"""Keys in the order of their values: what ranges are compared with.

The order of a single-column key is a 64-bit word (integers, dates, times, floats, short decimals) or a string of bytes
(strings, binary, long decimals). Floats are ordered as Spark orders them: NaN is larger than everything.
"""

from __future__ import annotations

import base64
import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from watersmeet.errors import ColumnError
from watersmeet.model.plain import plain, plain_column
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
            return self.place(-math.inf), self.place(math.nan)
        if pt.is_decimal(kind):
            return 1 - 10**kind.precision, 10**kind.precision - 1
        if pt.is_unsigned_integer(kind):
            return 0, (1 << min(kind.bit_width, 63)) - 1
        return -(1 << (kind.bit_width - 1)), (1 << (kind.bit_width - 1)) - 1

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
        low, high = self.place(pattern.low), self.place(pattern.high)
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

    def inside(self, places: Orders, low: Any, high: Any) -> Bools:
        """Which of these places lie in the interval."""
        if self.words:
            within: Bools = (places >= low) & (places <= high)
            return within
        # one by one: in a comparison with an array NumPy would cut the zeros off the end of `low` and `high`
        return np.fromiter((low <= place < high for place in places), np.bool_, len(places))

    def cut(self, places: Orders, low: Any, high: Any) -> slice:
        """Where the interval stands in sorted places."""
        side: Any = "right" if self.words else "left"
        return slice(_search(places, low, "left"), _search(places, high, side))

    def spell(self, low: Any, high: Any) -> dict[str, Any]:
        """An interval as values: ends that are missing are unbounded."""
        least, most = self.ends
        out: dict[str, Any] = {} if low == least else {"low": self._value(low)}
        return out if high == most else out | {"high" if self.words else "below": self._value(high)}

    def _value(self, place: Any) -> Any:
        """The value at a place of the order, as JSON has it."""
        if pt.is_decimal(self.kind):
            whole = place if self.words else int.from_bytes(_decimal_bytes(place[:16]), "little", signed=True)
            digits = whole + (not self.words and len(place) > 16)  # just after a value is before the next
            return str(Decimal((int(digits < 0), tuple(map(int, str(abs(digits)))), -self.kind.scale)))
        if not self.words:
            text = pt.is_string(self.kind) or pt.is_large_string(self.kind)
            return plain(place.decode(errors="replace") if text else place)
        if pt.is_floating(self.kind):  # neighbours are those of doubles
            return plain(float(_float_order(np.array([place], np.int64)).view(np.float64)[0]))
        none = np.zeros(1, np.int64)
        values = decode(np.array([place], np.int64), np.empty(0, np.uint8), none, none.astype(np.int32), [self.kind])[0]
        return plain_column(values)[0]

    def place(self, value: Any) -> Any:
        """The place of a value."""
        if value is None:
            return None
        place = self.of_keys(encode([pa.array([value], self.kind)]))[0]
        return int(place) if self.words else place


def _float_order(words: Int64s) -> Int64s:
    return np.where(words >= 0, words, words ^ np.iinfo(np.int64).max)


def _decimal_order(data: bytes) -> bytes:
    """Bytes of a 128-bit number, lowest first, as bytes that sort like it."""
    flipped = bytearray(reversed(data))
    flipped[0] ^= 0x80
    return bytes(flipped)


def _decimal_bytes(place: bytes) -> bytes:
    """The inverse."""
    return bytes([place[0] ^ 0x80, *place[1:]])[::-1]


def _search(places: Orders, place: Any, side: Any) -> int:
    boxed = np.empty(1, places.dtype)
    boxed[0] = place
    return int(np.searchsorted(places, boxed, side)[0])


def to_json(place: Any) -> Any:
    """A place in an order, or none, as JSON."""
    if isinstance(place, bytes):
        return {"bytes": base64.b64encode(place).decode()}
    return {"above": True} if place is ABOVE else None if place is None else int(place)


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
        """Forget all intervals but these."""
        self._ends = None
        self.low, self.high, self.time = ([part[i] for i in which] for part in (self.low, self.high, self.time))

    def holds(self, places: Orders) -> npt.NDArray[np.bool_]:
        """Which of these places are closed."""
        out = np.zeros(len(places), np.bool_)
        if not self.low or not len(places):
            return out
        near = np.arange(len(places))
        if self.order.words:  # most lie beyond all of them
            near = np.flatnonzero((places >= self.low[0]) & (places <= self.high[-1]))
            if len(self.low) == 1:
                out[near] = True
                return out
        out[near] = self.which(places[near]) >= 0
        return out

    def which(self, places: Orders) -> Int64s:
        """The interval in which each place lies, -1 for none."""
        if self._ends is None:
            kind = np.int64 if self.order.words else object
            self._ends = np.array(self.low, kind), np.empty(len(self.high), kind)
            self._ends[1][:] = self.high
        low, high = self._ends
        at = np.searchsorted(low, places, side="right") - 1
        ends = high[np.maximum(at, 0)]
        inside = (at >= 0) & ((places <= ends) if self.order.words else np.array(places < ends, np.bool_))
        return np.where(inside, at, -1)
