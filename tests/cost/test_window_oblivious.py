"""Equations 6 to 10 of WO-Join, by hand."""

from __future__ import annotations

import pytest

from watersmeet.cost import window_oblivious as wo
from watersmeet.cost.parameters import Parameters, Statistics
from watersmeet.errors import MemoryLimitError, QueryError

A = Statistics("a", rate=50, scrambling=30, multiplicity=2)
B = Statistics("b", rate=25, scrambling=10, multiplicity=3)
C = Statistics("c", rate=100, scrambling=200, multiplicity=5)


def test_equation_6() -> None:
    """30 of its own; while b brings its 10, a brings 50 · 10/25 = 20."""
    assert wo.synchronised_buffer(A, B) == 50
    assert wo.synchronised_buffer(B, A) == 10 + 15


def test_equation_7() -> None:
    assert wo.pair_buffer(A, B, lag=12) == 62
    assert wo.pair_buffer(A, B, lag=-40) == 10
    assert wo.pair_buffer(A, B, lag=-400) == 1  # so far behind that all partners are there already


def test_equation_8() -> None:
    """a: 30 + 20 + 100 for b, 30 + 100 − 5 for c."""
    p = Parameters((A, B, C), lags=((0, 100, -5), (-50, 0, 0), (10, 0, 0)))
    assert wo.buffer(p, 0) == 150
    assert wo.buffer(p, 1) == max(1, 10 + 15 - 50, 10 + 50)
    assert wo.buffer(Parameters((A, B, C)), 0) == 130


def test_equation_10() -> None:
    """30·15 + 10·10 + 200·6."""
    assert wo.output_scrambling((A, B, C)) == 1750


def test_strategies_for_too_little_memory() -> None:
    """a with b (r_a/r_b = 2) and c (1/2), 100 tuples ahead of b; 7 read ahead from disk."""
    p = Parameters((A, B, C), lags=((0, 100, 0), (-50, 0, 0), (0, 0, 0)))
    assert wo.sorted_first_buffer(p, 0) == 30 + 2 + 2 * 3 + 100
    assert wo.disk_first_buffer(p, 0, ahead=7) == 30 + 7 + 100
    assert wo.sorted_on_disk_buffer(p, 0, ahead=7) == 2 + 7 + 6


def test_the_cheapest_strategy_that_fits() -> None:
    """Two streams of 100-byte rows, k = 30 and 10 at one rate, a 1000 tuples ahead; 7 read ahead."""
    a, b = (Statistics(n, rate=50, scrambling=k, multiplicity=2) for n, k in (("a", 30), ("b", 10)))
    p = Parameters((a, b), lags=((0, 1000), (-1000, 0)))
    sizes = {s: wo.strategy_bytes(p, s, ahead=7) for s in wo.STRATEGIES}
    assert sizes == {
        "none": 100 * (1040 + 1),
        "dbf": 100 * (30 + 7 + 10 + 10 + 7 + 30),
        "msf": 100 * (30 + 2 + 2 + 1000 + 10 + 1),
        "hybrid": 100 * (30 + 2 + 7 + 2 + 10 + 2 + 7 + 2),
    }
    assert wo.cheapest_strategy(p, 200_000, ahead=7) == "none"
    assert wo.cheapest_strategy(p, 100_000, ahead=7) == "dbf"
    assert wo.cheapest_strategy(p, 9_000, ahead=7) == "hybrid"
    with pytest.raises(
        MemoryLimitError, match=r"(?s)`memory` is 1000 bytes; .*9400 with dbf, .*Hint: give more memory"
    ):
        wo.cheapest_strategy(p, 1000, ahead=7)


def test_sorting_first_pays_where_disorder_does() -> None:
    """In step, much disorder on b only: a need not keep r_a · k_b / r_b tuples for it."""
    a, b = (Statistics(n, rate=r, scrambling=k, multiplicity=2) for n, r, k in (("a", 500, 0), ("b", 50, 100)))
    p = Parameters((a, b))
    assert wo.cheapest_strategy(p, 100 * 300, ahead=50) == "msf"


def test_a_silent_stream_has_no_buffer_to_wait_for_its_disorder() -> None:
    silent = Statistics("b", rate=0, scrambling=10)
    with pytest.raises(
        QueryError, match=r"(?s)stream `b` is silent; how much of `a` .* 10 tuples .*Hint: estimate again"
    ):
        wo.synchronised_buffer(A, silent)
    assert wo.synchronised_buffer(A, Statistics("b", rate=0)) == 30
