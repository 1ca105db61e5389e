"""The ordered index alone: what lies in an interval is found, whatever was born, died or was born again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels import value_lists as kernel
from watersmeet.model.punctuations import Range
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.key_order import Order
from watersmeet.state.keys import encode
from watersmeet.state.punctuations.ordered_index import OrderedIndex
from watersmeet.state.value_lists import ValueLists

KINDS = {pa.int64(): lambda n: n, pa.string(): lambda n: f"{n:02}" + "\0" * (n % 3)}
LEFT = np.zeros(4096, np.int64)


class Index:
    """Value lists with an index, and beside them the keys that live, by number."""

    def __init__(self, kind: pa.DataType, early: bool) -> None:
        self.kind, self.lists = kind, ValueLists()
        self.order = Order(kind)
        self.living: list[tuple[int, int]] = []  # time, number
        self.closed: set[int] = set()
        self.index = OrderedIndex(self.lists, self.order) if early else None

    def value(self, n: int) -> Any:
        return KINDS[self.kind](n)

    def insert(self, time: int, numbers: list[int]) -> None:
        keys = encode([pa.array([self.value(n) for n in numbers], self.kind)])
        self.lists.insert(np.arange(len(numbers)), np.full(len(numbers), time), keys, 0)
        self.living += [(time, n) for n in numbers]

    def close(self, numbers: list[int]) -> None:
        keys = encode([pa.array([self.value(n) for n in numbers], self.kind)])
        self.lists.close(np.arange(len(numbers)), np.zeros(len(numbers), np.int64), keys)
        self.closed |= set(numbers)

    def forget(self) -> None:
        self.lists.reopen(self.lists.marked())
        self.closed = set()

    def expire(self, before: int) -> None:
        self.lists.expire_before(before, LEFT)
        self.living = [(time, n) for time, n in self.living if time >= before]

    def check(self, low: int | None, high: int | None) -> None:
        if self.index is None:
            self.index = OrderedIndex(self.lists, self.order)
        ends = [None if n is None else self.value(n) for n in (low, high)]
        interval = self.order.interval(Range(*ends))
        if interval is None:
            return
        nodes = self.index.between(*interval)
        at = [self.order.rank(self.value(n)) for n in sorted({n for _, n in self.living} | self.closed)]
        inside = [p for p in at if interval[0] <= p and (p <= interval[1] if self.order.words else p < interval[1])]
        assert sorted(self.index.ranks(nodes).tolist()) == inside


actions = st.one_of(
    st.tuples(st.just("insert"), st.lists(st.integers(0, 40), max_size=6)),
    st.tuples(st.just("close"), st.lists(st.integers(0, 40), max_size=3)),
    st.tuples(st.just("expire"), st.integers(0, 4)),
    st.tuples(st.just("forget"), st.none()),
    st.tuples(st.just("ask"), st.tuples(*[st.one_of(st.integers(0, 40), st.none())] * 2)),
)


@pytest.mark.parametrize("kind", KINDS, ids=str)
@given(early=st.booleans(), acts=st.lists(actions, max_size=15))
def test_an_interval_finds_the_nodes_that_live_in_it(kind: pa.DataType, early: bool, acts: list[Any]) -> None:
    index = Index(kind, early)
    for time, (act, with_) in enumerate(acts):
        match act:
            case "insert":
                index.insert(time, with_)
            case "close":
                index.close(with_)
            case "expire":
                index.expire(time - with_)
            case "forget":
                index.forget()
            case _:
                index.check(*with_)
    index.check(None, None)


def test_the_run_takes_the_young_in_when_they_are_many() -> None:
    index = Index(pa.int64(), early=True)
    index.insert(0, list(range(0, 3000, 2)))
    index.check(10, 20)
    assert index.index is not None
    assert index.index.run[1].size == 1500
    index.insert(1, [11, 13])
    index.check(10, 20)
    assert (index.index.run[1].size, index.index.young[1].size) == (1500, 2)
    index.insert(1, list(range(1, 3000, 2)))
    index.check(10, 20)
    assert (index.index.run[1].size, index.index.young[1].size) == (3000, 0)


def test_a_node_that_lives_on_under_another_key_is_found_there_alone() -> None:
    index = Index(pa.int64(), early=True)
    index.insert(0, [5])
    index.check(5, 5)
    nodes = index.lists.lists.word.size
    for time in range(1, nodes + 1):
        index.expire(time)
        index.insert(time, [5 + time])
    assert index.lists.lists.meta[kernel.NODE_TOP] == nodes, "the last key has the node of the first"
    index.check(5, 5)
    index.check(5 + nodes, 5 + nodes)


def test_births_are_not_noted_for_ever() -> None:
    index = Index(pa.int64(), early=True)
    for time in range(40):
        index.expire(time)
        index.insert(time, list(range(time * 100, time * 100 + 100)))
    assert index.lists.lists.meta[kernel.BORN] < 1024 + 400
    assert index.lists.lists.born.size < 2048
    index.check(None, None)
    index.check(39 * 100 + 7, 39 * 100 + 11)


def test_another_process_notes_births_anew(tmp_path: Path) -> None:
    """An index lives in one process; whoever attaches the arrays has none, and pays for none."""
    lists = ValueLists("0", MappedArrays(tmp_path))
    OrderedIndex(lists, Order(pa.int64()))
    assert lists.lists.meta[kernel.BORN] == 0
    attached = ValueLists("0", MappedArrays(tmp_path))
    assert attached.lists.meta[kernel.BORN] == kernel.NIL
    attached.insert(np.arange(2), np.zeros(2, np.int64), encode([pa.array([5, 6])]), 0)
    assert attached.lists.meta[kernel.BORN] == kernel.NIL
    assert OrderedIndex(attached, Order(pa.int64())).between(6, 9).size == 1
