"""Failing attempts at a task: cancelled, killed, or with a store that cannot write."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from lab.tws.subjects import IDS, Subject
from lab.tws.task import Task
from watersmeet.spark.runtime import worker_cache
from watersmeet.spark.runtime.row_kinds import RESULT, STATS
from watersmeet.spark.runtime.working_state import WorkingState
from watersmeet.state.durable.cache import TAKEN, Cache
from watersmeet.state.durable.log import MemoryStore

#: No process has this number.
NO_PROCESS = 1 << 30


class Killed(BaseException):
    """The process is killed: no code of it runs any more, not even cleanup."""


class DiskFullError(OSError):
    """The store could not write."""


class Machines:
    """Two machines, each with a cache; the processor finds that of `here`."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.caches = [Cache(folder / str(n), 1 << 30) for n in range(2)]
        self.here = self.caches[0]
        patch.setattr(worker_cache, "application_cache", lambda: self.here)
        real = WorkingState.__exit__

        def leave(working: Any, *exc: Any) -> None:
            if exc and isinstance(exc[1], Killed):
                if working.folder.exists():
                    name = working.folder.name.partition(TAKEN)[0]
                    working.folder.rename(working.folder.with_name(f"{name}{TAKEN}{NO_PROCESS}"))
                return
            real(working, *exc)

        patch.setattr(WorkingState, "__exit__", leave)


class Attempt:
    """A running task; counts its frames and writes, and may fail at one of them."""

    def __init__(
        self, of: Subject, shard: int, store: MemoryStore, given: pa.Table, fails: tuple[str, int] | None = None
    ) -> None:
        self.task = Task(of.query, IDS, shard, store, ended=False, processor=of.processor())
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

    def output(self, names: list[str]) -> Counter[str]:
        """All rows but statistics."""
        out: Counter[str] = Counter()
        for frame in self.frames:
            table = pa.Table.from_pandas(frame, preserve_index=False)
            kind = table.column(0)[0].as_py()
            if kind == RESULT:
                out.update(repr(row) for row in table.select(names).to_pylist())
            elif kind != STATS:
                out.update(json.dumps([kind, json.loads(detail)]) for detail in table.column(1).to_pylist())
        return out
