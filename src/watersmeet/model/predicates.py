"""Predicates across streams: comparisons and arithmetic, typed as Spark SQL types them, evaluated by Arrow.

A pair of tuples fits if the predicate is true; false and NULL do not fit. Semantics are those of Spark's ANSI mode: an
overflow or a division by zero is an error, NaN equals NaN and is larger than every number, and the right side of AND
and OR is looked at only where the left one leaves the question open. Times are instants: unlike Spark, which counts
days in the session's time zone, a day is 24 hours.

Conditions that AND connects are evaluated in an order of their own (`in_order`), each for the pairs that fulfil those
before it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from watersmeet.errors import QueryError

COMPARE = {"=": "equal", "<>": "not_equal", "<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal"}
CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_BOOL = pa.bool_()
#: The difference of two times, and an INTERVAL.
DURATION = pa.duration("us")
_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
#: Decimal digits of a column of integers, in Spark.
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 20}
#: Positions of pairs, and what gives columns of the pairs at some positions.
Kept = slice | npt.NDArray[np.int64]
Take = Callable[[Sequence[str], Kept], Sequence[pa.Array]]


class Node(ABC):
    """An expression over the columns of a pair, with its type."""

    kind: pa.DataType

    @abstractmethod
    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        """Its value for each of these rows."""


@dataclass(frozen=True, slots=True)
class Predicate:
    """What must hold for a pair: the text, tokens set apart by single spaces, and the expression that it means."""

    text: str
    root: Node
    columns: tuple[str, ...]

    def decided_by(self, columns: Collection[str]) -> Predicate | None:
        """Those of the conditions connected by AND that these columns decide; None: there are none."""
        own = [c for c in _conjuncts(self.root) if all(name in columns for name in _names(c))]
        if not own:
            return None
        root = reduce(lambda a, b: Both(a, b, decided=False), own)
        return Predicate(self.text, root, tuple(dict.fromkeys(_names(root))))

    def holds(self, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
        """For which of these pairs it is true."""

        def take(columns: Sequence[str], kept: Kept) -> list[pa.Array]:
            some = [rows.column(c) for c in columns]
            return some if isinstance(kept, slice) else [column.take(pa.array(kept)) for column in some]

        return self.holds_among(rows.num_rows, take)

    def holds_among(self, pairs: int, take: Take) -> npt.NDArray[np.bool_]:
        """For which of so many pairs it is true; columns are taken for the pairs that a condition is evaluated for."""
        kept: Kept = slice(None)
        left = pairs
        try:
            for condition in in_order(_conjuncts(self.root)):
                if not left:
                    break
                columns = list(dict.fromkeys(_names(condition)))
                values = take(columns, kept) or [pa.nulls(left)]  # they count the pairs: the condition may name none
                rows = pa.record_batch(values, names=columns or ["watersmeet pair"])
                true = pc.fill_null(condition.evaluate(rows), False).to_numpy(zero_copy_only=False)
                kept = np.flatnonzero(true) if isinstance(kept, slice) else kept[true]
                left = kept.size
        except (pa.ArrowInvalid, ZeroDivisionError) as error:
            raise QueryError(
                f"`where` ({self.text}) has no value for a pair of rows: {error}.",
                hint="rule such rows out first (… <> 0 AND …), or cast to a wider type before the join.",
            ) from error
        out = np.zeros(pairs, np.bool_)
        out[kept] = True  # without pairs there is none to set
        return out


@dataclass(frozen=True, slots=True)
class Column(Node):
    name: str
    kind: pa.DataType

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return rows.column(self.name)


@dataclass(frozen=True, slots=True)
class Literal(Node):
    value: Any
    kind: pa.DataType

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return pa.repeat(pa.scalar(self.value, self.kind), rows.num_rows)


@dataclass(frozen=True, slots=True)
class Cast(Node):
    operand: Node
    kind: pa.DataType

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return pc.cast(self.operand.evaluate(rows), self.kind, safe=not pt.is_floating(self.kind))


@dataclass(frozen=True, slots=True)
class Arithmetic(Node):
    operator: str
    left: Node
    right: Node
    kind: pa.DataType

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        left, right = self.left.evaluate(rows), self.right.evaluate(rows)
        if self.operator in CHECKED:
            return CHECKED[self.operator](left, right)
        both = pc.and_(left.is_valid(), right.is_valid())
        if pc.any(pc.and_(both, pc.fill_null(pc.equal(right, pa.scalar(0, right.type)), False))).as_py():
            raise ZeroDivisionError("division by zero")
        if self.operator == "/":
            return pc.divide(left, right)
        a, b = (pc.fill_null(x, pa.scalar(1, x.type)).to_numpy(zero_copy_only=False) for x in (left, right))
        with np.errstate(invalid="ignore"):  # the remainder of an infinity is NaN
            return pa.array(np.fmod(a, b), self.kind, mask=~both.to_numpy(zero_copy_only=False))


@dataclass(frozen=True, slots=True)
class Negative(Node):
    operand: Node

    @property
    def kind(self) -> pa.DataType:
        return self.operand.kind

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return pc.negate_checked(self.operand.evaluate(rows))


@dataclass(frozen=True, slots=True)
class Absolute(Node):
    operand: Node

    @property
    def kind(self) -> pa.DataType:
        return self.operand.kind

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return pc.abs_checked(self.operand.evaluate(rows))


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    operator: str
    left: Node
    right: Node
    kind: pa.DataType = _BOOL

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        left, right = self.left.evaluate(rows), self.right.evaluate(rows)
        if pt.is_floating(left.type):
            left, right = _ordered(left), _ordered(right)
        return getattr(pc, COMPARE[self.operator])(left, right)


@dataclass(frozen=True, slots=True)
class Both(Node):
    """AND, and with `decided` true OR: the right side counts where the left one is not `decided`."""

    left: Node
    right: Node
    decided: bool
    kind: pa.DataType = _BOOL

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        left = self.left.evaluate(rows)
        is_open = pc.fill_null(pc.not_equal(left, self.decided), True)
        some = rows.filter(is_open)
        combine = pc.or_kleene if self.decided else pc.and_kleene
        rest = combine(left.filter(is_open), self.right.evaluate(some)) if some.num_rows else left.slice(0, 0)
        return pc.replace_with_mask(left, is_open, rest)


@dataclass(frozen=True, slots=True)
class Not(Node):
    operand: Node
    kind: pa.DataType = _BOOL

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return pc.invert(self.operand.evaluate(rows))


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    operand: Node
    kind: pa.DataType = _BOOL

    def evaluate(self, rows: pa.RecordBatch) -> pa.Array:
        return self.operand.evaluate(rows).is_null()


def _conjuncts(node: Node) -> list[Node]:
    """The conditions that AND connects, in their order."""
    if isinstance(node, Both) and not node.decided:
        return [*_conjuncts(node.left), *_conjuncts(node.right)]
    return [node]


def _names(node: Node) -> list[str]:
    """Names of the columns in an expression."""
    if isinstance(node, Column):
        return [node.name]
    return [name for part in _parts(node) for name in _names(part)]


def _parts(node: Node) -> list[Node]:
    """The expressions that an expression is made of."""
    return [getattr(node, part) for part in ("operand", "left", "right") if hasattr(node, part)]


def _ordered(values: pa.Array) -> pa.Array:
    """Floats as integers in Spark's order: one zero, one NaN, which is the largest."""
    floats = pc.fill_null(values.cast(pa.float64()), 0.0).to_numpy(zero_copy_only=False) + 0.0
    floats[np.isnan(floats)] = np.nan
    words = floats.view(np.int64)
    ranks = np.where(words >= 0, words, words ^ np.iinfo(np.int64).max)
    return pa.array(ranks, mask=~np.asarray(values.is_valid()))


# ------------------------------------------------------------ the order of conditions

#: Shares of pairs for which a comparison is taken to be true.
_SHARES = {"=": 0.1, "<>": 0.9}
_SHARE = 1 / 3


def in_order(conditions: Sequence[Node]) -> list[Node]:
    """Conditions connected by AND in the order in which they are evaluated: most pairs excluded per nanosecond first.

    One that may raise an error stays behind all that are written before it: it is never evaluated for a pair that these
    exclude. Costs are measured, shares of true pairs assumed, so that the order depends on the text alone, and with it
    which pair is an error.

    References: Selinger and others, Access path selection in a relational database management system (1979), for the
    shares; Hellerstein and Stonebraker, Predicate migration (1993), for the rank.
    """
    rank = {n: (share_of(c) - 1) / cost_of(c) for n, c in enumerate(conditions)}
    raising = [n for n in rank if may_raise(conditions[n])]
    out: list[int] = []
    while rank:
        least = min(rank)
        best = min((n for n in rank if n == least or n not in raising), key=lambda n: (rank[n], n))
        out.append(best)
        del rank[best]
    return [conditions[n] for n in out]


def share_of(node: Node) -> float:
    """The share of pairs for which a condition is taken to be true."""
    match node:
        case Comparison(operator):
            return _SHARES.get(operator, _SHARE)
        case Not(operand):
            return 1 - share_of(operand)
        case Both(left, right, decided):
            a, b = share_of(left), share_of(right)
            return a + b - a * b if decided else a * b
        case IsNull():
            return 0.1
    return 0.5


def cost_of(node: Node) -> float:
    """Nanoseconds per pair of an expression, roughly; taking the values of its columns included."""
    parts = sum(map(cost_of, _parts(node)))
    match node:
        case Column(_, kind):
            return 2 if _fixed(kind) else 15
        case Comparison(_, left):
            return parts + (35 if pt.is_floating(left.kind) else 1 if _fixed(left.kind) else 3)
        case Arithmetic(operator, _, _, kind):
            return parts + {"/": 5, "%": 10}.get(operator, 8 if pt.is_decimal(kind) else 2)
        case Both():
            return parts + 10
    return parts + 2


def may_raise(node: Node) -> bool:
    """Whether an expression may be an error: whole numbers and decimals overflow, a divisor may be zero."""
    match node:
        case Arithmetic("/" | "%", left, Literal(value)) if value:
            return may_raise(left)
        case Arithmetic("/" | "%"):
            return True
        case Arithmetic() | Negative() | Absolute() if not pt.is_floating(node.kind):
            return True
        case Cast(operand, kind) if not (pt.is_floating(kind) or pt.is_null(operand.kind) or _widens(operand, kind)):
            return True
    return any(map(may_raise, _parts(node)))


def _widens(node: Node, kind: pa.DataType) -> bool:
    return node.kind in _INTEGERS and kind in _INTEGERS and _INTEGERS.index(node.kind) <= _INTEGERS.index(kind)


def _fixed(kind: pa.DataType) -> bool:
    return bool(pt.is_primitive(kind) or pt.is_boolean(kind) or pt.is_decimal(kind) or pt.is_null(kind))


# ------------------------------------------------------------ making expressions, typed as Spark types them


def arithmetic(operator: str, left: Node, right: Node) -> Node:
    """`left` + - * / % `right`."""
    kind = _of_times(operator, left.kind, right.kind)
    if kind is not None:
        return Arithmetic(operator, left, right, kind)
    if not (_numeric(left.kind) and _numeric(right.kind)):
        raise _refusal(
            f"`{operator}` of {left.kind} and {right.kind}",
            "numbers alone are added, multiplied, divided, and intervals added to times",
        )
    if pt.is_decimal(left.kind) or pt.is_decimal(right.kind):
        if not (pt.is_floating(left.kind) or pt.is_floating(right.kind)):
            return _decimals(operator, left, right)
        kind = pa.float64()
    elif operator == "/":
        kind = pa.float64()
    else:
        kind = _common(left.kind, right.kind)
    return Arithmetic(operator, cast(left, kind), cast(right, kind), kind)


def _of_times(operator: str, a: pa.DataType, b: pa.DataType) -> pa.DataType | None:
    """The type of a sum or difference of times and intervals; None: it is none."""
    if operator == "-" and pt.is_timestamp(a) and a == b:
        return DURATION
    if operator in "+-" and (pt.is_timestamp(a) or a == DURATION) and b == DURATION:
        return a
    return b if operator == "+" and a == DURATION and pt.is_timestamp(b) else None


def _decimals(operator: str, left: Node, right: Node) -> Node:
    if operator in "/%":
        raise _refusal(f"`{operator}` of decimals", "Arrow rounds them otherwise than Spark")
    (p, s), (q, t) = (_precision(n) for n in (left, right))
    whole = (p + q + 1, s + t) if operator == "*" else (max(p - s, q - t) + max(s, t) + 1, max(s, t))
    if whole[0] > 38:
        raise _refusal(f"`{operator}` of {left.kind} and {right.kind}", "a decimal has 38 digits at most")
    sides = (cast(left, pa.decimal128(p, s)), cast(right, pa.decimal128(q, t)))
    return Arithmetic(operator, *sides, pa.decimal128(*whole))


def comparison(operator: str, left: Node, right: Node) -> Node:
    """`left` = <> < <= > >= `right`."""
    kind = _comparable(left, right)
    return Comparison(operator, cast(left, kind), cast(right, kind))


def negative(operand: Node) -> Node:
    if isinstance(operand, Literal) and operand.kind == DURATION:
        return Literal(-operand.value, DURATION)
    if not (_numeric(operand.kind) or operand.kind == DURATION):
        raise _refusal(f"`-` of {operand.kind}", "only a number and an interval have a negative")
    return Negative(operand)


def absolute(operand: Node) -> Node:
    if not (_numeric(operand.kind) or operand.kind == DURATION):
        raise _refusal(f"`abs` of {operand.kind}", "only a number and an interval have an absolute value")
    return Absolute(operand)


def truth(node: Node) -> Node:
    """An expression that is true, false or NULL."""
    if pt.is_null(node.kind):
        return Cast(node, pa.bool_())
    if not pt.is_boolean(node.kind):
        raise _refusal(f"a value of type {node.kind} as a condition", "a condition is true, false or NULL")
    return node


def one_of(node: Node, others: Sequence[Node]) -> Node:
    """`node` IN (others): one of them equals it. With a float among them all are compared as doubles."""
    if any(pt.is_floating(n.kind) for n in (node, *others)) and all(_numeric(n.kind) for n in (node, *others)):
        node, others = cast(node, pa.float64()), [cast(n, pa.float64()) for n in others]
    equal = [comparison("=", node, other) for other in others]
    return reduce(lambda a, b: Both(a, b, decided=True), equal)


def cast(node: Node, kind: pa.DataType) -> Node:
    if node.kind == kind:
        return node
    if isinstance(node, Literal):
        of = float if pt.is_floating(kind) else Decimal if pt.is_decimal(kind) else type(node.value)
        return Literal(None if node.value is None else of(node.value), kind)
    return Cast(node, kind)


def _comparable(left: Node, right: Node) -> pa.DataType:
    a, b = left.kind, right.kind
    if a == b and not (pt.is_nested(a) or pt.is_interval(a)):
        return a
    if pt.is_null(a) or pt.is_null(b):
        return b if pt.is_null(a) else a
    if _numeric(a) and _numeric(b):
        if pt.is_floating(a) or pt.is_floating(b) or not (pt.is_decimal(a) or pt.is_decimal(b)):
            return _common(a, b)
        (p, s), (q, t) = _precision(left), _precision(right)
        digits = max(p - s, q - t) + max(s, t)
        if digits <= 38:
            return pa.decimal128(digits, max(s, t))
    raise _refusal(f"a comparison of {a} with {b}", "values of these types are not compared as they are")


def _common(a: pa.DataType, b: pa.DataType) -> pa.DataType:
    """Of two types of numbers that are not both decimal the one in which Spark (ANSI) computes."""
    if a == b:
        return a
    if a in _INTEGERS and b in _INTEGERS:
        return max(a, b, key=_INTEGERS.index)
    return pa.float64()  # a float beside an integer or a decimal becomes a double as well


def _precision(node: Node) -> tuple[int, int]:
    if pt.is_decimal(node.kind):
        return node.kind.precision, node.kind.scale
    if isinstance(node, Literal):
        return max(1, len(str(abs(node.value)))), 0
    return _DIGITS[node.kind], 0


def _numeric(kind: pa.DataType) -> bool:
    return kind in _INTEGERS or pt.is_float32(kind) or pt.is_float64(kind) or bool(pt.is_decimal(kind))


def _refusal(what: str, why: str) -> QueryError:
    return QueryError(
        f"`where` has {what}; {why}.",
        hint="compute it as a column of one stream before the join, e.g. df.withColumn(…, F.expr(…)).",
    )
