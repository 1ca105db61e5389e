"""The filter of closed keys: it never misses one, and lets most open keys pass."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.state import keys as encoding
from watersmeet.state.keys import encode
from watersmeet.state.punctuations.closed_key_filter import BITS, ClosedKeyFilter
from watersmeet.state.value_lists import ValueLists


def close(lists, numbers):
    keys = encode([pa.array(numbers, pa.int64())])
    lists.close(np.arange(len(keys)), np.zeros(len(keys), np.int64), keys)
    return keys.words


def suspects(filter, numbers):
    keys = encode([pa.array(numbers, pa.int64())])
    return {numbers[k] for k in filter.suspects(np.arange(len(keys)), keys).tolist()}


@given(known=st.sets(st.integers(-50, 50)), later=st.lists(st.sets(st.integers(-50, 50)), max_size=5))
def test_no_closed_key_is_missed(known, later):
    lists = ValueLists()
    close(lists, sorted(known))
    filter, everything, closed = ClosedKeyFilter(lists), list(range(-50, 51)), set(known)
    assert suspects(filter, everything) >= closed
    for more in later:
        filter.add(close(lists, sorted(more)))
        closed |= more
        assert suspects(filter, everything) >= closed


def test_most_open_keys_pass():
    lists = ValueLists()
    close(lists, list(range(0, 200_000, 100)))
    filter = ClosedKeyFilter(lists)
    found = suspects(filter, list(range(100_000, 300_000)))
    assert len(found) < 1_000 + 2 / BITS * 200_000


def test_it_grows_with_the_keys_it_is_given():
    lists = ValueLists()
    filter = ClosedKeyFilter(lists)
    assert suspects(filter, [1, 2, 3]) == set()
    for start in range(0, 50_000, 5_000):
        filter.add(close(lists, list(range(start, start + 5_000))))
    assert suspects(filter, list(range(50_000))) == set(range(50_000))
    assert len(suspects(filter, list(range(50_000, 100_000)))) < 50_000 / 8


def test_for_a_small_batch_it_is_not_made():
    lists = ValueLists()
    close(lists, list(range(1_000)))
    filter = ClosedKeyFilter(lists)
    assert suspects(filter, [5_000]) == {5_000}
    assert filter.bits is None


@pytest.mark.parametrize("texts", [["a", "b"], ["", "ä" * 40]])
def test_keys_with_bytes_are_found_by_their_hash(texts, monkeypatch):
    monkeypatch.setattr(encoding, "HASH_MASK", 0)
    lists, keys = ValueLists(), encode([pa.array(texts)])
    lists.close(np.array([0]), np.zeros(2, np.int64), keys)
    assert ClosedKeyFilter(lists).suspects(np.arange(2), keys).tolist() == [0, 1], "all collide, and none is missed"
