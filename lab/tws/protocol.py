"""The protocol of state, cache, retry and compaction, as a state machine over the real code.

A *store* holds the durable state of one shard; what a task writes to it is seen once the batch commits, and never if it
does not. A *cache* belongs to one machine and holds working states in folders, each under the random token of the
durable state that it equals. Tasks may be tried several times, at once, on any machine, with their input cut and
ordered in another way each time, and may end at any moment. Whatever happens, the eight
invariants that ARCHITECTURE.md lists under "The state protocol" hold.

The machine runs streams of any kind: `lab.tws.subject_runs` has those of every kind of operator.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import event
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lab.tws.attempts import DAMAGED, NO_PROCESS, Attempt, DiskFullError, Killed, Machines, damaged, kept_in
from lab.tws.contents import check_folder, size
from lab.tws.task import header_of
from watersmeet.errors import StateError, StateMismatchError
from watersmeet.joins import Operator
from watersmeet.model.batches import Batch
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.state import segments, stream_state, value_lists
from watersmeet.state.durable import cache as caches
from watersmeet.state.durable import log, parts
from watersmeet.state.durable.cache import TAKEN, Cache, files_of
from watersmeet.state.durable.log import Header, MemoryStore
from watersmeet.state.durable.memory_bound import SPILLED
from watersmeet.state.punctuations import bounds
from watersmeet.state.spill import SpilledPieces

#: What may be small on purpose, so that a few rows are enough to slice, merge and compact; None: as it is.
LIMITS: dict[tuple[Any, str], tuple[int | None, ...]] = {
    (stream_state, "MAX_SMALL_SEGMENTS"): (None, 1, 1, 4),
    (stream_state, "SMALL_BYTES"): (None, None, 0),
    (segments, "SEGMENT_BYTES"): (None, None, 64),
    (parts, "MOST_PIECES"): (None, 1, 3),
    (bounds, "MERGED_FROM"): (None, 0),
    (bounds, "LONG_RUN"): (None, 2),
    (log, "KNOWN_VERSIONS"): (None, None, 2),
}
#: How an attempt ends that does not commit.
ENDINGS = ("finished", "cancelled", "killed", "cannot write", "killed while writing")


class Run(ABC):
    """A query with its shards: what was committed, and what the store held at any token ever written."""

    def __init__(self, query: Any, join: Operator, ids: tuple[int, ...]) -> None:
        self.query, self.join, self.ids = query, join, ids
        self.stores = {id: MemoryStore() for id in ids}
        self.snapshots: dict[str, MemoryStore] = {}

    @abstractmethod
    def processor(self, *, ended: bool = False) -> ShardProcessor:
        """What runs it on a shard."""

    @abstractmethod
    def draw_batch(self, data: st.DataObject) -> bool:
        """Draw the rows of the coming batch; False if there is none."""

    @abstractmethod
    def blobs(self, chance: Random) -> pa.Table:
        """The coming batch, packed."""

    @abstractmethod
    def following(self, header: Header) -> Sequence[Batch]:
        """A batch that may follow a state, as its shard gets it."""

    @abstractmethod
    def check(self, attempts: Sequence[Attempt]) -> None:
        """Invariants 1 and 2, of the coming batch that these attempts have just committed."""

    def agree(self, twins: Sequence[Attempt]) -> None:
        """Two attempts at one task have the same output."""
        one, two = (twin.output(self.query.schema.names) for twin in twins)
        assert one == two


class Observed(Attempt):
    """An attempt on a machine; it notes what the store would hold, and what it should read."""

    def __init__(
        self,
        run: Run,
        shard: int,
        store: MemoryStore,
        machine: Cache,
        chance: Random,
        fails: tuple[str, int] | None,
        given: pa.Table,
        *,
        ended: bool = False,
    ) -> None:
        super().__init__(run, shard, store, given, fails, chance, ended=ended)
        self.of, self.machine = run, machine
        self.to_read: list[int] | None = None

    def advance(self) -> bool:
        if self.to_read is None:
            self.to_read = self.should_read()
        try:
            return super().advance()
        finally:
            now = self.task.store()
            if now.header is not None and now.header != self.before:
                self.of.snapshots.setdefault(header_of(now).token, now)

    def should_read(self) -> list[int]:
        """Segments that stand in the header and not in what the machine's cache has; none of a damaged header."""
        try:
            header = Header.unpack(self.before) if self.before is not None else None
        except StateError:
            header = None
        if header is None:
            return []
        listed = [e.id for e in header.segments if e.kind != SpilledPieces.kind]
        missed: list[log.Version] = []
        for version in reversed(header.versions):
            if (self.machine.root / version.token).exists():
                break
            missed.append(version)
        else:
            return listed
        if damaged(self.machine.root / version.token) or any(v.rewritten for v in missed):
            return listed
        added = {id for v in missed for id in v.added}
        return [id for id in listed if id in added]

    def check_reads(self) -> None:
        """Invariant 6."""
        spilled: list[int] = []
        if self.before is not None:
            spilled = [e.id for e in Header.unpack(self.before).segments if e.kind == SpilledPieces.kind]
        assert self.to_read is not None
        assert sorted(id for id in self.reads if id not in spilled) == sorted(self.to_read)
        assert len(set(self.reads)) == len(self.reads), "each once"
        statistics = self.statistics()
        found = {name: statistics[name] for name in ("cache_hit", "caught_up", "rebuilt")}
        assert sum(found.values()) == (self.before is not None)
        assert not (found["cache_hit"] and self.to_read)
        event(", ".join(name for name, yes in found.items() if yes) or "first batch")
        event("compacted" if header_of(self.task.store()).versions[-1].rewritten else "not compacted")


class Protocol(RuleBasedStateMachine):
    """Runs of two queries on three machines."""

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.patch = self.stack.enter_context(pytest.MonkeyPatch.context())
        root = Path(self.stack.enter_context(tempfile.TemporaryDirectory(dir=worker_cache.base())))
        self.machines = Machines(root, self.patch, 3)
        self.room = root / "room"
        self.room.mkdir()
        self.fingerprints: dict[Path, dict[str, int]] = {}
        self.listed: set[str] = set()  # tokens of snapshots that were looked at
        self.runs: list[Run] = []
        self.rebooted: set[Path] = set()  # what was spilled by states that were lost with a machine's memory
        tokens = map("{:032x}".format, count())  # in order: a failure found can be found again
        self.patch.setattr(log, "secrets", SimpleNamespace(token_hex=lambda _: next(tokens)))

    def teardown(self) -> None:
        self.stack.close()

    def drawn_run(self, data: st.DataObject, which: int) -> Run:
        """The first or the second query."""
        raise NotImplementedError

    @initialize(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        self.runs = [self.drawn_run(data, which) for which in range(2)]
        for (module, name), values in LIMITS.items():
            value = data.draw(st.sampled_from(values), label=name)
            if value is not None:
                self.patch.setattr(module, name, value)
        self.patch.setattr(value_lists, "CHUNK", 2)  # many frames, many moments to end at
        self.patch.setattr(segments, "SMALL_TABLE", 0)
        self.patch.setattr(caches, "REST", 0)  # whoever keeps a state tidies
        self.patch.setattr(caches, "SHORTEST_REST", 0)
        for run in self.runs:
            self._batch(data, run, rival=False)

    # ---------------------------------------------------------------- batches

    @rule(data=st.data(), which=st.integers(0, 1), times=st.integers(1, 4), rival=st.booleans())
    def batches(self, data: st.DataObject, which: int, times: int, rival: bool) -> None:
        for _ in range(times):
            self._batch(data, self.runs[which], rival)

    def _batch(self, data: st.DataObject, run: Run, rival: bool) -> None:
        """Each shard's task ends badly a few times, perhaps races a twin, and commits once."""
        if not run.draw_batch(data):
            return
        winners: dict[int, Observed] = {}
        for shard in run.ids:
            for _ in range(data.draw(st.sampled_from([0, 0, 1, 2]), label="troubles")):
                self._ends_badly(data, run, shard)
            winner = self._race(data, run, shard) if rival else self._whole(data, run, shard)
            winner.check_reads()
            winners[shard] = winner
        stores = {shard: winner.task.store() for shard, winner in winners.items()}
        for shard, store in stores.items():
            self._follows(run.stores[shard], store)
        run.stores = stores
        run.check(list(winners.values()))

    def _attempt(
        self,
        data: st.DataObject,
        run: Run,
        shard: int,
        fails: tuple[str, int] | None = None,
        store: MemoryStore | None = None,
        *,
        ended: bool = False,
    ) -> Observed:
        machine = data.draw(st.sampled_from(self.machines.caches), label="machine")
        chance = Random(data.draw(st.integers(0, 1 << 32), label="order"))
        given = run.blobs(chance)
        given = given.take(pa.array(chance.sample(range(given.num_rows), given.num_rows), pa.int64()))
        return Observed(run, shard, store or run.stores[shard], machine, chance, fails, given, ended=ended)

    def _advance(self, attempt: Observed) -> bool:
        self.machines.here = attempt.machine
        going_on = attempt.advance()
        if not going_on:
            assert not list(attempt.machine.root.glob(f"*{TAKEN}{NO_PROCESS}"))
        return going_on

    def _to_its_end(self, attempt: Observed) -> Observed:
        while self._advance(attempt):
            pass
        return attempt

    def _whole(self, data: st.DataObject, run: Run, shard: int) -> Observed:
        return self._to_its_end(self._attempt(data, run, shard))

    def _race(self, data: st.DataObject, run: Run, shard: int) -> Observed:
        """Two attempts at once, to the end; one of them commits."""
        twins = [self._attempt(data, run, shard) for _ in range(2)]
        running = list(twins)
        while running:
            attempt = data.draw(st.sampled_from(running), label="whose turn") if len(running) > 1 else running[0]
            if not self._advance(attempt):
                running.remove(attempt)
        run.agree(twins)
        return data.draw(st.sampled_from(twins), label="winner")

    def _ends_badly(self, data: st.DataObject, run: Run, shard: int) -> None:
        """An attempt that does not commit: it is stopped, dies, cannot write, or finishes and is not needed."""
        ending = data.draw(st.sampled_from(ENDINGS), label="ending")
        moment = data.draw(st.integers(0, 4), label="moment")
        attempt = self._attempt(data, run, shard, (ending, moment))
        try:
            for n in count():
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
        run = self.runs[which]
        if not run.draw_batch(data):
            return
        shard = data.draw(st.sampled_from(run.ids), label="shard")
        whole = run.stores[shard]
        broken, id = self._broken(data, whole, how)
        attempt = self._attempt(data, run, shard, store=broken)
        error: StateError | None = None
        try:
            self._to_its_end(attempt)
        except StateError as refusal:
            error = refusal
        assert attempt.to_read is not None
        assert how == "changed header" or id not in attempt.to_read or id in attempt.reads, "it had to be read"
        refused = how == "changed header" or id in attempt.reads
        event(f"{how}: {'refused' if refused else 'not read'}")
        assert (error is not None) == refused
        after = attempt.task.store()
        if error is not None:
            assert ("the state" if how == "changed header" else f"segment {id} ") in str(error)
            assert (after.header, after.segments) == (broken.header, broken.segments)
        else:
            repaired = {e.id: whole.segments.get(e.id) or after.segments[e.id] for e in header_of(after).segments}
            run.snapshots[header_of(after).token].segments = repaired
        self._batch(data, run, rival=False)

    def _broken(self, data: st.DataObject, whole: MemoryStore, how: str) -> tuple[MemoryStore, int]:
        """A copy of the store with something wrong in it, and the segment that it is (-1: none)."""
        broken = MemoryStore()
        broken.header, broken.segments = whole.header, dict(whole.segments)
        assert whole.header is not None
        if how == "changed header":
            place = data.draw(st.integers(0, len(whole.header) - 1), label="place")
            broken.header = whole.header[:place] + bytes([whole.header[place] ^ 1]) + whole.header[place + 1 :]
            return broken, -1
        if not whole.segments:
            return broken, -1
        id = data.draw(st.sampled_from(sorted(whole.segments)), label="segment")
        if how == "lost segment":
            del broken.segments[id]
        else:
            broken.segments[id] = whole.segments[id][:-1] + bytes([whole.segments[id][-1] ^ 1])
        return broken, id

    @rule(data=st.data(), which=st.integers(0, 1))
    def last_batch_is_given_up(self, data: st.DataObject, which: int) -> None:
        """The coming batch is the last one, on two machines and without a commit; a state that has ended is refused."""
        run = self.runs[which]
        if not run.processor(ended=True).ended or not run.draw_batch(data):
            return
        shard = data.draw(st.sampled_from(run.ids), label="shard")
        twins = [self._to_its_end(self._attempt(data, run, shard, ended=True)) for _ in range(2)]
        run.agree(twins)
        over = twins[0].task.store()
        assert header_of(over).metadata[log.ENDED]
        attempt = self._attempt(data, run, shard, store=over)
        with pytest.raises(StateMismatchError, match="has ended"):
            self._advance(attempt)
        after = attempt.task.store()
        assert (after.header, after.segments) == (over.header, over.segments)

    @rule(
        data=st.data(),
        which=st.integers(0, 1),
        machine=st.integers(0, 2),
        what=st.sampled_from(["evict", "tidy", "reboot", "clean"]),
    )
    def machine_forgets(self, data: st.DataObject, which: int, machine: int, what: str) -> None:
        """Invariants 5 and 8."""
        cache = self.machines.caches[machine]
        {"evict": self._evict, "tidy": self._tidy, "reboot": self._reboot, "clean": self._clean}[what](data, cache)
        assert what == "clean" or not [f for f in cache.root.iterdir() if TAKEN in f.name]
        self._batch(data, self.runs[which], rival=False)

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
        self.rebooted |= spilled_by(cache)
        shutil.rmtree(cache.root)
        cache.root.mkdir()

    def _clean(self, data: st.DataObject, cache: Cache) -> None:
        """Someone removes files, of kept folders, too, or leaves half of them."""
        for folder in kept_in(cache):
            for file in data.draw(st.lists(st.sampled_from(sorted(files_of(folder))), max_size=2, unique=True)):
                if file.stat().st_size and data.draw(st.booleans(), label="torn"):
                    os.truncate(file, file.stat().st_size // 2)
                else:
                    file.unlink()
                (folder / DAMAGED).touch()

    # ---------------------------------------------------------------- what is always so

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
        for run in self.runs:
            for token in run.snapshots.keys() - self.listed:
                store = run.snapshots[token]
                listed = {e.id: (e.size, e.checksum) for e in header_of(store).segments}
                assert {id: (len(data), zlib.crc32(data)) for id, data in store.segments.items()} == listed
                self.listed.add(token)

    @invariant()
    def folders_hold_what_their_token_says(self) -> None:
        """Invariants 4 and 5."""
        left = self.machines.left()
        for machine in self.machines.caches:
            for folder in machine.root.iterdir():
                if TAKEN in folder.name:
                    assert folder in left
                elif not damaged(folder):
                    now = {file.name: zlib.crc32(file.read_bytes()) for file in files_of(folder)}
                    if folder not in self.fingerprints:
                        run = next(run for run in self.runs if folder.name in run.snapshots)
                        store = run.snapshots[folder.name]
                        check_folder(folder, run.join, store, run.following(header_of(store)), self.room)
                        self.fingerprints[folder] = now
                    assert now == self.fingerprints[folder]

    @invariant()
    def what_is_spilled_has_an_owner(self) -> None:
        """Invariant 5: it is removed with the folder that names it."""
        disk = self.machines.caches[0].disk
        owned = set().union(*map(spilled_by, self.machines.caches))
        assert not disk.exists() or set(disk.iterdir()) == owned | self.rebooted


def spilled_by(cache: Cache) -> set[Path]:
    """Folders on the disk that working states in memory name."""
    links = [folder / SPILLED for folder in cache.root.iterdir()]
    return {link.readlink() for link in links if link.is_symlink()}
