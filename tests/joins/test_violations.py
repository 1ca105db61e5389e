"""Ordered and clustered streams that break their word: found by event time, inside a batch as across batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.joins.scripts import Comparison, Script
from watersmeet.joins import plan
from watersmeet.joins.reference.definition import Tuple
from watersmeet.joins.reference.stream_rules import Elements, Rules
from watersmeet.model.punctuations import Clustered, Constraint, Ordered
from watersmeet.model.windows import TimeWindow

OPERATORS = ("pwjoin", "general_lazy", "eager")
SCRIPTS: dict[str, tuple[Constraint, list[tuple[int, int]], list[int]]] = {
    "smaller than an older one": (Ordered(), [(1, 10), (2, 8), (3, 20)], [1]),
    "within the slack": (Ordered(2), [(1, 10), (2, 8), (3, 7), (4, 20)], [2]),
    "of one time": (Ordered(), [(1, 10), (1, 8), (2, 8), (2, 20), (3, 20)], [2]),
    "in any order of arrival": (Ordered(), [(3, 20), (2, 8), (1, 10)], [1]),
    "again after another": (Clustered(), [(1, 1), (2, 2), (3, 1)], [2]),
    "again and again": (Clustered(), [(1, 1), (2, 2), (3, 1), (4, 1), (5, 3)], [2, 3]),
    "beside another": (Clustered(), [(1, 1), (1, 2), (2, 1), (3, 2)], [3]),
    "with another of its time": (Clustered(), [(1, 1), (2, 1), (2, 2), (3, 2)], []),
    "clusters, shuffled": (Clustered(), [(9, 3), (2, 1), (5, 2), (1, 1), (6, 2)], []),
}


def script(constraint: Constraint, *batches: list[tuple[int, int]], delay: int = 0) -> Script:
    """The first stream has these rows (time, key) in its batches, the other one every key at every time."""
    numbers = iter(range(1 << 20))
    keys, times = ({t[n] for batch in batches for t in batch} for n in (1, 0))
    arrivals = [Elements(tuple(Tuple(ts, (k,), next(numbers)) for ts, k in batch)) for batch in batches]
    others = [
        Elements(tuple(Tuple(max(times), (k,), next(numbers)) for k in sorted(keys))),
        *[Elements()] * (len(arrivals) - 1),
    ]
    windows = (TimeWindow(100), TimeWindow(100))
    return Script(
        "int64", "inner", windows, (delay, 100), ((constraint,), ()), tuple(zip(arrivals, others, strict=True))
    )


def violations(some: Script, operator: str = "pwjoin") -> list[list[int]]:
    """Numbers of the rows that come against the word of the first stream, batch by batch, checked by the rules."""
    join, comparison, out = plan(some.query(), operator).start(), Comparison(some), []
    for n in range(len(some.batches)):
        comparison.step(join, n)  # type: ignore[arg-type]
        out.append(sorted(join.violations[0].column("a_n").to_pylist()))
    return out


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_violation_inside_a_batch_is_found(name: str, operator: str) -> None:
    constraint, rows, wrong = SCRIPTS[name]
    assert violations(script(constraint, rows), operator) == [wrong]


def test_what_has_ended_inside_a_batch_stays_so() -> None:
    assert violations(script(Clustered(), [(1, 1), (2, 2), (3, 1)], [(4, 1)], [(5, 2), (6, 3)])) == [[2], [3], [4]]
    assert violations(script(Ordered(), [(1, 10), (2, 8)], [(3, 9), (4, 10)])) == [[1], [2]]


@pytest.mark.parametrize("operator", OPERATORS)
def test_a_late_row_hides_nothing_that_rows_on_time_declare(operator: str) -> None:
    some = script(Ordered(), [(10, 5)], [(3, 99), (11, 50)], [(12, 40), (13, 60)])
    assert violations(some, operator) == [[], [], [3]]
    some = script(Clustered(), [(10, 5)], [(3, 99), (11, 5)], [(12, 6), (13, 5)])
    assert violations(some, operator) == [[], [], [4]], "99 came late and ended nothing"


def test_with_a_delay_older_rows_that_come_later_close_from_their_own_time_on() -> None:
    some = script(Ordered(), [(20, 100)], [(12, 50), (15, 40), (11, 45)], [(14, 49), (11, 40), (21, 99)], delay=10)
    assert violations(some) == [[], [2], [4, 6]]
    some = script(Clustered(), [(1, 1), (5, 2), (9, 3)], [(7, 1), (4, 1)], [(9, 2), (10, 2)], delay=10)
    assert violations(some) == [[], [3], [6]]


@st.composite
def cuts(draw: Any) -> tuple[Script, Script]:
    """Rows in one batch, and the same in several, cut between two times."""
    constraint = draw(st.sampled_from([Ordered(), Ordered(1), Clustered()]))
    rows = sorted(draw(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 4)), min_size=1, max_size=12)))
    at = sorted(draw(st.sets(st.integers(1, 12), max_size=3)))
    parts = [[r for r in rows if low <= r[0] < high] for low, high in zip([0, *at], [*at, 99], strict=True)]
    return script(constraint, rows), script(constraint, *parts)


@given(cuts())
def test_the_cut_into_batches_between_two_times_changes_no_violation(both: tuple[Script, Script]) -> None:
    whole, parts = both
    assert violations(whole) == [sorted(n for batch in violations(parts) for n in batch)]


@given(cuts())
def test_the_rules_by_their_definition(both: tuple[Script, Script]) -> None:
    """A row is one too many if an older one has a larger key, or if its key is older still than one of another key."""
    whole, _ = both
    (constraint,) = whole.constraints[0]
    rows = whole.batches[0][0].tuples
    wrong = []
    for t in rows:
        older = [u for u in rows if u.time < t.time]
        if isinstance(constraint, Ordered):
            bad = any(u.key[0] - constraint.slack > t.key[0] for u in older)
        else:
            bad = any(u.key == t.key and any(w.key != t.key and u.time < w.time for w in older) for u in older)
        wrong += [t] if bad else []
    found = Rules(replace(whole).query()).step(whole.batches[0])
    assert sorted(t.row for t in found.violations[0]) == sorted(t.row for t in wrong)
