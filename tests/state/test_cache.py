"""Working states that someone has torn, or that have no room."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.errors import MemoryLimitError
from watersmeet.joins.pwjoin import PWJoin, RunningPWJoin
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log
from watersmeet.state.durable.cache import Cache


def query() -> JoinQuery:
    def spec(name: str) -> StreamSpec:
        schema = pa.schema([(f"{name}_ts", pa.int64()), ("k", pa.string()), (f"{name}_n", pa.int64())])
        return StreamSpec(name, schema, f"{name}_ts", ("k",), TimeWindow(100), 0)

    return JoinQuery((spec("a"), spec("b")))


def saved(folder: Path) -> RunningPWJoin:
    """A join that has seen a batch, its working state saved in `folder`."""
    join = PWJoin().start(query(), MappedArrays(folder))
    batches = []
    for spec in query().streams:
        columns: list[Any] = [list(range(50)), [f"key {n % 7}" for n in range(50)], list(range(50))]
        batches.append(Batch.of(pa.record_batch(columns, schema=spec.schema), spec.time))
    assert sum(t.num_rows for t in join.step(batches))
    log.commit(join, log.begin(query()), log.MemoryStore())
    cache.save(join, folder)
    return join


def test_a_working_state_is_complete_only_to_the_last_byte(tmp_path: Path) -> None:
    saved(tmp_path)
    assert cache.complete(tmp_path)
    files = [f for f in sorted(tmp_path.iterdir()) if f.stat().st_size]
    assert len(files) > 5
    for file in files:
        whole = file.read_bytes()
        for left in (0, len(whole) // 2, len(whole) - 1):
            file.write_bytes(whole[:left])
            assert not cache.complete(tmp_path), f"{left} of {len(whole)} bytes of {file.name}"
        file.unlink()
        assert not cache.complete(tmp_path)
        file.write_bytes(whole)
        assert cache.complete(tmp_path)


def test_saved_again_it_is_complete_again(tmp_path: Path) -> None:
    join = saved(tmp_path)
    cache.save(join, tmp_path)
    assert cache.complete(tmp_path)


def test_a_disk_without_room_is_reported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, start: int, size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    (tmp_path / "state").mkdir()
    with pytest.raises(MemoryLimitError) as caught:
        MappedArrays(tmp_path / "state").allocate("x", 8, "int64")
    assert str(caught.value) == (
        f"the working state does not fit: {tmp_path} has no room for 64 bytes more.\n"
        "Hint: make room there, or give the state less to keep: shorter windows, punctuations."
    )


def test_a_cache_that_is_gone_is_tidy(tmp_path: Path) -> None:
    cache = Cache(tmp_path / "states", 100)
    cache.root.rmdir()
    assert cache.tidy() == 0
    cache.tidy_when_due()
    assert not cache.root.exists()


def test_a_process_rests_after_it_has_tidied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It looks at all states of the machine: after every shard that would be the square of their number."""
    states, now, took = Cache(tmp_path / "states", 0), [1000.0], [0.0]
    tidied: list[float] = []

    def tidy(self: Cache) -> int:
        tidied.append(now[0])
        now[0] += took[0]
        return 0

    monkeypatch.setattr(Cache, "tidy", tidy)
    monkeypatch.setattr(cache, "time", SimpleNamespace(monotonic=lambda: now[0]))
    states.tidy_when_due()
    for now[0] in (1000.9, 1001.0, 1001.5):
        Cache(tmp_path / "states", 0).tidy_when_due()
    Cache(tmp_path / "others", 0).tidy_when_due()
    took[0] = 0.1
    for now[0] in (1002.0, 1012.0, 1012.2):
        states.tidy_when_due()
    assert tidied == [1000.0, 1001.0, 1001.5, 1002.0, 1012.2], "a second, or a hundred times as long as it took"
