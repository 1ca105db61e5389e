"""Running statistics of a stream against the stream itself."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.state import twins
from watersmeet.errors import StateMismatchError
from watersmeet.kernels.hashing import split_rows
from watersmeet.model.windows import FOREVER
from watersmeet.state.keys import Int64s
from watersmeet.state.statistics.stream import SECOND, StreamStatistics

WINDOW = 8 * SECOND


def observe(s: StreamStatistics, times: Int64s, words: Int64s, seen: int | None = None) -> None:
    s.observe(np.asarray(times, np.int64), np.asarray(words, np.int64), np.arange(len(times)), 24 * len(times), seen)


def steady(rate: float, seconds: float, start: float = 0.0, seed: int = 0) -> Int64s:
    """Event times of a Poisson stream."""
    rng = np.random.default_rng(seed)
    n = rng.poisson(rate * seconds)
    return np.sort(((start + rng.random(n) * seconds) * SECOND).astype(np.int64))


ROWS = st.lists(st.tuples(st.integers(0, 40 * SECOND), st.integers(-5, 40)), max_size=40)


@given(ROWS, st.sampled_from([0, SECOND, 30 * SECOND]), st.data())
def test_what_is_kept_is_the_definition(rows: list[tuple[int, int]], delay: int, data: st.DataObject) -> None:
    """Counts and sketches per sub-window, whatever the batches."""
    s = StreamStatistics(WINDOW, delay)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    for a, b in zip([0, *cuts], [*cuts, len(rows)], strict=True):
        observe(s, np.array([t for t, _ in rows[a:b]], np.int64), np.array([w for _, w in rows[a:b]], np.int64))
    assert s._registers[0].tolist() == twins.registers([w for _, w in rows])
    for place in range(s.kept) if rows else ():
        number = max(t for t, _ in rows) // s.width - s.kept + 1 + place
        inside = [w for t, w in rows if t // s.width == number]
        assert s._counts[place] == len(inside)
        assert s._registers[1 + place].tolist() == twins.registers(inside)


@pytest.mark.parametrize("delay", [0, 2 * SECOND, 100 * SECOND])
@pytest.mark.parametrize("reach", [0, 10 * SECOND, 12 * 3600 * SECOND, FOREVER])
def test_memory_is_bounded(reach: int, delay: int) -> None:
    s = StreamStatistics(reach, delay)
    assert s.kept <= 14
    assert s._registers.nbytes <= 15 * 512
    assert s.width * 8 >= min(reach, 600 * SECOND)


def test_rows_and_bytes() -> None:
    s = StreamStatistics(WINDOW)
    assert (s.rows, s.row_bytes, s.rate, s.distinct, s.tuples, s.punctuation_rate) == (0,) * 6
    observe(s, [1, 2, 3], [7, 7, 8])
    s.observe(np.array([4, 5]), np.array([1, 1]), np.array([1]), 48)  # one of the two takes part
    assert (s.rows, s.row_bytes) == (4, 30)
    s.observe(np.array([SECOND + 1]), np.array([1]), np.array([0]), 0, closed=3)
    assert (s.closed, s.elapsed, s.punctuation_rate) == (3, 1, 3)
    assert s.distinct == pytest.approx(3, rel=0.02)


def test_rate_of_a_steady_stream() -> None:
    s = StreamStatistics(WINDOW, delay=SECOND)
    for batch in range(20):
        times = steady(500, 2, start=2 * batch, seed=batch)
        observe(s, times, times % 97)
        assert batch < 1 or s.rate == pytest.approx(500, rel=0.1)


def test_a_burst_does_not_count_and_a_change_does() -> None:
    """Ten times the rate for two of the eight sub-windows; then for good."""
    s = StreamStatistics(WINDOW)
    times = np.concatenate([steady(200, 20), steady(1800, 2, start=15, seed=1)])
    times.sort()
    observe(s, times, times)
    assert s.rate == pytest.approx(200, rel=0.1)
    later = steady(2000, 9, start=20, seed=2)
    observe(s, later, later)
    assert s.rate == pytest.approx(2000, rel=0.1)


def test_rare_tuples_have_a_rate() -> None:
    """One in five seconds: most sub-windows of a second are empty, and the middle half of them says 0."""
    s = StreamStatistics(WINDOW)
    observe(s, np.arange(0, 41, 5) * SECOND, np.arange(9))
    assert 1 / 8 <= s.rate <= 2 / 8


def test_before_a_sub_window_is_whole() -> None:
    s = StreamStatistics(WINDOW)
    observe(s, [0], [1])
    assert s.rate == 0
    observe(s, np.arange(1, 6) * 100_000, np.arange(5))
    assert s.rate == pytest.approx(12)


def test_rows_that_may_still_come_do_not_lower_the_rate() -> None:
    """Half a second's rows come 3 s late; the youngest sub-windows are left out until they are complete."""
    s = StreamStatistics(WINDOW, delay=3 * SECOND)
    times = steady(400, 30)
    late = times % 2 == 1
    for end in range(1, 31):
        here = ~late & (times < end * SECOND) & (times >= (end - 1) * SECOND)
        held = late & (times < (end - 3) * SECOND) & (times >= (end - 4) * SECOND)
        observe(s, times[here | held], times[here | held])
    assert s.rate == pytest.approx(400, rel=0.1)


def test_a_shard_that_gets_nothing_sees_its_rate_fall() -> None:
    s = StreamStatistics(WINDOW)
    times = steady(100, 10)
    observe(s, times, times)
    observe(s, [], [], seen=30 * SECOND)
    assert (s.rate, s.tuples, s.distinct) == (0, 0, 0)
    assert s.keys_seen > 800


@pytest.mark.parametrize("drift", [0.0, 300.0])
def test_old_keys_leave(drift: float) -> None:
    """Keys out of 1000, which move on by `drift` keys a second; the exact number is counted in the window."""
    rng = np.random.default_rng(11)
    s = StreamStatistics(WINDOW)
    all_times, all_words = [], []
    for batch in range(15):
        times = steady(3000, 2, start=2 * batch, seed=batch)
        words = rng.integers(0, 1000, times.size) + (times * drift / SECOND).astype(np.int64)
        observe(s, times, words)
        all_times.append(times)
        all_words.append(words)
    times, words = np.concatenate(all_times), np.concatenate(all_words)
    inside = times >= times.max() - WINDOW
    assert s.distinct == pytest.approx(np.unique(words[inside]).size, rel=0.2)
    assert s.keys_seen == pytest.approx(np.unique(words).size, rel=0.14)
    assert s.tuples == pytest.approx(np.count_nonzero(inside), rel=0.1)


def test_without_a_window_all_keys_and_rows_count() -> None:
    s = StreamStatistics(FOREVER)
    times = np.arange(2000) * 10 * SECOND
    observe(s, times, np.arange(2000))
    assert s.distinct == s.keys_seen == pytest.approx(2000, rel=0.14)
    assert s.tuples == 2000
    assert s.rate == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_shards_together_are_the_stream(shards: int) -> None:
    whole, parts = StreamStatistics(WINDOW, SECOND), [StreamStatistics(WINDOW, SECOND) for _ in range(shards)]
    for batch in range(6):
        times = steady(300, 2, start=2 * batch, seed=batch)
        words = times % 211
        observe(whole, times, words)
        order, starts = np.empty(words.size, np.int64), np.zeros(shards + 1, np.int64)
        split_rows(words, shards, order, starts)
        for k, part in enumerate(parts):
            mine = np.sort(order[starts[k] : starts[k + 1]])
            part.observe(times, words, mine, 24 * mine.size, int(times[-1]) if k else None, closed=k)
    merged = StreamStatistics.merge(parts)
    for figure in ("rows", "bytes", "newest", "oldest", "rate", "tuples", "distinct", "keys_seen", "row_bytes"):
        assert getattr(merged, figure) == pytest.approx(getattr(whole, figure)), figure
    assert merged.closed == 6 * sum(range(shards))
    assert merged._counts.tolist() == whole._counts.tolist()
    assert sum(part.rate for part in parts) == pytest.approx(whole.rate, rel=0.1)


def test_nothing_merged_with_nothing() -> None:
    merged = StreamStatistics.merge([StreamStatistics(WINDOW), StreamStatistics(WINDOW)])
    assert (merged.rows, merged.rate, merged.distinct) == (0, 0, 0)


def test_a_restart_goes_on_where_it_was() -> None:
    s = StreamStatistics(WINDOW, SECOND)
    times = steady(500, 12)
    observe(s, times, times % 300)
    written = json.dumps(s.metadata())
    assert len(written) < 8000
    again = StreamStatistics(WINDOW, SECOND)
    again.load_metadata(json.loads(written))
    for one in (s, again):
        later = steady(500, 3, start=12, seed=1)
        observe(one, later, later % 400)
    assert again.metadata() == s.metadata()
    assert (again.rate, again.distinct) == (s.rate, s.distinct)


def test_statistics_of_another_window_are_refused() -> None:
    message = "window 8 seconds and delay 0 seconds, this one has 8 seconds and 5 microseconds."
    with pytest.raises(StateMismatchError, match=re.escape(message)):
        StreamStatistics(WINDOW, 5).load_metadata(StreamStatistics(WINDOW).metadata())
