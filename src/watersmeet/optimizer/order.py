"""The order in which an arrival meets the other streams: the best of all, or a heuristic one for many streams."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from watersmeet.cost.multiway import from_origin, one_order, without
from watersmeet.cost.parameters import Order, Parameters, Statistics
from watersmeet.cost.work import Constants

#: Up to this number of streams every order is priced: 720 for six.
EXHAUSTIVE = 6

#: The cost of an order for the arrivals of one stream.
Objective = Callable[[Parameters, int, Order], float]


def looked_at(p: Parameters, i: int, order: Order) -> float:
    """Tuples looked at per second: the cost of the multi-way paper."""
    return from_origin(p, i, order).looked_at


def cpu(constants: Constants) -> Objective:
    """Nanoseconds per second on a machine; lookups count, too: an index is not free."""

    def objective(p: Parameters, i: int, order: Order) -> float:
        return constants.price(from_origin(p, i, order))

    return objective


@dataclass(frozen=True, slots=True)
class OrderPlan:
    """Orders to run, `orders[i]` for the arrivals of stream i, and the second best."""

    orders: tuple[Order, ...]
    cost: float
    order: Order | None  # the one order that all of them follow, if they do
    runner_up: tuple[Order, ...] | None  # None: there is no other
    runner_up_cost: float | None
    exhaustive: bool


def best_order(p: Parameters, objective: Objective = looked_at, *, per_origin: bool = True) -> OrderPlan:
    """The cheapest order; with `per_origin`, an order for each stream's arrivals if that is cheaper still.

    Up to six streams it is the best of all. Beyond, it is the heuristic order, improved by swapping two streams as long
    as that helps. Of orders that cost the same the first in lexicographic order is taken.
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
        return OrderPlan(own, costs.of(own), None, single, costs.of(single), exhaustive)
    second_cost = None if second is None else costs.of(second)
    return OrderPlan(single, costs.of(single), ranked[0][1], second, second_cost, exhaustive)


def cost_of(p: Parameters, orders: Sequence[Order], objective: Objective = looked_at) -> float:
    """The cost of given orders."""
    return _Costs(p, objective).of(orders)


def heuristic(p: Parameters) -> Order:
    """A good order without a search (Golab and Özsu) that leaves little work to the inner loops.

    With equal distinct counts: ascending tuples in a window, or in a bucket of its index. In general the most
    selective pair first (of the two, the stream with fewer tuples per key), then each time the stream that leaves the
    fewest combinations. Indexed windows come innermost.
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
    """Rounded: costs that differ by the order of summation only are equal."""
    return float(f"{cost:.12g}")


class _Costs:
    """Costs under one set of parameters; the cost of an order for an origin is computed once."""

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


# ------------------------------------------------------------ checks of a running order


@dataclass(frozen=True, slots=True)
class OrderCheck:
    """Whether orders may stay: they cost at most `tolerance` more than the best ones."""

    holds: bool
    cost: float
    best: OrderPlan


def still_best(
    orders: Sequence[Order],
    p: Parameters,
    tolerance: float,
    objective: Objective = looked_at,
    *,
    per_origin: bool = True,
) -> OrderCheck:
    """Whether orders hold under new statistics."""
    best = best_order(p, objective, per_origin=per_origin)
    cost = cost_of(p, orders, objective)
    return OrderCheck(cost <= best.cost * (1 + tolerance), cost, best)
