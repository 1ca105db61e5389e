"""All shards of an operator, run without Spark, whose state can be divided anew or taken over by another query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from lab.joins.oracle import Row, bag, rows_of, stored
from watersmeet.checkpoints.convert_rows import SplitKeys
from watersmeet.checkpoints.evolve import Evolution, evolve
from watersmeet.checkpoints.redistribute import redistribute
from watersmeet.checkpoints.reopen import reopen
from watersmeet.joins import algorithm
from watersmeet.joins.base import RunningJoin
from watersmeet.joins.baselines.tuple_at_a_time import RunningTupleAtATime
from watersmeet.model.batches import Batch
from watersmeet.model.queries import StreamSpec
from watersmeet.state.durable import log
from watersmeet.state.keys import encode
from watersmeet.state.shards import ShardKeys, split


class Sharded:
    """All shards of an operator, each with its store."""

    def __init__(self, join: algorithm.Operator, shards: int) -> None:
        self.join = join
        self.stores = [log.MemoryStore() for _ in range(shards)]
        self.ids = tuple(range(10, 10 + shards))
        self.headers = [log.begin(join.query, id, shards, self.ids) for id in self.ids]
        self.running = [self._start(n) for n in range(shards)]

    def _start(self, n: int) -> RunningJoin[Any]:
        running = self.join.start()
        running.owns(ShardKeys(n, len(self.stores)))
        return running

    def step(self, batches: Sequence[Sequence[Batch]]) -> list[Row]:
        """One batch of each stream for each shard; the results, after which everything is durable."""
        out: list[Row] = []
        for n, (running, arrivals) in enumerate(zip(self.running, batches, strict=True)):
            out += [row for table in running.step(arrivals) for row in rows_of(table)]
            self.headers[n] = log.commit(running, self.headers[n], self.stores[n])
        return out

    def part(self, batches: Sequence[Batch]) -> list[list[Batch]]:
        """What a batch of each stream is for each shard."""
        parts = [divided(b, s, len(self.stores)) for b, s in zip(batches, self.join.query.streams, strict=True)]
        return [list(shard) for shard in zip(*parts, strict=True)]

    def held(self, i: int) -> list[Row]:
        return [row for running in self.running for row in stored(running, i)]

    def rescale(self, shards: int) -> None:
        new, ids = [log.MemoryStore() for _ in range(shards)], tuple(range(50, 50 + shards))
        redistribute(self.stores, new, ids)
        self._reopen(new, ids)

    def evolve(self, join: algorithm.Operator, shards: int, split_keys: SplitKeys | None = None) -> Evolution:
        """Continue as another operator."""
        new, ids = [log.MemoryStore() for _ in range(shards)], tuple(range(50, 50 + shards))
        evolution = evolve(self.stores, new, ids, join, split_keys)
        self.join = join
        self._reopen(new, ids)
        return evolution

    def restart(self) -> None:
        """Continue from the stores alone."""
        self._reopen(self.stores, self.ids)

    def _reopen(self, new: list[log.MemoryStore], ids: tuple[int, ...]) -> None:
        self.stores, self.ids, shards = new, ids, len(ids)
        self.headers = [log.Header.unpack(store.read_header() or b"") for store in new]
        self.running = [self._start(n) for n in range(shards)]
        for n, (running, header) in enumerate(zip(self.running, self.headers, strict=True)):
            header.check(self.join.query, ids[n], shards, ids)
            assert sorted(self.stores[n].segments) == [e.id for e in header.segments]
            log.rebuild(running, header, self.stores[n])

    def check_reading(self) -> None:
        """Opened from the header alone, the state is the same."""
        for running, header, store in zip(self.running, self.headers, self.stores, strict=True):
            again = reopen(header, store)
            assert again.watermarks == running.watermarks
            assert [s.spec.schema.names for s in again.streams] == [s.spec.schema.names for s in running.streams]
            for i in range(len(running.streams)):
                assert bag(stored(again, i)) == bag(alive(running, i))


def alive(running: RunningJoin[Any], i: int) -> list[Row]:
    """What is stored and has not left its window: lazy invalidation does not survive a restart."""
    rows, spec = stored(running, i), running.streams[i].spec
    if isinstance(running, RunningTupleAtATime):
        at = spec.schema.names.index(spec.time)
        rows = [row for row in rows if row[at] >= running.alive_from(i)]
    return rows


def divided(batch: Batch, spec: StreamSpec, shards: int) -> list[Batch]:
    """Rows and closed keys by the shard of their key; all else is for every shard."""
    rows = split(batch.rows, lambda: encode([batch.rows.column(k) for k in spec.key]).words, shards)
    out = [replace(batch, rows=some) for some in rows]
    if batch.punctuations is None:
        return out
    given = batch.punctuations
    keys = given.keys.append_column("at", pa.array(given.times))
    parts = split(keys, lambda: encode(given.keys.columns).words, shards)
    return [
        replace(b, punctuations=replace(given, keys=part.drop_columns(["at"]), times=np.asarray(part.column("at"))))
        for b, part in zip(out, parts, strict=True)
    ]
