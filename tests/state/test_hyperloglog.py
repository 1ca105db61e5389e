"""The estimate of distinct keys against their number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.state import twins
from watersmeet.kernels.hashing import split_rows
from watersmeet.kernels.hyperloglog import observe
from watersmeet.state.keys import Int64s
from watersmeet.state.statistics.hyperloglog import REGISTERS, estimate, merged


def sketch(words: Int64s) -> np.ndarray:
    registers = np.zeros((1, REGISTERS), np.uint8)
    times, which = np.zeros(words.size, np.int64), np.arange(words.size)
    observe(words, times, which, 1, 0, np.zeros(0, np.int64), registers)
    return registers[0]


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=60))
def test_registers_are_those_of_the_twin(words: list[int]) -> None:
    assert sketch(np.array(words, np.int64)).tolist() == twins.registers(words)


@pytest.mark.parametrize("n", [1, 2, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000, 1_000_000])
@pytest.mark.parametrize("step", [1, 1 << 20, -12345])
def test_the_error_is_that_of_its_size(n: int, step: int) -> None:
    """Standard error 4.6 %: three of them, or of few keys one or two that share a register; numbers in a row as any."""
    assert estimate(sketch(np.arange(n) * step)) == pytest.approx(n, rel=0.1 if n <= 100 else 0.14)


def test_errors_over_many_sets_have_no_bias() -> None:
    rng = np.random.default_rng(3)
    for n in (50, 500, 1300, 2000, 20_000):  # around 2.5 registers' worth other estimators are biased
        errors = [estimate(sketch(rng.integers(-(2**62), 2**62, n))) / n - 1 for _ in range(100)]
        assert abs(np.mean(errors)) < 3 * 0.046 / 10
        assert np.std(errors) < 0.06


@pytest.mark.parametrize("shards", [2, 3, 4, 8])
def test_keys_of_one_shard_are_no_trap(shards: int) -> None:
    """The shard is chosen by bits of the same hash."""
    words = np.arange(40_000)
    order, starts = np.empty(words.size, np.int64), np.zeros(shards + 1, np.int64)
    split_rows(words, shards, order, starts)
    for s in range(shards):
        mine = words[order[starts[s] : starts[s + 1]]]
        assert estimate(sketch(mine)) == pytest.approx(mine.size, rel=0.14)


@given(st.lists(st.lists(st.integers(0, 3000), max_size=40), max_size=4))
def test_merging_is_seeing_all(parts: list[list[int]]) -> None:
    rows = np.array([sketch(np.array(p, np.int64)) for p in parts], np.uint8).reshape(-1, REGISTERS)
    whole = sketch(np.array([w for p in parts for w in p], np.int64))
    assert merged(rows).tolist() == whole.tolist()


def test_nothing_seen_and_everything_seen() -> None:
    assert estimate(np.zeros(REGISTERS, np.uint8)) == 0
    assert estimate(np.full(REGISTERS, 24, np.uint8)) == np.inf
