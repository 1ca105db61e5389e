"""Joins without windows through the real packer and processor: every shard goes by the whole streams."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lab.joins.ascending_keys import Keys, ascending, batch, factor, whole_join
from lab.joins.oracle import Row, bag, rows_of
from lab.joins.window_oblivious import query
from lab.tws.task import Task, header_of, table_of
from watersmeet.errors import MemoryLimitError
from watersmeet.joins import Join
from watersmeet.joins.multiway import RunningMultiway
from watersmeet.joins.wo_join.operator import WOJoin
from watersmeet.model.queries import JoinQuery
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.order_detail import order_detail_of
from watersmeet.spark.runtime.packing import PACKED, Packer
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.row_kinds import RESULT, STATS
from watersmeet.state import spill
from watersmeet.state.durable.log import MemoryStore
from watersmeet.state.durable.parts import metadata_of
from watersmeet.state.shards import ShardKeys
from watersmeet.state.statistics import disorder

pytestmark = pytest.mark.tws

few = settings(max_examples=12, deadline=None)
#: A batch of one stream, dealt out to source partitions.
Dealt = list[Keys]


@dataclass
class Shards:
    """A join on so many shards; `forget` now and then and every shard is rebuilt from its store."""

    join: Join[RunningMultiway]
    shards: int
    stores: dict[int, MemoryStore] = field(default_factory=dict)
    stats: list[dict[str, Any]] = field(default_factory=list)
    at: list[int] = field(default_factory=list)

    @property
    def query(self) -> JoinQuery:
        return self.join.query

    def step(self, dealt: list[Dealt], chance: Random, *, ended: bool = False) -> list[Row]:
        """Results of a batch; `stats` then has the report of each shard."""
        ids = shard_ids(self.shards, self.shards)
        self.stores = self.stores or {id: MemoryStore() for id in ids}
        self.at = self.at or [0] * len(dealt)
        blobs: list[pa.RecordBatch] = []
        for i, parts in enumerate(dealt):
            numbered = numbers(parts, self.at[i])
            self.at[i] += sum(map(len, parts))
            for partition, (keys, of) in enumerate(zip(parts, numbered, strict=True)):
                columns = [np.array(of, np.int64), np.array(keys, np.int64), np.array(of, np.float64)]
                rows = pa.record_batch(columns, schema=self.query.streams[i].schema)
                cut = chance.randint(0, rows.num_rows)
                packer = Packer(
                    self.query.streams[i], i, ids, order_detail=order_detail_of(self.join), partition=10 * i + partition
                )
                blobs += packer(iter([rows.slice(0, cut), rows.slice(cut)]))
        table = pa.Table.from_batches(blobs, PACKED)
        order = list(range(table.num_rows))
        chance.shuffle(order)
        out: list[Row] = []
        self.stats = []
        for shard in ids:
            task = Task(self.query, ids, shard, self.stores[shard], ended, join=self.join)
            for frame in task.run(table.take(pa.array(order, pa.int64())), chance):
                found = table_of(frame, task.processor.output_rows)
                (kind,) = set(found.column(0).to_pylist())
                if kind == RESULT:
                    out += rows_of(found.select(self.query.schema.names))
                elif kind == STATS:
                    self.stats += map(json.loads, found.column(1).to_pylist())
            self.stores[shard] = task.store()
        return out

    def total(self, counter: str) -> int:
        return sum(s[counter] for s in self.stats)

    def metadata(self) -> list[dict[str, Any]]:
        return [header_of(store).metadata for store in self.stores.values()]


def numbers(parts: Dealt, first: int) -> list[list[int]]:
    """The position of each key in its stream, from `first` on: by row, then by partition."""
    order = sorted((row, p) for p, keys in enumerate(parts) for row in range(len(keys)))
    at = {where: first + n for n, where in enumerate(order)}
    return [[at[row, p] for row in range(len(keys))] for p, keys in enumerate(parts)]


def in_order(parts: Dealt) -> Keys:
    """The keys of a batch by their positions."""
    placed = zip(parts, numbers(parts, 0), strict=True)
    by_position = {n: key for keys, of in placed for key, n in zip(keys, of, strict=True)}
    return [by_position[n] for n in range(len(by_position))]


def forget() -> None:
    shutil.rmtree(worker_cache.application_cache().root, ignore_errors=True)


@st.composite
def dealt(draw: Any, n: int, most: int = 40) -> list[list[Dealt]]:
    """Batches of n streams, each cut on its own and dealt out to one to three partitions."""
    steps = draw(st.integers(1, 5))
    out: list[list[Dealt]] = [[] for _ in range(steps)]
    for _ in range(n):
        keys = draw(ascending(most))
        edges = [0, *sorted(draw(st.lists(st.integers(0, len(keys)), min_size=steps - 1, max_size=steps - 1)))]
        for step, (a, b) in enumerate(zip(edges, [*edges[1:], len(keys)], strict=True)):
            partitions = draw(st.integers(1, 3))
            parts: Dealt = [[] for _ in range(partitions)]
            for key in keys[a:b]:
                parts[draw(st.integers(0, partitions - 1))].append(key)
            out[step].append(parts)
    return out


def streams_of(batches: list[list[Dealt]]) -> list[Keys]:
    return [[k for parts in stream for k in in_order(parts)] for stream in zip(*batches, strict=True)]


# ---------------------------------------------------------------- results and state


@pytest.mark.parametrize("strategy", ["none", "msf", "dbf", "hybrid", "auto"])
@few
@given(data=st.data(), n=st.integers(2, 3), shards=st.integers(1, 3), seed=st.integers(0, 99))
def test_known_factors_lose_nothing(strategy: str, data: st.DataObject, n: int, shards: int, seed: int) -> None:
    """Any strategy, shards, partitions, order of the blobs, restarts; afterwards nothing is left."""
    batches = data.draw(dealt(n))
    streams = streams_of(batches)
    memory = 24_000 if strategy == "auto" else None
    join = Join(query(n), WOJoin(scrambling=[factor(s) for s in streams], strategy=strategy, memory=memory, shed=False))
    run, chance, found = Shards(join, shards), Random(seed), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "PIECE", data.draw(st.sampled_from([1, 3, 1 << 16])))
        patch.setattr(spill, "MOST_SMALL", 3)
        for arrivals in batches:
            if data.draw(st.booleans(), label="restart"):
                forget()
            found += run.step(arrivals, chance)
            assert run.total("too_late") == 0
            for store in run.stores.values():
                assert set(store.segments) == {e.id for e in header_of(store).segments}
        found += run.step([[[]] for _ in range(n)], chance, ended=True)
    assert bag(found) == bag(whole_join(streams))
    assert [run.total(name) for name in ("stored", "deferred", "spilled")] == [0, 0, 0]


@pytest.mark.parametrize("buffer", ["sound", "learned", "eq8"])
@few
@given(data=st.data(), shards=st.integers(1, 3), seed=st.integers(0, 99))
def test_shards_measure_the_whole_stream(buffer: str, data: st.DataObject, shards: int, seed: int) -> None:
    """What is kept, and who is too late, is what one join over all the rows in order would say, if the rule goes by
    the stream alone; a rule that learns from matches learns from those of its shard."""
    batches = data.draw(dealt(3))
    shards = 1 if buffer == "eq8" else shards
    join = Join(query(3), WOJoin(buffer))
    run, chance, at = Shards(join, shards), Random(seed), [0, 0, 0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(disorder, "PERIOD", 10)
        whole = join.start()
        for arrivals in batches:
            if data.draw(st.booleans(), label="restart"):
                forget()
            plain = [batch(i, in_order(parts), first=at[i]) for i, parts in enumerate(arrivals)]
            at = [a + sum(map(len, parts)) for a, parts in zip(at, arrivals, strict=True)]
            expected = [row for table in whole.step(plain) for row in rows_of(table)]
            whole.arrivals = []
            found = run.step(arrivals, chance)
            wanted = metadata_of(whole.parts())
            assert all(m["maxima"] == wanted["maxima"] for m in run.metadata())
            if buffer != "learned" or shards == 1:
                assert bag(found) == bag(expected)
                assert [m["low_ranks"] for m in run.metadata()] == [wanted["low_ranks"]] * shards
                assert run.total("stored") == whole.counters.stored
                assert run.total("too_late") == whole.counters.too_late


def test_a_shard_without_rows_evicts_with_the_others() -> None:
    """Stream b brings no key of one shard: still it is known how far b is."""
    ids = shard_ids(2, 2)
    even = [k for k in range(400) if _shard_of(k, len(ids)) == 0]
    run, chance = Shards(Join(query(2), WOJoin(scrambling=(0, 0))), 2), Random(1)
    run.step([[list(range(400))], [even]], chance)
    assert run.total("stored") == 400 - 1 - even[-1]


def _shard_of(key: int, shards: int) -> int:
    return next(s for s in range(shards) if ShardKeys(s, shards)(np.array([key]))[0])


# ---------------------------------------------------------------- the leader in the store


def test_a_leader_waits_in_the_store_and_only_what_is_due_is_read(working_states: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "PIECE", 1000)
        run, chance = Shards(Join(query(2), WOJoin(scrambling=(0, 0), strategy="dbf")), 1), Random(1)
        for n in range(10):
            run.step([[list(range(n * 1000, n * 1000 + 1000))], [[-1]]], chance)
        assert [run.total(name) for name in ("spilled", "stored")] == [10_000, 0]
        files = [file for state in working_states.iterdir() for file in state.glob("*.spilled")]
        assert all(file.stat().st_size < 1000 for file in files), "what is parked is in the store alone"
        (store,) = run.stores.values()
        sizes = [e.size for e in header_of(store).segments if e.kind == "spilled"]
        assert len(sizes) == 10
        for restarted in (False, True):
            if restarted:
                forget()
            start = 500 if restarted else 0
            found = run.step([[[]], [list(range(start, start + 500))]], chance)
            assert len(found) == 500
            assert run.total("rebuilt") == restarted
            assert run.total("spilled") == 9000
            assert run.total("stored") == 1000 - 500 * (1 + restarted)
        left = {e.id for e in header_of(run.stores[shard_ids(1, 1)[0]]).segments if e.kind == "spilled"}
        assert len(left) == 9


def test_what_does_not_fit_stops_the_query_or_is_shed() -> None:
    keys = list(range(3000))
    strict = Shards(Join(query(2), WOJoin(scrambling=(5, 5), memory=20_000)), 1)
    with pytest.raises(MemoryLimitError, match="`memory` is 20000 bytes"):
        strict.step([[keys], [[]]], Random(1))
    shedding = Shards(Join(query(2), WOJoin(scrambling=(5, 5), memory=20_000, shed=True)), 1)
    shedding.step([[keys], [[]]], Random(1))
    assert shedding.total("shed") + shedding.total("stored") == 3000
    shedding.step([[[]], [[3]]], Random(1))
    assert shedding.total("too_late") == 1
