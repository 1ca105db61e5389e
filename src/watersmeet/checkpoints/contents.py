"""The contents of a state, part by part: the tuples of each stream, pending tuples, open groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.joins.base import RunningJoin
from watersmeet.joins.group_by.operator import OpenGroups, RunningGroupedJoin, RunningGroups
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.wo_join.key_ranks import KeyRanks
from watersmeet.model.batches import BEFORE_ALL
from watersmeet.model.json_values import plain_rows
from watersmeet.state.arrow_groups import Groups, whole
from watersmeet.state.punctuations.closed_keys import ClosedKeys
from watersmeet.state.spill import DeferredTuples
from watersmeet.state.stream_state import StreamState

#: The name of the part with the groups, and suffixes of the names of streams for tuples that are not joined yet.
GROUPS, DEFERRED = "groups", "deferred"


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of one kind; `watermark`, `closed_keys` and `ranges` are those of their stream."""

    name: str
    schema: pa.Schema
    key: tuple[str, ...]
    time: str | None
    tuples: int
    bytes: int
    read: Callable[[list[str]], pa.Table]
    watermark: int = BEFORE_ALL
    closed_keys: int = 0
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
        """The keys with the most tuples, as JSON, and their numbers of tuples."""
        if not self.tuples or not self.key:
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
        yield _groups(join.groups, min(join.watermarks))
        return
    inner = join.join if isinstance(join, RunningGroupedJoin) else join
    specs = inner.query.streams
    for i, state in enumerate(inner.streams):
        spec, pending = specs[i % len(specs)], i >= len(specs)
        closed_keys, ranges = (
            (0, 0) if pending or not inner.punctuation_sets else _closed(inner.punctuation_sets[i].keys)
        )
        yield Part(
            f"{spec.name} ({DEFERRED})" if pending else spec.name,
            spec.schema,
            spec.key,
            spec.time,
            len(state),
            state.bytes,
            _reader(state),
            inner.watermarks[i % len(specs)],
            closed_keys,
            ranges,
        )
    axis = inner.axis if isinstance(inner, RunningMultiway) else None
    for i, deferred in enumerate(axis.deferred if isinstance(axis, KeyRanks) else []):
        yield _deferred(deferred, inner.watermarks[i])
    if isinstance(join, RunningGroupedJoin):
        yield _groups(join.groups, min(join.watermarks))


def _closed(keys: ClosedKeys) -> tuple[int, int]:
    ranges = (keys.ranges, keys.merged, keys.pending_ranges)
    return keys.lists.closed_keys, sum(len(some) for some in ranges if some is not None)


def _reader(state: StreamState[Any]) -> Callable[[list[str]], pa.Table]:
    def read(columns: list[str]) -> pa.Table:
        slots = state.lists.living()
        if not slots.size:
            return state.spec.schema.empty_table().select(columns)
        return state.take(slots, columns)

    return read


def _deferred(deferred: DeferredTuples, watermark: int) -> Part:
    spec = deferred.spec

    def read(columns: list[str]) -> pa.Table:
        rows = [deferred.in_memory, *map(deferred.disk.rows_of, deferred.pieces)]
        return pa.Table.from_batches(rows, spec.schema).select(columns)

    size = deferred.in_memory.nbytes + sum(piece.bytes for piece in deferred.pieces)
    count = deferred.in_memory.num_rows + deferred.spilled
    return Part(f"{spec.name} ({DEFERRED})", spec.schema, spec.key, spec.time, count, size, read, watermark)


def _groups(groups: OpenGroups, watermark: int) -> Part:
    """Groups as they would come out now."""
    state, query = groups.state, groups.query

    def read(columns: list[str]) -> pa.Table:
        rows = state.rows(state.lists.living())[0]
        return (groups.fold.read(rows) if rows.num_rows else query.schema.empty_table()).select(columns)

    return Part(GROUPS, query.schema, query.group_by.names, None, len(state), state.bytes, read, watermark)
