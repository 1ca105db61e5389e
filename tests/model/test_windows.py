"""Windows: two conventions, one reach."""

from __future__ import annotations

import pickle

import pytest

from watersmeet.errors import WindowError
from watersmeet.model.windows import CLOSED, FOREVER, TimeWindow, Unbounded, closed_ends

LAST = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999
FIRST = -62_135_596_800_000_000  # 0001-01-01


def test_reach_folds_the_two_conventions_into_one() -> None:
    assert TimeWindow(10).reach == 10
    assert TimeWindow(10, closed=False).reach == 9
    assert TimeWindow(0).reach == 0
    assert TimeWindow(1, closed=False).reach == 0


@pytest.mark.parametrize("window", [Unbounded(), TimeWindow(1 << 62), TimeWindow(1 << 80, closed=False)])
def test_no_reach_goes_beyond_for_ever(window: TimeWindow | Unbounded) -> None:
    assert window.reach == FOREVER
    assert FOREVER > LAST - FIRST
    for ts in (FIRST, LAST):
        assert -(1 << 63) <= ts - window.reach <= ts + window.reach < 1 << 63


def test_a_negative_window_is_refused() -> None:
    with pytest.raises(WindowError) as caught:
        TimeWindow(-1)
    assert str(caught.value) == (
        "`window` is -1 microsecond; a window reaches back in time, so it cannot be negative.\n"
        'Hint: give a duration such as "10 seconds", or None to keep tuples until a punctuation.'
    )


def test_a_window_that_holds_nothing_is_refused() -> None:
    with pytest.raises(WindowError) as caught:
        TimeWindow(0, closed=False)
    assert str(caught.value) == (
        "`window` is zero and half-open; not even a tuple of the same instant would be inside.\n"
        'Hint: use closed="both", or a longer window.'
    )


def test_windows_are_values() -> None:
    for window in (TimeWindow(5), TimeWindow(5, closed=False), Unbounded()):
        assert pickle.loads(pickle.dumps(window)) == window
    assert TimeWindow(5) != TimeWindow(5, closed=False)


def test_closed_ends_are_named_and_true_and_false_go_as_well() -> None:
    assert [closed_ends(name) for name in CLOSED] == list(CLOSED)
    assert (closed_ends(True), closed_ends(False)) == ("both", "right")
    with pytest.raises(WindowError) as caught:
        closed_ends("upper")
    assert str(caught.value) == (
        "`closed` is 'upper'; it names the ends that belong to an interval: both, left, right, neither.\n"
        'Hint: closed="both" includes both ends, closed="right" the upper one alone.'
    )
