"""The working state of a shard: taken from the worker's cache, or rebuilt from the durable state."""

from __future__ import annotations

from watersmeet.joins import Operator
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.store import SparkStore
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache as caches
from watersmeet.state.durable import log
from watersmeet.state.durable.memory_bound import MemoryBound
from watersmeet.state.shards import ShardKeys


class WorkingState:
    """The working state of a shard during one batch: found in the cache, caught up, or rebuilt."""

    def __init__(
        self, join: Operator, header: log.Header, store: SparkStore, shard_keys: ShardKeys, memory: int | None = None
    ) -> None:
        self.shard_keys = shard_keys
        self.memory = memory
        self.bound: MemoryBound | None = None
        self.found = {"cache_hit": 0, "caught_up": 0, "rebuilt": 0, "not_kept": 0}
        self.cache = worker_cache.application_cache()
        tokens = [v.token for v in reversed(header.versions)]
        taken = self.cache.take(tokens)
        self.folder = taken[1] if taken else self.cache.fresh()
        try:
            self._find(join, header, store, taken[0] if taken else None)
        except BaseException:
            self.__exit__()
            raise

    def _find(self, join: Operator, header: log.Header, store: SparkStore, token: str | None) -> None:
        if token and self._adopt(join, header, store, token):
            return
        if token:
            caches.remove(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._open(join, header, store)
        if header.batches:
            self.found["rebuilt"] = 1
            log.rebuild(self.join, header, self.store)

    def _open(self, join: Operator, header: log.Header, store: SparkStore) -> None:
        self.store = store
        arrays = MappedArrays(self.folder)
        self.join = join.start(arrays)
        if self.memory is not None:
            segments = [stream.segments for stream in self.join.streams]
            self.bound = MemoryBound(self.memory, arrays, segments, self.folder, self.cache.disk)
        self.join.owns(self.shard_keys)
        log.attach(self.join, header, store)

    def _adopt(self, join: Operator, header: log.Header, store: SparkStore, token: str) -> bool:
        """Continue from a state found in the cache, if it is the header's version or can catch up with it."""
        if not caches.complete(self.folder):
            return False
        self._open(join, header, store)
        if not caches.load(self.join, self.folder):
            return False
        if token == header.token:
            self.found["cache_hit"] = 1
            return True
        if log.catch_up(self.join, token, header, self.store):
            self.found["caught_up"] = 1
            return True
        return False

    def keep(self, token: str) -> None:
        """Keep the working state for the next batch, which rebuilds it if there is no room to keep it."""
        try:
            if self.bound is not None:
                self.bound.fit()  # the lists may have grown since the last segment was added
                self.bound.release()
            caches.save(self.join, self.folder)
            self.cache.keep(self.folder, token)
        except OSError:  # the durable state is written: nothing is lost, and the batch goes on
            self.found["not_kept"] = 1
        self.cache.tidy_when_due()

    def __enter__(self) -> WorkingState:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.bound is not None:
            self.bound.lift()  # what refers to each other waits for the garbage collector
        caches.remove(self.folder)  # kept ones have been renamed away
