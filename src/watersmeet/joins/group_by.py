"""Group-by over the results of a join: groups come out when they are final, and are forgotten then."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from watersmeet.joins.aggregates import Fold
from watersmeet.joins.grouped import Groups, whole
from watersmeet.joins.running import RunningJoin
from watersmeet.model.batches import AFTER_ALL, BEFORE_ALL, Batch
from watersmeet.model.grouping import GroupedQuery
from watersmeet.model.outputs import Counters
from watersmeet.model.queries import JoinQuery
from watersmeet.state.arrays import Arrays
from watersmeet.state.groups import GONE, GroupState
from watersmeet.state.log import Delta, Entry
from watersmeet.state.merging import Mine
from watersmeet.state.order import Order, Ranges
from watersmeet.state.shelf import ReadEntry


class Startable(Protocol):
    """A join as data."""

    @property
    def query(self) -> JoinQuery: ...

    def start(self, arrays: Arrays | None = None) -> RunningJoin[Any]: ...


class OpenGroups:
    """The groups that are not final yet."""

    def __init__(self, query: GroupedQuery, arrays: Arrays | None) -> None:
        self.query = query
        self.fold = Fold(query)
        by = self.fold.by
        on_key = [by[query.group_by.by.index(k)] for k in query.streams[0].key] if query.on_key() else by
        self.state = GroupState(self.fold.schema, tuple(on_key), arrays)

    def absorb(self, partials: Sequence[pa.Table]) -> pa.Table:
        """Take the batch's partial groups into the state; the groups that thereby changed."""
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

    def alive_from(self, progress: Sequence[int]) -> int:
        """Groups whose bucket ends before this are final."""
        if self.fold.bucket is None:
            return BEFORE_ALL
        i = self.fold.bucket[1]
        reach = self.query.streams[i].window.reach
        return min(p if j == i else p - reach for j, p in enumerate(progress))

    def finish(
        self, keys: Sequence[pa.RecordBatch], ranges: Sequence[tuple[Any, Any]], progress: Sequence[int], *, ended: bool
    ) -> Iterator[pa.Table]:
        """Forget the groups that are final, by key, by range of keys, by bucket or by the end; they come out."""
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
        yield state.remove_before(self.alive_from(progress))

    def step(
        self, partials: Sequence[pa.Table], finished: Iterator[pa.Table], counters: Counters
    ) -> Iterator[pa.Table]:
        """Groups that come out: the changed ones, or those that are finished by now."""
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
          └────► announced keys, ranges, progress, end ────┘

    Emits   a row for each group: its columns, then its aggregates over the results of the join.
    Forgets a group at the first of: its join key is announced; its bucket [s, e] of stream i's time is over, that is
            P_i > e and P_j > e + T_i; both streams have ended. It comes out then (emit="final"), or whenever a
            batch changes it (emit="update").
            (a minute's bucket from 12:00 on stream a, Ta = 10 s: at P_a >= 12:01:00 and P_b >= 12:01:10.)

    References: Tucker, Maier, Sheard, Fegaras, Exploiting punctuation semantics in continuous data streams (2003).
    """

    join: Startable
    query: GroupedQuery

    def start(self, arrays: Arrays | None = None) -> RunningGroupedJoin:
        """A join and groups with empty state, whose arrays live where `arrays` puts them."""
        return RunningGroupedJoin(self.query, self.join.start(arrays), arrays)


class RunningGroupedJoin(RunningJoin[Any]):
    """The join at work, and behind its streams the open groups as one stream more."""

    def __init__(self, query: GroupedQuery, join: RunningJoin[Any], arrays: Arrays | None) -> None:
        self.groups = OpenGroups(query, arrays)
        super().__init__(query, [*join.streams, self.groups.state])
        self.join = join
        self.progress = join.progress

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        join, groups = self.join, self.groups
        partials = [groups.fold.partials(results) for results in join.step(batches) if results.num_rows]
        self.counters, self.late, self.violations = join.counters, join.late, join.violations
        ended = join.output_progress() >= AFTER_ALL
        finished = groups.finish(join.announced, join.announced_ranges, join.reached(), ended=ended)
        yield from groups.step(partials, finished, self.counters)
        self.arrivals = [*join.arrivals, groups.state.arrivals]

    def alive_from(self, i: int) -> int:
        return self.join.alive_from(i) if i < len(self.join.streams) else self.groups.alive_from(self.reached())

    def output_progress(self) -> int:
        return self.join.output_progress()

    def reached(self) -> list[int]:
        return self.join.reached()

    def output_punctuations(self) -> list[str]:
        """Finished keys are finished groups; a time of results is none of groups."""
        return [said for said in self.join.output_punctuations() if "heartbeat" not in json.loads(said)]

    def promised_at(self, i: int) -> int | None:
        return self.join.promised_at(i)

    def owns(self, mine: Mine) -> None:
        self.join.owns(mine)

    def measured(self) -> dict[str, Any]:
        return self.join.measured()

    def attach(self, entries: Sequence[Entry], read: ReadEntry) -> None:
        self.join.attach(entries, read)
        self.apart = self.join.apart

    def notes(self) -> dict[str, Any]:
        return self.join.notes()

    def recall(self, notes: dict[str, Any]) -> None:
        self.join.recall(notes)

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        stream = len(self.streams) - 1
        return self.join.deltas(entries, rewritten=rewritten) + self.groups.state.deltas(stream, entries)

    def replay(self, delta: Delta) -> None:
        if delta.kind == GONE:
            self.groups.state.replay(delta.rows)
        else:
            self.join.replay(delta)

    def restored(self) -> None:
        self.join.restored()
        self.groups.state.restored()


@dataclass(frozen=True, slots=True)
class Partials(Batch):
    """Partial groups of results that another operator found, and how far each of its shards has come, by stream."""

    said: tuple[tuple[int, tuple[int, ...]], ...] = ()


@dataclass(frozen=True, slots=True)
class GroupsOf:
    """Groups by other columns than the join key, behind `shards` shards of a join; time and the end alone end them."""

    query: GroupedQuery
    shards: int

    def start(self, arrays: Arrays | None = None) -> RunningGroups:
        return RunningGroups(self.query, self.shards, arrays)


class RunningGroups(RunningJoin[Any]):
    """The groups at work. Progress is what all shards of the join have said."""

    def __init__(self, query: GroupedQuery, shards: int, arrays: Arrays | None = None) -> None:
        self.groups = OpenGroups(query, arrays)
        super().__init__(query, [self.groups.state])
        self.shards = shards
        self.said: dict[int, tuple[int, ...]] = {}

    def step(self, batches: Sequence[Batch]) -> Iterator[pa.Table]:
        (news,) = batches
        assert isinstance(news, Partials), "this operator reads what a join said, not a stream"
        self.counters = Counters(rows_in=news.rows.num_rows)
        self.said |= dict(news.said)
        if len(self.said) == self.shards:
            self.progress[:] = [min(p) for p in zip(*self.said.values(), strict=True)]
        finished = self.groups.finish((), (), self.progress, ended=self.output_progress() >= AFTER_ALL)
        partials = [pa.Table.from_batches([news.rows])] if news.rows.num_rows else []
        yield from self.groups.step(partials, finished, self.counters)
        self.arrivals = [self.groups.state.arrivals]

    def alive_from(self, i: int) -> int:
        return self.groups.alive_from(self.progress)

    def output_punctuations(self) -> list[str]:
        return [json.dumps({"end": True})] if self.output_progress() >= AFTER_ALL else []

    def notes(self) -> dict[str, Any]:
        return {"said": [[shard, list(progress)] for shard, progress in self.said.items()]}

    def recall(self, notes: dict[str, Any]) -> None:
        self.said = {shard: tuple(progress) for shard, progress in notes.get("said", [])}

    def deltas(self, entries: Sequence[Entry], *, rewritten: bool) -> list[Delta]:
        return self.groups.state.deltas(0, entries)

    def replay(self, delta: Delta) -> None:
        self.groups.state.replay(delta.rows)

    def restored(self) -> None:
        self.groups.state.restored()
