"""Several streams on a common key, without intermediate results: nested loops, in an order.

A loop over the window of stream j costs, per combination found so far, the tuples that a probe meets: C_j / b_j, where
b_j is the number of buckets of its index (1: the window is scanned), and lets C_j / max(d, v_j) of them through: keys
are uniform, value sets contain each other, d is the least distinct count of the streams so far. Tuples per second.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from watersmeet.cost.parameters import PER_KEY, SCAN, Order, Parameters, Statistics
from watersmeet.cost.work import Work


@dataclass(frozen=True, slots=True)
class _Loop:
    """One loop: tuples that it runs over, how many of them are in the window, keys, buckets."""

    stored: float
    inside: float
    distinct: float
    buckets: float
    in_memory: bool = False  # tuples of the batch: no stored tuple is looked at

    @classmethod
    def window(cls, s: Statistics, grown: float) -> _Loop:
        """Over a window that holds the tuples of `grown` seconds more than its length."""
        return cls(s.window_tuples + s.rate * grown, s.window_tuples, s.distinct, s.buckets)

    @classmethod
    def arrivals(cls, s: Statistics, tuples: float, *, in_memory: bool) -> _Loop:
        """Over new tuples of a stream, which have no index: either `in_memory`, or found among the stored ones."""
        return cls(tuples, tuples, s.distinct, SCAN, in_memory)


def _nest(loops: Sequence[_Loop], origin: int) -> Work:
    """Lookups, tuples looked at and results of the loops; `origin` is the position of the new tuples.

    A window in the outermost loop is scanned whole. Stored tuples beyond their window are discarded in the loop of the
    new tuples and in the loops inside it.
    """
    first = loops[0]
    combinations, distinct, surplus = first.stored, first.distinct, 1.0
    lookups, probed, scanned = 0.0, 0.0, 0.0 if first.in_memory else first.stored
    for position, loop in enumerate(loops):
        if position:
            keys = max(distinct, loop.distinct)
            met = 0.0 if loop.in_memory else combinations * loop.stored / min(loop.buckets, keys)
            lookups += combinations if loop.buckets > SCAN else 0.0
            if loop.buckets == PER_KEY:
                probed += met
            else:
                scanned += met
            combinations *= loop.stored / keys
            distinct = min(distinct, loop.distinct)
        surplus *= loop.inside / loop.stored if loop.stored else 1.0
        if position >= origin:
            combinations *= surplus
            surplus = 1.0
    return Work(lookups=lookups, probed=probed, scanned=scanned, results=combinations)


def _total(works: Iterable[Work]) -> Work:
    return sum(works, Work())


def without(order: Sequence[int], i: int) -> Order:
    """The order in which an arrival of stream i meets the others."""
    return tuple(j for j in order if j != i)


def one_order(order: Sequence[int]) -> tuple[Order, ...]:
    """A global order as one order for the arrivals of each stream."""
    return tuple(without(order, i) for i in sorted(order))


def from_origin(p: Parameters, i: int, order: Sequence[int]) -> Work:
    """Work of the arrivals of stream i, which meet the windows of `order`, one loop inside the other.

    ``λ_i · ( C_o1 + m_1·C_o2 + m_1·m_2·C_o3 + … )`` tuples looked at per second, ``m_1 = C_o1 / max(v_i, v_o1)``,
    ``m_2 = C_o2 / max(min(v_i, v_o1), v_o2)``, …; over hash indexes each scanned C_oj is C_oj / b_oj.
    """
    grown = p.interval + p.expiration / 2
    loops = [_Loop.arrivals(p.streams[i], 1.0, in_memory=True), *(_Loop.window(p.streams[j], grown) for j in order)]
    return _nest(loops, 0).times(p.streams[i].rate)


def eager(p: Parameters, orders: Sequence[Order]) -> Work:
    """Each new tuple at once, outermost, then the other windows in order: the sum of `from_origin` over all streams.

    With ``one_order(O)`` it is Golab and Özsu's eager multi-way join with the global order O. Expired
    tuples that are not removed yet (`expiration`) are looked at, too: half of those between two removals, on average.
    """
    return lazy(replace(p, interval=0.0), orders)


def lazy(p: Parameters, orders: Sequence[Order]) -> Work:
    """Every τ = `interval` each new tuple as in `eager`.

    A window must then reach back from the oldest new tuple, so that a probe meets λ_j (T_j + τ) tuples.
    """
    return _total(from_origin(p, i, order) for i, order in enumerate(orders))


def general_lazy(p: Parameters, orders: Sequence[Order]) -> Work:
    """Every τ = `interval`, for each origin stream any order of all streams; new tuples need not be outermost.

    ``(1/τ) Σ_i ( S_o1 + S_o1·S_o2 + S_o1·m_2·S_o3 + … )`` with S_j = λ_j (T_j + τ) for a window and λ_i τ for the
    new tuples of the origin; the first term is missing where they are outermost. orders[i] = (i, …) is `lazy`.
    """
    grown = p.interval + p.expiration / 2
    works = []
    for i, order in enumerate(orders):
        new = _Loop.arrivals(p.streams[i], p.streams[i].rate * p.interval, in_memory=order[0] == i)
        loops = [new if j == i else _Loop.window(p.streams[j], grown) for j in order]
        works.append(_nest(loops, order.index(i)).times(1 / p.interval))
    return _total(works)


def naive_multiway(p: Parameters, order: Order) -> Work:
    """One order for all arrivals; the new tuple replaces its own window in it.

    ``Σ_i λ_i ( C_o1 + C_o1·C_o2 + C_o1·m_2·C_o3 + … )`` without the term of the origin, which lets 1 / max(…) through.
    The outer loops run over windows that an arrival of an inner stream has not narrowed yet.
    """
    works = []
    for i, s in enumerate(p.streams):
        new = _Loop.arrivals(s, 1.0, in_memory=True)
        loops = [new if j == i else _Loop.window(p.streams[j], p.expiration / 2) for j in order]
        works.append(_nest(loops, order.index(i)).times(s.rate))
    return _total(works)
