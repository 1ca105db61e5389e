"""What running joins of several streams have in common: admission, the horizon, forgetting, the durable form."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import StateMismatchError
from watersmeet.joins.agreement import Agreement
from watersmeet.joins.counting import CountedState
from watersmeet.joins.orders import Order, per_origin
from watersmeet.joins.promising import PromisingJoin
from watersmeet.joins.waiting import WaitingState
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import RowsWindow
from watersmeet.state.arrays import Arrays
from watersmeet.state.keys import Int64s
from watersmeet.state.log import Delta, Entry
from watersmeet.state.segments import of_any_length, pieces
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Combinations that are handed out, or worked on at one level, at a time.
CHUNK = 1 << 18


class RunningMultiway(PromisingJoin):
    """Several streams at work. Subclasses say how a batch is evaluated; what is kept, and when it goes, stands here.

    `order` may be set between any two steps: nothing is kept but the streams' own tuples, so no result depends on it.
    """

    in_place = False  # whether one order of all streams has a new tuple stand where its stream does

    def __init__(
        self,
        query: JoinQuery,
        order: Order | None = None,
        every: int | None = None,
        expiration: int | None = None,
        max_matches_per_row: int | None = None,
        arrays: Arrays | None = None,
    ) -> None:
        self.own: list[StreamState[ValueLists]] = [
            self._state(s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)
        ]
        self.counted = [s for s in self.own if isinstance(s, CountedState)]
        self.every = every or 0
        self.expiration = expiration or 0
        self.max_matches = max_matches_per_row
        self.waits = bool(self.counted or every)
        self.waiting = [
            WaitingState(s, ValueLists(f"{i}.waiting", arrays)) for i, s in enumerate(query.streams) if self.waits
        ]
        super().__init__(query, [*self.own, *self.waiting])
        self.order = order
        self.agreement = Agreement(query, self.own, self.waiting)
        self.promises = self.agreement.promises
        self._unkeyed: list[Int64s] = []

    def _state(self, spec: StreamSpec, lists: ValueLists) -> StreamState[ValueLists]:
        """An empty state of one stream."""
        return (CountedState if isinstance(spec.window, RowsWindow) else StreamState)(spec, lists)

    @property
    def order(self) -> tuple[tuple[int, ...], ...]:
        """The order in which the combinations of new tuples are found, for each stream that these may come from."""
        return self._order

    @order.setter
    def order(self, order: Order | None) -> None:
        self._order = per_origin(order, len(self.query.streams), in_place=self.in_place)

    # ------------------------------------------------------------ a batch

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self.violations = []
        self.agreement.begin()
        self._unkeyed = []
        self._begin(batches)
        if self.waits:
            self.agreement.keep_apart()
            self._release()
        for i in range(len(self.own)):
            self._drop_dead(i, self.arrivals[i])
        effects = self.agreement.take_effect(self.progress)
        yield from self._evaluate()
        touched = [np.concatenate([self._expire(i), *self._new_nodes(i)]) for i in range(len(self.own))]
        self.counters.purged += self.agreement.settle(effects, touched)
        self.agreement.trim()
        self.announced, self.announced_ranges = self.agreement.announced, self.agreement.announced_ranges
        self.counters.announced = sum(rows.num_rows for rows in self.announced)
        self.counters.announced_ranges = len(self.announced_ranges)
        self.counters.closings = sum(p.remembered for p in self.promises)
        self.counters.stored = sum(map(len, self.streams))
        self.counters.stale = sum(map(self._stale, range(len(self.own)))) if self.expiration else 0

    @abstractmethod
    def _evaluate(self) -> Iterator[pa.Table]:
        """Results of the new tuples (`arrivals`) among themselves and with what is stored; inserts them."""

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        self._unkeyed.append(np.flatnonzero((arrivals.times >= self.progress[i]) & ~arrivals.keys.valid))
        return arrivals

    def _release(self) -> None:
        """Let tuples before the horizon take part, those of earlier batches included; the others wait."""
        came, self.arrivals = self.arrivals, []
        waiting = []
        for i, (new, state, wait) in enumerate(zip(came, self.own, self.waiting, strict=True)):
            which = new.which
            if isinstance(state, CountedState) and not state.window.per_key:
                which = np.union1d(which, self._unkeyed[i])  # they count
            ready = new.times[which] < self.horizon
            released = pa.concat_batches([new.rows.take(pa.array(which[ready])), *wait.release(self.horizon)])
            if isinstance(state, CountedState):
                self.arrivals.append(state.in_order(released))
            else:
                times, keys = state.read(released)
                self.arrivals.append(Arrivals(released, times, keys, np.arange(times.size)))
            waiting.append(Arrivals(new.rows, *wait.read(new.rows), which[~ready]))
            wait.insert(waiting[-1], waiting[-1].which)
        self.arrivals += waiting

    def _drop_dead(self, i: int, arrivals: Arrivals) -> None:
        """Tuples of keys that are finished go unread."""
        if not self.agreement.silent:
            dead = self.agreement.dead(i, arrivals.which, arrivals.keys)
            self.counters.dead += int(np.count_nonzero(dead))
            arrivals.which = arrivals.which[~dead]

    def _insert(self, i: int, which: Int64s) -> None:
        self.own[i].insert(self.arrivals[i], which)
        self.counters.inserted += which.size

    def _limits(self, i: int, which: Int64s) -> Int64s:
        """The last instants at which these rows of the batch are in their window."""
        state = self.own[i]
        if isinstance(state, CountedState):
            return state.limits(which)
        return self.arrivals[i].times[which] + self.reach(i)

    def _table(self, slots: Sequence[Int64s]) -> pa.Table:
        """Combinations of stored tuples, the new ones of the batch among them; a slot of every stream each."""
        columns: list[pa.ChunkedArray] = []
        for j, mine in enumerate(slots):
            columns += self.own[j].take(mine, self._wanted(j)).columns
        return pa.table(columns, names=self.query.schema.names)

    def _wanted(self, j: int) -> list[str]:
        """Columns that stream j gives to a result; key values are those of the first stream's tuple."""
        spec = self.query.streams[j]
        return [*spec.key, *spec.payload] if j == 0 else list(spec.payload)

    def _widths(self, slots: Sequence[Int64s]) -> Int64s:
        """Bytes of such combinations in columns of any length."""
        out = np.zeros(slots[0].size, np.int64)
        for j, mine in enumerate(slots):
            out += self.own[j].widths(mine, self._wanted(j))
        return out

    def _fitting_rows(
        self,
        rows: Int64s,
        given: Int64s,
        made: Callable[[Int64s], pa.Table],
        wide: Callable[[Int64s], Int64s],
    ) -> Iterator[pa.Table]:
        """Results among combinations: those for which the predicate is true, and of each new row its share of them.

        `rows` has the new row of each combination, `given` how many results each row has had; `made` makes a table of
        combinations by their places, and `wide` says how many bytes they will take there, in columns of any length.
        """
        kept = np.arange(rows.size)
        where = self.query.where
        if where is None and self.max_matches is not None:  # then most need not be made
            kept = kept[self._within_bound(rows, given)]
        if not kept.size:
            return
        varies = any(of_any_length(column.type) for column in self.query.schema)
        for some in pieces(wide(kept)) if varies else [slice(0, kept.size)]:
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
        """Places of results that come out: the first of each row, as long as it has not had its share (`given`)."""
        assert self.max_matches is not None, "there is a bound"
        by_row = np.argsort(rows, kind="stable")
        some, first, counts = np.unique(rows[by_row], return_index=True, return_counts=True)
        rank = np.empty(rows.size, np.int64)
        rank[by_row] = np.arange(rows.size) - np.repeat(first, counts)
        kept = np.flatnonzero(rank + given[rows] < self.max_matches)
        given[some] += counts
        self.counters.suppressed += int(rows.size - kept.size)
        return kept

    # ------------------------------------------------------------ forgetting

    @property
    def horizon(self) -> int:
        """Combinations come out once their newest tuple stands before this; tuples from here on wait.

        Rows can be counted as far as their stream's progress. A lazy join goes from one multiple of its interval to
        the next. (every = 10, progress 34 and 47: 30.)
        """
        known = min([AFTER_ALL, *(p for p, s in zip(self.progress, self.own, strict=True) if s in self.counted)])
        if self.every:
            known = min(known, *self.progress)
            if BEFORE_ALL < known < AFTER_ALL:
                known -= known % self.every
        return known

    def bound(self, i: int) -> int:
        """No tuple that other streams than i are yet to bring, or that waits, is older than this."""
        return min(min(p, self.horizon) for j, p in enumerate(self.progress) if j != i)

    def alive_from(self, i: int) -> int:
        """As for every join; and tuples that wait have gone when the horizon is past them."""
        if i >= len(self.own):
            return self.horizon
        return self.bound(i) - self.reach(i)

    def reach(self, i: int) -> int:
        """How far before the newest tuple of a combination one of stream i may stand."""
        return self.query.streams[i].window.reach

    def output_progress(self) -> int:
        return min(*self.progress, self.horizon)

    def reached(self) -> list[int]:
        return [min(p, self.horizon) for p in self.progress]

    def _expire(self, i: int) -> Int64s:
        """Drop what has left its window; the closed keys that thereby lost their last tuple."""
        stream, before = self.own[i], self.bound(i)
        if self.expiration and before < AFTER_ALL:
            before -= before % self.expiration
        if isinstance(stream, CountedState):
            count, emptied = stream.expire_limits(before)
            self.counters.invalidated += count
            return emptied
        before -= self.reach(i)
        if not stream.lists.closings:
            self.counters.invalidated += stream.expire_before(before)
            return np.empty(0, np.int64)
        gone, emptied = stream.lists.expire(before, stream.segments.left, ring=True)
        self.counters.invalidated += int(gone.size)
        return emptied

    def _stale(self, i: int) -> int:
        """Stored tuples that have left their window."""
        state, slots = self.own[i], self.own[i].lists.living()
        if isinstance(state, CountedState):
            return int(np.count_nonzero(state.limit[slots] < self.bound(i)))
        return int(np.count_nonzero(state.lists.lists.time[slots] < self.alive_from(i)))

    def _new_nodes(self, k: int) -> Iterator[Int64s]:
        """Nodes of stream k of the keys that took part in this batch, if any promise may have made them useless.

        Where tuples wait, all that wait no longer have changed the standing of their key, stored or not.
        """
        if self.agreement.silent:
            return
        for i in range(len(self.own)) if self.waits else [k]:
            keys = self.arrivals[i].keys
            which = np.flatnonzero(keys.valid) if self.waits else self.arrivals[i].which
            nodes = self.own[k].lists.nodes_of(which, keys)
            yield nodes[nodes != kernel.NIL]

    # ------------------------------------------------------------ the durable form

    def notes(self) -> dict[str, Any]:
        return (
            super().notes()
            | {"order": [list(o) for o in self._order], "counted": [s.count for s in self.counted]}
            | ({"every": self.every} if self.every else {})
        )

    def recall(self, notes: dict[str, Any]) -> None:
        super().recall(notes)
        was, now = notes.get("every"), self.every or None
        if was != now:
            raise StateMismatchError(
                f"the state is of a join with `every` = {was}, this one has {now} (µs); which tuples wait in it "
                "depends on that.",
                hint="keep `every` as it was, or start from a new checkpoint.",
            )
        for state, count in zip(self.counted, notes.get("counted", []), strict=False):
            state.count = count
        if "order" in notes:
            self.order = tuple(map(tuple, notes["order"]))

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        out = super().deltas(entries, rewritten=rewritten)
        for i, state in enumerate(self.own):
            if isinstance(state, CountedState):
                known = sum((e.kind, e.stream) == ("limits", i) for e in entries)
                out += [Delta("limits", i, rows, whole) for rows, whole in state.deltas(known)]
        return out

    def replay(self, delta: Delta) -> None:
        state = self.own[delta.stream]
        if delta.kind == "limits":
            assert isinstance(state, CountedState), "only counted streams write limits"
            state.replay(delta.rows)
        else:
            super().replay(delta)

    def restored(self) -> None:
        for i, stream in enumerate(self.streams):
            if isinstance(stream, CountedState):
                stream.restored()
                stream.expire_limits(self.bound(i))
            else:
                stream.expire_before(self.alive_from(i))
        self.agreement.restored(self.progress)
