"""Forecasts of a running join: what rates, windows, delays and closings let expect, and when nothing can be said."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.cost.forecast import SECOND, Forecast, Shown
from watersmeet.model.punctuations import Ordered, Unique
from watersmeet.model.queries import JoinQuery, StreamSpec
from watersmeet.model.windows import TimeWindow, Unbounded


def spec(name: str, window: int | None = 10, delay: int = 0, promises: tuple = ()) -> StreamSpec:
    schema = pa.schema([("k", pa.int64()), (f"{name}_ts", pa.timestamp("us", "UTC"))])
    length = Unbounded() if window is None else TimeWindow(window * SECOND)
    return StreamSpec(name, schema, f"{name}_ts", ("k",), length, delay=delay * SECOND, promises=promises)


def shown(batch: int, rows: int, **more: int) -> Shown:
    """A batch of two seconds."""
    return Shown(rows, seen=2 * (batch + 1) * SECOND, **more)


def test_windows_keep_rate_times_window_and_the_other_streams_delay() -> None:
    forecast = Forecast(JoinQuery((spec("a"), spec("b", delay=2))), "hash")
    told = [forecast.after([shown(n, 200), shown(n, 2000)]) for n in range(8)]
    assert told[0] == [None, None], "one batch has no rate"
    assert told[1:4] == [[400, 4000], [600, 6000], [800, 8000]], "no more than has come"
    assert told[6:] == [[100 * 12, 1000 * 10]] * 2


def test_a_rate_is_that_of_the_last_window() -> None:
    forecast = Forecast(JoinQuery((spec("a"), spec("b"))), "hash")
    for n in range(20):
        told = forecast.after([shown(n, 200 if n < 10 else 20), shown(n, 200)])
    assert told == [100, 1000]


def test_closings_make_it_less() -> None:
    """b closes 5 of a's 100 open keys a second: each tuple has 1 chance in 20 a second to go."""
    query = JoinQuery((spec("a", window=None), spec("b")))
    forecast = Forecast(query, "pwjoin")
    for n in range(60):
        told = forecast.after([shown(n, 200, keys=100), shown(n, 200, closed=10, keys=50)])
    assert told == [pytest.approx(100 * 20), 1000]


def test_a_stream_that_nothing_ends_is_kept_whole() -> None:
    forecast = Forecast(JoinQuery((spec("a", window=None), spec("b", window=None))), "pjoin")
    for n in range(5):
        told = forecast.after([shown(n, 100), shown(n, 10)])
    assert told == [500, 50]


def test_without_time_that_goes_on_nothing_is_foretold() -> None:
    forecast = Forecast(JoinQuery((spec("a"), spec("b"))), "hash")
    for n in range(3):
        told = forecast.after([shown(n, 100), Shown(0)])
    assert told == [None, None]


@pytest.mark.parametrize("more", [{"ranges": 1}, {}])
def test_closings_by_ranges_are_not_foretold(more: dict[str, int]) -> None:
    a = spec("a", promises=() if more else (Ordered(),))
    forecast = Forecast(JoinQuery((a, spec("b", promises=(Unique(),)))), "pwjoin")
    for n in range(3):
        told = forecast.after([shown(n, 100, **more), shown(n, 100)])
    assert told == [None, None]
