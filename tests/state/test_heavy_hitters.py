"""Hot keys against plain counting."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.state.statistics.heavy_hitters import CAPACITY, SAMPLE, HotKeys, hottest_rows, merged

BATCHES = st.lists(st.lists(st.integers(0, 80), max_size=200), max_size=8)


def counted(batches: list[list[int]]) -> HotKeys:
    hot = HotKeys()
    for batch in batches:
        hot.add(np.array(batch, np.int64), np.arange(len(batch)))
    return hot


def holds(hot: HotKeys, batches: list[list[int]]) -> None:
    true = Counter(word for batch in batches for word in batch)
    total = sum(true.values())
    weights = dict(zip(hot.words.tolist(), hot.weights.tolist(), strict=True))
    assert len(weights) <= CAPACITY
    assert hot.total == total
    assert hot.error <= total / (CAPACITY + 1)
    for word, n in true.items():
        assert n - hot.error - 1e-9 <= weights.get(word, 0.0) <= n + 1e-9


@given(BATCHES)
def test_no_key_is_counted_too_much_or_far_too_little(batches: list[list[int]]) -> None:
    holds(counted(batches), batches)


@given(st.lists(BATCHES, min_size=1, max_size=3))
def test_so_it_is_for_shards_together(shards: list[list[list[int]]]) -> None:
    holds(merged([counted(batches) for batches in shards]), [batch for batches in shards for batch in batches])


def test_of_a_large_batch_a_sample_is_enough() -> None:
    rng = np.random.default_rng(5)
    words = np.where(rng.random(200_000) < 0.3, 7, rng.integers(100, 10**9, 200_000))
    words[rng.random(200_000) < 0.1] = 8
    hot = HotKeys()
    for _ in range(5):
        hot.add(words, np.arange(words.size))
    (first, a), (second, b) = hot.hottest(2)
    assert (first, second) == (7, 8)
    slack = hot.error / hot.total + 3 * (0.3 * 0.7 / (5 * SAMPLE)) ** 0.5
    assert 0.27 - slack <= a <= 0.27 + slack
    assert 0.1 - slack <= b <= 0.1 + slack


def test_only_the_tuples_requested_count() -> None:
    hot = HotKeys()
    hot.add(np.array([1, 2, 2, 3]), np.array([0, 1]))
    assert hot.hottest() == [(1, 0.5), (2, 0.5)]


def test_the_past_fades() -> None:
    hot = counted([[1] * 8])
    hot.fade(0.25)
    hot.add(np.array([2, 2, 2]), np.arange(3))
    assert hot.hottest() == [(2, 0.6), (1, 0.4)]


def test_as_notes_and_on() -> None:
    batches = [list(range(40)), [3] * 9]
    hot = counted(batches)
    again = HotKeys.from_metadata(json.loads(json.dumps(hot.metadata())))
    large = np.arange(5000) % 7
    for one in (hot, again):
        one.add(large, np.arange(large.size))
    assert again.metadata() == hot.metadata()


def test_rows_of_frequent_keys_are_found() -> None:
    words = np.array([5, 7, 7, 9, 5, 7, 3], np.int64)
    assert hottest_rows(words, np.arange(7), 3) == [(1, 3 / 7), (0, 2 / 7)]
    assert hottest_rows(words, np.array([0, 1, 3]), 3) == [], "no key comes twice"
    assert hottest_rows(words, np.empty(0, np.int64), 3) == []


def test_of_many_rows_some_are_looked_at() -> None:
    words = np.arange(100_000)
    words[::4] = 7
    ((row, share), *_) = hottest_rows(words, np.arange(words.size), 1)
    assert words[row] == 7
    assert abs(share - 0.25) < 0.06
