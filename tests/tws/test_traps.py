"""Cautions about windows, delays and idleness, from the arguments alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from watersmeet.model.queries import StreamSpec
from watersmeet.model.windows import FOREVER, RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.spark.explain.traps import of_delays, of_idleness, of_instants, of_lengths

SECOND = 1_000_000


def spec(name: str, window: Window | int, **more: Any) -> StreamSpec:
    schema = pa.schema([("k", pa.int64()), (f"{name}_at", pa.timestamp("us", "UTC"))])
    made = window if not isinstance(window, int) else TimeWindow(window * SECOND)
    return replace(StreamSpec(name, schema, f"{name}_at", ("k",), made), **more)


def test_a_window_of_0_says_which_results_remain() -> None:
    (message,) = of_instants([spec("a", 10), spec("b", 0), spec("c", 10)])
    assert message == (
        "b has a window of 0: the only results are those in which its row is the newest; one that is older than its "
        "partner in a or c, if only by a microsecond, matches nothing"
    )
    (message,) = of_instants([spec("a", 0), spec("b", 0), spec("c", 10)])
    assert message.endswith("needs rows of them with the same event time, to the microsecond, and none of c newer")
    (message,) = of_instants([spec("a", 0), spec("b", 0)])
    assert (
        message == "a and b have windows of 0: a result needs rows of them with the same event time, to the microsecond"
    )
    (message,) = of_instants([spec("a", TimeWindow(1, closed=False)), spec("b", 10)])  # all that it holds is an instant
    assert message.startswith("a has a window of 0")
    assert not [*of_instants([spec("a", 10), spec("b", Unbounded()), spec("c", RowsWindow(1))])]


def test_a_delay_that_keeps_rows_far_longer_than_the_window() -> None:
    (message,) = of_delays([spec("a", 10), spec("b", 600, delay=100 * SECOND)])
    assert message == (
        "rows of a are kept for 110 seconds, though its window is 10 seconds: b may come 100 seconds behind (its "
        "`delay`)"
    )
    for quiet in (
        [spec("a", 10), spec("b", 10, delay=99 * SECOND)],
        [spec("a", 10, delay=100 * SECOND), spec("b", 600)],  # its own delay keeps the others
        [spec("a", 0), spec("b", 10, delay=100 * SECOND)],  # about the window of 0
        [spec("a", Unbounded()), spec("b", 10, delay=100 * SECOND)],
        [spec("a", 10), spec("b", 10, delay=FOREVER)],  # no row is ever late
    ):
        assert not [*of_delays(quiet)]


def test_windows_of_very_different_length() -> None:
    (message,) = of_lengths([spec("a", 10), spec("b", 86_400), spec("c", 60)])
    assert message == "the window of b, 1 day, is 8,640 times that of a, 10 seconds"
    for quiet in ([spec("a", 10), spec("b", 9_999)], [spec("a", 0), spec("b", 10)], [spec("a", Unbounded())] * 2):
        assert not [*of_lengths(quiet)]


@pytest.mark.parametrize(("idle", "cautioned"), [(4, True), (5, False), (None, False)])
def test_a_stream_that_is_idle_before_its_delay_is_over(idle: int | None, cautioned: bool) -> None:
    a = spec("a", 10, delay=5 * SECOND, idle_after=None if idle is None else idle * SECOND)
    caution = (
        "`idle_after` of a, 4 seconds, is shorter than its `delay`, 5 seconds: after a pause, rows within the delay "
        "can be late"
    )
    assert [*of_idleness([a, spec("b", 10)])] == [caution] * cautioned
