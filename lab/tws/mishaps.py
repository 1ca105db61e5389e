"""Single mishaps: one attempt at one task of a query ends badly, and nothing of it shows.

A few batches of punctuated streams run over two shards. One attempt is cancelled, killed or has a store that cannot
write, at one of its frames or writes. Then the task is tried again, on the same machine or on another, and the batch
commits; later batches run on the first machine again. All output (results, late rows, violations, punctuations, groups)
and the stored state must be as without the mishap. There are thousands of mishaps at this size: tests take a sample,
`python -m soak mishaps` takes all.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from lab.joins.oracle import bag, stored
from lab.tws.attempts import Attempt, DiskFullError, Killed, Machines
from lab.tws.subjects import IDS, Input, Subject, subject
from lab.tws.task import header_of
from watersmeet.spark.runtime import worker_cache
from watersmeet.state import segments, stream_state, value_lists
from watersmeet.state.durable import log
from watersmeet.state.durable.cache import TAKEN
from watersmeet.state.durable.log import MemoryStore

ENDINGS = ("cancelled", "killed", "killed while writing", "cannot write")


@dataclass(frozen=True)
class Mishap:
    """The attempt at this task that ends badly: how, and at which frame or write of it."""

    batch: int
    shard: int
    how: str
    at: int
    elsewhere: bool


@dataclass
class Committed:
    """The output of committed attempts, batch by batch, and what they left."""

    batches: list[Counter[str]] = field(default_factory=list)
    stores: dict[int, MemoryStore] = field(default_factory=lambda: {id: MemoryStore() for id in IDS})
    moments: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # task → its frames and writes
    parts: set[tuple[str, str]] = field(default_factory=set)  # what was stored: (how, kind) of parts
    states: list[list[Any]] = field(default_factory=list)  # after each batch


def state(of: Subject, stores: dict[int, MemoryStore]) -> list[Any]:
    """Of each shard: watermarks, and the tuples of each stream that a rebuilding from its store gives."""
    out = []
    for store in stores.values():
        header, join = header_of(store), of.join.start()
        assert set(store.segments) == {e.id for e in header.segments}
        log.rebuild(join, header, store)
        out.append((header.watermarks, header.batches, [bag(stored(join, i)) for i in range(len(join.streams))]))
    return out


def parts_in(header: log.Header) -> set[tuple[str, str]]:
    return {("rows", e.kind) for e in header.segments} | {("metadata", kind) for kind in header.metadata}


def follow(of: Subject, mishap: Mishap | None) -> Committed:
    committed = Committed(stores=of.stores())
    with tempfile.TemporaryDirectory(dir=worker_cache.base()) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_lists, "CHUNK", 2)  # several frames, several moments to end at
        patch.setattr(segments, "SMALL_TABLE", 0)
        patch.setattr(stream_state, "MAX_SMALL_SEGMENTS", 1)  # and compaction
        machines = Machines(Path(folder), patch)
        for n, given in enumerate(of.given):
            batch: Counter[str] = Counter()
            stores = {}
            for place, shard in enumerate(IDS):
                if mishap is not None and (n, place) == (mishap.batch, mishap.shard):
                    with suppress(DiskFullError, Killed):
                        Attempt(of, shard, committed.stores[shard], given, (mishap.how, mishap.at)).run()
                    machines.here = machines.caches[mishap.elsewhere]
                attempt = Attempt(of, shard, committed.stores[shard], given)
                attempt.run()
                batch += attempt.output(of.query.schema.names)
                stores[shard] = attempt.task.store()
                committed.parts |= parts_in(header_of(stores[shard]))
                committed.moments[n, place] = (len(attempt.frames), attempt.writes)
                machines.here = machines.caches[0]
            committed.stores = stores
            committed.batches.append(batch)
            committed.states.append(state(of, stores))
        left = [f.name for c in machines.caches for f in c.root.iterdir() if TAKEN in f.name]
        assert len(left) <= 1, "an attempt that fails leaves nothing; a killed one what the next tidying removes"
    return committed


@cache
def untroubled(name: str, input: Input = Input()) -> Committed:  # noqa: B008  # it is frozen
    return follow(subject(name, input), None)


def mishaps(name: str) -> Iterator[Mishap]:
    """Every one there can be."""
    for (batch, shard), (frames, writes) in untroubled(name).moments.items():
        for how in ENDINGS:
            for at in range(writes if "writ" in how else frames):
                for elsewhere in (False, True):
                    yield Mishap(batch, shard, how, at, elsewhere)


def check(name: str, some: Iterable[Mishap]) -> None:
    wanted = untroubled(name)
    assert sum(b.total() for b in wanted.batches) > 5, "there was output"
    for mishap in some:
        committed = follow(subject(name), mishap)
        assert committed.batches == wanted.batches, mishap
        assert committed.states == wanted.states, mishap
