"""The protocol of `test_protocol`, for every kind of operator, with every single mishap there can be at a small size.

A few batches of punctuated streams run over two shards. One attempt at one task ends badly: cancelled, killed or with a
store that cannot write, at each of its frames and at each of its writes. Then the task is tried again, here or on
another machine, and the batch commits; what comes after is here again. All that is ever said (results, late rows,
violations, punctuations, groups) and all that is stored in the end must be as if nothing had happened.
"""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from tests.joins.naive_groups import query as grouped_query
from tests.joins.operators import ANY
from tests.joins.scripts import Script
from tests.oracle import bag, stored
from tests.tws.harness import Task, header_of
from tests.tws.test_groups import feed
from tests.tws.test_protocol import NOBODY, DiskFullError, Killed
from tests.tws.test_punctuations import blobs
from watersmeet.joins import Join, plan
from watersmeet.joins.group_by import GroupedJoin
from watersmeet.joins.pwjoin import PWJoin
from watersmeet.joins.reference import Tuple
from watersmeet.joins.reference_rules import News
from watersmeet.model.punctuations import Heartbeat, Ordered, Promise, Punctuation, Range, Unique, Value
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.spark import processor, worker_cache
from watersmeet.spark.kinds import RESULT, STATS
from watersmeet.spark.packing import PACKED, Packer
from watersmeet.spark.placement import shard_ids
from watersmeet.state import log, stream_state, value_lists
from watersmeet.state.cache import TAKEN, Cache
from watersmeet.state.log import MemoryStore

pytestmark = pytest.mark.tws

IDS = shard_ids(2, 2)
BATCHES = 3
ENDINGS = ("cancelled", "killed", "killed while writing", "cannot write")


@dataclass(frozen=True)
class Subject:
    """An operator and what it is given: the blobs of each batch."""

    query: Any
    join: Join
    given: tuple[pa.Table, ...]


def news(streams: int, *, promising: bool = True) -> tuple[tuple[News, ...], ...]:
    """Tuples and punctuations of a few keys, in which everything happens: matches, purges, lies, late ones, expiry."""
    chance, number, out = Random(5), 0, []
    for n in range(BATCHES):
        batch = []
        for _ in range(streams):
            tuples = []
            for _ in range(4):
                at = max(0, 4 * n + chance.randint(-5, 3))
                tuples.append(Tuple(at, (chance.choice([0, 1, 2, 3, None]),), number))
                number += 1
            said: list[Punctuation] = []
            if promising and chance.random() < 0.7:
                pattern = chance.choice([Value((chance.randrange(4),)), Range(0, 1), Range(3, None)])
                said.append(Punctuation(pattern, 4 * n))
            if chance.random() < 0.2:
                said.append(Punctuation(Heartbeat(4 * n), 4 * n))
            batch.append(News(tuple(tuples), tuple(said)))
        out.append(tuple(batch))
    return tuple(out)


def scripted(
    algorithm: str, how: str, windows: tuple[Window, ...], promises: tuple[Promise, ...] = (), **options: Any
) -> Subject:
    streams, chance = len(windows), Random(7)
    told = news(streams, promising=algorithm != "wo_join")
    script = Script("int64", how, windows, (2,) * streams, (promises,) * streams, told)
    query = script.query()
    given = []
    for batch in script.batches:
        sent = [b for i, one in enumerate(batch) for b in blobs(query.streams[i], i, IDS, one, chance)]
        given.append(pa.Table.from_batches(sent, PACKED))
    return Subject(query, plan(query, algorithm, **options), tuple(given))


def groups() -> Subject:
    q = grouped_query(("k",), (TimeWindow(6), TimeWindow(3)), "left", "update", ["n", "sum_i", "last_s"])
    streams, given = feed(BATCHES), []
    for n in range(BATCHES):
        both = enumerate(zip(q.streams, streams.batches(n), strict=True))
        packed = [Packer(spec, i, IDS)(iter([b.rows])) for i, (spec, b) in both]
        given.append(pa.Table.from_batches([blob for some in packed for blob in some], PACKED))
    return Subject(q, GroupedJoin(PWJoin(q.join), q), tuple(given))


TWO, THREE = (TimeWindow(6), TimeWindow(4)), (TimeWindow(6), TimeWindow(4), TimeWindow(5))
MIXED = (RowsWindow(2, per_key=True), TimeWindow(5), Unbounded())
SUBJECTS: dict[str, Callable[[], Subject]] = {
    "hash": lambda: scripted("hash", "inner", TWO),
    "hash, buckets": lambda: scripted("hash", "inner", TWO, buckets=2, invalidation="probe_insert"),
    "nested_loop": lambda: scripted("nested_loop", "inner", TWO),
    "pwjoin, left": lambda: scripted("pwjoin", "left", TWO),
    "pwjoin, right": lambda: scripted("pwjoin", "right", TWO),
    "pwjoin, full": lambda: scripted("pwjoin", "full", TWO),
    "pwjoin, semi": lambda: scripted("pwjoin", "semi", TWO),
    "pwjoin, anti, unique": lambda: scripted("pwjoin", "anti", TWO, (Unique(),)),
    "pjoin, ordered": lambda: scripted("pjoin", "inner", (Unbounded(), Unbounded()), (Ordered(1),)),
    "three streams": lambda: scripted("general_lazy", "inner", THREE),
    "three streams, put off": lambda: scripted("general_lazy", "inner", THREE, every=5),
    "three streams, counted": lambda: scripted("general_lazy", "inner", MIXED),
    "three streams, eager": lambda: scripted("eager", "inner", THREE),
    "three streams, naive": lambda: scripted("naive_multiway", "inner", THREE),
    "three streams, lazy": lambda: scripted("lazy", "inner", THREE, every=5),
    "three streams, hybrid": lambda: scripted("hybrid", "inner", THREE, index=("a", "c")),
    "window-oblivious": lambda: scripted("wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(ANY, ANY)),
    "window-oblivious, held back": lambda: scripted(
        "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="msf"
    ),
    "window-oblivious, on disk": lambda: scripted(
        "wo_join", "inner", (Unbounded(), Unbounded()), scrambling=(3, 3), strategy="hybrid"
    ),
    "groups": groups,
}


@cache
def subject(name: str) -> Subject:
    return SUBJECTS[name]()


@dataclass(frozen=True)
class Mishap:
    """The attempt at this task that ends badly: how, and at which frame or write of it."""

    batch: int
    shard: int
    how: str
    at: int
    elsewhere: bool


@dataclass
class Said:
    """Everything that committed attempts said, batch by batch, and what they left."""

    batches: list[Counter[str]] = field(default_factory=list)
    stores: dict[int, MemoryStore] = field(default_factory=lambda: {id: MemoryStore() for id in IDS})
    moments: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)  # task → its frames and writes

    def state(self, of: Subject) -> list[Any]:
        """Of each shard: progress, and the tuples of each stream that a rebuilding from its store gives."""
        out = []
        for store in self.stores.values():
            header, join = header_of(store), of.join.start()
            assert set(store.segments) == {e.id for e in header.segments}
            log.rebuild(join, header, store)
            out.append((header.progress, header.batches, [bag(stored(join, i)) for i in range(len(join.streams))]))
        return out


class Machines:
    """Two machines, each with a cache; the processor finds that of `here`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.caches = [Cache(folder / str(n), 1 << 30) for n in range(2)]
        self.here = self.caches[0]
        patch.setattr(worker_cache, "application_cache", lambda: self.here)
        real = processor._Working.__exit__

        def leave(working: Any, *exc: Any) -> None:
            if exc and isinstance(exc[1], Killed):
                if working.folder.exists():
                    name = working.folder.name.partition(TAKEN)[0]
                    working.folder.rename(working.folder.with_name(f"{name}{TAKEN}{NOBODY}"))
                return
            real(working, *exc)

        patch.setattr(processor._Working, "__exit__", leave)


class Attempt:
    """A task at work; counts its frames and writes, and may end badly at one of them."""

    def __init__(
        self, of: Subject, shard: int, store: MemoryStore, given: pa.Table, fails: tuple[str, int] | None = None
    ) -> None:
        self.task = Task(of.query, IDS, shard, store, ended=False, join=of.join)
        self.given, self.fails = given, fails
        self.frames: list[pd.DataFrame] = []
        self.writes = 0
        segments = self.task.tester.handle.map_states["segments"]
        header = self.task.tester.handle.value_states["header"]
        segments.updateValue = self._counted(segments.updateValue)  # type: ignore[method-assign]
        segments.removeKey = self._counted(segments.removeKey)  # type: ignore[method-assign]
        header.update = self._counted(header.update)  # type: ignore[method-assign]

    def _counted(self, real: Callable[..., None]) -> Callable[..., None]:
        def write(*values: Any) -> None:
            if self.fails == ("cannot write", self.writes):
                raise DiskFullError
            if self.fails == ("killed while writing", self.writes):
                raise Killed
            self.writes += 1
            real(*values)

        return write

    def run(self) -> None:
        generator: Any = self.task.run(self.given, Random(1))
        for n, frame in enumerate(generator):
            self.frames.append(frame)
            if self.fails == ("cancelled", n):
                generator.close()
                return
            if self.fails == ("killed", n):
                with suppress(Killed):
                    generator.throw(Killed())
                return

    def said(self, names: list[str]) -> Counter[str]:
        """All rows but statistics."""
        out: Counter[str] = Counter()
        for frame in self.frames:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            kind = table.column(0)[0].as_py()
            if kind == RESULT:
                out.update(repr(row) for row in table.select(names).to_pylist())
            elif kind != STATS:
                out.update(json.dumps([kind, json.loads(note)]) for note in table.column(1).to_pylist())
        return out


def follow(of: Subject, mishap: Mishap | None) -> Said:
    said = Said()
    with tempfile.TemporaryDirectory(dir=worker_cache.base()) as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(value_lists, "CHUNK", 2)  # several frames, several moments to end at
        patch.setattr(stream_state, "MAX_SMALL_SEGMENTS", 1)  # and compaction
        machines = Machines(Path(folder), patch)
        for n, given in enumerate(of.given):
            batch: Counter[str] = Counter()
            stores = {}
            for place, shard in enumerate(IDS):
                if mishap is not None and (n, place) == (mishap.batch, mishap.shard):
                    with suppress(DiskFullError, Killed):
                        Attempt(of, shard, said.stores[shard], given, (mishap.how, mishap.at)).run()
                    machines.here = machines.caches[mishap.elsewhere]
                attempt = Attempt(of, shard, said.stores[shard], given)
                attempt.run()
                batch += attempt.said(of.query.schema.names)
                stores[shard] = attempt.task.store()
                said.moments[n, place] = (len(attempt.frames), attempt.writes)
                machines.here = machines.caches[0]
            said.stores = stores
            said.batches.append(batch)
        left = [f.name for c in machines.caches for f in c.root.iterdir() if TAKEN in f.name]
        assert len(left) <= 1, "an attempt that fails leaves nothing; a killed one what the next tidying removes"
    return said


@cache
def untroubled(name: str) -> Said:
    return follow(subject(name), None)


def mishaps(name: str) -> Iterator[Mishap]:
    """Every one there can be."""
    for (batch, shard), (frames, writes) in untroubled(name).moments.items():
        for how in ENDINGS:
            for at in range(writes if "writ" in how else frames):
                for elsewhere in (False, True):
                    yield Mishap(batch, shard, how, at, elsewhere)


def check(name: str, some: list[Mishap]) -> None:
    wanted = untroubled(name)
    held = wanted.state(subject(name))
    assert sum(b.total() for b in wanted.batches) > 5, "something was said"
    for mishap in some:
        said = follow(subject(name), mishap)
        assert said.batches == wanted.batches, mishap
        assert said.state(subject(name)) == held, mishap


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_single_mishap_shows(name: str) -> None:
    every = list(mishaps(name))
    assert len(every) > 50
    check(name, every[::11])  # another moment, ending and machine each time; `more` has all of them


@pytest.mark.more
@pytest.mark.parametrize("name", SUBJECTS)
def test_not_one_of_all_single_mishaps_shows(name: str) -> None:
    check(name, list(mishaps(name)))
