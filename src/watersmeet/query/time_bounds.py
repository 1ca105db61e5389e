"""Conditions that bound the time between the rows of two streams: ``b.t BETWEEN a.t + INTERVAL 1 HOUR AND …``.

Times are instants, so a day is 24 hours in every time zone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sqlglot import exp

from watersmeet.errors import WindowError
from watersmeet.model import durations
from watersmeet.model.windows import FOREVER, Interval, TimeWindow, Unbounded, Window
from watersmeet.query.parsed_query import Auto, Column

#: The bounds that a comparison of a difference with 0 gives to it.
_BOUNDS: dict[type[exp.Expr], tuple[int, int]] = {
    exp.EQ: (0, 0),
    exp.LT: (-FOREVER, -1),
    exp.LTE: (-FOREVER, 0),
    exp.GT: (1, FOREVER),
    exp.GTE: (0, FOREVER),
}


def literal(tree: exp.Interval) -> int | None:
    """Microseconds of an INTERVAL; None if its length is not fixed, or it is not written as numbers of units."""
    unit = tree.args.get("unit")
    if not isinstance(tree.this, exp.Literal) or not isinstance(unit, exp.Var | None):
        return None
    try:
        return durations.parse(f"{tree.this.name} {unit.name if unit is not None else ''}", "INTERVAL")
    except WindowError:
        return None


def interval(
    conditions: Sequence[exp.Expr], times: tuple[Column, Column], windows: Sequence[Window | Auto | None]
) -> tuple[Interval | None, tuple[exp.Expr, ...]]:
    """The interval of the second time around the first that conditions and windows leave, and the other conditions.

    None, and all conditions, if no condition bounds it, if it has no end, or if nothing is left of it.
    """
    if not all(isinstance(window, TimeWindow | Unbounded | None) for window in windows):
        return None, tuple(conditions)
    upper, lower = (FOREVER if w is None else w.reach for w in windows if not isinstance(w, Auto))
    lower, rest = -lower, []
    for condition in conditions:
        found = _bounds(condition, times)
        if found is None:
            rest.append(condition)
        else:
            lower, upper = max(lower, found[0]), min(upper, found[1])
    if len(rest) == len(conditions) or lower > upper or lower <= -FOREVER or upper >= FOREVER:
        return None, tuple(conditions)
    return Interval(lower, upper), tuple(rest)


def _bounds(condition: exp.Expr, times: tuple[Column, Column]) -> tuple[int, int] | None:
    """Bounds of ``times[1] - times[0]``, in microseconds, that the condition means; None: it means something else."""
    if isinstance(condition, exp.Between):
        from_low = _bounds(exp.GTE(this=condition.this, expression=condition.args["low"]), times)
        to_high = _bounds(exp.LTE(this=condition.this, expression=condition.args["high"]), times)
        if from_low is None or to_high is None:
            return None
        return max(from_low[0], to_high[0]), min(from_low[1], to_high[1])
    if type(condition) not in _BOUNDS:
        return None
    difference = _linear(exp.Sub(this=condition.this, expression=condition.expression))
    if difference is None:
        return None
    columns, micros = difference
    low, high = _BOUNDS[type(condition)]  # of the sum of columns and micros
    if columns == {times[1]: 1, times[0]: -1}:
        return max(low - micros, -FOREVER), min(high - micros, FOREVER)
    if columns == {times[0]: 1, times[1]: -1}:
        return max(micros - high, -FOREVER), min(micros - low, FOREVER)
    return None


def _linear(tree: exp.Expr) -> tuple[dict[Column, int], int] | None:
    """A sum as the number of times that each column occurs, and microseconds; None: it is none."""
    match tree:
        case exp.Paren():
            return _linear(tree.this)
        case exp.Column():
            return {Column(tree.table, tree.name): 1}, 0
        case exp.Interval():
            micros = literal(tree)
            return None if micros is None else ({}, micros)
        case exp.Neg():
            return _added(({}, 0), _linear(tree.this), -1)
        case exp.Add() | exp.Sub():
            return _added(_linear(tree.this), _linear(tree.expression), 1 if isinstance(tree, exp.Add) else -1)
    return None


def _added(
    left: tuple[dict[Column, int], int] | None, right: tuple[dict[Column, int], int] | None, sign: int
) -> tuple[dict[Column, int], int] | None:
    if left is None or right is None:
        return None
    columns = Counter(left[0])
    columns.update({column: sign * n for column, n in right[0].items()})
    return {column: n for column, n in columns.items() if n}, left[1] + sign * right[1]
