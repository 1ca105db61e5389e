"""Durations in words: few digits, and read back as what they were."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import WindowError
from watersmeet.model import durations
from watersmeet.model.windows import FOREVER, RowsWindow, TimeWindow, Unbounded, Window, format_length, format_window


@pytest.mark.parametrize(
    ("micros", "text"),
    [
        (0, "0 seconds"),
        (1, "1 microsecond"),
        (500_000, "500 milliseconds"),
        (1_500_000, "1 second 500 milliseconds"),
        (600_000_000, "10 minutes"),
        (5_400_000_000, "90 minutes"),
        (3_601_000_000, "1 hour 1 second"),
        (86_400_000_001, "1 day 1 microsecond"),
        (604_800_000_000, "1 week"),
        (-5_000_000, "-5 seconds"),
        (610_000_000, "10 minutes 10 seconds"),
        (119 * durations.MICROS["week"], "119 weeks"),
        (5200 * durations.MICROS["week"], "36,400 days"),
    ],
)
def test_in_the_unit_in_which_it_is_a_small_number(micros: int, text: str) -> None:
    assert durations.formatted(micros) == text


@given(st.integers(0, 1 << 55))
def test_read_back_as_what_it_was_and_no_number_is_long(micros: int) -> None:
    text = durations.formatted(micros)
    assert durations.parse(text.replace(",", ""), "window") == micros
    assert all(len(number) <= 3 for number in re.findall(r"\d+", text)), "longer ones have commas"


@pytest.mark.parametrize(
    ("window", "text"),
    [
        (TimeWindow(600_000_000), "10 minutes"),
        (RowsWindow(1), "1 row"),
        (RowsWindow(1000, per_key=True), "1,000 rows of a key"),
        (Unbounded(), "unbounded"),
        (TimeWindow(FOREVER), "endless"),
    ],
)
def test_windows_in_words(window: Window, text: str) -> None:
    assert format_window(window) == text
    assert format_length(None) == "none"


@pytest.mark.parametrize(
    ("given", "micros"),
    [
        ("10 seconds", 10_000_000),
        ("10 sec", 10_000_000),
        ("10 secs", 10_000_000),
        ("10s", 10_000_000),
        ("500 ms", 500_000),
        ("5 us", 5),
        ("5 min", 300_000_000),
        ("2 hrs", 7_200_000_000),
        ("1 d", 86_400_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1 hour, 30 minutes", 5_400_000_000),
        ("1.5 HOURS", 5_400_000_000),
        ("INTERVAL 10 SECONDS", 10_000_000),
        ("interval '10' second", 10_000_000),
        ("INTERVAL '1 hour 30 minutes'", 5_400_000_000),
        ("-5 minutes", -300_000_000),
        (timedelta(hours=1, microseconds=1), 3_600_000_001),
        (timedelta(seconds=-2), -2_000_000),
    ],
)
def test_a_duration_is_written_as_in_spark_or_as_a_timedelta(given: Any, micros: int) -> None:
    assert durations.parse(given, "window") == micros


@given(st.timedeltas())
def test_a_timedelta_is_exact(given: timedelta) -> None:
    assert timedelta(microseconds=durations.parse(given, "delay")) == given


@pytest.mark.parametrize(
    ("given", "text", "hint"),
    [
        (10, "`delay` is 10; a duration has a unit,", 'write it like "10 seconds", or timedelta(seconds=10).'),
        (2.5, "`delay` is 2.5; a duration has a unit,", 'write it like "2.5 seconds", or timedelta(seconds=2.5).'),
        (True, "`delay` is True; a duration has a unit,", 'write it like "10 seconds", or timedelta(seconds=10).'),
        ("10", '`delay` is "10"; that is not a duration', 'a number has a unit: "10 seconds".'),
        (
            "1 month",
            '`delay` is "1 month"; that is not',
            'months and years differ in length; count days, e.g. "30 days".',
        ),
        ("5 m", '`delay` is "5 m"; that is not a duration', 'write it like "10 seconds", "1 hour 30 minutes" or '),
        ("", "`delay` is empty; it is a duration.", 'write it like "10 seconds", "1 hour 30 minutes" or '),
        ("interval ''", "`delay` is empty; it is a duration.", 'write it like "10 seconds"'),
        ("interval", '`delay` is "interval"; that is not', 'write it like "10 seconds"'),
        ("10 seconds and more", '`delay` is "10 seconds and more"; that', 'write it like "10 seconds"'),
    ],
)
def test_what_has_no_fixed_length_is_refused(given: Any, text: str, hint: str) -> None:
    with pytest.raises(WindowError) as caught:
        durations.parse(given, "delay")
    assert str(caught.value).startswith(text)
    assert (caught.value.hint or "").startswith(hint)
