"""Where punctuations come from: rows of a DataFrame that say something, or what is known about a column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.errors import ColumnError, QueryError
from watersmeet.model.punctuations import Clustered, Ordered, Promise, Unique

Expression = str | Column


@dataclass(frozen=True)
class Known:
    """Something that holds for all rows of a stream, about its column `column`."""

    column: str
    promise: Promise


@dataclass(frozen=True)
class Sign:
    """Rows that are punctuations, not tuples: those where `condition` holds, in the stream's own DataFrame or in `df`.

    `kind` is value, list, range, heartbeat or end; `columns` are what the pattern is made of.
    """

    kind: str
    condition: Expression
    columns: tuple[Any, ...] = ()
    low_closed: bool = True
    high_closed: bool = True
    df: DataFrame | None = None

    def needs(self, unbounded: bool) -> tuple[bool, bool]:
        """Which ends of a range were asked for: NULL there is no end, unless NULL stands for `unbounded`."""
        if self.kind != "range" or unbounded:
            return False, False
        low, high = (column is not None for column in self.columns)
        return low, high


Punctuation = Known | Sign


def unique(col: str) -> Known:
    """No two rows have the same value of `col`: every row closes its own value. Repeated ones are violations."""
    return Known(col, Unique())


def clustered(col: str) -> Known:
    """Rows with one value of `col` come together: a value is closed by another one with a larger event time."""
    return Known(col, Clustered())


def ordered(col: str, slack: Any = 0) -> Known:
    """Values of `col` ascend: a row with value k closes all values below k (below k - slack)."""
    return Known(col, Ordered(slack))


def when(
    condition: Expression,
    *,
    on: str | Sequence[str] | None = None,
    values: Expression | None = None,
    low: Any = None,
    high: Any = None,
    closed: str = "both",
    df: DataFrame | None = None,
) -> Sign:
    """Rows where `condition` holds are punctuations: no more tuples with the value in column `on`.

    Or with any of the values in the array `values`, or with a value from `low` to `high` (columns or expressions;
    leaving one out leaves that end unbounded; `closed` is "both", "left", "right" or "neither"). A range whose `low` or
    `high` is given and NULL in the data closes nothing: it is counted and handed out as a violation (or stops the
    query, as `on_violation` says), for as an unbounded end it might close half of all values. The row's time is that
    of the punctuation. They stand among the stream's own rows, or in a DataFrame `df` of their own that has the same
    time column.
    """
    ranged = low is not None or high is not None
    if (on is not None) + (values is not None) + ranged != 1:
        raise QueryError(
            "`when` takes one of `on`, `values`, or `low` and `high`: a punctuation closes a value, a list or a range.",
            hint='e.g. wm.when("closed", on="item_id").',
        )
    if closed not in ("both", "left", "right", "neither"):
        raise QueryError(f'`closed` is "{closed}"; the ends of a range are closed on both, left, right or neither.')
    if ranged:
        return Sign("range", condition, (low, high), closed in ("both", "left"), closed in ("both", "right"), df)
    if values is not None:
        return Sign("list", condition, (values,), df=df)
    assert on is not None, "one of the three is given"
    return Sign("value", condition, (on,) if isinstance(on, str) else tuple(on), df=df)


def heartbeat(condition: Expression, *, time: str | None = None, df: DataFrame | None = None) -> Sign:
    """Rows where `condition` holds say that no tuple with an event time before theirs (or before `time`) will come."""
    return Sign("heartbeat", condition, (time,), df=df)


def end(condition: Expression, *, df: DataFrame | None = None) -> Sign:
    """Rows where `condition` holds say that the stream has ended."""
    return Sign("end", condition, df=df)


#: Column that tells which shard of a join said something about the join's output.
TELLER = "watersmeet teller"


def flag(i: int) -> str:
    """Column that tells whether a row is a punctuation by sign i."""
    return f"watersmeet sign {i}"


def part(i: int, n: int) -> str:
    """Column that holds the n-th part of the pattern of sign i."""
    return f"watersmeet sign {i} part {n}"


def expression(value: Any) -> Column:
    return value if isinstance(value, Column) else F.expr(value) if isinstance(value, str) else F.lit(value)


def with_signs(
    df: DataFrame, signs: Sequence[tuple[int, Sign]], time: str, kinds: Sequence[str], teller: Column | None = None
) -> DataFrame:
    """The DataFrame with a flag and the pattern's parts, cast to the key's types, for each sign."""
    out: list[Column] = [] if teller is None else [teller.cast("int").alias(TELLER)]
    for i, sign in signs:
        out.append(F.coalesce(expression(sign.condition), F.lit(False)).alias(flag(i)))
        for n, column in enumerate(sign.columns):
            if sign.kind == "heartbeat":
                beat = column if isinstance(column, Column) else F.col(column or time)
                out.append(beat.cast("timestamp").alias(part(i, n)))
            elif sign.kind == "list":
                out.append(expression(column).cast(f"array<{kinds[0]}>").alias(part(i, n)))
            elif sign.kind == "range":
                value = F.lit(None) if column is None else expression(column)
                out.append(value.cast(kinds[0]).alias(part(i, n)))
            else:
                out.append(expression(column).cast(kinds[n]).alias(part(i, n)))
    return df.select("*", *out)


def promises(known: Sequence[Known], key: tuple[str, ...], stream: str) -> tuple[Promise, ...]:
    """What is known about the join key; knowledge about another column is of no use to the join and refused."""
    for k in known:
        if key != (k.column,):
            raise ColumnError(
                f"`punctuation` of stream `{stream}` speaks of column `{k.column}`, but the join is on "
                f"{', '.join(key)}; only the join key's values can be closed.",
                hint=f'join on "{k.column}", or leave the punctuation out.',
            )
    return tuple(k.promise for k in known)
