"""A query of the language as data: streams with windows, what must hold where, and what is told of the results.

Expressions are sqlglot's, with every column under the name its stream has in the query. Nothing here knows Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from watersmeet.model.windows import RowsWindow, Window


@dataclass(frozen=True, slots=True)
class Auto:
    """``[AUTO]``: no window; what is kept follows from the order and the lag of the streams (window-oblivious)."""


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a stream, the stream by its name in the query."""

    stream: str
    name: str


@dataclass(frozen=True, slots=True)
class Input:
    """A stream of the query: `stream` is what it is outside, `name` what the query calls it.

    Without a `window` (None) neither the query nor the stream says anything about it. Tuples for which one of `filters`
    is not true take no part; only conditions that may be asked before the join stand here.
    """

    stream: str
    name: str
    window: Window | Auto | None
    columns: tuple[str, ...]
    filters: tuple[exp.Expr, ...] = ()

    @property
    def counted(self) -> bool:
        """Whether the window counts rows: then nothing may be left out before it."""
        return isinstance(self.window, RowsWindow)


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked for.

    A combination of one tuple of each input is a result iff all columns of each of `equal` are equal, `across` holds,
    and every tuple is in its window at the time of the newest. Of the results (rows without a partner among them, as
    `how` says) those count for which `after` holds. Then they are grouped by `groups`, if there are any, and groups
    for which `having` holds count; `outputs` is what is told of each, by name.

    With a `slide` (microseconds) results come when all streams have passed a multiple of it. With `updates` groups come
    whenever they change, not once.
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

    def input(self, name: str) -> Input:
        return next(i for i in self.inputs if i.name == name)


#: For each kind of join, the inputs whose columns are NULL in results that are rows without a partner.
PADDED: dict[str, tuple[int, ...]] = {"left": (1,), "right": (0,), "full": (0, 1)}


def streams_in(expression: exp.Expr) -> set[str]:
    """Names of the inputs whose columns an expression has."""
    return {column.table for column in expression.find_all(exp.Column)}
