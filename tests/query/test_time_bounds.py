"""Conditions on the time between two rows become the bounds of an interval join, with the windows that there are."""

from __future__ import annotations

import pytest

from lab.query.query_mistakes import STREAMS, TIMES
from watersmeet.model.windows import Interval
from watersmeet.query.lowering import DeclaredStream, LoweredQuery, lower
from watersmeet.query.parser import read

HOUR = 3_600_000_000
MINUTE = HOUR // 60


def lowered(text: str) -> LoweredQuery:
    query = read(text, STREAMS)
    return lower(text, query, {i.name: DeclaredStream(TIMES[i.stream]) for i in query.inputs})


def joined(condition: str, windows: tuple[str, str] = ("", ""), join: str = "JOIN") -> LoweredQuery:
    """A joined to B on the item and a condition; the times are A.opened_at and B.bid_at."""
    a, b = windows
    return lowered(f"SELECT A.item_id FROM auction {a} A {join} bid {b} B ON A.item_id = B.item_id AND {condition}")


BOUNDS = {
    "B.bid_at BETWEEN A.opened_at + INTERVAL 1 HOUR AND A.opened_at + INTERVAL 2 HOURS": (HOUR, 2 * HOUR),
    "B.bid_at BETWEEN A.opened_at - INTERVAL '5' MINUTE AND A.opened_at": (-5 * MINUTE, 0),
    "A.opened_at BETWEEN B.bid_at + INTERVAL 1 HOUR AND B.bid_at + INTERVAL 2 HOURS": (-2 * HOUR, -HOUR),
    "bid_at >= opened_at + INTERVAL 1 HOUR AND bid_at < opened_at + INTERVAL '2' HOUR": (HOUR, 2 * HOUR - 1),
    "opened_at + INTERVAL 1 HOUR < bid_at AND bid_at - INTERVAL 90 MINUTES <= opened_at": (HOUR + 1, 90 * MINUTE),
    "bid_at - opened_at BETWEEN INTERVAL '1 hour 30 minutes' AND INTERVAL 1 DAY": (90 * MINUTE, 24 * HOUR),
    "INTERVAL 2 HOURS >= bid_at - opened_at AND bid_at - opened_at > -INTERVAL 1 HOUR": (1 - HOUR, 2 * HOUR),
    "bid_at = opened_at + INTERVAL 1 HOUR": (HOUR, HOUR),
    "(bid_at >= (opened_at)) AND bid_at <= opened_at + INTERVAL 1 HOUR + INTERVAL 1 MINUTE": (0, 61 * MINUTE),
    "bid_at <= opened_at + INTERVAL 1 HOUR AND bid_at <= opened_at + INTERVAL 2 HOURS AND bid_at > opened_at": (
        1,
        HOUR,
    ),
}


@pytest.mark.parametrize("join", ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "LEFT SEMI JOIN", "LEFT ANTI JOIN"])
@pytest.mark.parametrize("condition", BOUNDS)
def test_bounds_in_any_form(condition: str, join: str) -> None:
    plan = joined(condition, join=join)
    assert plan.between == Interval(*BOUNDS[condition])
    assert plan.where is None
    assert [side.window for side in plan.sides] == [None, None]


def test_bounds_stay_inside_the_windows() -> None:
    windows = ("[RANGE 1 HOUR]", "[RANGE 10 MINUTES]")
    assert joined("bid_at <= opened_at + INTERVAL 5 MINUTES", windows).between == Interval(-10 * MINUTE, 5 * MINUTE)
    assert joined("bid_at > opened_at", windows).between == Interval(1, HOUR)
    unbounded = ("[UNBOUNDED]", "[UNBOUNDED]")
    assert joined("bid_at BETWEEN opened_at AND opened_at + INTERVAL 1 DAY", unbounded).between == Interval(
        0, 24 * HOUR
    )


def test_other_conditions_stay_with_the_pairs() -> None:
    plan = joined("bid_at BETWEEN opened_at AND opened_at + INTERVAL 1 HOUR AND price > reserve")
    assert plan.between == Interval(0, HOUR)
    assert plan.where is not None
    assert plan.where.sql().replace('"', "") == "price > reserve"


@pytest.mark.parametrize(
    "condition",
    [
        "bid_at >= opened_at",  # no upper bound
        "bid_at <> opened_at AND bid_at > opened_at",
        "bid_at BETWEEN opened_at AND opened_at + INTERVAL 1 MONTH",  # a month has no fixed length
        "bid_at BETWEEN opened_at AND opened_at + INTERVAL '1:30' HOUR TO MINUTE",
        "bid_at BETWEEN opened_at + INTERVAL 2 HOURS AND opened_at + INTERVAL 1 HOUR",  # nothing is inside
        "bid_at BETWEEN opened_at AND bid_at + INTERVAL 1 HOUR",
        "(bid_at > opened_at OR bid_at < opened_at)",
        "price > reserve",
    ],
)
def test_anything_else_is_a_condition_like_others(condition: str) -> None:
    plan = joined(condition)
    assert plan.between is None
    assert plan.where is not None


def test_row_windows_and_slides_are_left_alone() -> None:
    inside = "bid_at BETWEEN opened_at AND opened_at + INTERVAL 1 HOUR"
    assert joined(inside, ("[ROWS 5]", "[RANGE 1 HOUR]")).between is None
    assert joined(inside, ("[RANGE 1 HOUR SLIDE 5 MINUTES]", "[RANGE 1 HOUR SLIDE 5 MINUTES]")).between is None
    assert joined(inside, ("[AUTO]", "[AUTO]")).between is None


def test_after_an_outer_join_a_bound_filters_results() -> None:
    plan = lowered(
        "SELECT A.item_id FROM auction [RANGE 1 HOUR] A LEFT JOIN bid [RANGE 1 HOUR] B ON A.item_id = B.item_id "
        "WHERE bid_at BETWEEN opened_at AND opened_at + INTERVAL 1 MINUTE"
    )
    assert plan.between is None
    assert plan.after is not None
