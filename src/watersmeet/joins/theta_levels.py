"""Combinations of several streams without equality: one stream after the other, pruned as soon as a condition fails."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins.general_lazy import IndexProbes, Partial
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.model.linear_bounds import bounds_of, columns_in, conjuncts
from watersmeet.model.predicates import Both, Kept, Node, Predicate
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
        *before, last = found.slots
        ties = [(node, self._streams(node)) for node in self.conditions]
        some = [node for node, tie in ties if tie <= {origin[0], *found.slots} and (last in tie or not before)]
        if not some or not found.rows.size:
            return found

        def take(columns: Sequence[str], kept: Kept) -> list[pa.Array]:
            return [self._column(join, origin, found, column, kept) for column in columns]

        whole = Predicate("", reduce(lambda a, b: Both(a, b, decided=False), some), ())
        try:
            return found.at(whole.holds_among(found.rows.size, take))
        except QueryError:  # an error of rows that another condition would exclude: decided with all streams
            return found

    def _column(
        self, join: RunningMultiway, origin: tuple[int, Int64s], found: Partial, column: str, kept: Kept
    ) -> pa.Array:
        """The values of a column in the combinations at the positions `kept`."""
        i, which = origin
        j = self.owner[column]
        if j == i:
            return join.arrivals[i].rows.column(column).take(pa.array(which[found.rows[kept]]))
        return join.own[j].take(found.slots[j][kept], [column]).column(0).combine_chunks()
