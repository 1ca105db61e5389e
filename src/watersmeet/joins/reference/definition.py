"""The oracle: the result by its definition (spec section 2), without any optimisation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL
from watersmeet.model.windows import Interval, RowsWindow, Tumbling, Window


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of a stream: event time in microseconds (None: it has none), key columns, and anything else.

    In row windows `row` breaks ties of times, then the key does.
    """

    ts: int | None
    key: tuple[Any, ...]
    row: Any = None

    @property
    def time(self) -> int:
        assert self.ts is not None, "a tuple without a time is late, and late tuples are not joined"
        return self.ts

    def before(self, other: Tuple) -> bool:
        """Whether this tuple is before the other in the order of their stream."""
        if (self.time, self.row) != (other.time, other.row):
            return (self.time, self.row) < (other.time, other.row)
        return self.key != other.key and _nulls_first(self.key) < _nulls_first(other.key)


def _nulls_first(key: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    return [(value is not None, value) for value in key]


def on_time(batches: Sequence[Sequence[Tuple]], delay: int) -> Iterator[Tuple]:
    """The tuples of a stream, given batch by batch, that are not late."""
    watermark = BEFORE_ALL
    for batch in batches:
        yield from (t for t in batch if t.ts is not None and t.ts >= watermark)
        watermark = watermark_after(watermark, batch, delay)


def watermark_after(watermark: int, batch: Sequence[Tuple], delay: int) -> int:
    """Watermark of a stream after one more batch."""
    return max([watermark, *(t.ts - delay for t in batch if t.ts is not None)])


def same_key(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Spark's equality: NULL equals nothing (but NULL inside a value), NaN equals NaN, minus zero equals zero."""
    return all(x is not None and y is not None and _same(x, y) for x, y in zip(a, b, strict=True))


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(_same(x[name], y[name]) for name in x)
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(_same(v, w) for v, w in zip(x, y, strict=True))
    return bool(x == y) or (x != x and y != y)


def inside(t: Tuple, now: int, stream: Sequence[Tuple], window: Window) -> bool:
    """Whether a tuple of the stream is in its window at `now`."""
    if isinstance(window, Tumbling):
        return t.time // window.length == now // window.length
    if not isinstance(window, RowsWindow):
        return t.time >= now - window.reach
    return sum(u.time <= now for u in successors(t, stream, window)) < window.rows


def successors(t: Tuple, stream: Sequence[Tuple], window: RowsWindow) -> list[Tuple]:
    """The tuples behind t that push it out of its window."""
    return [u for u in stream if t.before(u) and (not window.per_key or same_key(t.key, u.key))]


def window_join(
    streams: Sequence[Sequence[Tuple]], windows: Sequence[Window], *, theta: bool = False
) -> list[tuple[Tuple, ...]]:
    """All combinations with equal keys in which each tuple is in its stream's window at the newest one's time.

    Of two streams with an interval: the pairs with equal keys whose times are that far apart. With `theta` keys are not
    compared.
    """
    results = []
    for first in streams[0]:
        alike = [[t for t in stream if theta or same_key(first.key, t.key)] for stream in streams[1:]]
        for others in product(*alike):
            combination = (first, *others)
            now = max(t.time for t in combination)
            if isinstance(windows[0], Interval):
                (other,) = others
                fits = first.time + windows[0].lower <= other.time <= first.time + windows[0].upper
            else:
                fits = all(inside(t, now, s, w) for t, s, w in zip(combination, streams, windows, strict=True))
            if fits:
                results.append(combination)
    return results


def last_instant(t: Tuple, stream: Sequence[Tuple], window: Window) -> int:
    """The last `now` at which t is in its window, as far as the stream is known."""
    if isinstance(window, Tumbling):
        return (t.time // window.length + 1) * window.length - 1
    if not isinstance(window, RowsWindow):
        return t.time + window.reach
    behind = sorted(u.time for u in successors(t, stream, window))
    return behind[window.rows - 1] - 1 if len(behind) >= window.rows else AFTER_ALL - 1


def may_still_match(t: Tuple, reach: int, watermark_of_others: Sequence[int]) -> bool:
    """Whether a tuple that is yet to come on one of the other streams could stand in a result with t."""
    return t.ts is not None and None not in t.key and any(p <= t.ts + reach for p in watermark_of_others)
