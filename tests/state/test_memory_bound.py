"""Rows beyond a bound of memory: which are spilled, where to, and when they go."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.errors import MemoryLimitError
from watersmeet.joins.pwjoin import PWJoin, RunningPWJoin
from watersmeet.model.batches import Batch
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow
from watersmeet.state import segments
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.durable import cache, log, memory_bound
from watersmeet.state.durable.memory_bound import SPILLED, MemoryBound
from watersmeet.state.segments import SpilledSegment

#: Rows of a stream in a batch, and bytes of one: three columns of numbers.
ROWS, ROW = 50, 24


class Bounded:
    """A join of which the lists and so many rows have room in memory, over its store."""

    def __init__(self, tmp_path: Path, rows: int) -> None:
        self.folder, self.disk = tmp_path / "working", tmp_path / "disk"
        self.folder.mkdir()
        self.query = JoinQuery((_spec("a"), _spec("b")))
        self.store, self.header, self.rows, self.batches = log.MemoryStore(), log.begin(self.query), rows, 0
        self.open()

    def open(self) -> None:
        arrays = MappedArrays(self.folder)
        self.join: RunningPWJoin = PWJoin().start(self.query, arrays)
        of_streams = [stream.segments for stream in self.join.streams]
        limit = arrays.bytes if self.rows == 0 else 1 << 40
        self.bound = MemoryBound(limit, arrays, of_streams, self.folder, self.disk)

    def step(self) -> None:
        """A batch of the rows of one more time of the window of three."""
        batches = []
        for spec in self.query.streams:
            columns: list[Any] = [[self.batches] * ROWS, list(range(ROWS)), list(range(ROWS))]
            batches.append(Batch.of(pa.record_batch(columns, schema=spec.schema), spec.time))
        expected = ROWS * (2 * min(self.batches, 3) + 1)
        object.__setattr__(self.bound, "limit", 1 << 40)
        assert sum(t.num_rows for t in self.join.step(batches)) == expected
        # lists have room, whatever they take by now
        object.__setattr__(self.bound, "limit", self.bound.arrays.bytes + self.rows * ROW)
        self.header = log.commit(self.join, self.header, self.store)
        cache.save(self.join, self.folder)
        self.batches += 1

    def spilled(self) -> list[int]:
        """Ids of the segments that are spilled."""
        parts = [part for stream in self.join.streams for part in stream.segments.parts.values()]
        return sorted(part.id for part in parts if isinstance(part, SpilledSegment))


def _spec(name: str) -> StreamSpec:
    schema = pa.schema([(f"{name}_ts", pa.int64()), ("k", pa.int64()), (f"{name}_n", pa.int64())])
    return StreamSpec(name, schema, f"{name}_ts", ("k",), TimeWindow(3), 0)


def names(folder: Path) -> list[str]:
    return sorted((file.name for file in folder.glob("*.arrow")), key=lambda name: int(name.split(".")[0]))


def test_the_oldest_rows_are_spilled_and_no_more_than_needed(tmp_path: Path) -> None:
    of = Bounded(tmp_path, rows=3 * ROWS)
    of.step()
    assert of.spilled() == []
    assert not (of.folder / SPILLED).is_symlink()
    of.step()  # a's and b's rows of two batches; lists and rows of three streams' batches have room
    assert of.spilled() == [0]
    of.step()
    assert of.spilled() == [0, 1, 2]
    assert names(of.folder) == ["3.arrow", "4.arrow", "5.arrow"]
    assert names(of.folder / SPILLED) == ["0.arrow", "1.arrow", "2.arrow"]
    spilled = [stream.segments.spilled for stream in of.join.streams]
    assert spilled == [2 * ROWS * ROW, ROWS * ROW]
    assert sum(stream.segments.bytes for stream in of.join.streams) == 6 * ROWS * ROW


def test_the_next_process_finds_them_and_files_go_with_their_rows(tmp_path: Path) -> None:
    of = Bounded(tmp_path, rows=0)
    for _ in range(7):
        of.step()
        of.open()
        assert cache.complete(of.folder)
        assert cache.load(of.join, of.folder)
    assert of.spilled() == list(range(6, 14)), "of the last four batches: the window is three"
    assert names(of.folder / SPILLED) == [f"{id}.arrow" for id in of.spilled()]
    assert names(of.folder) == []
    (of.folder / SPILLED / "7.arrow").unlink()
    assert not cache.complete(of.folder)
    cache.remove(of.folder)
    assert list(of.disk.iterdir()) == []


def test_a_rebuilding_spills_as_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Bounded(tmp_path, rows=1 << 20)
    for _ in range(4):
        of.step()
    assert of.spilled() == []
    cache.remove(of.folder)
    of.folder.mkdir()
    of.rows = 0
    of.open()
    most = []
    monkeypatch.setattr(memory_bound, "drop_pages", lambda path: most.append(of.bound.used_bytes))
    log.rebuild(of.join, of.header, of.store)
    assert of.spilled() == list(range(8))
    assert max(most) <= of.bound.arrays.bytes + ROWS * ROW, "one segment at a time is in memory"


def test_segments_are_rewritten_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Bounded(tmp_path, rows=0)
    for _ in range(4):
        of.step()
    stream = of.join.streams[0]
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 2 * ROWS * ROW)
    numbers = sorted(stream.segments.parts)
    pieces = list(stream.rewrite(numbers))
    assert [some for some, _, _ in pieces] == [numbers[:2], numbers[2:]]
    assert [(rows.num_rows, slots.size) for _, rows, slots in pieces] == [(2 * ROWS, 2 * ROWS)] * 2


def test_a_full_disk_is_reported_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(rows: pa.RecordBatch, path: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(memory_bound, "keep", full)
    of = Bounded(tmp_path, rows=0)
    with pytest.raises(MemoryLimitError) as caught:
        of.step()
    assert str(caught.value) == (
        f"rows beyond `memory` do not fit: {of.disk} has no room for 1200 bytes more.\n"
        "Hint: make room there, give more `memory`, or keep less: shorter windows, punctuations."
    )


def test_other_errors_of_the_disk_are_shown_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(rows: pa.RecordBatch, path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(memory_bound, "keep", broken)
    of = Bounded(tmp_path, rows=0)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        of.step()
