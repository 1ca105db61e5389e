"""The protocol of state, cache, retry and compaction, as a state machine over the real code.

A *store* holds the durable state of one shard; what a task writes to it is seen once the batch commits, and never if it
does not. A *cache* belongs to one machine and holds working states in folders, each under the random token of the
durable state that it equals. Tasks may be tried several times, at once, on any machine, with their input cut and
ordered in another way each time, and may end at any moment. Whatever happens, the eight invariants
that ARCHITECTURE.md lists under "The state protocol" hold.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lab.joins.oracle import Scenario, Side, bag, expected, expected_state, keys, stored, windows
from lab.tws.attempts import NO_PROCESS, DiskFullError, Killed
from lab.tws.task import Output, Task, header_of, late_at, late_rows, packed, read, rows_at
from watersmeet.errors import StateError
from watersmeet.joins.hash_join import HashJoin, RunningHashJoin
from watersmeet.joins.reference.definition import Tuple
from watersmeet.model.windows import TimeWindow, Unbounded
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.placement import shard_ids
from watersmeet.spark.runtime.working_state import WorkingState
from watersmeet.state import segments, stream_state, value_lists
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache as caches
from watersmeet.state.durable import log
from watersmeet.state.durable.cache import TAKEN, Cache
from watersmeet.state.durable.log import Header, MemoryStore

pytestmark = pytest.mark.tws

#: What is small on purpose, so that a few rows are enough to slice, merge and compact.
LIMITS: dict[str, dict[tuple[Any, str], int]] = {
    "merging": {(stream_state, "MAX_SMALL_SEGMENTS"): 1},
    "compacting": {(stream_state, "SMALL_BYTES"): 0},
    "slicing": {(segments, "SEGMENT_BYTES"): 64, (stream_state, "MAX_SMALL_SEGMENTS"): 4},
    "forgetting versions": {(log, "KNOWN_VERSIONS"): 2},
    "as it is": {},
}
#: Marks a folder that someone removed files from.
DAMAGED = "damaged"
ENDINGS = ("finished", "cancelled", "killed", "write fails", "killed at a write")


@dataclass
class Stream:
    """A query with its shards: everything that was committed, and what the store held at any token ever written."""

    scenario: Scenario
    ids: tuple[int, ...]
    stores: dict[int, MemoryStore]
    snapshots: dict[str, MemoryStore] = field(default_factory=dict)
    held: int = 0  # tuples that have come and not gone, by the counters

    @classmethod
    def of(cls, kind: str, shards: int, sides: tuple[Side, Side]) -> Stream:
        ids = shard_ids(shards, shards)
        return cls(Scenario(kind, pa.int64(), sides), ids, {id: MemoryStore() for id in ids})

    @property
    def batches(self) -> int:
        return len(self.scenario)

    def extended(self, rows: tuple[list[tuple[int, Any]], list[tuple[int, Any]]]) -> Scenario:
        """The scenario with one batch more; times are counted from the batch's own."""
        sides = []
        for side, new in zip(self.scenario.sides, rows, strict=True):
            first = sum(map(len, side.batches))
            batch = tuple(Tuple(2 * self.batches + at, key, first + n) for n, (at, key) in enumerate(new))
            sides.append(replace(side, batches=(*side.batches, batch)))
        return replace(self.scenario, sides=(sides[0], sides[1]))


class Attempt:
    """A task at work on a machine, which can be stopped between any two frames and at any write."""

    def __init__(self, stream: Stream, shard: int, store: MemoryStore, machine: Cache, fails_at: int | None) -> None:
        self.stream, self.machine = stream, machine
        self.query = stream.scenario.query()
        self.task = Task(self.query, stream.ids, shard, store, ended=False)
        self.before = store.header
        self.frames: list[pd.DataFrame] = []
        self.reads: list[int] = []
        self.error: BaseException | None = None
        self.started = False
        self.fails_at = fails_at
        self.writes = 0
        segments = self.task.tester.handle.map_states["segments"]
        header = self.task.tester.handle.value_states["header"]
        segments.getValue = self._counted_read(segments.getValue)  # type: ignore[method-assign]
        segments.updateValue = self._counted_write(segments.updateValue)  # type: ignore[method-assign]
        header.update = self._counted_write(header.update)  # type: ignore[method-assign]

    def _counted_read(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def get(key: tuple[int]) -> Any:
            self.reads.append(key[0])
            return real(key)

        return get

    def _counted_write(self, real: Callable[..., None]) -> Callable[..., None]:
        def put(*values: Any) -> None:
            self.writes += 1
            if self.writes > (self.fails_at or 0) and self.error is not None:
                raise self.error
            real(*values)

        return put

    def start(self, blobs: pa.Table, chance: Random) -> None:
        self.generator = self.task.run(blobs, chance)

    def advance(self) -> bool:
        """Run up to the next frame; False at the end."""
        if not self.started:
            self.started = True
            with suppress(StateError):
                self.to_read = self.should_read()
        try:
            frame = next(self.generator, None)
        finally:
            self._note()
        if frame is not None:
            self.frames.append(frame)
        return frame is not None

    def cancel(self) -> None:
        """End it where it stands, as Spark does with a task that it no longer needs."""
        self.generator.close()

    def kill(self) -> None:
        """End it where it stands, without a chance to clean up."""
        with suppress(Killed, StopIteration):
            self.generator.throw(Killed())

    def output(self) -> Output:
        return read(self.frames, self.query)

    def check_reads(self) -> None:
        """Invariant 6."""
        assert sorted(self.reads) == sorted(self.to_read)
        found = {name: self.output().stats[0][name] for name in ("cache_hit", "caught_up", "rebuilt")}
        assert sum(found.values()) == (self.before is not None)
        event(", ".join(name for name, yes in found.items() if yes) or "first batch")
        event("compacted" if header_of(self.task.store()).versions[-1].rewritten else "not compacted")
        assert not (found["cache_hit"] and self.reads)

    def should_read(self) -> list[int]:
        """Segments that stand in the header and not in what the machine's cache has."""
        if self.before is None:
            return []
        header = Header.unpack(self.before)
        missed: list[log.Version] = []
        for version in reversed(header.versions):
            if (self.machine.root / version.token).exists():
                break
            missed.append(version)
        else:
            return [e.id for e in header.segments]
        if damaged(self.machine.root / version.token) or any(v.rewritten for v in missed):
            return [e.id for e in header.segments]
        added = {id for v in missed for id in v.added}
        return [e.id for e in header.segments if e.id in added]

    def _note(self) -> None:
        """Remember what the store would hold at the token that the attempt has written."""
        now = self.task.store()
        if now.header is not None and now.header != self.before:
            self.stream.snapshots[header_of(now).token] = now


def damaged(folder: Path) -> bool:
    return (folder / DAMAGED).exists()


def kept_in(cache: Cache) -> list[Path]:
    return sorted(folder for folder in cache.root.iterdir() if TAKEN not in folder.name)


class Protocol(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        root = Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=worker_cache.base())))
        self.machines = [Cache(root / str(n), 1 << 30) for n in range(3)]
        self.fingerprints: dict[Path, dict[str, int]] = {}
        self.killed: list[Path] = []
        tokens = map("{:032x}".format, count())  # in order: a failure found can be found again
        self.patch.setattr(log, "secrets", SimpleNamespace(token_hex=lambda _: next(tokens)))
        self.patch.setattr(worker_cache, "application_cache", lambda: self.here)
        self.patch.setattr(WorkingState, "__exit__", self._exit(WorkingState.__exit__))

    def teardown(self) -> None:
        self.stack.close()

    def _exit(self, real: Callable[..., None]) -> Callable[..., None]:
        def leave(working: Any, *exc: Any) -> None:
            if exc and isinstance(exc[1], Killed):
                if working.folder.exists():  # not yet kept
                    name = working.folder.name.partition(TAKEN)[0]
                    self.killed.append(working.folder.rename(working.folder.with_name(f"{name}{TAKEN}{NO_PROCESS}")))
                return
            real(working, *exc)

        return leave

    @initialize(data=st.data(), limits=st.sampled_from(sorted(LIMITS)))
    def begin(self, data: st.DataObject, limits: str) -> None:
        for (module, name), value in LIMITS[limits].items():
            self.patch.setattr(module, name, value)
        self.patch.setattr(value_lists, "CHUNK", 2)  # many frames, many moments to end at
        self.streams = []
        for _ in range(2):
            bounded = windows().map(lambda w: TimeWindow(3) if isinstance(w, Unbounded) else w)
            sides = [Side(data.draw(bounded), data.draw(st.integers(0, 6)), ()) for _ in range(2)]
            kind = data.draw(st.sampled_from(["int64", "string", "two columns"]))
            self.streams.append(Stream.of(kind, data.draw(st.integers(1, 2)), (sides[0], sides[1])))
            self._batch(data, self.streams[-1], rival=False)

    # ---------------------------------------------------------------- batches

    @rule(data=st.data(), which=st.integers(0, 1), times=st.integers(1, 4), rival=st.booleans())
    def batches(self, data: st.DataObject, which: int, times: int, rival: bool) -> None:
        for _ in range(times):
            self._batch(data, self.streams[which], rival)

    def _batch(self, data: st.DataObject, stream: Stream, rival: bool) -> None:
        """Each shard's task ends badly a few times, perhaps races a twin, and commits once."""
        rows = st.lists(st.tuples(st.integers(0, 9), keys(stream.scenario.kind)), max_size=6)
        scenario = stream.extended((data.draw(rows, label="a"), data.draw(rows, label="b")))
        out, stores = Output(), {}
        for shard in stream.ids:
            for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]), label="troubles")):
                self._ends_badly(data, scenario, stream, shard)
            winner = self._race(data, scenario, stream, shard) if rival else self._whole(data, scenario, stream, shard)
            winner.check_reads()
            out += winner.output()
            stores[shard] = winner.task.store()
        for shard, store in stores.items():
            self._follows(stream.stores[shard], store)
        stream.scenario, stream.stores = scenario, stores
        self._check_batch(stream, out)

    def _attempt(
        self, data: st.DataObject, scenario: Scenario, stream: Stream, shard: int, fails_at: int | None = None
    ) -> Attempt:
        machine = data.draw(st.sampled_from(self.machines), label="machine")
        chance = Random(data.draw(st.integers(0, 1 << 32), label="order"))
        attempt = Attempt(stream, shard, stream.stores[shard], machine, fails_at)
        attempt.start(packed(attempt.query, stream.ids, rows_at(scenario, stream.batches), chance), chance)
        return attempt

    def _advance(self, attempt: Attempt) -> bool:
        self.here = attempt.machine
        going_on = attempt.advance()
        if not going_on:  # whoever keeps a state also tidies
            assert not list(self.here.root.glob(f"*{TAKEN}{NO_PROCESS}"))
            self.killed = [f for f in self.killed if f.exists()]
        return going_on

    def _whole(self, data: st.DataObject, scenario: Scenario, stream: Stream, shard: int) -> Attempt:
        attempt = self._attempt(data, scenario, stream, shard)
        while self._advance(attempt):
            pass
        return attempt

    def _race(self, data: st.DataObject, scenario: Scenario, stream: Stream, shard: int) -> Attempt:
        """Two attempts at once, to the end; one of them commits."""
        twins = [self._attempt(data, scenario, stream, shard) for _ in range(2)]
        running = list(twins)
        while running:
            attempt = data.draw(st.sampled_from(running), label="whose turn") if len(running) > 1 else running[0]
            if not self._advance(attempt):
                running.remove(attempt)
        assert bag(twins[0].output().results) == bag(twins[1].output().results)
        return data.draw(st.sampled_from(twins), label="winner")

    def _ends_badly(self, data: st.DataObject, scenario: Scenario, stream: Stream, shard: int) -> None:
        """An attempt that does not commit: it is stopped, dies, cannot write, or finishes and is not needed."""
        ending = data.draw(st.sampled_from(ENDINGS), label="ending")
        moment = data.draw(st.integers(0, 3), label="moment")
        attempt = self._attempt(data, scenario, stream, shard, moment)
        attempt.error = {"write fails": DiskFullError(), "killed at a write": Killed()}.get(ending)
        try:
            for n in range(1 << 30):
                if n == moment and ending == "cancelled":
                    return attempt.cancel()
                if n == moment and ending == "killed":
                    return attempt.kill()
                if not self._advance(attempt):
                    return None
        except (DiskFullError, Killed):
            return None

    # ---------------------------------------------------------------- trouble between batches

    @rule(
        data=st.data(),
        which=st.integers(0, 1),
        how=st.sampled_from(["lost segment", "changed segment", "changed header"]),
    )
    def store_is_damaged(self, data: st.DataObject, which: int, how: str) -> None:
        """Invariant 7; the damage is then repaired from a copy."""
        stream = self.streams[which]
        shard = data.draw(st.sampled_from(stream.ids), label="shard")
        whole = stream.stores[shard]
        broken, said = self._broken(data, whole, how)
        stream.stores[shard] = broken
        attempt = self._attempt(data, stream.extended(([], [])), stream, shard)
        stream.stores[shard] = whole
        must_fail = how == "changed header" or said in {f"segment {id} " for id in attempt.should_read()}
        event(f"{how}: {'refused' if must_fail else 'not read'}")
        error: StateError | None = None
        try:
            while self._advance(attempt):
                pass
        except StateError as refusal:
            error = refusal
        assert (error is not None) == must_fail
        after = attempt.task.store()
        if error is not None:
            assert said in str(error)
            assert (after.header, after.segments) == (broken.header, broken.segments)
        else:
            repaired = {e.id: whole.segments.get(e.id) or after.segments[e.id] for e in header_of(after).segments}
            stream.snapshots[header_of(after).token].segments = repaired
        self._batch(data, stream, rival=False)

    def _broken(self, data: st.DataObject, whole: MemoryStore, how: str) -> tuple[MemoryStore, str]:
        """A copy of the store with something wrong in it, and what the refusal must speak of."""
        broken = MemoryStore()
        broken.header, broken.segments = whole.header, dict(whole.segments)
        assert whole.header is not None
        if how == "changed header":
            place = data.draw(st.integers(0, len(whole.header) - 1), label="place")
            broken.header = whole.header[:place] + bytes([whole.header[place] ^ 1]) + whole.header[place + 1 :]
            return broken, "the state"
        if not whole.segments:
            return broken, "nothing"
        id = data.draw(st.sampled_from(sorted(whole.segments)), label="segment")
        if how == "lost segment":
            del broken.segments[id]
        else:
            broken.segments[id] = whole.segments[id][:-1] + b"?"
        return broken, f"segment {id} "

    @rule(
        data=st.data(),
        which=st.integers(0, 1),
        machine=st.integers(0, 2),
        what=st.sampled_from(["evict", "tidy", "reboot", "clean"]),
    )
    def machine_forgets(self, data: st.DataObject, which: int, machine: int, what: str) -> None:
        """Invariants 5 and 8."""
        cache = self.machines[machine]
        {"evict": self._evict, "tidy": self._tidy, "reboot": self._reboot, "clean": self._clean}[what](data, cache)
        self.killed = [f for f in self.killed if f.exists()]
        assert what == "clean" or not [f for f in cache.root.iterdir() if TAKEN in f.name]
        self._batch(data, self.streams[which], rival=False)

    def _evict(self, data: st.DataObject, cache: Cache) -> None:
        """The machine needs the room: its oldest states go."""
        kept = kept_in(cache)
        ages = data.draw(st.permutations(range(len(kept))), label="ages")
        for folder, age in zip(kept, ages, strict=True):
            os.utime(folder, (1000 + age, 1000 + age))
        oldest = [folder for _, folder in sorted(zip(ages, kept, strict=True))]
        gone = data.draw(st.integers(0, len(kept)), label="gone")
        limit = sum(map(size, oldest[gone:]))
        assert Cache(cache.root, limit).tidy() == limit
        assert kept_in(cache) == sorted(oldest[gone:])

    def _tidy(self, data: st.DataObject, cache: Cache) -> None:
        """What the killed left goes, all else stays."""
        before = kept_in(cache)
        cache.tidy()
        assert kept_in(cache) == before

    def _reboot(self, data: st.DataObject, cache: Cache) -> None:
        """Everything that the machine had in memory is gone."""
        shutil.rmtree(cache.root)
        cache.root.mkdir()

    def _clean(self, data: st.DataObject, cache: Cache) -> None:
        """Someone removes files, of kept folders, too."""
        for folder in kept_in(cache):
            for file in data.draw(st.lists(st.sampled_from(sorted(folder.iterdir())), max_size=2, unique=True)):
                file.unlink()
                (folder / DAMAGED).touch()

    # ---------------------------------------------------------------- what is always so

    def _check_batch(self, stream: Stream, out: Output) -> None:
        """Invariants 1 and 2."""
        scenario, n = stream.scenario, stream.batches - 1
        assert bag(out.results) == bag(expected(scenario)[n])
        late = [(name, row[0], row[-1]) for name, row in late_at(scenario, n)]
        assert Counter(late_rows(scenario, out.late)) == Counter(late)
        stream.held += out.total("inserted") - out.total("expired")
        assert out.total("stored") == stream.held
        rebuilt = [rebuild(scenario, store) for store in stream.stores.values()]
        for i in (0, 1):
            assert bag([row for join in rebuilt for row in stored(join, i)]) == bag(expected_state(scenario, i)[n])
        assert {tuple(join.watermarks) for join in rebuilt} == {tuple(side.watermarks()[n] for side in scenario.sides)}

    def _follows(self, before: MemoryStore, after: MemoryStore) -> None:
        """Invariant 3, from one committed header to the next."""
        new = header_of(after)
        old = header_of(before) if before.header is not None else None
        assert new.batches == (old.batches + 1 if old else 1)
        assert new.next_id >= (old.next_id if old else 0)
        known = {e.id for e in old.segments} if old else set()
        assert all(e.id in known or (old.next_id if old else 0) <= e.id < new.next_id for e in new.segments)
        assert all(after.segments[id] == before.segments[id] for id in known & set(after.segments))

    @invariant()
    def headers_list_what_is_there(self) -> None:
        """Invariant 3."""
        for stream in getattr(self, "streams", []):
            for store in stream.snapshots.values():
                listed = {e.id: (e.size, e.checksum) for e in header_of(store).segments}
                assert {id: (len(data), zlib.crc32(data)) for id, data in store.segments.items()} == listed

    @invariant()
    def folders_hold_what_their_token_says(self) -> None:
        """Invariants 4 and 5."""
        for machine in self.machines:
            for folder in machine.root.iterdir():
                if TAKEN in folder.name:
                    assert folder in self.killed
                elif not damaged(folder):
                    now = {file.name: zlib.crc32(file.read_bytes()) for file in folder.iterdir()}
                    if folder not in self.fingerprints:
                        self._check_folder(folder)
                        self.fingerprints[folder] = now
                    assert now == self.fingerprints[folder]

    def _check_folder(self, folder: Path) -> None:
        stream = next(s for s in self.streams if folder.name in s.snapshots)
        store = stream.snapshots[folder.name]
        found = HashJoin().start(stream.scenario.query(), MappedArrays(folder))
        caches.load(found, folder)
        rebuilt = rebuild(stream.scenario, store)
        assert contents(found) == contents(rebuilt)
        segments = {file.name for file in folder.glob("*.arrow")}
        assert segments == {f"{e.id}.arrow" for e in header_of(store).segments}


def rebuild(scenario: Scenario, store: MemoryStore) -> RunningHashJoin:
    join = HashJoin().start(scenario.query())
    log.rebuild(join, header_of(store), store)
    return join


def contents(join: RunningHashJoin) -> Any:
    """Progress, and of each stream the tuples and the living rows of each segment."""
    living = [
        {part.id: int(s.segments.left[number]) for number, part in s.segments.parts.items()} for s in join.streams
    ]
    assert [sum(left.values()) for left in living] == [len(s) for s in join.streams]
    return list(join.watermarks), [bag(stored(join, i)) for i in (0, 1)], living


def size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


Protocol.TestCase.settings = settings(max_examples=30, stateful_step_count=10)
TestProtocol = Protocol.TestCase
