"""The order in which an arrival meets the other streams: found by looking at all, or by a rule where they are many."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, permutations

from watersmeet.cost.multiway import from_origin, one_order, without
from watersmeet.cost.parameters import Order, Parameters, Statistics
from watersmeet.cost.work import Constants

#: Up to so many streams every order is looked at: 720 of six.
EXHAUSTIVE = 6

#: What an order costs the arrivals of one stream.
Objective = Callable[[Parameters, int, Order], float]


def looked_at(p: Parameters, i: int, order: Order) -> float:
    """Tuples looked at per second: the cost of the multi-way paper."""
    return from_origin(p, i, order).looked_at


def cpu(constants: Constants) -> Objective:
    """Nanoseconds per second on a machine; lookups count, too, so that an index is not free."""

    def objective(p: Parameters, i: int, order: Order) -> float:
        return constants.price(from_origin(p, i, order))

    return objective


@dataclass(frozen=True, slots=True)
class Choice:
    """Orders to run, `orders[i]` for the arrivals of stream i, and what came second."""

    orders: tuple[Order, ...]
    cost: float
    order: Order | None  # the one order that all of them follow, if they do
    runner_up: tuple[Order, ...] | None  # None: there is no other
    runner_up_cost: float | None
    exhaustive: bool


def best_order(p: Parameters, objective: Objective = looked_at, *, per_origin: bool = True) -> Choice:
    """The cheapest order; where it is cheaper still, and allowed, an order for each stream's arrivals by itself.

    Up to six streams it is the best there is. Beyond, it is the heuristic's, with two streams swapped as long as that
    helps. Of orders that cost the same the first in lexicographic order is taken.
    """
    costs = _Costs(p, objective)
    n = len(p.streams)
    exhaustive = n <= EXHAUSTIVE
    if exhaustive:
        ranked = sorted((_rounded(costs.of_order(order)), order) for order in permutations(range(n)))
    else:
        found = _improve(heuristic(p), costs.of_order)
        ranked = [(_rounded(costs.of_order(found)), found)]
        ranked += sorted((_rounded(costs.of_order(order)), order) for order in _swaps(found))
    single = one_order(ranked[0][1])
    others = (one_order(order) for _, order in ranked)
    second = next((orders for orders in others if orders != single), None)
    own = tuple(_best_for(costs, i, exhaustive) for i in range(n)) if per_origin else single
    if _rounded(costs.of(own)) < _rounded(costs.of(single)):
        return Choice(own, costs.of(own), None, single, costs.of(single), exhaustive)
    second_cost = None if second is None else costs.of(second)
    return Choice(single, costs.of(single), ranked[0][1], second, second_cost, exhaustive)


def cost_of(p: Parameters, orders: Sequence[Order], objective: Objective = looked_at) -> float:
    """What orders cost that are given."""
    return _Costs(p, objective).of(orders)


def heuristic(p: Parameters) -> Order:
    """A good order without a search (Golab and Özsu): little work is left for the inner loops.

    With equal distinct counts: ascending tuples in a window, or in a bucket of its index. In general the most
    selective pair first (of the two, the stream with fewer tuples per key), then whichever stream leaves the fewest
    combinations. Indexed windows come innermost.
    """
    streams = p.streams
    if len({s.distinct for s in streams}) == 1:
        return tuple(sorted(range(len(streams)), key=lambda i: (streams[i].indexed, _bucket(streams[i]), i)))

    def pair_size(pair: tuple[int, int]) -> tuple[int, float, tuple[int, int]]:
        a, b = (streams[i] for i in pair)
        indexed = int(a.indexed) + int(b.indexed)
        return indexed, a.window_tuples * b.window_tuples / max(a.distinct, b.distinct), pair

    first = min(combinations(range(len(streams)), 2), key=pair_size)
    head = sorted(first, key=lambda i: (streams[i].indexed, _per_key(streams[i]), -streams[i].distinct, i))
    return (*head, *_greedy(p, min(streams[i].distinct for i in first), range(len(streams)), head))


def heuristic_from(p: Parameters, i: int) -> Order:
    """The same for the arrivals of stream i: the most selective window first."""
    return _greedy(p, p.streams[i].distinct, range(len(p.streams)), [i])


def _greedy(p: Parameters, distinct: float, streams: Iterable[int], taken: Sequence[int]) -> Order:
    """The streams that are not taken, each time the one that leaves the fewest combinations."""
    rest, order = [j for j in streams if j not in taken], []
    while rest:
        least = distinct

        def growth(j: int, least: float = least) -> tuple[bool, float, int]:
            s = p.streams[j]
            return s.indexed, s.window_tuples / max(least, s.distinct), j

        chosen = min(rest, key=growth)
        rest.remove(chosen)
        order.append(chosen)
        distinct = min(distinct, p.streams[chosen].distinct)
    return tuple(order)


def _bucket(s: Statistics) -> float:
    return s.window_tuples / min(s.buckets, s.distinct)


def _per_key(s: Statistics) -> float:
    return s.window_tuples / s.distinct


def _best_for(costs: _Costs, i: int, exhaustive: bool) -> Order:
    """The best order of the others for the arrivals of stream i."""
    if not exhaustive:
        return _improve(heuristic_from(costs.p, i), lambda order: costs.from_origin(i, order))
    others = permutations(without(range(len(costs.p.streams)), i))
    return min((_rounded(costs.from_origin(i, order)), order) for order in others)[1]


def _improve(order: Order, cost: Callable[[Order], float]) -> Order:
    """Swap two streams as long as that is cheaper."""
    while True:
        best = min(((_rounded(cost(other)), other) for other in _swaps(order)), default=(0.0, order))
        if best[0] >= _rounded(cost(order)):
            return order
        order = best[1]


def _swaps(order: Order) -> Iterable[Order]:
    for a, b in combinations(range(len(order)), 2):
        other = list(order)
        other[a], other[b] = other[b], other[a]
        yield tuple(other)


def _rounded(cost: float) -> float:
    """Costs that differ by the order of summing are one."""
    return float(f"{cost:.12g}")


class _Costs:
    """Costs under one set of parameters; what an origin pays for an order is worked out once."""

    def __init__(self, p: Parameters, objective: Objective) -> None:
        self.p = p
        self.objective = objective
        self._known: dict[tuple[int, Order], float] = {}

    def from_origin(self, i: int, order: Order) -> float:
        known = self._known.get((i, order))
        if known is None:
            known = self._known[i, order] = self.objective(self.p, i, order)
        return known

    def of(self, orders: Sequence[Order]) -> float:
        return sum(self.from_origin(i, order) for i, order in enumerate(orders))

    def of_order(self, order: Order) -> float:
        return self.of(one_order(order))


# ------------------------------------------------------------ is it still the best?


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether orders may stay: they cost at most `tolerance` more than the best would."""

    holds: bool
    cost: float
    best: Choice


def still_best(
    orders: Sequence[Order],
    p: Parameters,
    tolerance: float,
    objective: Objective = looked_at,
    *,
    per_origin: bool = True,
) -> Verdict:
    """Whether orders hold under new figures."""
    best = best_order(p, objective, per_origin=per_origin)
    cost = cost_of(p, orders, objective)
    return Verdict(cost <= best.cost * (1 + tolerance), cost, best)


def range_of_validity(
    orders: Sequence[Order],
    p: Parameters,
    i: int,
    tolerance: float,
    objective: Objective = looked_at,
    *,
    per_origin: bool = True,
    within: float = 1000.0,
) -> tuple[float, float]:
    """Rates of stream i, around the present one, for which the orders hold if nothing else changes.

    Looked for up to `within` times the rate, either way, in steps of a half, then to a hundredth. An order that does
    not hold at the present rate has an empty range: (rate, rate).
    """
    rate = p.streams[i].rate

    def holds(factor: float) -> bool:
        s = p.streams[i]
        measured = None if s.tuples is None else s.tuples * factor
        changed = replace(s, rate=rate * factor, tuples=measured)
        streams = (*p.streams[:i], changed, *p.streams[i + 1 :])
        return still_best(orders, replace(p, streams=streams), tolerance, objective, per_origin=per_origin).holds

    if not holds(1.0):
        return rate, rate
    return rate * _edge(holds, 1 / 1.5, 1 / within), rate * _edge(holds, 1.5, within)


def _edge(holds: Callable[[float], bool], step: float, limit: float) -> float:
    """The last factor that holds on the way from 1 to the limit."""
    inside, outside = 1.0, step
    while holds(outside):
        inside = outside
        if inside == limit:
            return inside
        outside = inside * step
        outside = max(outside, limit) if step < 1 else min(outside, limit)
    while abs(outside / inside - 1) > 0.01:
        middle = (inside * outside) ** 0.5
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside
