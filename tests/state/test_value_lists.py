"""Time list and value lists alone, against a plain list of tuples."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from lab.state import twins
from watersmeet.kernels import value_lists as kernel
from watersmeet.model.windows import FOREVER
from watersmeet.state import keys, value_lists
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.keys import Keys, encode
from watersmeet.state.value_lists import ValueLists

NIL = kernel.NIL
Stored = tuple[int, int, int, int]  # time, key, segment, row


def chain(start: int, links: np.ndarray) -> list[int]:
    """Slots or nodes from `start` along the links."""
    out = []
    at = int(start)
    while at != NIL:
        out.append(at)
        assert len(out) <= links.size, "a list that bites its tail"
        at = int(links[at])
    return out


class Machine(RuleBasedStateMachine):
    """Inserts, probes and expiries in any order; every link is looked at after each."""

    kind: pa.DataType = pa.int64()
    mapped = False

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory() if self.mapped else None
        self.lists = self.open()
        self.model: list[Stored] = []  # in the order of (time, arrival)
        self.left = np.zeros(1024, np.int64)
        self.segment = 0
        self.chunk, self.mask = 64, -1
        self.peak = 0  # most bytes of living keys and of one batch's keys, together

    def open(self) -> ValueLists:
        return ValueLists("0", MappedArrays(Path(self.folder.name)) if self.folder else None)

    def teardown(self) -> None:
        if self.folder:
            self.folder.cleanup()

    def keys(self, numbers: list[int]) -> Keys:
        """The key with each number; as text of growing length when keys have bytes."""
        texts = [f"key {n} " + "x" * (n % 7) for n in numbers]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(keys, "HASH_MASK", self.mask)  # 0: all of them collide
            return encode([pa.array(numbers if self.kind == pa.int64() else texts, self.kind)])

    @initialize(chunk=st.sampled_from([1, 3, 64]), mask=st.sampled_from([-1, 3, 0]))
    def set_chunk(self, chunk: int, mask: int) -> None:
        self.chunk, self.mask = chunk, mask

    def insert(self, rows: list[tuple[int, int, bool]]) -> None:
        times = np.array([t for t, _, _ in rows], np.int64)
        which = np.flatnonzero([taken for _, _, taken in rows])
        encoded = self.keys([k for _, k, _ in rows])
        self.peak = max(self.peak, 2 * self.key_bytes() + encoded.data.size)
        ordered, slots = self.lists.insert(which, times, encoded, self.segment)
        assert ordered.tolist() == sorted(which, key=lambda row: times[row])
        arrays = self.lists.lists
        assert [(arrays.segment[s], arrays.row[s]) for s in slots] == [(self.segment, row) for row in ordered]
        self.model += [(int(times[row]), rows[row][1], self.segment, int(row)) for row in which]
        self.model.sort(key=lambda stored: stored[0])
        self.left[self.segment] = which.size
        self.segment += 1

    @rule(rows=st.lists(st.tuples(st.integers(-5, 20), st.integers(-2, 5), st.booleans()), max_size=12))
    def insert_some(self, rows: list[tuple[int, int, bool]]) -> None:
        self.insert(rows)

    @rule(n=st.integers(1, 130), distinct=st.integers(1, 130), slow=st.integers(1, 20))
    def insert_many(self, n: int, distinct: int, slow: int) -> None:
        self.insert([(i // slow, i * 7 % distinct, True) for i in range(n)])

    @rule(
        rows=st.lists(st.tuples(st.integers(-5, 20), st.integers(-2, 5)), max_size=6),
        back=st.sampled_from([0, 1, 5, FOREVER]),
        ahead=st.sampled_from([0, 1, 5, FOREVER]),
    )
    def probe(self, rows: list[tuple[int, int]], back: int, ahead: int) -> None:
        times, keys = np.array([t for t, _ in rows], np.int64), self.keys([k for _, k in rows])
        which = np.arange(len(rows))[::-1].copy()
        arrays, found = self.lists.lists, []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(value_lists, "CHUNK", self.chunk)
            for places, slots, _, _ in self.lists.probe(which, times, keys, back, ahead):
                assert 0 < places.size <= self.chunk
                found += [
                    (int(p), int(arrays.segment[s]), int(arrays.row[s])) for p, s in zip(places, slots, strict=True)
                ]
        assert sorted(found) == sorted(
            (place, segment, row)
            for place, (t, k) in enumerate(rows)
            for time, key, segment, row in self.model
            if key == k and t - back <= time <= t + ahead
        )

    @rule(before=st.one_of(st.integers(-5, 25), st.sampled_from([-FOREVER, FOREVER])))
    def expire(self, before: int) -> None:
        stay = [stored for stored in self.model if stored[0] >= before]
        assert self.lists.expire_before(before, self.left) == len(self.model) - len(stay)
        self.model = stay

    @rule()
    def attach_anew(self) -> None:
        if self.mapped:
            self.lists = self.open()

    def key_bytes(self) -> int:
        arrays = self.lists.lists
        return int(arrays.meta[kernel.ARENA_TOP] - arrays.meta[kernel.ARENA_DEAD])

    @invariant()
    def the_time_list_is_in_order_from_both_ends(self) -> None:
        arrays = self.lists.lists
        slots = chain(arrays.meta[kernel.HEAD], arrays.later)
        assert slots == chain(arrays.meta[kernel.TAIL], arrays.earlier)[::-1]
        stored = [(int(arrays.time[s]), int(arrays.segment[s]), int(arrays.row[s])) for s in slots]
        assert stored == [(time, segment, row) for time, _, segment, row in self.model]
        assert len(self.lists) == len(self.model)
        assert sorted(self.lists.living().tolist()) == sorted(slots)

    @invariant()
    def the_value_lists_are_in_order_from_both_ends(self) -> None:
        arrays = self.lists.lists
        nodes = [n for n in range(arrays.meta[kernel.NODE_TOP]) if arrays.length[n] != NIL]
        found = []
        for n in nodes:
            slots = chain(arrays.oldest[n], arrays.newer)
            assert slots, "a node without tuples"
            assert slots == chain(arrays.newest[n], arrays.older)[::-1]
            assert all(arrays.node[s] == n for s in slots)
            found.append([(int(arrays.time[s]), int(arrays.segment[s]), int(arrays.row[s])) for s in slots])
        by_key: dict[int, list[Any]] = {}
        for time, key, segment, row in self.model:
            by_key.setdefault(key, []).append((time, segment, row))
        assert sorted(found) == sorted(by_key.values())
        assert self.lists.keys == len(by_key)

    @invariant()
    def the_table_holds_every_node_once(self) -> None:
        arrays = self.lists.lists
        held = sorted(n for n in arrays.table.tolist() if n != NIL)
        assert held == [n for n in range(arrays.meta[kernel.NODE_TOP]) if arrays.length[n] != NIL]
        assert arrays.table.size >= 2 * len(held)
        assert arrays.table.size & (arrays.table.size - 1) == 0
        for n in held:  # and where it is looked for: no empty cell between its home and its place
            cell = home = twins.mix(int(arrays.word[n])) % arrays.table.size
            while arrays.table[cell] != n:
                assert arrays.table[cell] != NIL, "a key that cannot be found"
                cell = (cell + 1) % arrays.table.size
                assert cell != home

    @invariant()
    def what_is_free_can_be_used_again(self) -> None:
        arrays, meta = self.lists.lists, self.lists.lists.meta
        free = np.flatnonzero(arrays.node[: meta[kernel.SLOT_TOP]] == NIL)
        assert free.size == meta[kernel.SLOT_TOP] - meta[kernel.LIVE]
        assert 0 <= meta[kernel.SLOT_NEXT] <= meta[kernel.SLOT_TOP]
        assert meta[kernel.LIVE] * 5 // 4 <= arrays.time.size, "few free slots: a search passes many that are not"
        assert meta[kernel.NODES] * 5 // 4 <= arrays.word.size
        free = np.flatnonzero(arrays.length[: meta[kernel.NODE_TOP]] == NIL)
        assert free.size == meta[kernel.NODE_TOP] - meta[kernel.NODES]
        assert 0 <= meta[kernel.NODE_NEXT] <= meta[kernel.NODE_TOP]
        assert meta[kernel.SLOT_TOP] <= arrays.time.size
        assert meta[kernel.NODE_TOP] <= arrays.word.size

    @invariant()
    def the_arena_holds_little_that_is_dead(self) -> None:
        arrays = self.lists.lists
        keys = {key for _, key, _, _ in self.model}
        assert self.key_bytes() == self.keys(sorted(keys)).data.size
        assert arrays.arena.size <= max(64, self.peak * 3 // 2)
        assert arrays.meta[kernel.ARENA_TOP] <= arrays.arena.size

    @invariant()
    def segments_know_how_many_of_their_rows_live(self) -> None:
        living = np.zeros_like(self.left)
        for _, _, segment, _ in self.model:
            living[segment] += 1
        assert (living == self.left).all()


class BytesMachine(Machine):
    kind = pa.string()


class MappedMachine(Machine):
    mapped = True


class MappedBytesMachine(BytesMachine):
    mapped = True


for machine in (Machine, BytesMachine, MappedMachine, MappedBytesMachine):
    machine.TestCase.settings = settings(max_examples=25, stateful_step_count=20)
TestWordKeys = Machine.TestCase
TestByteKeys = BytesMachine.TestCase
TestMappedWordKeys = MappedMachine.TestCase
TestMappedByteKeys = MappedBytesMachine.TestCase


# ---------------------------------------------------------------- by example


def insert(lists: ValueLists, times: list[int], keys: list[Any], segment: int = 0) -> np.ndarray:
    """Slots by row."""
    kind = pa.int64() if isinstance(keys[0], int) else pa.string()
    rows, slots = lists.insert(np.arange(len(times)), np.array(times), encode([pa.array(keys, kind)]), segment)
    return slots[np.argsort(rows)]


def times(lists: ValueLists) -> list[int]:
    return lists.lists.time[chain(lists.lists.meta[kernel.HEAD], lists.lists.later)].tolist()


def test_expiry_takes_only_what_is_older() -> None:
    lists = ValueLists()
    insert(lists, [9, 1, 4, 4], [1, 2, 1, 2])
    assert times(lists) == [1, 4, 4, 9]
    assert lists.expire_before(4, np.array([4])) == 1
    assert times(lists) == [4, 4, 9]
    assert (len(lists), lists.keys) == (3, 2)


@pytest.mark.parametrize("key", [lambda n: n, lambda n: f"key {n}"], ids=["words", "bytes"])
def test_a_hundred_thousand_tuples(key: Any) -> None:
    lists, n = ValueLists(), 100_000
    shuffled = np.random.default_rng(1).permutation(n)
    insert(lists, shuffled.tolist(), [key(int(i) % 30_000) for i in shuffled])
    assert (len(lists), lists.keys, lists.slots) == (n, 30_000, n)
    assert times(lists) == list(range(n))
    assert lists.expire_before(n - 10, np.array([n])) == n - 10
    assert (len(lists), lists.keys) == (10, 10)
    assert times(lists) == list(range(n - 10, n))


@pytest.mark.parametrize("key", [lambda n: n, lambda n: f"key {n}"], ids=["words", "bytes"])
def test_keys_are_found_while_others_go(key: Any) -> None:
    lists, n, left = ValueLists(), 500, np.array([500])
    insert(lists, list(range(n)), [key(i) for i in range(n)])
    everything = encode([pa.array([key(i) for i in range(n)])])
    for gone in range(0, n + 1, 20):
        lists.expire_before(gone, left)
        found = [row for rows, *_ in lists.probe(np.arange(n), np.arange(n), everything, 0, 0) for row in rows]
        assert found == list(range(gone, n))


def test_a_steady_stream_needs_no_more_room() -> None:
    lists, left = ValueLists(), np.zeros(1, np.int64)
    sizes = set()
    for n in range(300):
        insert(lists, list(range(n * 50, n * 50 + 50)), [f"key {n * 50 + i}" for i in range(50)])
        lists.expire_before(n * 50 - 100, left)
        if n > 10:
            sizes.add((lists.lists.time.size, lists.lists.word.size, lists.lists.table.size, lists.lists.arena.size))
    assert len(sizes) == 1
    assert lists.keys == len(lists) == 150


def test_bytes_are_those_of_the_living() -> None:
    lists = ValueLists()
    assert lists.bytes == 0
    insert(lists, [1, 2], ["abc", "abc"])
    one_key = lists.bytes
    insert(lists, [3], ["wxyz"])
    assert lists.bytes > one_key
    lists.expire_before(FOREVER, np.array([3]))
    assert lists.bytes == 0


def test_looking_stops_at_the_edge_of_the_window() -> None:
    lists = ValueLists()
    insert(lists, list(range(1000)), [7] * 1000)
    now = np.array([1000])
    assert [found.shape[1] for found in lists.probe(np.array([0]), now, encode([pa.array([7])]), 10, 0)] == [10]
    assert lists.looked_at == 10


def test_a_probe_tells_which_keys_are_closed() -> None:
    lists = ValueLists()
    insert(lists, [1, 2, 3], ["open", "pending", "closed"])
    named = encode([pa.array(["closed", "pending", "bare", "none", "open"])])
    nodes, _, _ = lists.close(np.arange(3), np.full(3, 5), named)
    lists.lists.mark[nodes[[0, 2]]] = kernel.CLOSED
    closed = np.ones(5, np.bool_)
    found = list(lists.probe(np.arange(5), np.full(5, 4), named, 10, 0, closed=closed))
    assert closed.tolist() == [True, False, True, False, False]
    assert sorted(found[0][0].tolist()) == [0, 1, 4], "a closed key's tuples are found all the same"


def test_closed_keys_that_lose_their_last_tuple_ring() -> None:
    lists = ValueLists()
    insert(lists, [1, 2, 9], ["x", "y", "x"])
    nodes, _, _ = lists.close(np.arange(2), np.full(2, 5), encode([pa.array(["x", "y"])]))
    lists.lists.mark[nodes] = kernel.CLOSED
    left = np.array([3])
    count, ring = lists.expire_ringing(5, left)
    assert (count, ring.tolist()) == (2, [nodes[1]])
    gone, ring = lists.expire(10, left)
    assert (gone.size, ring.tolist(), left.tolist()) == (1, [nodes[0]], [0])


def test_two_processes_could_share_a_folder(tmp_path: Path) -> None:
    first = ValueLists("a", MappedArrays(tmp_path))
    insert(first, [5, 3], ["x", "y"])
    second = ValueLists("a", MappedArrays(tmp_path))
    assert times(second) == [3, 5]
    insert(second, [4] * 200, [f"key {n}" for n in range(200)], 1)  # outgrows every array
    third = ValueLists("a", MappedArrays(tmp_path))
    assert (len(third), third.keys) == (202, 202)
    assert third.expire_before(5, np.array([2, 200])) == 201
    assert times(third) == times(ValueLists("a", MappedArrays(tmp_path))) == [5]
    assert len(ValueLists("b", MappedArrays(tmp_path))) == 0
