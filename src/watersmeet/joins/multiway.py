"""What running joins of several streams have in common: admission, the horizon, forgetting, the durable form."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError
from watersmeet.joins.agreement import Agreement
from watersmeet.joins.running import RunningJoin, spell_punctuations
from watersmeet.kernels import lists as kernel
from watersmeet.model.batches import AFTER_ALL, Batch
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.closings import Promises
from watersmeet.state.keys import Int64s, encode
from watersmeet.state.log import Delta, Entry
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.value_lists import ValueLists

#: Combinations that are handed out, or worked on at one level, at a time.
CHUNK = 1 << 18
#: Streams that one join takes.
MOST_STREAMS = 8

#: An order of all streams, or for each stream that a new tuple may come from one of the others.
Order = Sequence[int] | Sequence[Sequence[int]]


def check_streams(query: JoinQuery) -> None:
    """Refuse what a join of several streams does not compute."""
    if query.how != "inner":
        raise QueryError(
            f'a multi-way join is an inner join; asked for "{query.how}".',
            hint='use algorithm="pwjoin" for two streams.',
        )
    if len(query.streams) > MOST_STREAMS:
        raise QueryError(
            f"{len(query.streams)} streams given; one join takes at most {MOST_STREAMS}.",
            hint="join some of them first, and the result with the others (`as_stream`).",
        )


def per_origin(order: Order | None, n: int) -> tuple[tuple[int, ...], ...]:
    """For each stream the others, in the order in which a new tuple of it looks for them."""
    given: list[Any] = list(range(n) if order is None else order)
    others = [[j for j in range(n) if j != i] for i in range(n)]
    if all(type(o) is int for o in given) and sorted(given) == list(range(n)):
        return tuple(tuple(j for j in given if j != i) for i in range(n))
    if all(isinstance(o, tuple | list) for o in given) and [sorted(o) for o in given] == others:
        return tuple(map(tuple, given))
    raise QueryError(
        f"`order` is {order!r}; it names each of the {n} streams once, by its number from 0 on, or for each of them "
        "all others.",
        hint=f"for example {tuple(range(n))!r}.",
    )


class RunningMultiway(RunningJoin[ValueLists]):
    """Several streams at work. Subclasses say how a batch is evaluated; what is kept, and when it goes, stands here.

    `order` may be set between any two steps: nothing is kept but the streams' own tuples, so no result depends on it.
    """

    def __init__(self, query: JoinQuery, order: Order | None = None, arrays: Arrays | None = None) -> None:
        super().__init__(query, [StreamState(s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)])
        self.order = order
        self.agreement = Agreement(query, self.streams)

    @property
    def order(self) -> Order:
        """The order in which streams are looked at, for each stream that a new tuple may come from."""
        return self._order

    @order.setter
    def order(self, order: Order | None) -> None:
        self._order = per_origin(order, len(self.query.streams))

    @property
    def promises(self) -> list[Promises]:
        return self.agreement.promises

    # ------------------------------------------------------------ a batch

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self.violations = []
        self.agreement.begin()
        self._begin(batches)
        for i, arrivals in enumerate(self.arrivals):
            self._drop_dead(i, arrivals)
        effects = self.agreement.take_effect(self.progress, self.horizon)
        yield from self._evaluate()
        touched = [np.concatenate([self._expire(i), self._new_nodes(i)]) for i in range(len(self.query.streams))]
        self.counters.purged += self.agreement.settle(effects, touched)
        self.agreement.trim()
        self.announced, self.announced_ranges = self.agreement.announced, self.agreement.announced_ranges
        self.counters.announced = sum(rows.num_rows for rows in self.announced)
        self.counters.announced_ranges = len(self.announced_ranges)
        self.counters.stored = sum(map(len, self.streams))

    @abstractmethod
    def _evaluate(self) -> Iterator[pa.Table]:
        """Results of the new tuples (`arrivals`) among themselves and with what is stored; inserts them."""

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        """Set apart what is late, what has no key, and what comes against the stream's own word."""
        arrivals = super()._admit(i, batch)
        broken = self.promises[i].admit(arrivals, batch, self.progress[i])
        self.violations.append(batch.rows.take(pa.array(arrivals.which[broken])))
        self.counters.violations += int(np.count_nonzero(broken))
        arrivals.which = arrivals.which[~broken]
        return arrivals

    def _drop_dead(self, i: int, arrivals: Arrivals) -> None:
        """Tuples of keys that are finished go unread."""
        if not self.agreement.silent:
            dead = self.agreement.dead(i, arrivals.which, arrivals.keys)
            self.counters.purged += int(np.count_nonzero(dead))
            arrivals.which = arrivals.which[~dead]

    def _insert(self, i: int, which: Int64s) -> None:
        self.streams[i].insert(self.arrivals[i], which)
        self.counters.inserted += which.size

    def _table(self, i: int, rows: Int64s, slots: dict[int, Int64s]) -> pa.Table:
        """Combinations of new rows of stream i with the stored tuples `slots[j]` of the others."""
        self.counters.results += rows.size
        columns: dict[tuple[int, str], Any] = {}
        for j, spec in enumerate(self.query.streams):
            wanted = [*spec.key, *spec.payload] if j == 0 else list(spec.payload)
            part = (
                self.arrivals[i].rows.select(wanted).take(pa.array(rows)) if j == i else self._take(j, slots[j], wanted)
            )
            columns |= {(j, name): part.column(name) for name in wanted}
        return pa.table(list(columns.values()), names=self.query.schema.names)

    def _take(self, j: int, slots: Int64s, columns: list[str]) -> pa.Table:
        lists, segments = self.streams[j].lists, self.streams[j].segments
        numbers = lists.segment[slots]
        if (numbers == numbers[0]).all():
            return segments.take(numbers, lists.row[slots], columns)
        grouped = np.argsort(numbers.astype(np.uint16), kind="stable")  # a radix sort, in numpy
        back = np.empty_like(grouped)
        back[grouped] = np.arange(grouped.size)
        return segments.take(numbers[grouped], lists.row[slots[grouped]], columns).take(pa.array(back))

    # ------------------------------------------------------------ forgetting

    @property
    def horizon(self) -> int:
        """Combinations come out once their newest tuple stands before this."""
        return AFTER_ALL

    def alive_from(self, i: int) -> int:
        others = (min(p, self.horizon) for j, p in enumerate(self.progress) if j != i)
        return min(others) - self.query.streams[i].window.reach

    def output_progress(self) -> int:
        return min(*self.progress, self.horizon)

    def _expire(self, i: int) -> Int64s:
        """Drop what has left its window; the closed keys that thereby lost their last tuple."""
        stream = self.streams[i]
        if not stream.lists.closings:
            self.counters.invalidated += stream.expire_before(self.alive_from(i))
            return np.empty(0, np.int64)
        gone, emptied = stream.lists.expire(self.alive_from(i), stream.segments.left, ring=True)
        self.counters.invalidated += int(gone.size)
        return emptied

    def _new_nodes(self, i: int) -> Int64s:
        """Keys under which a tuple of this batch is stored, if any promise may have made it useless."""
        if self.agreement.silent:
            return np.empty(0, np.int64)
        nodes = self.streams[i].lists.lists.node[self.arrivals[i].slots]
        return np.unique(nodes[nodes != kernel.NIL]).astype(np.int64)

    def promised_at(self, i: int) -> int | None:
        row = self.violations[i].slice(0, 1)
        return self.promises[i].time_of(encode([row.column(k) for k in self.query.streams[i].key]))

    def output_punctuations(self) -> list[str]:
        order = self.promises[0].order if self.announced_ranges else None
        return spell_punctuations(self.announced, self.announced_ranges, order, self.output_progress())

    # ------------------------------------------------------------ the durable form

    def notes(self) -> dict[str, Any]:
        shed = [s.shed for s in self.streams]  # rows are to go from the segments with the next batch
        return {
            "promises": [p.notes() for p in self.promises],
            "order": [list(o) for o in self._order],
        } | ({"shed": shed} if any(shed) else {})

    def recall(self, notes: dict[str, Any]) -> None:
        for promises, note in zip(self.promises, notes.get("promises", []), strict=False):
            promises.recall(note)
        for stream, shed in zip(self.streams, notes.get("shed", []), strict=False):
            stream.shed = shed
        if "order" in notes:
            self.order = tuple(map(tuple, notes["order"]))

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        out = []
        for i, promises in enumerate(self.promises):
            known = sum((e.kind, e.stream) == ("closings", i) for e in entries)
            out += [Delta("closings", i, rows, whole) for rows, whole in promises.deltas(known)]
        return out

    def replay(self, delta: Delta) -> None:
        self.promises[delta.stream].replay(delta.rows)

    def restored(self) -> None:
        for i, stream in enumerate(self.streams):
            stream.expire_before(self.alive_from(i))
        self.agreement.restored(self.progress, self.horizon)
