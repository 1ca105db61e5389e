"""The filter of closed keys: it never misses one, and lets most open keys pass."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.kernels.value_lists import CLOSED, PENDING
from watersmeet.state import keys as encoding
from watersmeet.state.keys import encode
from watersmeet.state.punctuations.closed_key_filter import BITS, ClosedKeyFilter
from watersmeet.state.value_lists import ValueLists


def close(lists, numbers):
    keys = encode([pa.array(numbers, pa.int64())])
    lists.close(np.arange(len(keys)), np.zeros(len(keys), np.int64), keys)
    return keys.words


def closed_among(filter, numbers):
    keys = encode([pa.array(numbers, pa.int64())])
    return {
        n for n, is_closed in zip(numbers, filter.marked(np.arange(len(keys)), keys, PENDING), strict=True) if is_closed
    }


@given(known=st.sets(st.integers(-50, 50)), later=st.lists(st.sets(st.integers(-50, 50)), max_size=5))
def test_no_closed_key_is_missed(known, later):
    lists = ValueLists()
    close(lists, sorted(known))
    filter, everything, closed = ClosedKeyFilter(lists), list(range(-50, 51)), set(known)
    assert closed_among(filter, everything) == closed
    for more in later:
        filter.add(close(lists, sorted(more)))
        closed |= more
        assert closed_among(filter, everything) == closed


@pytest.mark.parametrize("scale", [1, 100, 1 << 20, 1 << 44])
def test_most_open_keys_pass(scale):
    lists = ValueLists()
    close(lists, [n * scale for n in range(0, 200_000, 100)])
    filter = ClosedKeyFilter(lists)
    assert len(closed_among(filter, [n * scale for n in range(100_000, 300_000)])) == 1_000
    assert filter.looked_up < 1_000 + 2 / BITS * 200_000


def test_it_grows_with_the_keys_it_is_given():
    lists = ValueLists()
    filter = ClosedKeyFilter(lists)
    assert closed_among(filter, [1, 2, 3]) == set()
    for start in range(0, 50_000, 5_000):
        filter.add(close(lists, list(range(start, start + 5_000))))
    assert closed_among(filter, list(range(50_000))) == set(range(50_000))
    before = filter.looked_up
    assert closed_among(filter, list(range(50_000, 100_000))) == set()
    assert filter.looked_up - before < 50_000 / 8


@given(
    known=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=12),
    rows=st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), max_size=30),
    settled=st.booleans(),
)
def test_rows_after_the_punctuation_of_their_key_are_found(known, rows, settled):
    lists, filter = ValueLists(), None
    first = {}
    for part in (known[:3], known[3:]):
        keys = encode([pa.array([key for key, _ in part], pa.int64())])
        times = np.array([time for _, time in part], np.int64)
        lists.close(np.arange(len(part)), times, keys)
        if filter is None:
            filter = ClosedKeyFilter(lists)
            closed_among(filter, [0])  # makes the filter
        else:
            filter.add(keys.words, times)
        for key, time in part:
            first[key] = min(time, first.get(key, time))
    if settled:
        filter.settle()
    rows = sorted(rows, key=lambda row: row[1])
    keys = encode([pa.array([key for key, _ in rows], pa.int64())])
    times = np.array([time for _, time in rows], np.int64)
    found = filter.marked(np.arange(len(rows)), keys, CLOSED, times)
    assert found.tolist() == [time > first.get(key, 10) for key, time in rows]
    assert closed_among(filter, list(range(10))) == set(first), "all bits are set by now"


def test_rows_before_the_punctuation_of_their_key_are_not_looked_up():
    lists = ValueLists()
    filter = ClosedKeyFilter(lists)
    assert closed_among(filter, [1, 2, 3]) == set()
    filter.add(close(lists, [7]), np.array([1_000]))
    keys = encode([pa.array([7] * 1_001, pa.int64())])
    assert filter.marked(np.arange(1_001), keys, CLOSED, np.arange(1_001)).sum() == 0
    assert filter.looked_up == 0


def test_for_a_small_batch_it_is_not_made():
    lists = ValueLists()
    close(lists, list(range(1_000)))
    filter = ClosedKeyFilter(lists)
    assert closed_among(filter, [5_000]) == set()
    assert filter.looked_up == 1
    assert filter.bits is None


@pytest.mark.parametrize("texts", [["a", "b"], ["", "ä" * 40]])
def test_keys_with_bytes_are_found_by_their_hash(texts, monkeypatch):
    monkeypatch.setattr(encoding, "HASH_MASK", 0)
    lists, keys = ValueLists(), encode([pa.array(texts)])
    lists.close(np.array([0]), np.zeros(2, np.int64), keys)
    filter = ClosedKeyFilter(lists)
    assert filter.marked(np.arange(2), keys, PENDING).tolist() == [True, False]
    assert filter.looked_up == 2, "all collide, and none is missed"
