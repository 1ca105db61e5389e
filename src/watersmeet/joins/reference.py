"""The oracle: the result by its definition (spec section 2), with nothing clever in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from watersmeet.model.batches import BEFORE_ALL


@dataclass(frozen=True, slots=True)
class Tuple:
    """A tuple of a stream: event time in microseconds (None: it has none), key columns, and anything else."""

    ts: int | None
    key: tuple[Any, ...]
    row: Any = None


def on_time(batches: Sequence[Sequence[Tuple]], delay: int) -> Iterator[Tuple]:
    """The tuples of a stream, given batch by batch, that are not late."""
    progress = BEFORE_ALL
    for batch in batches:
        yield from (t for t in batch if t.ts is not None and t.ts >= progress)
        progress = progress_after(progress, batch, delay)


def progress_after(progress: int, batch: Sequence[Tuple], delay: int) -> int:
    """Progress of a stream that has shown one batch more."""
    return max([progress, *(t.ts - delay for t in batch if t.ts is not None)])


def same_key(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Spark's equality: NULL equals nothing (but NULL inside a value), NaN equals NaN, minus zero equals zero."""
    return all(x is not None and y is not None and _same(x, y) for x, y in zip(a, b, strict=True))


def _same(x: Any, y: Any) -> bool:
    if isinstance(x, dict) and isinstance(y, dict):
        return x.keys() == y.keys() and all(_same(x[name], y[name]) for name in x)
    if isinstance(x, list) and isinstance(y, list):
        return len(x) == len(y) and all(_same(v, w) for v, w in zip(x, y, strict=True))
    return bool(x == y) or (x != x and y != y)


def window_join(streams: Sequence[Sequence[Tuple]], reaches: Sequence[int]) -> list[tuple[Tuple, ...]]:
    """All combinations with equal keys in which each tuple is in its stream's window at the newest one's time."""
    results = []
    for combination in product(*streams):
        times = [t.ts for t in combination if t.ts is not None]
        assert len(times) == len(combination), "a tuple without a time is late, and late tuples are not joined"
        if all(same_key(combination[0].key, t.key) for t in combination) and all(
            ts >= max(times) - reach for ts, reach in zip(times, reaches, strict=True)
        ):
            results.append(combination)
    return results


def may_still_match(t: Tuple, reach: int, progress_of_others: Sequence[int]) -> bool:
    """Whether a tuple that is yet to come on every other stream could stand in a result with t."""
    return t.ts is not None and None not in t.key and all(p <= t.ts + reach for p in progress_of_others)
