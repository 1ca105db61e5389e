"""Bounds on a column of one stream that follow from a row of another: what a sorted index can answer of a predicate.

A condition such as ``abs(a.x - b.y) <= 5`` or ``a.low <= b.v`` is a linear inequality of two streams. Solved for an
expression of one of them, its *attribute*, it gives an interval for each row of the other. Intervals are computed in
doubles. Where that, or the arithmetic of the predicate itself, may round, they are widened: no match is ever outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.model import predicates as p
from watersmeet.model.predicates import Node, Predicate

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

#: Whole numbers up to here are exact in doubles, and so are their sums and differences.
EXACT = float(1 << 52)
#: Rounding errors of a bound, in units of the last place of its terms: more than any predicate of few terms makes.
ULPS = 32
#: The smallest double above 0: products round to multiples of it, however small they are.
_SMALLEST = 5e-324
#: Digits of a decimal that a double holds.
_DIGITS = 15
#: Bounds with larger constants are not chained: sums with them may round.
_SMALL = 1 << 40

#: Coefficients of columns.
Terms = tuple[tuple[str, Fraction], ...]
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of columns with coefficients, and a constant."""

    terms: Mapping[str, Fraction]
    constant: Fraction = Fraction(0)

    def __add__(self, other: Linear) -> Linear:
        sums = {
            c: self.terms.get(c, Fraction(0)) + other.terms.get(c, Fraction(0)) for c in [*self.terms, *other.terms]
        }
        return Linear({c: k for c, k in sums.items() if k}, self.constant + other.constant)

    def times(self, factor: Fraction) -> Linear:
        return Linear({c: k * factor for c, k in self.terms.items() if factor}, self.constant * factor)


@dataclass(frozen=True, slots=True)
class Attribute:
    """An expression of one stream by which its tuples can be sorted; its first coefficient is 1."""

    stream: int
    terms: Terms

    @property
    def column(self) -> str | None:
        """The column that it is, if it is one."""
        return self.terms[0][0] if len(self.terms) == 1 else None

    @property
    def columns(self) -> list[str]:
        return [column for column, _ in self.terms]

    def __str__(self) -> str:
        parts = [column if k == 1 else f"{float(k):g} * {column}" for column, k in self.terms]
        return " + ".join(parts)

    def values(self, rows: pa.RecordBatch | pa.Table) -> tuple[Floats, Floats, Bools]:
        """Its value in each of these rows, the sum of its terms without their signs, and whether it is not NULL."""
        return _values(self.terms, rows)


@dataclass(frozen=True, slots=True)
class Bound:
    """`attribute` is at most (`upper`) or at least ``constant + terms``, terms being columns of stream `by`."""

    attribute: Attribute
    by: int
    terms: Terms
    constant: Fraction
    upper: bool
    strict: bool
    whole: bool  # all values are whole numbers: nothing rounds
    plain: bool  # one column beside another, compared as they are
    floating: bool  # all columns are floats
    single: bool  # a column is a float of 24 bits
    nan: bool  # holds where the attribute is NaN

    def limits(self, rows: pa.RecordBatch | pa.Table, largest: float) -> tuple[Floats, Bools, Bools]:
        """The limit for each row of stream `by`, whether it excludes the limit itself, and whether it is not NULL.

        `largest` is that of the attribute's terms without their signs, if it has several. NaN stands for no limit.
        """
        values, sums, valid = _values(self.terms, rows)
        with np.errstate(over="ignore", invalid="ignore"):
            limits = values + float(self.constant)
            sums = sums + abs(float(self.constant)) + largest
            exact = (sums < EXACT) & (self.whole | self.plain) | (self.plain & self.floating)
            room = ULPS * ((2.0**-23 if self.single else 2.0**-52) * sums + _SMALLEST)
            limits = np.where(exact, limits, limits + room if self.upper else limits - room)
        return limits, exact & self.strict, valid


def _values(terms: Terms, rows: pa.RecordBatch | pa.Table) -> tuple[Floats, Floats, Bools]:
    total, sums = np.zeros(rows.num_rows), np.zeros(rows.num_rows)
    valid = np.ones(rows.num_rows, np.bool_)
    with np.errstate(over="ignore", invalid="ignore"):
        for column, coefficient in terms:
            values, there = doubles(rows.column(column))
            total += float(coefficient) * values
            sums += np.abs(float(coefficient) * values)
            valid &= there
    return total, sums, valid


def doubles(column: pa.Array | pa.ChunkedArray) -> tuple[Floats, Bools]:
    """Numbers, dates and times as doubles, and which are not NULL."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    valid = np.asarray(column.is_valid()) if column.null_count else np.ones(len(column), np.bool_)
    if pt.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pt.is_temporal(column.type):
        column = column.cast(pa.int64())
    values = pc.fill_null(column.cast(pa.float64(), safe=False), 0.0)
    return values.to_numpy(zero_copy_only=False).astype(np.float64, copy=False), valid


@dataclass(frozen=True, slots=True)
class Intervals:
    """For each row of one stream the values of an attribute of another that may match: none where not `valid`.

    Infinite ends are open to NaN, too.
    """

    low: Floats
    high: Floats
    low_open: Bools
    high_open: Bools
    valid: Bools

    @classmethod
    def of(cls, bounds: Sequence[Bound], rows: pa.RecordBatch | pa.Table, largest: float = 0.0) -> Intervals:
        """The intervals that bounds on one attribute give together; see `Bound.limits`."""
        n = rows.num_rows
        low, high = np.full(n, -np.inf), np.full(n, np.inf)
        low_open, high_open, valid = np.zeros(n, np.bool_), np.zeros(n, np.bool_), np.ones(n, np.bool_)
        for bound in bounds:
            limits, is_open, there = bound.limits(rows, largest)
            valid &= there
            if bound.upper:
                less = limits < high
                high_open = np.where(less, is_open, high_open | (is_open & (limits == high)))
                high = np.where(less, limits, high)
            else:
                more = limits > low
                low_open = np.where(more, is_open, low_open | (is_open & (limits == low)))
                low = np.where(more, limits, low)
        return cls(low, high, low_open, high_open, valid)

    @property
    def empty(self) -> Bools:
        """Where no number is inside."""
        nothing: Bools = (self.low > self.high) | ((self.low == self.high) & (self.low_open | self.high_open))
        return nothing | ~self.valid


# ------------------------------------------------------------ from a predicate to its bounds


def conjuncts(node: Node) -> Iterator[Node]:
    """The conditions all of which must be true."""
    if isinstance(node, p.Both) and not node.decided:
        yield from conjuncts(node.left)
        yield from conjuncts(node.right)
    else:
        yield node


def columns_in(node: Node) -> set[str]:
    """Columns that an expression names."""
    if isinstance(node, p.Column):
        return {node.name}
    below = (getattr(node, name, None) for name in ("left", "right", "operand"))
    return {column for part in below if isinstance(part, Node) for column in columns_in(part)}


def bounds_of(where: Predicate | None, streams: Sequence[Sequence[str]]) -> tuple[Bound, ...]:
    """The bounds that follow from a predicate; `streams` has the columns of each stream."""
    if where is None:
        return ()
    owner = {column: i for i, columns in enumerate(streams) for column in columns}
    return tuple(bound for node in conjuncts(where.root) for bound in _of_condition(node, owner))


def with_implied(bounds: Sequence[Bound], streams: int) -> tuple[Bound, ...]:
    """These bounds, and those that follow from chains of them: from ``y >= x - 2`` and ``z >= y`` that ``z >= x - 2``.

    Bounds of whole numbers alone are chained, which do not round. Of each kind the tightest one is kept.
    """
    steps = [b for b in bounds if b.whole and abs(b.constant) < _SMALL]
    made: dict[tuple[Attribute, int, Terms, bool], Bound] = {}
    ends = steps
    for _ in range(streams - 2):
        longer = [bound for first in ends for then in steps for bound in _chained(first, then)]
        ends = []
        for bound in longer:
            kind = (bound.attribute, bound.by, bound.terms, bound.upper)
            if kind not in made or (bound.constant < made[kind].constant) is bound.upper:
                made[kind] = bound
                ends.append(bound)
    return (*bounds, *made.values())


def _chained(first: Bound, then: Bound) -> Iterator[Bound]:
    """The bound that follows if `then` is about a column that `first` bounds, on the side that matters."""
    (column, factor), *more = then.terms
    goes_on = not more and then.by == first.attribute.stream and column == first.attribute.column
    if goes_on and then.attribute.stream != first.by and first.upper is (then.upper is (factor > 0)):
        terms = tuple((c, k * factor) for c, k in first.terms)
        constant = _closed_end(then) + factor * _closed_end(first)
        yield replace(then, by=first.by, terms=terms, constant=constant, strict=False, plain=False)


def _closed_end(bound: Bound) -> Fraction:
    """The constant of a bound of whole numbers that includes its end."""
    return bound.constant + (0 if not bound.strict else -1 if bound.upper else 1)


def _of_condition(node: Node, owner: Mapping[str, int]) -> Iterator[Bound]:
    if not isinstance(node, p.Comparison) or node.operator == "<>":
        return
    left, right, operator = node.left, node.right, node.operator
    if isinstance(_uncast(right), p.Absolute):
        left, right, operator = right, left, _MIRRORED[operator]
    size = _uncast(left)
    if isinstance(size, p.Absolute) and operator in ("<", "<=", "="):
        inner, most = linear(size.operand), linear(right)
        if inner is not None and most is not None:
            for side in (inner, inner.times(Fraction(-1))):
                yield from _solved(side, most, owner, _kinds(node), strict=operator == "<", plain=False)
        return
    low, high = linear(left), linear(right)
    if low is None or high is None:
        return
    plain = all(isinstance(_uncast(side), p.Column) for side in (left, right))
    if operator in (">", ">=", "="):
        yield from _solved(high, low, owner, _kinds(node), strict=operator == ">", plain=plain)
    if operator in ("<", "<=", "="):
        yield from _solved(low, high, owner, _kinds(node), strict=operator == "<", plain=plain)


def _uncast(node: Node) -> Node:
    return _uncast(node.operand) if isinstance(node, p.Cast) else node


def _solved(
    low: Linear, high: Linear, owner: Mapping[str, int], kinds: Mapping[str, pa.DataType], *, strict: bool, plain: bool
) -> Iterator[Bound]:
    """``low <= high``, or `strict`, solved for each of two streams. A NaN in `high` makes it true, one in `low` false.

    `plain`: both are columns.
    """
    whole = low + high.times(Fraction(-1))  # <= 0
    streams = sorted({owner[c] for c in whole.terms})
    if len(streams) != 2:
        return
    if any(pt.is_decimal(k) for k in kinds.values()):  # as doubles, 0.3 and 0.300 differ
        plain &= len(set(kinds.values())) == 1 and all(k.precision <= _DIGITS for k in kinds.values())
    integral = whole.constant.denominator == 1 and all(k.denominator == 1 for k in whole.terms.values())
    integral &= all(pt.is_integer(k) or pt.is_temporal(k) for k in kinds.values())
    single = any(pt.is_float32(k) for k in kinds.values())
    floating = all(pt.is_floating(k) for k in kinds.values())
    for stream, by in (streams, streams[::-1]):
        mine = sorted(c for c in whole.terms if owner[c] == stream)
        first = whole.terms[mine[0]]
        attribute = Attribute(stream, tuple((c, whole.terms[c] / first) for c in mine))
        others = tuple((c, -k / first) for c, k in sorted(whole.terms.items()) if owner[c] == by)
        unit = integral and abs(first) == 1 and len(mine) == 1
        nan = any(c in high.terms and pt.is_floating(kinds[c]) for c in mine)
        kind = (unit, plain, floating, single, nan)
        yield Bound(attribute, by, others, -whole.constant / first, first > 0, strict, *kind)


def _kinds(node: Node) -> dict[str, pa.DataType]:
    """Types of the columns of an expression."""
    if isinstance(node, p.Column):
        return {node.name: node.kind}
    out: dict[str, pa.DataType] = {}
    for name in ("left", "right", "operand"):
        part = getattr(node, name, None)
        if isinstance(part, Node):
            out |= _kinds(part)
    return out


def linear(node: Node) -> Linear | None:
    """An expression as a sum of columns; None if it is something else."""
    match node:
        case p.Column(name, kind) if _measurable(kind):
            return Linear({name: Fraction(1)})
        case p.Literal(value) if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            return None if value != value else Linear({}, Fraction(value))
        case p.Cast(operand, kind) if _measurable(kind) and _measurable(operand.kind):
            return linear(operand)
        case p.Negative(operand):
            inner = linear(operand)
            return None if inner is None else inner.times(Fraction(-1))
        case p.Arithmetic(operator, left, right):
            a, b = linear(left), linear(right)
            return None if a is None or b is None else _computed(operator, a, b)
    return None


def _computed(operator: str, a: Linear, b: Linear) -> Linear | None:
    match operator:
        case "+":
            return a + b
        case "-":
            return a + b.times(Fraction(-1))
        case "*" if not b.terms:
            return a.times(b.constant)
        case "*" if not a.terms:
            return b.times(a.constant)
        case "/" if not b.terms and b.constant:
            return a.times(1 / b.constant)
    return None


def _measurable(kind: pa.DataType) -> bool:
    """Whether values are numbers, or counted from a point in time."""
    whole = pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind)
    return bool(whole or pt.is_date32(kind) or pt.is_timestamp(kind))
