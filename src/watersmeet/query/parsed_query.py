"""A parsed CQL query as data: streams with windows, conditions, groups and outputs.

Expressions are sqlglot's, with every column qualified by its stream's name in the query. Independent of Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from watersmeet.model.windows import RowsWindow, Window


@dataclass(frozen=True, slots=True)
class Auto:
    """``[AUTO]``: no window; key order and lag of the streams determine what is kept (window-oblivious)."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream, the stream by its name in the query."""

    stream: str
    name: str


@dataclass(frozen=True, slots=True)
class Input:
    """A stream of the query: `stream` is its name outside the query, `name` the name in it.

    `window` is None if neither the query nor the stream declares one. `filters` are conditions that are evaluated
    before the join; a tuple joins only if all are true. `constrained`: the stream has constraints, and finding their
    violations takes all rows.
    """

    stream: str
    name: str
    window: Window | Auto | None
    columns: tuple[str, ...]
    filters: tuple[exp.Expr, ...] = ()
    constrained: bool = False
    place: tuple[int, int] = (0, 0)  # position in the text

    @property
    def counted(self) -> bool:
        """Whether the window counts rows."""
        return isinstance(self.window, RowsWindow)

    @property
    def whole(self) -> bool:
        """Whether the join needs all rows, because rows affect the window or the validity of others."""
        return self.counted or self.constrained


@dataclass(frozen=True, slots=True)
class Query:
    """A query.

    A combination of one tuple of each input is a result iff all columns of each of `equal` are equal, `across` holds,
    and every tuple is in its window at the time of the newest. `how` adds rows without a
    partner. Results for which `after` does not hold are dropped. The rest is grouped by `groups`, if there are any, and
    groups for which `having` does not hold are dropped. `outputs` are the columns of the output, by name.

    With a `slide` (microseconds) results are emitted when all streams have passed a multiple of it. With `updates`
    a group is emitted whenever it changes, not once. A NULL equals a NULL in the columns that are `null_safe`. With
    `asof` a tuple of the first input has one partner, the nearest in time by the comparison in `across`.
    """

    inputs: tuple[Input, ...]
    how: str
    equal: tuple[tuple[Column, ...], ...]
    outputs: tuple[tuple[str, exp.Expr], ...]
    across: tuple[exp.Expr, ...] = ()
    after: tuple[exp.Expr, ...] = ()
    groups: tuple[exp.Expr, ...] = ()
    having: exp.Expr | None = None
    slide: int | None = None
    updates: bool = False
    null_safe: frozenset[Column] = frozenset()
    asof: bool = False

    def input(self, name: str) -> Input:
        return next(i for i in self.inputs if i.name == name)


#: For each kind of join, the inputs whose columns are NULL in results that are rows without a partner.
PADDED: dict[str, tuple[int, ...]] = {"left": (1,), "right": (0,), "full": (0, 1)}


def streams_in(expression: exp.Expr) -> set[str]:
    """Names of the inputs whose columns occur in an expression."""
    return {column.table for column in expression.find_all(exp.Column)}


def is_mean(node: exp.Expr) -> bool:
    """Whether this is `mean`, Spark's alias of avg, which sqlglot does not know."""
    return isinstance(node, exp.Anonymous) and node.name.upper() == "MEAN"


def aggregates_in(expression: exp.Expr) -> Iterator[exp.Expr]:
    return (node for node in expression.walk() if isinstance(node, exp.AggFunc) or is_mean(node))
