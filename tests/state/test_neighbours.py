"""Neighbouring keys: what lies between two of them and belongs to others is no gap."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.state.keys import Bools, Int64s
from watersmeet.state.punctuations.neighbours import LOOK, Runs, bridged
from watersmeet.state.shards import ShardKeys


def nobody(words: Int64s) -> Bools:
    return np.zeros(words.size, np.bool_)


@given(
    words=st.lists(st.integers(-40, 40), unique=True, min_size=1),
    shards=st.integers(1, 7),
    index=st.integers(0, 6),
)
def test_runs_hold_no_other_key_of_the_shard(words: list[int], shards: int, index: int) -> None:
    home = ShardKeys(index % shards, shards)
    every = np.arange(-60, 61)
    own = set(every[home(every)].tolist())
    closed = sorted(own & set(words))
    low = np.array(closed, np.int64)
    runs = Runs.of(low, low, np.arange(low.size), home)
    found = list(zip(*(part.tolist() for part in runs.united(np.ones(runs.starts.size, np.bool_))), strict=True))
    assert [k for a, b, _ in found for k in range(a, b + 1) if k in own] == closed, "all of them, and nothing else"
    assert [t for _, _, t in found] == [max(i for i, k in enumerate(closed) if a <= k <= b) for a, b, _ in found]
    for (_, b, _), (a, _, _) in pairwise(found):
        assert any(k in own for k in range(b + 1, a)), "as long as can be"


def test_shards_divide_all_keys() -> None:
    words = np.arange(-500, 500)
    assert (sum(ShardKeys(i, 5)(words).astype(int) for i in range(5)) == 1).all()


@pytest.mark.parametrize(("gap", "joined"), [(0, True), (1, True), (LOOK, True), (LOOK + 1, False)])
def test_only_so_far_is_looked(gap: int, joined: bool) -> None:
    assert bridged(np.array([0]), np.array([gap + 1]), nobody).tolist() == [joined]
    assert bridged(np.array([0]), np.array([gap + 1]), None).tolist() == [gap == 0]


def test_the_ends_of_the_integers_are_no_neighbours() -> None:
    least, most = np.array([-(2**63)]), np.array([2**63 - 1])
    assert bridged(least, most, nobody).tolist() == [False]
    assert bridged(most - 9, most, nobody).tolist() == [True]
