"""The theta join: streams without equality, compared block by block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
import pyarrow as pa

from watersmeet.errors import QueryError, WindowError
from watersmeet.joins import pairs
from watersmeet.joins.algorithm import MOST_STREAMS, Algorithm, Traits
from watersmeet.joins.base import RunningJoin, punctuations
from watersmeet.joins.closed_partners import ClosedPartners
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.theta_levels import Levels
from watersmeet.model.batches import Batch
from watersmeet.model.punctuations import Pattern
from watersmeet.model.queries import THETA_HOW, JoinQuery
from watersmeet.model.windows import RowsWindow
from watersmeet.state.arrays import Arrays
from watersmeet.state.durable.parts import DurablePart
from watersmeet.state.index import Int32s
from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.stream_state import Arrivals, StreamState
from watersmeet.state.unmatched import Unmatched
from watersmeet.state.value_lists import ValueLists


@dataclass(frozen=True, slots=True)
class ThetaJoin(Algorithm[RunningJoin[ValueLists]]):
    """Two to eight streams, a window each, and any condition between them: ``abs(a.x - b.y) <= 5``, ``a.n % b.m = 0``.

    ::

        a ──► all of window B, in blocks ──► where? ──► insert A       rows of a are divided among the shards,
        b ──► all of window A, in blocks ──► where? ──► insert B       those of b are copied to each

    Emits   (a, b) for which `where` is true and  -Ta <= a.ts - b.ts <= Tb, once, in the batch of the later arrival; of
            a left or anti join a row of a that leaves without having matched.
    Evicts  a once watermark(b) > a.ts + Ta, b once watermark(a) > b.ts + Tb (Ta = 10, watermark(b) = 34: a.ts < 24
            expires); and a as soon as b has closed every value that a could match (``a.x < b.y``, "no more y > 100" of
            b: every a with x >= 100 is purged), of several streams every other one. A row that can match nothing at
            all, as x is NULL, is not stored; of several streams where any closes values. With windows of rows, windows
            alone evict.
    Costs   per second  (ra + rb) (expire + insert) + ra rb (Ta + Tb) scan,  ra, rb the streams' rates.

    References: Kang, Naughton, Viglas, Evaluating window joins over unbounded streams; Kostowski and Claypool,
    Analytical and experimental evaluation of stream-based join, section 2 and equation 1.

    >>> ThetaJoin().describe()
    {'name': 'theta', 'options': {}}
    """

    traits: ClassVar[Traits] = Traits(
        "theta",
        family="nested_loop",
        preference=1,
        streams=MOST_STREAMS,
        how=THETA_HOW,
        windows=("time", "rows", "none"),
        punctuations=True,
        theta=True,
        index="scan",
    )

    def check(self, query: JoinQuery) -> None:
        Algorithm.check(self, query)  # `super()` fails in dataclasses with slots
        counted = [s.name for s in query.streams if isinstance(s.window, RowsWindow)]
        if counted and query.how != "inner":
            raise WindowError(
                f"stream `{counted[0]}` has a window of rows; a join without equality counts rows if it is inner, and "
                f'this one is "{query.how}".',
                hint='give it a duration, window="10 minutes", or take how="inner".',
            )
        closes = next((s for s in query.streams if s.compared is not None), None)
        if closes is not None and counted:
            raise QueryError(
                f"stream `{closes.name}` closes values of `{closes.compared}`, and `{counted[0]}` has a window of "
                "rows; a row that waits to be counted may still match closed values.",
                hint="leave the punctuation out, as windows evict the rows; or give all streams durations.",
            )

    def _start(self, query: JoinQuery, arrays: Arrays | None) -> RunningJoin[ValueLists]:
        if not _by_levels(query):
            return RunningTheta(query, Scan(), arrays)
        levels = Levels(query)
        return RunningMultiway(query, levels, levels.orders, arrays=arrays)


def _by_levels(query: JoinQuery) -> bool:
    """Whether combinations are made one stream after the other."""
    return len(query.streams) > 2 or any(isinstance(s.window, RowsWindow) for s in query.streams)


class Search(Protocol):
    """How the stored tuples are found that a new row may match."""

    def pairs(self, join: RunningTheta, i: int) -> Iterator[Int32s]:
        """New rows of stream i with stored tuples of the other: row, slot, segment, row there; grouped by segment.

        All pairs for which the predicate is true and the windows fit are among them, and others with the windows.
        """

    def insert(self, join: RunningTheta, i: int, which: Int64s) -> None:
        """Store these new rows of stream i."""

    def restored(self) -> None:
        """Tuples were stored, or left, without this search."""


class Scan(Search):
    """Looks at all tuples of the window."""

    def pairs(self, join: RunningTheta, i: int) -> Iterator[Int32s]:
        return pairs.probe(join, i)

    def insert(self, join: RunningTheta, i: int, which: Int64s) -> None:
        join.streams[i].insert(join.arrivals[i], which)

    def restored(self) -> None:
        return


class RunningTheta(RunningJoin[ValueLists]):
    """The join of two streams at work, with windows of time."""

    decides_on_arrival = True

    def __init__(self, query: JoinQuery, search: Search, arrays: Arrays | None = None) -> None:
        super().__init__(query, [StreamState(s, ValueLists(str(i), arrays)) for i, s in enumerate(query.streams)])
        self.search = search
        self.unmatched = Unmatched(query, self.streams)
        self.partners = ClosedPartners(query, self.streams, arrays)

    # ------------------------------------------------------------ a batch

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        self._begin(batches)
        self.unmatched.begin(self.arrivals)
        build, other = (0, 1) if len(self.arrivals[0].which) <= len(self.arrivals[1].which) else (1, 0)
        self.partners.take_effect(self.watermarks)
        yield from self._probe(build)
        self._store(build, np.ones(self.arrivals[build].which.size, np.bool_))
        yield from self._probe(other)
        rest = self.arrivals[other]
        self._store(other, rest.times[rest.which] >= self.alive_from(other))
        if self.unmatched.semi:
            self._evict(0, found := self.unmatched.take_semi(0))
            self.counters.matched += self.count(0, found.size)
        for i in (0, 1):
            self._evict(i, gone := self.partners.useless(i, self.arrivals[i], self.watermarks))
            self.counters.purged += self.count(i, gone.size)
        for i in (0, 1):
            self._expire(i)
        closed = self.partners.trim()
        self.counters.closed_keys = closed if self.first_shard else 0
        for table in self.unmatched.tables():
            self.counters.results += table.num_rows
            yield table

    def _admit(self, i: int, batch: Batch) -> Arrivals:
        arrivals = super()._admit(i, batch)
        self.partners.admit(self, i, arrivals, batch)
        return arrivals

    def _fail(self, i: int, arrivals: Arrivals, which: Int64s) -> None:
        self.unmatched.without_partner(i, arrivals, which)

    def _probe(self, i: int) -> Iterator[pa.Table]:
        for rows, slots, numbers, positions in self.search.pairs(self, i):
            fits = pairs.holds(self, i, rows, numbers, positions)
            if fits is not None:
                rows, slots, numbers, positions = rows[fits], slots[fits], numbers[fits], positions[fits]
            self.unmatched.match_stored(1 - i, slots)
            self.unmatched.match(i, rows)
            if self.query.pairs:
                yield from pairs.results(self, i, rows, numbers, positions)

    def _store(self, i: int, useful: Bools) -> None:
        """Insert the useful tuples that can match anything; the others leave at once."""
        which = self.arrivals[i].which
        hopeless = self.partners.hopeless(i, self.arrivals[i].rows)[which]
        self.counters.dead += self.count(i, np.count_nonzero(hopeless & useful))
        stays = self.unmatched.wanted(i, which) & useful & ~hopeless
        self.search.insert(self, i, which[stays])
        self.unmatched.inserted(i, which[stays])
        self.unmatched.leave_rows(i, which[~stays])
        self.counters.inserted += self.count(i, np.count_nonzero(stays))

    # ------------------------------------------------------------ tuples out

    def _evict(self, i: int, slots: Int64s) -> None:
        self.streams[i].lists.discard(slots, self.streams[i].segments.left)
        self.unmatched.leave(i, slots)

    def _expire(self, i: int) -> None:
        stream = self.streams[i]
        if self.unmatched.tracks(i):
            gone, _ = stream.lists.expire(self.alive_from(i), stream.segments.left)
            self.unmatched.leave(i, gone)
            count = int(gone.size)
        else:
            count = stream.expire_before(self.alive_from(i))
        self.counters.expired += self.count(i, count)
        self.counters.stored += self.count(i, len(stream))

    # ------------------------------------------------------------ what is known of the output

    def output_watermark(self) -> int:
        """No result to come is older than this: neither a pair nor a row that leaves unmatched."""
        stored = [s.lists.oldest_time() for i, s in enumerate(self.streams) if self.query.pads(i)]
        return min([*self.watermarks, *(t for t in stored if t is not None)])

    def output_punctuations(self) -> list[Pattern]:
        return punctuations([], [], None, self.output_watermark())

    def violated_at(self, i: int) -> int | None:
        return self.partners.time_of(i, self.violations[i].slice(0, 1))

    # ------------------------------------------------------------ the durable form

    def _own_parts(self) -> list[DurablePart]:
        return [*self.unmatched.parts, *self.partners.parts]

    def restored(self) -> None:
        """Evict the rows that could match closed values only, without a result."""
        for i, stream in enumerate(self.streams):
            stream.expire_before(self.alive_from(i))
        self.partners.restored(self.watermarks)
        self.search.restored()
        self.unmatched.begin([])
