"""The cost of each operator, by its name in `joins.JOINS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from watersmeet.cost import binary, memory, multiway, window_oblivious
from watersmeet.cost.parameters import KEY_BYTES, PER_KEY, SCAN, Order, Parameters, Statistics
from watersmeet.cost.work import Cost, Work
from watersmeet.errors import QueryError

Model = Callable[[Parameters], Cost]


def nested_loop(p: Parameters) -> Cost:
    """Eq. 1 of Kostowski and Claypool; windows are cleaned with every arrival."""
    work = replace(binary.nested_loops(*_two(p)), checked=2 * sum(s.rate for s in p.streams))
    return _windowed(p, work, by_key=False)


def hash_join(p: Parameters) -> Cost:
    """Eq. 2 of Kostowski and Claypool with one bucket per key; what leaves its window is found without a look."""
    a, b = (replace(s, buckets=PER_KEY) for s in _two(p))
    return _windowed(p, binary.hashed(a, b), by_key=True)


def windowed_hash(p: Parameters) -> Cost:
    """Eq. 2 with `buckets` circular buffers and an invalidation strategy, which leaves stale tuples in each."""
    a, b = _two(p)
    work = replace(binary.hashed(a, b), checked=binary.checked_buckets(a, b, p.invalidation))
    stale = (
        a.buckets * binary.stale_tuples(a, b, p.invalidation),
        b.buckets * binary.stale_tuples(b, a, p.invalidation),
    )
    tuples = tuple(memory.window_state(p, i) + stale[i] for i in (0, 1))
    return _stored(p, work, tuples, by_key=False)


def pwjoin(p: Parameters) -> Cost:
    """A hash join of windows that punctuations have thinned: probes meet what is still stored."""
    _two(p)
    a, b = (replace(s, buckets=PER_KEY) for s in _met(p))
    gone = sum(s.rate * memory.purged_share(p, i) for i, s in enumerate(p.streams))
    work = binary.hashed(a, b)
    work = replace(work, told=_told(p), invalidated=work.invalidated - gone, purged=gone)
    return _stored(p, work, tuple(memory.thinned(p, i, memory.behind(p, i)) for i in (0, 1)))


def naive_multiway(p: Parameters) -> Cost:
    """One order for all: that of the first stream's arrivals."""
    order = _with_origin(_orders(p)[0], 0)
    return _many(p, lambda q: multiway.naive_multiway(q, order))


def eager(p: Parameters) -> Cost:
    """New tuples outermost; indexes as the streams' `buckets` say."""
    return _many(p, lambda q: multiway.eager(q, _orders(q)))


def lazy(p: Parameters) -> Cost:
    """As `eager`, every `interval`, over windows that hold that much more. With indexes on some windows: `hybrid`."""
    return _many(p, lambda q: multiway.lazy(q, _orders(q)))


def general_lazy(p: Parameters) -> Cost:
    """Any order per origin; one that leaves the origin out has the new tuples first."""
    if not p.interval:
        raise QueryError(
            "`interval` is 0; a lazy join is evaluated every so often, and its cost depends on how often.",
            hint="give the seconds between two evaluations, or take `eager`.",
        )
    orders = [_with_origin(order, i) for i, order in enumerate(_orders(p))]
    n = len(p.streams)
    levels = Work(levels=n * (n - 1) / p.interval)
    return _many(p, lambda q: multiway.general_lazy(q, orders) + levels)


def wo_join(p: Parameters) -> Cost:
    """Buffers of Eq. 8 in place of windows, over indexes of one bucket per key."""
    tuples = tuple(window_oblivious.buffer(p, i) for i in range(len(p.streams)))
    held = tuple(replace(s, tuples=t, buckets=PER_KEY) for s, t in zip(p.streams, tuples, strict=True))
    q = replace(p, streams=held)
    return _stored(p, multiway.eager(q, _orders(q)) + _upkeep(p), tuples)


COST_MODELS: dict[str, Model] = {
    "hash": hash_join,
    "nested_loop": nested_loop,
    "windowed_hash": windowed_hash,
    "pjoin": pwjoin,
    "pwjoin": pwjoin,
    "naive_multiway": naive_multiway,
    "eager": eager,
    "lazy": lazy,
    "general_lazy": general_lazy,
    "hybrid": lazy,
    "wo_join": wo_join,
}
#: Models of operators that are not in `joins.JOINS` yet.
AHEAD_OF_THE_JOINS: tuple[str, ...] = ()


def scans(p: Parameters) -> Parameters:
    """The same without any index."""
    return p.indexed([SCAN] * len(p.streams))


def _two(p: Parameters) -> tuple[Statistics, Statistics]:
    if len(p.streams) != 2:
        raise QueryError(f"this model is of two streams; {len(p.streams)} given.", hint='take "eager" for more.')
    a, b = p.streams
    return a, b


def _orders(p: Parameters) -> tuple[Order, ...]:
    return p.orders or multiway.one_order(range(len(p.streams)))


def _with_origin(order: Order, i: int) -> Order:
    return order if i in order else (i, *order)


def _many(p: Parameters, joining: Callable[[Parameters], Work]) -> Cost:
    """Any number of streams over windows that punctuations, if all others bring some, have thinned."""
    n = range(len(p.streams))
    met = _met(p)
    gone = sum(s.rate * memory.purged_share(p, i) for i, s in enumerate(p.streams))
    work = joining(replace(p, streams=met)) + _upkeep(p) + Work(invalidated=-gone, purged=gone, told=_told(p))
    return _stored(p, work, tuple(memory.thinned(p, i, memory.behind(p, i) + p.expiration / 2) for i in n))


def _told(p: Parameters) -> float:
    """Closings in a second."""
    return sum(s.punctuation_rate for s in p.streams)


def _met(p: Parameters) -> tuple[Statistics, ...]:
    """The streams as arrivals meet them: thinned, and with the keys that arrivals can still have."""
    each = enumerate(p.streams)
    return tuple(replace(s, tuples=memory.thinned(p, i, 0.0), distinct=memory.live_keys(p, i)) for i, s in each)


def _upkeep(p: Parameters) -> Work:
    """Every tuple arrives, enters and leaves once."""
    arriving = sum(s.rate for s in p.streams)
    return Work(rows_in=arriving, inserted=arriving, invalidated=arriving)


def _windowed(p: Parameters, work: Work, *, by_key: bool) -> Cost:
    return _stored(p, work, tuple(memory.window_state(p, i) for i in range(len(p.streams))), by_key=by_key)


def _stored(p: Parameters, work: Work, tuples: tuple[float, ...], *, by_key: bool = True) -> Cost:
    """With the bytes that enter the state, and those that are in it; lists `by_key` need some for every key."""
    work = replace(work, bytes=sum(s.rate * s.row_bytes for s in p.streams))
    size = sum(t * s.row_bytes for t, s in zip(tuples, p.streams, strict=True))
    if by_key:
        keys = sum(min(s.distinct, t) + s.remembered for t, s in zip(tuples, p.streams, strict=True))
        size += keys * KEY_BYTES
    return Cost(work, tuples, size)
