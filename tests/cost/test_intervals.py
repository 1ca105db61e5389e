"""State and work of interval joins and of joins within a piece of time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lab.joins.plain_pairs import query
from watersmeet.cost import memory
from watersmeet.cost.measured_parameters import assumed
from watersmeet.cost.models import hash_join
from watersmeet.cost.parameters import Parameters
from watersmeet.model.windows import Interval, Tumbling, Window

SECOND = 1_000_000


def parameters(first: Window, second: Window, delay: int = 10) -> Parameters:
    """Streams of one tuple a second each, with these windows and delays."""
    plain = query()
    windows = (first, second)
    specs = [replace(s, window=w, delay=delay * SECOND) for s, w in zip(plain.streams, windows, strict=True)]
    p = assumed(replace(plain, streams=tuple(specs)))
    return replace(p, streams=tuple(replace(s, rate=1.0, distinct=1.0) for s in p.streams))


def within(lower: int, upper: int) -> Parameters:
    between = Interval(lower * SECOND, upper * SECOND)
    return parameters(between, between.mirrored)


@pytest.mark.parametrize(
    ("bounds", "stored", "results"),
    [
        ((3600, 7200), (7210, 0), 3600),
        ((-7200, -3600), (0, 7210), 3600),
        ((-5, 20), (30, 15), 25),
        ((5, 5), (15, 5), 0),
        ((-5, -5), (5, 15), 0),
    ],
)
def test_what_is_stored_and_met_follows_from_the_bounds(
    bounds: tuple[int, int], stored: tuple[int, int], results: int
) -> None:
    cost = hash_join(within(*bounds))
    assert cost.tuples == pytest.approx(stored)
    assert cost.work.results == pytest.approx(results)


def test_a_piece_is_met_and_kept_to_its_end() -> None:
    p = parameters(Tumbling(60 * SECOND), Tumbling(60 * SECOND))
    assert memory.retention(p, 0) == 40
    assert hash_join(p).work.results == pytest.approx(60)
