"""Circular buffers alone, against a plain list of tuples."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lab.state.circular_soundness import Stored, assert_sound, rings_of
from watersmeet.kernels.baselines import circular_buffers as kernel
from watersmeet.model.windows import FOREVER
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.circular_buffers import CircularBuffers
from watersmeet.state.keys import Keys, encode


class Machine(RuleBasedStateMachine):
    """Inserts and expiries in any order; every ring is looked at after each."""

    text = False
    mapped = False

    @initialize(buckets=st.sampled_from([1, 2, 7, 100]))
    def begin(self, buckets: int) -> None:
        self.folder = tempfile.TemporaryDirectory() if self.mapped else None
        self.n = buckets
        self.buffers = self.open()
        self.model: list[tuple[Stored, str]] = []  # in the order of (time, arrival)
        self.left = np.zeros(1024, np.int64)
        self.segment = 0

    def open(self) -> CircularBuffers:
        return CircularBuffers(self.n, "0", MappedArrays(Path(self.folder.name)) if self.folder else None)

    def teardown(self) -> None:
        if getattr(self, "folder", None):
            self.folder.cleanup()

    def keys(self, numbers: list[int]) -> Keys:
        return encode(
            [pa.array([text(n) for n in numbers], pa.string()) if self.text else pa.array(numbers, pa.int64())]
        )

    def insert(self, rows: list[tuple[int, int, bool]]) -> None:
        times = np.array([t for t, _, _ in rows], np.int64)
        which = np.flatnonzero([taken for _, _, taken in rows])
        keys = self.keys([k for _, k, _ in rows])
        which, slots = self.buffers.insert(which, times, keys, self.segment)
        places = [(int(self.buffers.segment[s]), int(self.buffers.row[s])) for s in slots]
        assert places == [(self.segment, row) for row in which]
        self.model += [
            ((int(times[row]), int(keys.words[row]), self.segment, int(row)), text(rows[row][1])) for row in which
        ]
        self.model.sort(key=lambda stored: stored[0][0])
        self.left[self.segment] = which.size
        self.segment += 1

    @rule(rows=st.lists(st.tuples(st.integers(-5, 20), st.integers(-2, 5), st.booleans()), max_size=12))
    def insert_some(self, rows: list[tuple[int, int, bool]]) -> None:
        self.insert(rows)

    @rule(n=st.integers(1, 130), distinct=st.integers(1, 130), slow=st.integers(1, 20))
    def insert_many(self, n: int, distinct: int, slow: int) -> None:
        self.insert([(i // slow, i * 7 % distinct, True) for i in range(n)])

    @rule(before=st.one_of(st.integers(-5, 25), st.sampled_from([-FOREVER, FOREVER])))
    def expire(self, before: int) -> None:
        stay = [(stored, key) for stored, key in self.model if stored[0] >= before]
        assert self.buffers.older_than(before) == len(self.model) - len(stay)
        assert self.buffers.expire_before(before, self.left) == len(self.model) - len(stay)
        self.model = stay

    @rule()
    def attach_anew(self) -> None:
        if self.mapped:
            self.buffers = self.open()

    @invariant()
    def every_ring_is_in_the_order_of_time_and_arrival(self) -> None:
        assert_sound(self.buffers)
        buckets: list[list[Stored]] = [[] for _ in range(self.n)]
        for stored, _ in self.model:
            buckets[kernel.bucket_of(stored[1], self.n)].append(stored)
        assert rings_of(self.buffers) == buckets

    @invariant()
    def keys_keep_their_bytes(self) -> None:
        rings = self.buffers.rings
        bytes_of = {
            (int(rings.segment[s]), int(rings.row[s])): rings.arena[
                rings.at[s] : rings.at[s] + rings.length[s]
            ].tobytes()
            for s in self.buffers.living()
        }
        wanted = {stored[2:]: key.encode() if self.text else b"" for stored, key in self.model}
        assert bytes_of == wanted

    @invariant()
    def segments_know_how_many_of_their_rows_live(self) -> None:
        living = np.zeros_like(self.left)
        for (_, _, segment, _), _ in self.model:
            living[segment] += 1
        assert (living == self.left).all()


def text(n: int) -> str:
    return f"key {n} " + "x" * (n % 7)


class BytesMachine(Machine):
    text = True


class MappedMachine(BytesMachine):
    mapped = True


for machine in (Machine, BytesMachine, MappedMachine):
    machine.TestCase.settings = settings(max_examples=20, stateful_step_count=20)
TestWordKeys = Machine.TestCase
TestByteKeys = BytesMachine.TestCase
TestMappedByteKeys = MappedMachine.TestCase


# ---------------------------------------------------------------- by example


def insert(buffers: CircularBuffers, times: list[int], numbers: list[int], segment: int = 0) -> np.ndarray:
    rows, slots = buffers.insert(
        np.arange(len(times)), np.array(times), encode([pa.array(numbers, pa.int64())]), segment
    )
    return slots[np.argsort(rows)]


def test_expiry_takes_only_what_is_older() -> None:
    buffers = CircularBuffers(1)
    insert(buffers, [9, 1, 4, 4], [1, 2, 1, 2])
    assert [(time, row) for time, _, _, row in rings_of(buffers)[0]] == [(1, 1), (4, 2), (4, 3), (9, 0)]
    left = np.array([4])
    assert buffers.expire_before(4, left) == 1
    assert [time for time, *_ in rings_of(buffers)[0]] == [4, 4, 9]
    assert left.tolist() == [3]


@pytest.mark.parametrize("buckets", [1, 10, 100])
def test_numbers_in_a_row_spread_evenly(buckets: int) -> None:
    buffers = CircularBuffers(buckets)
    insert(buffers, [0] * 1000, list(range(1000)))
    held = buffers.rings.held
    assert held.max() - held.min() <= 3


@pytest.mark.parametrize("buckets", [1, 50])
def test_what_comes_back_out_of_order_moves_every_tuple_once(buckets: int) -> None:
    """As when a state is rebuilt from segments of which the first was written last."""
    buffers, n = CircularBuffers(buckets), 100_000
    insert(buffers, list(range(n, 2 * n)), list(range(n)))
    insert(buffers, list(range(n)), list(range(n)), 1)
    assert_sound(buffers)
    assert buffers.expire_before(n, np.array([n, n])) == n


def test_a_steady_stream_needs_no_more_room() -> None:
    buffers, left, sizes = CircularBuffers(7), np.zeros(1, np.int64), set()
    for n in range(300):
        texts = encode([pa.array([f"key {i}" for i in range(n * 50, n * 50 + 50)])])
        buffers.insert(np.arange(50), np.arange(n * 50, n * 50 + 50), texts, 0)
        buffers.expire_before(n * 50 - 100, left)
        if n > 20:
            sizes.add((buffers.rings.at.size, buffers.rings.arena.size))
    assert len(sizes) == 1
    assert buffers.rings.when.size < 8 * 200  # rings are as long as their bucket ever was
    assert len(buffers) == 150
    assert_sound(buffers)


def test_bytes_are_those_of_the_living() -> None:
    buffers = CircularBuffers(3)
    assert buffers.bytes == 0
    insert(buffers, [1, 2], [1, 2])
    assert buffers.bytes == 2 * 40
    buffers.expire_before(FOREVER, np.array([2]))
    assert buffers.bytes == 0


def test_another_number_of_buckets_finds_nothing(tmp_path: Path) -> None:
    insert(CircularBuffers(3, "0", MappedArrays(tmp_path)), [1], [1])
    assert len(CircularBuffers(3, "0", MappedArrays(tmp_path))) == 1
    assert len(CircularBuffers(4, "0", MappedArrays(tmp_path))) == 0
    assert len(CircularBuffers(3, "1", MappedArrays(tmp_path))) == 0
