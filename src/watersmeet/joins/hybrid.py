"""The hybrid multi-way join: an index on some windows only."""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import QueryError
from watersmeet.joins.one_by_one import Loops, RunningOneByOne
from watersmeet.joins.orders import Order, check_interval, check_most, check_streams, per_origin
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays


@dataclass(frozen=True, slots=True)
class HybridJoin:
    """Two to eight streams, a window each, of which those named in `index` are looked up by key and the others scanned.

    ::

        index on c and d; new b ──► scan A ──► c of its key ──► d of its key: a result

    Emits   what `eager` emits.
    Forgets what `eager` forgets, and as that does.
    Costs   what `eager` costs, each window at its own price; indexed windows go innermost, where most lookups are, and
            keep the `order` among themselves. (Here all windows have an index in memory, and those not named are
            scanned as if they had none: it is the work that is compared.)

    References: Golab and Özsu, Processing sliding window multi-joins in continuous queries over data streams (2003).
    """

    query: JoinQuery
    index: tuple[str, ...] = ()
    order: Order | None = None
    every: int | None = None
    expiration: int | None = None
    max_matches_per_row: int | None = None

    def __post_init__(self) -> None:
        check_streams(self.query)
        per_origin(self.order, len(self.query.streams))
        names = [s.name for s in self.query.streams]
        unknown = [name for name in self.index if name not in names]
        if unknown or isinstance(self.index, str):
            raise QueryError(
                f"`index` is {self.index!r}; it names the streams to be indexed, of {', '.join(names)}.",
                hint=f"for example index=({names[0]!r},).",
            )
        check_interval("every", self.every)
        check_interval("expiration", self.expiration)
        check_most(self.max_matches_per_row)

    def start(self, arrays: Arrays | None = None) -> RunningOneByOne:
        """A join with empty state, whose arrays live where `arrays` puts them."""
        loops = Loops(tuple(s.name in self.index for s in self.query.streams))
        return RunningOneByOne(
            self.query, loops, self.order, self.every, self.expiration, self.max_matches_per_row, arrays
        )
