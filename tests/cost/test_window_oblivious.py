"""Equations 6 to 10 of WO-Join, by hand."""

from __future__ import annotations

from watersmeet.cost import window_oblivious as wo
from watersmeet.cost.parameters import Parameters, Statistics

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


def test_equations_9_and_10() -> None:
    """50·15 + 25·10 + 100·6 and 30·15 + 10·10 + 200·6."""
    assert wo.output_rate((A, B, C)) == 1600
    assert wo.output_scrambling((A, B, C)) == 1750


def test_strategies_for_too_little_memory() -> None:
    """a with b (r_a/r_b = 2) and c (1/2), 100 tuples ahead of b; 7 read ahead from disk."""
    p = Parameters((A, B, C), lags=((0, 100, 0), (-50, 0, 0), (0, 0, 0)))
    assert wo.sorted_first_buffer(p, 0) == 30 + 2 + 2 * 3 + 100
    assert wo.disk_first_buffer(p, 0, ahead=7) == 30 + 7 + 100
    assert wo.sorted_on_disk_buffer(p, 0, ahead=7) == 2 + 7 + 6
