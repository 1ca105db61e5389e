"""Group-by over the results of a join: groups are emitted and evicted when they are final."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.joins.algorithm import Operator
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.group_by.aggregates import Fold
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.counters import Counters
from watersmeet.model.grouping import GroupedQuery
from watersmeet.model.punctuations import End, Heartbeat, Pattern
from watersmeet.state.arrays import Arrays
from watersmeet.state.arrow_groups import Groups, whole
from watersmeet.state.durable.parts import DurablePart, Metadata
from watersmeet.state.groups import GroupState
from watersmeet.state.key_order import Order, Ranges
from watersmeet.state.punctuations.neighbours import Mine

#: Names of the operators in the header of a state.
GROUPED_JOIN, GROUPS = "grouped_join", "groups"


class OpenGroups:
    """The groups that are not final yet."""

    def __init__(self, stream: int, query: GroupedQuery, arrays: Arrays | None) -> None:
        self.query = query
        self.fold = Fold(query)
        by = self.fold.by
        on_key = [by[query.group_by.by.index(k)] for k in query.streams[0].key] if query.on_key() else by
        self.state = GroupState(stream, self.fold.schema, tuple(on_key), arrays)

    def absorb(self, partials: Sequence[pa.Table]) -> pa.Table:
        """Merge the batch's partial groups into the state; returns the groups that changed."""
        changed = self.fold.merge(pa.concat_tables(partials)) if partials else self.fold.schema.empty_table()
        if changed.num_rows:
            held, slots = self.state.with_keys(changed)
            if held.num_rows:
                both = pa.concat_tables([changed, held])
                number = Groups.of([whole(both.column(c)) for c in self.fold.by]).number
                again = np.isin(number[changed.num_rows :], number[: changed.num_rows])
                self.state.remove(slots[again])
                changed = self.fold.merge(pa.concat_tables([changed, held.filter(pa.array(again))]))
        self.state.add(changed)
        return changed

    def alive_from(self, watermark: Sequence[int]) -> int:
        """Groups whose bucket ends before this are final."""
        if self.fold.bucket is None:
            return BEFORE_ALL
        i = self.fold.bucket[1]
        if self.query.asof is not None:
            return watermark[i]
        reach = self.query.streams[i].window.reach
        return min(p if j == i else p - reach for j, p in enumerate(watermark))

    def finish(
        self,
        keys: Sequence[pa.RecordBatch],
        ranges: Sequence[tuple[Any, Any]],
        watermark: Sequence[int],
        *,
        ended: bool,
    ) -> Iterator[pa.Table]:
        """Evict and return the groups that are final: by key, by range of keys, by bucket or by the end."""
        state = self.state
        if ended:
            yield state.remove_all()
            return
        if self.query.on_key():
            for rows in keys:
                yield state.remove_keys(rows.columns)
            if ranges:
                first = self.query.streams[0]
                closed = Ranges(Order.of([first.schema.field(k).type for k in first.key]))
                for low, high in ranges:
                    closed.add(low, high, 0)
                yield state.remove_ranges(closed)
        yield state.remove_before(self.alive_from(watermark))

    def step(
        self, partials: Sequence[pa.Table], finished: Iterator[pa.Table], counters: Counters
    ) -> Iterator[pa.Table]:
        """Groups to emit: the changed ones (emit="update") or the final ones."""
        changed = self.absorb(partials)
        final = list(finished)
        out = [changed] if self.query.group_by.emit == "update" else final
        for rows in out:
            if rows.num_rows:
                counters.groups += rows.num_rows
                yield self.fold.read(rows)
        counters.open_groups = len(self.state)


@dataclass(frozen=True, slots=True)
class GroupedJoin:
    """A join whose results go into groups in the same shard.

    ::

        join ──► results ──► merged into open groups ──► out when final
          └──► propagated keys, ranges, watermarks, end ───┘

    Emits   a row for each group: its columns, then its aggregates over the results of the join.
    Evicts  a group at the first of: its join key is propagated; its bucket [s, e] of stream i's time is over, that is
            W_i > e and W_j > e + T_i (W the watermarks); both streams have ended. It is emitted then (emit="final"),
            or whenever a batch changes it (emit="update").
            (a minute's bucket from 12:00 on stream a, Ta = 10 s: at W_a >= 12:01:00 and W_b >= 12:01:10.)

    References: Tucker, Maier, Sheard, Fegaras, Exploiting punctuation semantics in continuous data streams (2003).
    """

    join: Operator
    query: GroupedQuery

    def start(self, arrays: Arrays | None = None) -> RunningGroupedJoin:
        """A join and groups with empty state, whose arrays live where `arrays` puts them."""
        return RunningGroupedJoin(self.query, self.join.start(arrays), arrays)


class RunningGroupedJoin(RunningJoin[Any]):
    """The join at work; the open groups are one more stream after its own."""

    def __init__(self, query: GroupedQuery, join: RunningJoin[Any], arrays: Arrays | None) -> None:
        self.groups = OpenGroups(len(join.streams), query, arrays)
        self.join = join
        super().__init__(query, [*join.streams, self.groups.state])
        self.operator = {"name": GROUPED_JOIN, "options": {}, "join": join.operator}
        self.watermarks = join.watermarks

    @property
    def ended(self) -> bool:
        """Whether the last step was the last one of all streams: the join below stores it."""
        return self.join.ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        self.join.ended = ended

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        join, groups = self.join, self.groups
        partials = [groups.fold.partials(results) for results in join.step(batches) if results.num_rows]
        self.counters, self.late, self.violations = join.counters, join.late, join.violations
        ended = join.output_watermark() >= AFTER_ALL
        finished = groups.finish(join.propagated, join.propagated_ranges, join.reached(), ended=ended)
        yield from groups.step(partials, finished, self.counters)
        self.arrivals = [*join.arrivals, groups.state.arrivals]

    def alive_from(self, i: int) -> int:
        return self.join.alive_from(i) if i < len(self.join.streams) else self.groups.alive_from(self.reached())

    def output_watermark(self) -> int:
        return self.join.output_watermark()

    def reached(self) -> list[int]:
        return self.join.reached()

    def output_punctuations(self) -> list[Pattern]:
        """Those of the join but for heartbeats: finished keys are finished groups, but groups have no event time."""
        return [p for p in self.join.output_punctuations() if not isinstance(p, Heartbeat)]

    def violated_at(self, i: int) -> int | None:
        return self.join.violated_at(i)

    def owns(self, mine: Mine) -> None:
        self.join.owns(mine)

    def measured(self) -> dict[str, Any]:
        return self.join.measured()

    def check_operator(self, stored: dict[str, Any]) -> None:
        self.join.check_operator(stored.get("join", {}))

    def parts(self) -> list[DurablePart]:
        return [*self.join.parts(), self.groups.state.gone]

    def restored(self) -> None:
        self.join.restored()


@dataclass(frozen=True, slots=True)
class Partials(Batch):
    """Partial groups of the results of an upstream join, and the watermarks of its shards: (shard, by stream)."""

    watermarks: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupsOf:
    """Groups by other columns than the join key, of a join with `shards` shards; buckets or the end make them final."""

    query: GroupedQuery
    shards: int

    def start(self, arrays: Arrays | None = None) -> RunningGroups:
        return RunningGroups(self.query, self.shards, arrays)


class RunningGroups(RunningJoin[Any]):
    """The groups at work. A watermark is the least of those of all upstream shards."""

    def __init__(self, query: GroupedQuery, shards: int, arrays: Arrays | None = None) -> None:
        self.groups = OpenGroups(0, query, arrays)
        super().__init__(query, [self.groups.state])
        self.operator = {"name": GROUPS, "options": {"shards": shards}}
        self.shards = shards
        self.upstream_watermarks: dict[int, tuple[int, ...]] = {}

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        (arrivals,) = batches
        assert isinstance(arrivals, Partials), "this operator reads partial groups of a join, not a stream"
        self.counters = Counters(rows_in=arrivals.rows.num_rows)
        self.upstream_watermarks |= dict(arrivals.watermarks)
        if len(self.upstream_watermarks) == self.shards:
            self.watermarks[:] = [min(p) for p in zip(*self.upstream_watermarks.values(), strict=True)]
        finished = self.groups.finish((), (), self.watermarks, ended=self.output_watermark() >= AFTER_ALL)
        partials = [pa.Table.from_batches([arrivals.rows])] if arrivals.rows.num_rows else []
        yield from self.groups.step(partials, finished, self.counters)
        self.arrivals = [self.groups.state.arrivals]

    def alive_from(self, i: int) -> int:
        return self.groups.alive_from(self.watermarks)

    def output_punctuations(self) -> list[Pattern]:
        return [End()] if self.output_watermark() >= AFTER_ALL else []

    def parts(self) -> list[DurablePart]:
        upstream = Metadata("upstream_watermarks", self._upstream_watermarks, self._load_upstream_watermarks)
        return [self.groups.state.gone, upstream]

    def _upstream_watermarks(self) -> list[list[Any]]:
        return [[shard, list(watermarks)] for shard, watermarks in self.upstream_watermarks.items()]

    def _load_upstream_watermarks(self, stored: list[list[Any]]) -> None:
        self.upstream_watermarks = {shard: tuple(watermarks) for shard, watermarks in stored}
