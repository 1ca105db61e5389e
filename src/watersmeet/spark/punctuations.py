"""Sources of punctuations: rows of a DataFrame where a condition holds, or a constraint of a column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from watersmeet.errors import QueryError
from watersmeet.model.punctuations import Clustered, Constraint, Ordered, Unique
from watersmeet.model.windows import closed_ends
from watersmeet.spark.planning.columns import expression

Expression = str | Column

#: Kinds of punctuations that close values of columns; heartbeats and ends are about the stream as a whole.
CLOSES_KEYS = ("value", "list", "range")


@dataclass(frozen=True)
class ColumnConstraint:
    """A constraint that holds for column `column` of all rows of a stream."""

    column: str
    constraint: Constraint

    @property
    def function(self) -> str:
        """The function of `wm` that made it."""
        return type(self.constraint).__name__.lower()


@dataclass(frozen=True)
class PunctuationRule:
    """Rows that are punctuations, not tuples: those where `condition` holds, in the stream's own DataFrame or in `df`.

    `kind` is value, list, range, heartbeat, end or empty; `columns` are the parts of the pattern. `about` names the
    stream's columns whose values are closed, in the order of `columns`; a list or range without it is about the join
    key. An empty one closes nothing. `time` is the column of `df` that has the times of the punctuations.
    """

    kind: str
    condition: Expression
    columns: tuple[Any, ...] = ()
    low_closed: bool = True
    high_closed: bool = True
    df: DataFrame | None = None
    about: tuple[str, ...] = ()
    time: str | None = None

    @property
    def function(self) -> str:
        """The function of `wm` that made it."""
        return self.kind if self.kind in ("heartbeat", "end") else "when"

    def __repr__(self) -> str:
        pattern = ", ".join(str(column) for column in self.columns if column is not None)
        of = f" of {pattern}" if pattern else ""
        return f"<{self.kind}{of} when {self.condition}{'' if self.df is None else ', in a DataFrame of its own'}>"

    def needs(self, unbounded: bool) -> tuple[bool, bool]:
        """Which ends of a range must not be NULL: those that were given, unless NULL stands for `unbounded`."""
        if self.kind != "range" or unbounded:
            return False, False
        low, high = (column is not None for column in self.columns)
        return low, high


Punctuation = ColumnConstraint | PunctuationRule


def unique(col: str) -> ColumnConstraint:
    """No two rows have the same value of `col`: every row closes its own value. Repeated ones are violations."""
    return ColumnConstraint(col, Unique())


def clustered(col: str) -> ColumnConstraint:
    """Rows with one value of `col` come together: a value is closed by another one with a larger event time.

    >>> clustered("epoch")
    ColumnConstraint(column='epoch', constraint=Clustered())
    """
    return ColumnConstraint(col, Clustered())


def ordered(col: str, slack: Any = 0) -> ColumnConstraint:
    """Values of `col` ascend: a row with value k closes all values below k (below k - slack).

    >>> ordered("epoch", slack=5)
    ColumnConstraint(column='epoch', constraint=Ordered(slack=5))
    """
    return ColumnConstraint(col, Ordered(slack))


def when(
    condition: Expression,
    *,
    on: str | Sequence[str] | Mapping[str, Expression] | None = None,
    values: Expression | None = None,
    low: Any = None,
    high: Any = None,
    closed: str | bool = "both",
    df: DataFrame | None = None,
) -> PunctuationRule:
    """Rows where `condition` holds are punctuations: no more tuples with the value that they have in column `on`.

    `on` names the join key of the stream, in any order if that has several columns. Where the value stands in another
    column, or in `df` under another name, give both: ``on={"item_id": "closed_item"}``. A punctuation about
    columns that are not the key is refused; in a join on different attributes one about columns that another operator
    compares is not used, and `explain` shows that.

    Or no more with any of the values in the array `values`, or with a value from `low` to `high` (columns or
    expressions; leaving one out leaves that end unbounded; `closed` is "both", "left", "right" or "neither"): they are
    about the one column of the join key, which `on` may name and, where the stream is compared by several, must. A
    range whose `low` or `high` is given and NULL in the data closes nothing: it is counted and handed out as a
    violation (or stops the query with `on_violation="error"`): as an unbounded end it might close half of all values.
    The row's time is that of the punctuation. They stand among the stream's own rows, or in a DataFrame `df` of their
    own that has the same time column.

    >>> when("closed", on="item_id")
    <value of item_id when closed>
    >>> when("closed", low="first_item", high="last_item")
    <range of first_item, last_item when closed>
    """
    ranged = low is not None or high is not None
    several = values is not None or ranged
    if (values is not None and ranged) or (on is None and not several):
        raise QueryError(
            "`when` takes one of `on`, `values`, or `low` and `high`: a punctuation closes a value, a list or a range.",
            hint='e.g. wm.when("closed", on="item_id").',
        )
    ends = closed_ends(closed)
    about = (on,) if isinstance(on, str) else tuple(on or ())
    wrong = next((name for name in about if not isinstance(name, str)), None)
    if wrong is not None or (on is not None and not about) or len(set(about)) < len(about):
        raise QueryError(
            f"`on` of `when` is {on!r:.60}; it names the columns whose values are closed, each once.",
            hint='e.g. on="item_id", on=["x", "y"], or on={"item_id": "closed_item"} for a value from elsewhere.',
        )
    if several and (len(about) > 1 or isinstance(on, Mapping)):
        given = "`values` gives a list" if values is not None else "`low` and `high` give a range"
        raise QueryError(
            f"`on` of `when` is {on!r:.60}, and {given} of values of one column.",
            hint='name that column, e.g. on="item_id", or close single values: wm.when("…", on=["x", "y"]).',
        )
    if ranged:
        low_closed, high_closed = ends in ("both", "left"), ends in ("both", "right")
        return PunctuationRule("range", condition, (low, high), low_closed, high_closed, df=df, about=about)
    if values is not None:
        return PunctuationRule("list", condition, (values,), df=df, about=about)
    return PunctuationRule(
        "value", condition, tuple(on.values()) if isinstance(on, Mapping) else about, df=df, about=about
    )


def heartbeat(condition: Expression, *, time: str | None = None, df: DataFrame | None = None) -> PunctuationRule:
    """Rows where `condition` holds are heartbeats: no more tuples with event times before theirs (or before `time`).

    >>> heartbeat("kind = 'beat'", time="beat_at")
    <heartbeat of beat_at when kind = 'beat'>
    """
    return PunctuationRule("heartbeat", condition, (time,), df=df)


def end(condition: Expression, *, df: DataFrame | None = None) -> PunctuationRule:
    """Rows where `condition` holds end the stream: no more tuples come.

    >>> end("kind = 'end'")
    <end when kind = 'end'>
    """
    return PunctuationRule("end", condition, df=df)


#: Column with the upstream shard that propagated a punctuation.
UPSTREAM_SHARD = "watersmeet upstream shard"


def flag(i: int) -> str:
    """Column that is true where a row is a punctuation by rule i."""
    return f"watersmeet rule {i}"


def part(i: int, n: int) -> str:
    """Column that holds the n-th part of the pattern of rule i."""
    return f"watersmeet rule {i} part {n}"


def with_rules(
    df: DataFrame,
    rules: Sequence[tuple[int, PunctuationRule]],
    time: str,
    kinds: Sequence[DataType],
    upstream_shard: Column | None = None,
) -> DataFrame:
    """The DataFrame with a flag and the pattern's parts, cast to the key's types, for each rule."""
    return df.select("*", *_flagged(df, rules, time, kinds, upstream_shard))


def alone(number: int, rule: PunctuationRule, time: str, kinds: Sequence[DataType]) -> DataFrame:
    """The own DataFrame of a rule: its time, called `time`, with flag and parts, without its other columns."""
    assert rule.df is not None, "it has a DataFrame of its own"
    assert rule.time is not None, "set by the stream"
    return rule.df.select(F.col(f"`{rule.time}`").alias(time), *_flagged(rule.df, [(number, rule)], rule.time, kinds))


def _flagged(
    df: DataFrame,
    rules: Sequence[tuple[int, PunctuationRule]],
    time: str,
    kinds: Sequence[DataType],
    upstream_shard: Column | None = None,
) -> list[Column]:
    out: list[Column] = [] if upstream_shard is None else [upstream_shard.cast("int").alias(UPSTREAM_SHARD)]
    for i, rule in rules:
        out.append(F.coalesce(expression(rule.condition), F.lit(False)).alias(flag(i)))
        for n, column in enumerate(rule.columns):
            if rule.kind == "heartbeat":
                beat = column if isinstance(column, Column) else F.col(column or time)
                # the type of the rows' times: a cast to the other timestamp type depends on the session's time zone
                own = "bigint" if upstream_shard is not None else df.schema[time].dataType
                out.append(beat.cast(own).alias(part(i, n)))
            elif rule.kind == "list":
                out.append(expression(column).cast(ArrayType(kinds[0])).alias(part(i, n)))
            elif rule.kind == "range":
                value = F.lit(None) if column is None else expression(column)
                out.append(value.cast(kinds[0]).alias(part(i, n)))
            else:
                out.append(expression(column).cast(kinds[n]).alias(part(i, n)))
    return out
