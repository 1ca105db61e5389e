"""Attempts at a task, which are cancelled, killed, or have a store that cannot write; and machines that they run on."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, Protocol

import pandas as pd
import pyarrow as pa
import pytest

from lab.tws.task import Task, table_of
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.processor import ShardProcessor
from watersmeet.spark.runtime.row_kinds import RESULT, STATS
from watersmeet.spark.runtime.working_state import WorkingState
from watersmeet.state.durable.cache import TAKEN, Cache
from watersmeet.state.durable.log import MemoryStore

#: No process has this number.
NO_PROCESS = 1 << 30
#: Marks a folder that someone removed files from.
DAMAGED = "damaged"


class Killed(BaseException):
    """The process is killed: no code of it runs any more, not even cleanup."""


class DiskFullError(OSError):
    """The store could not write."""


class Machines:
    """A few machines, each with a cache; the processor finds that of `here`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, count: int = 2) -> None:
        self.caches = [Cache(folder / str(n), 1 << 30) for n in range(count)]
        self.here = self.caches[0]
        self.killed: list[Path] = []  # what killed attempts left
        patch.setattr(worker_cache, "application_cache", lambda: self.here)
        real = WorkingState.__exit__

        def leave(working: Any, *exc: Any) -> None:
            if exc and isinstance(exc[1], Killed):
                if working.folder.exists():  # not yet kept
                    name = working.folder.name.partition(TAKEN)[0]
                    self.killed.append(working.folder.rename(working.folder.with_name(f"{name}{TAKEN}{NO_PROCESS}")))
                return
            real(working, *exc)

        patch.setattr(WorkingState, "__exit__", leave)

    def left(self) -> list[Path]:
        """What killed attempts left and nothing has removed."""
        self.killed = [folder for folder in self.killed if folder.exists()]
        return self.killed


def damaged(folder: Path) -> bool:
    return (folder / DAMAGED).exists()


def kept_in(cache: Cache) -> list[Path]:
    return sorted(folder for folder in cache.root.iterdir() if TAKEN not in folder.name)


class Runs(Protocol):
    """An operator over shards."""

    @property
    def query(self) -> Any: ...

    @property
    def ids(self) -> tuple[int, ...]: ...

    def processor(self, *, ended: bool = False) -> ShardProcessor: ...


class Attempt:
    """A running task; counts its frames, reads and writes, and may fail at one of its frames or writes."""

    def __init__(
        self,
        of: Runs,
        shard: int,
        store: MemoryStore,
        given: pa.Table,
        fails: tuple[str, int] | None = None,
        chance: Random | None = None,
        *,
        ended: bool = False,
    ) -> None:
        self.task = Task(of.query, of.ids, shard, store, ended=ended, processor=of.processor(ended=ended))
        self.before = store.header
        self.fails = fails
        self.frames: list[pd.DataFrame] = []
        self.reads: list[int] = []
        self.writes = 0
        segments = self.task.tester.handle.map_states["segments"]
        header = self.task.tester.handle.value_states["header"]
        segments.getValue = self._noted(segments.getValue)  # type: ignore[method-assign]
        segments.updateValue = self._counted(segments.updateValue)  # type: ignore[method-assign]
        segments.removeKey = self._counted(segments.removeKey)  # type: ignore[method-assign]
        header.update = self._counted(header.update)  # type: ignore[method-assign]
        self.generator: Any = self.task.run(given, chance or Random(1))

    def _noted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def get(key: tuple[int]) -> Any:
            self.reads.append(key[0])
            return real(key)

        return get

    def _counted(self, real: Callable[..., None]) -> Callable[..., None]:
        def write(*values: Any) -> None:
            if self.fails == ("cannot write", self.writes):
                raise DiskFullError
            if self.fails == ("killed while writing", self.writes):
                raise Killed
            self.writes += 1
            real(*values)

        return write

    def advance(self) -> bool:
        """Run up to the next frame; False at the end."""
        frame = next(self.generator, None)
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

    def run(self) -> None:
        while self.advance():
            if self.fails == ("cancelled", len(self.frames) - 1):
                return self.cancel()
            if self.fails == ("killed", len(self.frames) - 1):
                return self.kill()

    def output(self, names: list[str]) -> Counter[str]:
        """All rows but statistics."""
        out: Counter[str] = Counter()
        for frame in self.frames:
            table = table_of(frame, self.task.processor.output_rows)
            kind = table.column(0)[0].as_py()
            if kind == RESULT:
                out.update(repr(row) for row in table.select(names).to_pylist())
            elif kind != STATS:
                out.update(json.dumps([kind, json.loads(detail)]) for detail in table.column(1).to_pylist())
        return out

    def statistics(self) -> dict[str, Any]:
        """The row of statistics, which is the last one."""
        assert self.frames[-1].iloc[0, 0] == STATS
        return dict(json.loads(str(self.frames[-1].iloc[0, 1])))
