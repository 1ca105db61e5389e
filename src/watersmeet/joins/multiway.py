"""The common part of running joins of several streams: admission, the horizon, eviction, the durable form.

A join of n streams keeps n states and nothing between them. A combination is a result iff its newest tuple is not newer
than the least limit of its tuples; so time and row windows mix, and the order of the streams may change between two
batches. The axis says where a tuple stands: at its event time or, in WO-Join, at the rank of its key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from watersmeet.errors import StateMismatchError
from watersmeet.joins.axis import Axis, EventTime
from watersmeet.joins.base import RunningJoin, punctuations
from watersmeet.joins.closed_partners import ClosedPartners
from watersmeet.joins.multiway_options import Order, per_origin
from watersmeet.joins.multiway_punctuations import MultiwayPunctuations
from watersmeet.kernels import value_lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.punctuations import Pattern
from watersmeet.model.queries import JoinQuery
from watersmeet.model.windows import format_length
from watersmeet.state.arrays import Arrays
from watersmeet.state.durable.parts import DurablePart, Metadata
from watersmeet.state.key_ordered import BEYOND, LAST
from watersmeet.state.keys import Int64s
from watersmeet.state.pending_tuples import PendingState
from watersmeet.state.row_windows import RowWindowState
from watersmeet.state.segments import pieces
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Combinations that are handed out, or worked on at one level, at a time.
CHUNK = 1 << 18


class Evaluation(Protocol):
    """How the results of a batch are found."""

    @property
    def in_place(self) -> bool:
        """Whether a new tuple takes the position of its stream in an order of all streams."""

    def run(self, join: RunningMultiway) -> Iterator[pa.Table]:
        """Results of the new tuples (`arrivals`) among themselves and with stored tuples; inserts the new ones."""


class RunningMultiway(RunningJoin[ValueLists]):
    """A join of several streams at work. The evaluation finds results; this class stores and evicts tuples.

    `order` may be set between any two steps: only the streams' own tuples are stored, so no result depends on it.
    """

    def __init__(
        self,
        query: JoinQuery,
        evaluation: Evaluation,
        order: Order | None = None,
        every: int | None = None,
        expiration: int | None = None,
        max_matches_per_row: int | None = None,
        arrays: Arrays | None = None,
        axis: Axis | None = None,
    ) -> None:
        self.axis = axis or EventTime()
        self.own = [self.axis.state(i, s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)]
        self.counted = [s for s in self.own if isinstance(s, RowWindowState)]
        self.every = every or 0
        self.expiration = expiration or 0
        self.max_matches = max_matches_per_row
        self.defers = bool(self.counted or every)
        self.decides_on_arrival = not self.counted and isinstance(self.axis, EventTime)
        self.pending = [
            PendingState(s, ValueLists(f"{i}.pending", arrays)) for i, s in enumerate(query.streams) if self.defers
        ]
        super().__init__(query, [*self.own, *self.pending])
        self.evaluation = evaluation
        self.order = order
        self.punctuations = MultiwayPunctuations(
            query, self.own, self.pending, may_drop_closed_keys=self.axis.may_drop_closed_keys(query)
        )
        self.punctuation_sets = self.punctuations.punctuation_sets
        self.partners: ClosedPartners | None = None  # what streams without a key close of compared columns
        if any(s.compared is not None for s in query.streams):
            self.punctuation_sets, self.partners = [], ClosedPartners(query, self.own, arrays)
        self._unkeyed: list[Int64s] = []

    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """For each stream, the order in which its new tuples meet the streams."""
        return self._order

    @order.setter
    def order(self, order: Order | None) -> None:
        self._order = per_origin(order, len(self.query.streams), in_place=self.evaluation.in_place)

    # ------------------------------------------------------------ a batch

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self.punctuations.begin()
        self._unkeyed = []
        self._begin(batches)
        if self.defers:
            self.punctuations.keep_apart()
            self._release()
        for i in range(len(self.own)):
            self._drop_dead(i, self.arrivals[i])
        effects = self.punctuations.take_effect(self.watermarks)
        yield from self.evaluation.run(self)
        self.axis.evaluated(self)
        touched = [np.concatenate([self._expire(i), *self._new_nodes(i)]) for i in range(len(self.own))]
        self.counters.purged += self.punctuations.settle(effects, touched)
        self._purge_useless()
        self.punctuations.trim()
        self.axis.finish(self)
        self.propagated, self.propagated_ranges = self.punctuations.propagated, self.punctuations.propagated_ranges
        self.counters.propagated = sum(rows.num_rows for rows in self.propagated)
        self.counters.propagated_ranges = len(self.propagated_ranges)
        self.counters.closed_keys += sum(p.retention.size for p in self.punctuation_sets)
        n = len(self.own)
        self.counters.stored = sum(self.count(i % n, len(stream)) for i, stream in enumerate(self.streams))
        self.counters.stale = sum(map(self._stale, range(len(self.own)))) if self.expiration else 0

    def _begin(self, batches: Sequence[Batch]) -> None:
        super()._begin(self.axis.usable_punctuations(batches))
        self.axis.begin(self, batches)
        if self.partners is not None:
            self.partners.take_effect(self.watermarks)

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        self._unkeyed.append(np.flatnonzero((arrivals.times >= self.watermarks[i]) & ~arrivals.keys.valid))
        self.axis.admit(self, i, batch, arrivals)
        if self.partners is not None:
            self.partners.admit(self, i, arrivals, batch)
        return arrivals

    def _release(self) -> None:
        """Release the tuples before the horizon, those of earlier batches included; the others stay pending."""
        came, self.arrivals = self.arrivals, []
        pending = []
        for i, (new, state, wait) in enumerate(zip(came, self.own, self.pending, strict=True)):
            which = new.which
            if isinstance(state, RowWindowState) and not state.window.per_key:
                which = np.union1d(which, self._unkeyed[i])  # rows without a key count, too
            ready = new.times[which] < self.horizon
            released = pa.concat_batches([new.rows.take(pa.array(which[ready])), *wait.release(self.horizon)])
            if isinstance(state, RowWindowState):
                self.arrivals.append(state.in_order(released))
            else:
                times, keys = state.read(released)
                self.arrivals.append(Arrivals(released, times, keys, np.arange(times.size)))
            pending.append(Arrivals(new.rows, *wait.read(new.rows), which[~ready]))
            wait.insert(pending[-1], pending[-1].which)
        self.arrivals += pending

    def _drop_dead(self, i: int, arrivals: Arrivals) -> None:
        """Drop new tuples of finished keys, and those that match nothing."""
        if self.partners is not None:
            hopeless = self.partners.hopeless(i, arrivals.rows)[arrivals.which]
            self.counters.dead += self.count(i, np.count_nonzero(hopeless))
            arrivals.which = arrivals.which[~hopeless]
        if not self.punctuations.empty:
            dead = self.punctuations.dead(i, arrivals.which, arrivals.keys)
            self.counters.dead += int(np.count_nonzero(dead))
            arrivals.which = arrivals.which[~dead]

    def limits(self, i: int, which: Int64s) -> Int64s:
        """The last instant at which each of these rows of the batch is in its window."""
        state = self.own[i]
        if isinstance(state, RowWindowState):
            return state.limits(which)
        return self.arrivals[i].times[which] + self.reach(i)

    def table(self, slots: Sequence[Int64s]) -> pa.Table:
        """Combinations of stored tuples, the new ones included, as a table; `slots` has those of each stream."""
        columns: list[pa.ChunkedArray] = []
        for j, mine in enumerate(slots):
            columns += self.own[j].take(mine, self.wanted(j)).columns
        return pa.table(columns, names=self.query.schema.names)

    def wanted(self, j: int) -> list[str]:
        """Columns of a result that come from stream j; key values are those of the first stream's tuple."""
        spec = self.query.streams[j]
        return [*spec.key, *spec.payload] if j == 0 else list(spec.payload)

    def widths(self, slots: Sequence[Int64s]) -> Int64s:
        """Bytes of these combinations in columns of variable width."""
        out = np.zeros(slots[0].size, np.int64)
        for j, mine in enumerate(slots):
            out += self.own[j].widths(mine, self.wanted(j))
        return out

    def fitting_rows(
        self,
        rows: Int64s,
        given: Int64s,
        made: Callable[[Int64s], pa.Table],
        wide: Callable[[Int64s], Int64s],
    ) -> Iterator[pa.Table]:
        """Combinations that are results: the predicate holds, and their new row is within `max_matches_per_row`.

        `rows` has the new row of each combination, `given` the number of results of each row so far. `made` makes a
        table of the combinations at some positions, `wide` gives their bytes in columns of variable width.
        """
        kept = np.arange(rows.size)
        where = self.query.where
        if where is None and self.max_matches is not None:  # most combinations need not be made then
            kept = kept[self._within_bound(rows, given)]
        if not kept.size:
            return
        for some in pieces(wide(kept)) if self.varies else [slice(0, kept.size)]:
            table = made(kept[some])
            if where is not None:
                holds = np.flatnonzero(where.holds(table.combine_chunks().to_batches()[0]))
                if self.max_matches is not None:
                    holds = holds[self._within_bound(rows[kept[some]][holds], given)]
                table = table.take(pa.array(holds))
            self.counters.results += table.num_rows
            if table.num_rows:
                yield table

    def _within_bound(self, rows: Int64s, given: Int64s) -> Int64s:
        """Positions of the results to emit: the first of each row, up to the bound; `given` counts them."""
        assert self.max_matches is not None, "there is a bound"
        by_row = np.argsort(rows, kind="stable")
        some, first, counts = np.unique(rows[by_row], return_index=True, return_counts=True)
        rank = np.empty(rows.size, np.int64)
        rank[by_row] = np.arange(rows.size) - np.repeat(first, counts)
        kept = np.flatnonzero(rank + given[rows] < self.max_matches)
        given[some] += counts
        self.counters.suppressed += int(rows.size - kept.size)
        return kept

    # ------------------------------------------------------------ eviction

    @property
    def horizon(self) -> int:
        """Combinations are emitted once their newest tuple is before this; tuples from here on are pending.

        Rows can be counted up to the watermark of their stream. A lazy join goes from one multiple of its interval to
        the next. (every = 10, watermarks 34 and 47: 30.)
        """
        known = min([AFTER_ALL, *(p for p, s in zip(self.watermarks, self.own, strict=True) if s in self.counted)])
        if self.every:
            known = min(known, *self.watermarks)
            if BEFORE_ALL < known < AFTER_ALL:
                known -= known % self.every
        return known

    def bound(self, i: int) -> int:
        """Lower bound of the positions of pending tuples and of tuples to come, in all streams but i."""
        return self.axis.bound(self, i)

    def alive_from(self, i: int) -> int:
        """As for every join; pending tuples (streams from `len(own)` on) are alive from the horizon on."""
        if i >= len(self.own):
            return self.horizon
        return self.bound(i) - self.reach(i)

    def reach(self, i: int) -> int:
        """Largest distance of a tuple of stream i before the last tuple of its combination."""
        return self.axis.reach(self, i)

    def output_watermark(self) -> int:
        return min(self.reached())

    def output_punctuations(self) -> list[Pattern]:
        if self.partners is None:
            return super().output_punctuations()
        return punctuations([], [], None, self.output_watermark())

    def violated_at(self, i: int) -> int | None:
        if self.partners is None:
            return super().violated_at(i)
        return self.partners.time_of(i, self.violations[i].slice(0, 1))

    def reached(self) -> list[int]:
        return self.axis.reached(self)

    def measured(self) -> dict[str, Any]:
        return super().measured() | self.axis.measured()

    def _expire(self, i: int) -> Int64s:
        """Expire tuples of stream i; returns the nodes of closed keys that lose their last tuple."""
        stream, before = self.own[i], self.bound(i)
        if before > LAST:
            return self._expire_all(i, stream)
        if self.expiration and before < AFTER_ALL:
            before -= before % self.expiration
        if isinstance(stream, RowWindowState):
            count, emptied = stream.expire_limits(before)
            self.counters.expired += self.count(i, count)
            return emptied
        before -= self.reach(i)
        if not stream.lists.closed_keys:
            self.counters.expired += self.count(i, stream.expire_before(before))
            return np.empty(0, np.int64)
        count, emptied = stream.lists.expire_ringing(before, stream.segments.left)
        self.counters.expired += count
        return emptied

    def _purge_useless(self) -> None:
        """Purge tuples whose partners to come are closed in all other streams, where these close compared columns."""
        if self.partners is None:
            return
        for i, stream in enumerate(self.own):
            gone = self.partners.useless(i, self.arrivals[i], self.watermarks)
            stream.lists.discard(gone, stream.segments.left)
            self.counters.purged += self.count(i, gone.size)
        closed = self.partners.trim()
        self.counters.closed_keys += closed if self.first_shard else 0

    def _expire_all(self, i: int, stream: StreamState[ValueLists]) -> Int64s:
        """Expire all tuples; returns the nodes of closed keys that lose their last tuple."""
        lists = stream.lists
        nodes = np.unique(lists.lists.node[lists.living()]).astype(np.int64)
        self.counters.expired += self.count(i, stream.expire_before(BEYOND))
        closed: Int64s = nodes[lists.lists.mark[nodes] == kernel.CLOSED]
        return closed

    def _stale(self, i: int) -> int:
        """Stored tuples that have left their window."""
        state, slots = self.own[i], self.own[i].lists.living()
        if isinstance(state, RowWindowState):
            return int(np.count_nonzero(state.limit[slots] < self.bound(i)))
        return int(np.count_nonzero(state.lists.lists.time[slots] < self.alive_from(i)))

    def _new_nodes(self, k: int) -> Iterator[Int64s]:
        """Nodes of stream k of the keys of this batch, if a punctuation may have made them useless.

        Where tuples can be pending, every released tuple may finish its key, whether it is stored or not.
        """
        if self.punctuations.empty:
            return
        for i in range(len(self.own)) if self.defers else [k]:
            keys = self.arrivals[i].keys
            which = np.flatnonzero(keys.valid) if self.defers else self.arrivals[i].which
            nodes = self.own[k].lists.nodes_of(which, keys)
            yield nodes[nodes != kernel.NIL]

    # ------------------------------------------------------------ the durable form

    def _own_parts(self) -> list[DurablePart]:
        order = Metadata("order", lambda: [list(o) for o in self._order], partial(setattr, self, "order"))
        return [*self.counted, *self.axis.parts(), order, *([] if self.partners is None else self.partners.parts)]

    def check_operator(self, stored: dict[str, Any]) -> None:
        self.axis.check_operator(stored)
        was, now = stored.get("options", {}).get("every"), self.every or None
        if was != now:
            raise StateMismatchError(
                f"the state is of a join with `every` = {format_length(was)}, this one has "
                f"{format_length(now)}; which tuples wait in it depends on that.",
                hint="keep `every` as it was, or start from a new checkpoint.",
            )

    def restored(self) -> None:
        for i, stream in enumerate(self.streams):
            if isinstance(stream, RowWindowState):
                stream.expire_limits(self.bound(i))
            else:
                stream.expire_before(self.alive_from(i))
        self.punctuations.restored(self.watermarks)
        if self.partners is not None:
            self.partners.restored(self.watermarks)
