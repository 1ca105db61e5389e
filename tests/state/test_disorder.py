"""Disorder against the definitions, pair by pair: scrambling, virtual indexes, lags, multiplicities, rates."""

from __future__ import annotations

import tempfile
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.model.blocks import Blocks, Positions, cut, interleaved
from watersmeet.state.arrays import MappedArrays
from watersmeet.state.statistics.disorder import Disorder, RunningMaxima, SortedTail, lag
from watersmeet.state.statistics.fading_histogram import MatchedDistances, RecentRate, class_of, largest_of

PLACES = st.lists(st.integers(-20, 20), max_size=60)


def slow_behind(ranks: list[int], positions: list[int]) -> list[int]:
    """For every tuple: its position less the first one that holds its place or a larger one."""
    held = list(zip(positions, ranks, strict=True))
    return [p - min(q for q, b in held if b >= a) for p, a in held]


def pieces(draw: st.DataObject, n: int) -> list[tuple[int, int]]:
    cuts = sorted(draw.draw(st.lists(st.integers(0, n), max_size=6), label="cuts"))
    return list(pairwise([0, *cuts, n]))


@given(st.data(), PLACES)
def test_scrambling_is_that_of_the_definition_however_it_is_cut(data: st.DataObject, ranks: list[int]) -> None:
    gaps = data.draw(st.lists(st.integers(1, 3), min_size=len(ranks), max_size=len(ranks)))
    positions = np.cumsum(gaps).astype(np.int64).tolist()
    disorder = Disorder()
    behind: list[int] = []
    for a, b in pieces(data, len(ranks)):
        behind += disorder.observe(np.array(ranks[a:b], np.int64), np.array(positions[a:b], np.int64)).tolist()
    assert behind == slow_behind(ranks, positions)
    assert disorder.scrambling == max(behind, default=0)


@given(st.data(), PLACES)
def test_what_is_closed_never_comes_again(data: st.DataObject, ranks: list[int]) -> None:
    """With the factor of the whole stream, known from the start, at every moment; and it is as much as can be."""
    k = max(slow_behind(ranks, list(range(len(ranks)))), default=0)
    disorder = Disorder()
    for a, b in pieces(data, len(ranks)):
        disorder.observe(np.array(ranks[a:b], np.int64))
        closed = disorder.closed(k)
        assert closed == max(ranks[: max(0, b - k)], default=None)
        assert closed is None or all(p > closed for p in ranks[b:])


@given(st.data(), st.lists(st.integers(0, 200), max_size=120))
def test_thinned_maxima_err_on_the_side_of_disorder(data: st.DataObject, ranks: list[int]) -> None:
    exact, thinned = RunningMaxima(), RunningMaxima(room=8)
    at = 0
    for a, b in pieces(data, len(ranks)):
        some = Blocks.single(np.array(ranks[a:b], np.int64), np.arange(a + 1, b + 1))
        true, found = exact.observe(some), thinned.observe(some)
        assert (found >= true).all()
        at = b
        assert len(thinned) <= 8
        for position in range(at + 1):
            whole, part = exact.at(position), thinned.at(position)
            assert part is None or (whole is not None and part <= whole)
            if position >= at - 2:
                assert part == whole or len(exact) > 8


@given(st.lists(st.integers(0, 6), min_size=1, max_size=4))
def test_positions_go_by_row_then_by_partition(rows: list[int]) -> None:
    """Partitions are numbered with gaps, and some are empty."""
    numbers = {3 * p + 1: n for p, n in enumerate(rows)}
    order = sorted((row, p) for p, n in numbers.items() for row in range(n))
    found = Positions(numbers).of(np.array([p for _, p in order], np.int64), np.array([r for r, _ in order], np.int64))
    assert found.tolist() == list(range(1, len(order) + 1))


@given(st.data(), st.lists(st.lists(st.integers(0, 60), max_size=25), min_size=1, max_size=8), st.integers(1, 3))
def test_blocks_err_on_the_side_of_disorder(data: st.DataObject, batches: list[list[int]], partitions: int) -> None:
    """Batches dealt out to partitions, which cut their rows into a few blocks; single rows tell all."""
    exact, few, single = Disorder(), Disorder(), Disorder()
    for batch in batches:
        parts: list[list[int]] = [[] for _ in range(partitions)]
        for place in batch:
            parts[data.draw(st.integers(0, partitions - 1), label="partition")].append(place)
        stream = [parts[p][row] for row in range(len(batch)) for p in range(partitions) if row < len(parts[p])]
        exact.observe(np.array(stream, np.int64))
        for disorder, most in ((few, 2), (single, 1 << 10)):
            found = []
            for p, ranks in enumerate(parts):
                found += [
                    (p, *block)
                    for block in zip(*map(np.ndarray.tolist, cut(np.array(ranks, np.int64), most)), strict=True)
                ]
            disorder.observe_blocks(interleaved(found)[0])
        assert (few.count, few.scrambling >= exact.scrambling) == (exact.count, True)
        assert (single.count, single.scrambling) == (exact.count, exact.scrambling)
        for k in range(0, exact.count + 1, 3):
            at, most_at = few.closed(k), exact.closed(k)
            assert at is None or (most_at is not None and at <= most_at)
            assert single.closed(k) == most_at


def test_blocks_are_few_and_small() -> None:
    """A million rows in order: 256 blocks, and what is kept for them is the length of two at most."""
    found = zip(*(column.tolist() for column in cut(np.arange(1_000_000))), strict=True)
    blocks, _ = interleaved([(7, *block) for block in found])
    disorder = Disorder()
    disorder.observe_blocks(blocks)
    assert blocks.first.size == 256
    assert disorder.scrambling <= 1_000_000 / 256 + 1
    closed = disorder.closed(disorder.recent)
    assert closed is not None
    assert closed >= 1_000_000 - 2 * 3907 - 1


@given(st.data(), PLACES)
def test_rises_that_are_not_needed_are_dropped(data: st.DataObject, ranks: list[int]) -> None:
    many = [p + 40 * i for i in range(8) for p in ranks]
    disorder, k = Disorder(), 5
    for n, place in enumerate(many, 1):
        disorder.observe(np.array([place], np.int64))
        disorder.maxima.drop_before(n - k)
        assert disorder.closed(k) == max(many[: max(0, n - k)], default=None)
        assert len(disorder.maxima) <= 2 * (64 + k) + 2


@given(st.data(), PLACES)
def test_sorted_tails_and_multiplicities(data: st.DataObject, ranks: list[int]) -> None:
    tail, small = SortedTail(), SortedTail(room=10)
    for a, b in pieces(data, len(ranks)):
        for t in (tail, small):
            t.add(np.array(ranks[a:b], np.int64))
        ordered = sorted(ranks[:b])
        assert tail.count == small.count == b
        assert tail.multiplicity == max(Counter(ordered).values(), default=0)
        for n, place in enumerate(ordered, 1):
            assert tail.until(place) == sum(p <= place for p in ordered)
            assert tail.at(n) == place
            assert small.at(n) == (place if n > b - 10 else None)
        assert tail.at(0) is tail.at(b + 1) is None


def slow_lag(mine: list[int], theirs: list[int], arrived: int, position: int) -> int:
    """PI(s_i) - VI_max(s'_i): s'_j stands at `position` of theirs when sorted, s'_i is the last of mine up to it."""
    place = sorted(theirs)[position - 1]
    return arrived - sum(p <= place for p in mine)


@given(PLACES, PLACES.filter(bool), st.data())
def test_lags_are_those_of_the_definition(mine: list[int], theirs: list[int], data: st.DataObject) -> None:
    a, b = SortedTail(), SortedTail()
    a.add(np.array(mine, np.int64))
    b.add(np.array(theirs, np.int64))
    position = data.draw(st.integers(1, len(theirs)))
    assert lag(a, len(mine), b, position) == slow_lag(mine, theirs, len(mine), position)


def test_the_papers_example_of_a_lag() -> None:
    """Two streams of which one has just shown 66 in third, the other 65 in second place."""
    a, b = SortedTail(), SortedTail()
    a.add(np.array([63, 63, 64, 65, 66, 67]))
    b.add(np.array([62, 63, 65, 68]))
    assert lag(a, 3, b, 2) == 3 - 2
    assert lag(a, 6, b, 3) == 6 - 4
    small = SortedTail(room=2)
    small.add(np.array([62, 63, 65, 68]))
    assert lag(a, 3, small, 1) is None  # no longer known


def test_recent_disorder_grows_at_once_and_shrinks_slowly() -> None:
    disorder = Disorder(period=10)
    rising = iter(range(1000))
    disorder.observe(np.array([next(rising) for _ in range(9)]))
    assert disorder.recent == 9  # nothing is known yet: all may matter
    disorder.observe(np.array([next(rising)]))
    assert disorder.recent == 0
    disorder.observe(np.array([*(next(rising) for _ in range(8)), 9]))
    assert disorder.recent == disorder.scrambling == 9  # 9 was first reached at position 10, and came at 19
    levels = []
    for _ in range(8):
        disorder.observe(np.array([next(rising) for _ in range(10)]))
        levels.append(disorder.recent)
    assert levels == [9, 9, 8, 7, 6, 5, 4, 3]
    assert disorder.scrambling == 9


def test_a_rate_is_not_moved_by_a_burst() -> None:
    rate = RecentRate()
    assert rate.rate == 0
    for count in [50, 52, 48, 51, 49, 400, 400, 400, 50, 50]:
        rate.observe(count)
    assert rate.rate == 50.5
    for _ in range(8):
        rate.observe(800, duration=2)
    assert rate.rate == 400
    again = RecentRate()
    again.load_metadata(rate.metadata())
    assert again.rate == 400


@given(st.integers(0, 1 << 45))
def test_classes_of_distances_are_narrow(distance: int) -> None:
    some = np.array([distance, distance + 1])
    mine, next_one = class_of(some).tolist()
    assert next_one - mine in (0, 1)
    assert distance <= largest_of(mine) <= distance * 33 / 32
    assert class_of(np.array([largest_of(mine), largest_of(mine) + 1])).tolist() == [mine, mine + 1]


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=200), st.floats(0.0, 0.5))
def test_what_is_needed_is_a_quantile(distances: list[int], share: float) -> None:
    learned = MatchedDistances(share, memory=1 << 40)
    for some in np.array_split(np.array(distances, np.int64), 3):
        learned.observe(some)
    beyond = sum(d > learned.needed for d in distances)
    assert beyond <= share * len(distances) + 1e-6
    assert learned.needed <= max(distances) * 33 / 32
    assert learned.seen == pytest.approx(len(distances))
    again = MatchedDistances(share)
    again.load_metadata(learned.metadata())
    assert again.needed == learned.needed


def test_what_was_needed_long_ago_fades() -> None:
    learned = MatchedDistances(0.01, memory=100)
    learned.observe(np.full(100, 500))
    assert learned.needed >= 500
    learned.observe(np.full(300, 20))
    assert learned.needed >= 500
    learned.observe(np.full(600, 20))
    assert learned.needed == 20


@settings(max_examples=20)
@given(st.data(), PLACES)
def test_disorder_is_picked_up_from_mapped_arrays_and_from_deltas(data: st.DataObject, ranks: list[int]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        disorder, again = Disorder(1, MappedArrays(folder), room=8), Disorder(room=8)
        written = []
        for a, b in pieces(data, len(ranks)):
            disorder.observe(np.array(ranks[a:b], np.int64))
            change = disorder.changes(rewrite=False)
            if change is not None:
                written = [*([] if change.whole else written), *change.rows]
        other = Disorder(1, MappedArrays(folder), room=8)
        for copy in (other, again):
            copy.load_metadata(disorder.metadata())
        for rows in written:
            again.replay(rows)
        for copy in (other, again):
            assert copy.recent == disorder.recent
            assert [copy.closed(k) for k in range(70)] == [disorder.closed(k) for k in range(70)]
