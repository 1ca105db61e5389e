"""The cost of each operator, by its name in `joins.REGISTRY`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from watersmeet.cost import asof, binary, memory, multiway, window_oblivious
from watersmeet.cost.parameters import KEY_BYTES, PER_KEY, SCAN, Order, Parameters, Statistics
from watersmeet.cost.work import Cost, Work
from watersmeet.errors import QueryError

Model = Callable[[Parameters], Cost]


def nested_loop(p: Parameters) -> Cost:
    """Eq. 1 of Kostowski and Claypool; windows are cleaned with every arrival."""
    work = replace(binary.nested_loops(*_two(p)), checked=2 * sum(s.rate for s in p.streams))
    return _windowed(p, work, by_key=False)


def hash_join(p: Parameters) -> Cost:
    """Eq. 2 of Kostowski and Claypool with one bucket per key; expired tuples are found without a search."""
    a, b = (replace(s, buckets=PER_KEY) for s in _two(p))
    return _windowed(p, binary.hashed(a, b), by_key=True)


def windowed_hash(p: Parameters) -> Cost:
    """Eq. 2 with `buckets` circular buffers; the invalidation strategy leaves stale tuples in each."""
    a, b = _two(p)
    work = replace(binary.hashed(a, b), checked=binary.checked_buckets(a, b, p.invalidation))
    stale = (
        a.buckets * binary.stale_tuples(a, b, p.invalidation),
        b.buckets * binary.stale_tuples(b, a, p.invalidation),
    )
    tuples = tuple(memory.window_state(p, i) + stale[i] for i in (0, 1))
    return _stored(p, work, tuples, by_key=False)


def pwjoin(p: Parameters) -> Cost:
    """A hash join over windows thinned by punctuations: probes meet the tuples that are still stored."""
    _two(p)
    a, b = (replace(s, buckets=PER_KEY) for s in _met(p))
    purged = sum(s.rate * memory.purged_share(p, i) for i, s in enumerate(p.streams))
    work = binary.hashed(a, b)
    work = replace(work, punctuations=_punctuations(p), expired=work.expired - purged, purged=purged)
    return _stored(p, work, tuple(memory.thinned(p, i, memory.behind(p, i)) for i in (0, 1)))


def naive_multiway(p: Parameters) -> Cost:
    """One order for all: that of the first stream's arrivals."""
    order = _with_origin(_orders(p)[0], 0)
    return _many(p, lambda q: multiway.naive_multiway(q, order))


def eager(p: Parameters) -> Cost:
    """New tuples outermost; indexes by the `buckets` of the streams."""
    return _many(p, lambda q: multiway.eager(q, _orders(q)))


def lazy(p: Parameters) -> Cost:
    """As `eager`, every `interval`, over windows that hold that much more. With indexes on some windows: `hybrid`."""
    return _many(p, lambda q: multiway.lazy(q, _orders(q)))


def general_lazy(p: Parameters) -> Cost:
    """Any order per origin; an order without the origin has the new tuples first."""
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
    """Buffers of Eq. 8 instead of windows, with indexes of one bucket per key."""
    tuples = tuple(window_oblivious.buffer(p, i) for i in range(len(p.streams)))
    held = tuple(replace(s, tuples=t, buckets=PER_KEY) for s, t in zip(p.streams, tuples, strict=True))
    q = replace(p, streams=held)
    return _stored(p, multiway.eager(q, _orders(q)) + _upkeep(p), tuples)


def theta(p: Parameters) -> Cost:
    """Eq. 1 of Kostowski and Claypool, of several streams the loops of `eager` without indexes.

    The share of pairs that match is taken to be one in as many as there are keys.
    """
    if len(p.streams) > 2:
        return _many(scans(p), lambda q: multiway.eager(q, _orders(q)))
    return _windowed(p, binary.nested_loops(*_two(p)), by_key=False)


def band(p: Parameters) -> Cost:
    """Eq. 2 with sorted indexes: a lookup takes log2 of the window's tuples, and finds the matches."""
    a, b = (replace(s, buckets=PER_KEY) for s in _two(p))
    work = binary.hashed(a, b)
    steps = sum(s.rate * math.log2(o.window_tuples + 2) for s, o in ((a, b), (b, a)))
    merged = (a.window_tuples + b.window_tuples) / (p.interval or 1.0)  # both indexes are merged with every batch
    work = replace(work, lookups=steps, checked=merged)
    return _windowed(p, work, by_key=False)


def asof_join(p: Parameters) -> Cost:
    """One lookup and one answer per left tuple; punctuations, which make both states smaller, are left out."""
    _two(p)
    work = replace(asof.work(p), punctuations=_punctuations(p))
    return _stored(p, work, (asof.waiting(p), asof.versions(p)))


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
    "theta": theta,
    "band": band,
    "asof": asof_join,
}


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
    """Any number of streams; a window is thinned by punctuations if all other streams have some."""
    n = range(len(p.streams))
    met = _met(p)
    purged = sum(s.rate * memory.purged_share(p, i) for i, s in enumerate(p.streams))
    work = (
        joining(replace(p, streams=met))
        + _upkeep(p)
        + Work(expired=-purged, purged=purged, punctuations=_punctuations(p))
    )
    return _stored(p, work, tuple(memory.thinned(p, i, memory.behind(p, i) + p.expiration / 2) for i in n))


def _punctuations(p: Parameters) -> float:
    """Punctuations per second."""
    return sum(s.punctuation_rate for s in p.streams)


def _met(p: Parameters) -> tuple[Statistics, ...]:
    """The streams as arrivals meet them: thinned, and with the keys that arrivals can still have."""
    each = enumerate(p.streams)
    return tuple(replace(s, tuples=memory.thinned(p, i, 0.0), distinct=memory.live_keys(p, i)) for i, s in each)


def _upkeep(p: Parameters) -> Work:
    """Every tuple arrives, enters and leaves once."""
    arriving = sum(s.rate for s in p.streams)
    return Work(rows_in=arriving, inserted=arriving, expired=arriving)


def _windowed(p: Parameters, work: Work, *, by_key: bool) -> Cost:
    return _stored(p, work, tuple(memory.window_state(p, i) for i in range(len(p.streams))), by_key=by_key)


def _stored(p: Parameters, work: Work, tuples: tuple[float, ...], *, by_key: bool = True) -> Cost:
    """The cost with the bytes written to the state and the bytes stored; lists `by_key` add bytes for every key."""
    work = replace(work, bytes=sum(s.rate * s.row_bytes for s in p.streams))
    size = sum(t * s.row_bytes for t, s in zip(tuples, p.streams, strict=True))
    if by_key:
        keys = sum(min(s.distinct, t) + s.set_size for t, s in zip(tuples, p.streams, strict=True))
        size += keys * KEY_BYTES
    return Cost(work, tuples, size)
