"""What a join holds, part by part: the tuples of each stream, those that wait, the open groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.joins.group_by import OpenGroups, RunningGroupedJoin, RunningGroups
from watersmeet.joins.grouped import Groups, whole
from watersmeet.joins.holding import Held
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.oblivious import RunningWOJoin
from watersmeet.joins.pwjoin import RunningPWJoin
from watersmeet.joins.running import RunningJoin
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.plain import plain_rows
from watersmeet.state.promises import Promises
from watersmeet.state.stream_state import StreamState

#: The part in which groups stand, and what is behind the name of a stream whose tuples do not take part yet.
GROUPS, WAITING, HELD_BACK = "groups", "waiting", "held back"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one kind; `progress`, `closings` and `ranges` are those of the stream they are of."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    time: str | None
    tuples: int
    bytes: int
    read: Callable[[list[str]], pa.Table]
    progress: int = BEFORE_ALL
    closings: int = 0
    ranges: int = 0

    def rows(self) -> pa.Table:
        return self.read(self.schema.names)

    def ends(self) -> tuple[int | None, int | None]:
        """Event times of the oldest and the newest tuple."""
        if self.time is None or not self.tuples:
            return None, None
        times = pc.min_max(self.read([self.time]).column(0).cast(pa.int64()))
        return times["min"].as_py(), times["max"].as_py()

    def largest_keys(self, most: int) -> list[tuple[str, int]]:
        """The keys with the most tuples, as JSON, and how many these are."""
        if not self.tuples:
            return []
        columns = [whole(c) for c in self.read(list(self.key)).columns]
        groups = Groups.of(columns)
        counts = np.bincount(groups.number, minlength=groups.count)
        best = np.argsort(-counts, kind="stable")[:most]
        first = pa.array(groups.first[best])
        keys = pa.record_batch([c.take(first) for c in columns], names=list(self.key))
        return list(zip(plain_rows(keys), counts[best].tolist(), strict=True))


def parts(join: RunningJoin[Any]) -> Iterator[Part]:
    """All parts of a state."""
    if isinstance(join, RunningGroups):
        yield _groups(join.groups, min(join.progress))
        return
    inner = join.join if isinstance(join, RunningGroupedJoin) else join
    said: list[Promises] = inner.promises if isinstance(inner, RunningPWJoin | RunningMultiway) else []
    specs = inner.query.streams
    for i, state in enumerate(inner.streams):
        spec, waits = specs[i % len(specs)], i >= len(specs)
        closings, ranges = (0, 0) if waits or not said else _closed(said[i])
        yield Part(
            f"{spec.name} ({WAITING})" if waits else spec.name,
            spec.schema,
            spec.key,
            spec.time,
            len(state),
            state.bytes,
            _reader(state),
            inner.progress[i % len(specs)],
            closings,
            ranges,
        )
    for i, held in enumerate(inner.held if isinstance(inner, RunningWOJoin) else []):
        yield _held_back(held, inner.progress[i])
    if isinstance(join, RunningGroupedJoin):
        yield _groups(join.groups, min(join.progress))


def _closed(promises: Promises) -> tuple[int, int]:
    ranges = (promises.ranges, promises.merged, promises.pending_ranges)
    return promises.lists.closings, sum(len(some) for some in ranges if some is not None)


def _reader(state: StreamState[Any]) -> Callable[[list[str]], pa.Table]:
    def read(columns: list[str]) -> pa.Table:
        slots = state.lists.living()
        if not slots.size:
            return state.spec.schema.empty_table().select(columns)
        return state.take(slots, columns)

    return read


def _held_back(held: Held, progress: int) -> Part:
    spec = held.spec

    def read(columns: list[str]) -> pa.Table:
        rows = [held.waiting, *(held.shelf.read(piece.name) for piece in held.pieces)]
        return pa.Table.from_batches(rows, spec.schema).select(columns)

    size = held.waiting.nbytes + sum(piece.bytes for piece in held.pieces)
    count = held.waiting.num_rows + held.parked
    return Part(f"{spec.name} ({HELD_BACK})", spec.schema, spec.key, spec.time, count, size, read, progress)


def _groups(groups: OpenGroups, progress: int) -> Part:
    """Groups as they would come out now."""
    state, query = groups.state, groups.query

    def read(columns: list[str]) -> pa.Table:
        rows = state.rows(state.lists.living())[0]
        return (groups.fold.read(rows) if rows.num_rows else query.schema.empty_table()).select(columns)

    return Part(GROUPS, query.schema, query.group_by.names, None, len(state), state.bytes, read, progress)
