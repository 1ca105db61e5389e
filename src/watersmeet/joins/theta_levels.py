"""Combinations of several streams without equality: one stream after the other, pruned as soon as a condition fails."""

from __future__ import annotations

from functools import reduce

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins.general_lazy import IndexProbes, Partial
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.model.linear_bounds import bounds_of, columns_in, conjuncts
from watersmeet.model.predicates import Both, Node, Predicate
from watersmeet.model.queries import JoinQuery
from watersmeet.state.keys import Int64s


class Levels(IndexProbes):
    """New tuples of one stream after the other meet the windows of all others, in blocks.

    Before a further stream is added, combinations go for which the conditions on the streams so far are not true. A
    stream comes next that most conditions tie to those before it; bounds count more than other conditions.
    """

    def __init__(self, query: JoinQuery) -> None:
        self.owner = {column: i for i, s in enumerate(query.streams) for column in s.schema.names}
        self.conditions = [] if query.where is None else list(conjuncts(query.where.root))
        ties = [self._streams(node) for node in self.conditions]
        names = [s.schema.names for s in query.streams]
        ties += [{b.attribute.stream, b.by} for b in bounds_of(query.where, names)]
        self.orders = tuple(self._order(i, len(query.streams), ties) for i in range(len(query.streams)))

    def _streams(self, node: Node) -> set[int]:
        return {self.owner[column] for column in columns_in(node)}

    @staticmethod
    def _order(i: int, n: int, ties: list[set[int]]) -> tuple[int, ...]:
        order = [i]
        while len(order) < n:
            rest = [j for j in range(n) if j not in order]
            order.append(max(rest, key=lambda j: sum(j in tie and tie <= {*order, j} for tie in ties)))
        return tuple(order)

    def _pruned(self, join: RunningMultiway, origin: tuple[int, Int64s], found: Partial) -> Partial:
        i, which = origin
        bound = {i, *found.slots}
        some = [node for node in self.conditions if self._streams(node) <= bound]
        if not some or not found.rows.size:
            return found
        whole = reduce(lambda a, b: Both(a, b, decided=False), some)
        columns = sorted(columns_in(whole))
        values: list[pa.Array] = [pa.array(found.rows)]
        for column in columns:
            j = self.owner[column]
            if j == i:
                values.append(join.arrivals[i].rows.column(column).take(pa.array(which[found.rows])))
            else:
                values.append(join.own[j].take(found.slots[j], [column]).column(0).combine_chunks())
        rows = pa.record_batch(values, names=["watersmeet row", *columns])
        try:
            return found.at(Predicate("", whole, tuple(columns)).holds(rows))
        except QueryError:  # an error of rows that another condition would exclude: decided with all streams
            return found
