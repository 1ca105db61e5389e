"""`wm.sql`: a query in CQL over streams, on top of `join`, `group_by` and `agg`."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from sqlglot import exp

from watersmeet.errors import QueryError
from watersmeet.model.spark_sql import SparkSQL
from watersmeet.query.lowering import Known, Plan, Side, lower
from watersmeet.query.pointing import error
from watersmeet.query.reader import read
from watersmeet.spark import conditions
from watersmeet.spark.grouping import Grouped
from watersmeet.spark.joining import join
from watersmeet.spark.kinds import KIND, NOTE, RESULT
from watersmeet.spark.pipeline import Joined
from watersmeet.spark.punctuations import expression
from watersmeet.spark.streams import Stream

#: What is told of a result, by name.
Outputs = tuple[tuple[str, Column], ...]


@dataclass(frozen=True)
class SelectedJoin(Joined):
    """A join of which `outputs` are told."""

    outputs: Outputs = ()

    @cached_property
    def _rows(self) -> DataFrame:
        return _told(super()._rows, self.outputs)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.outputs]

    def group_by(self, *cols: Any) -> Any:
        """Refused: the query itself says how its results are grouped."""
        raise QueryError("`group_by` of a query in SQL; it says itself what is grouped.", hint="write GROUP BY in it.")

    def as_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a key that the query has computed is not known to be closed."""
        raise QueryError(
            "`as_stream` of a query in SQL; the promises of a join are about its key, which SELECT may hide.",
            hint="join the streams with wm.join(…).as_stream(), or name all of them in one query.",
        )


@dataclass(frozen=True)
class SelectedGroups(Grouped):
    """Groups of which `outputs` are told, if `having` holds."""

    outputs: Outputs = ()
    having: Column | None = None

    @cached_property
    def _rows(self) -> DataFrame:
        rows = super()._rows
        return _told(rows if self.having is None else conditions.filtered(rows, self.having), self.outputs)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.outputs]


def sql(query: str, **streams: Stream) -> Joined | Grouped:
    """The results of a query over streams, which are given by the names they have in it.

    ::

        wm.sql("SELECT A.item_id, COUNT(*) AS bids FROM auction [RANGE 12 HOURS] A, bid [UNBOUNDED] B "
               "WHERE A.item_id = B.item_id GROUP BY A.item_id", auction=auctions, bid=bids)

    A window in brackets replaces that of the stream; time, delay and punctuations are the stream's. The windows are
    ``[RANGE 12 HOURS]``, ``[ROWS 1000]``, ``[PARTITION BY key ROWS 5]``, ``[UNBOUNDED]`` and ``[NOW]``; with
    ``[RANGE … SLIDE 5 MINUTES]`` results come when all streams have passed a multiple of five minutes. ``[AUTO]``, for
    all streams alike, says that there is no window: what is kept follows from the order of the keys.

    Conditions on one stream, and columns that nothing names, are left behind below the join. A group comes out once,
    when it is final; within ``ISTREAM(…)`` in every batch that changes it. See docs/cql.md for what a query may say.
    """
    for name, stream in streams.items():
        if not isinstance(stream, Stream):
            raise QueryError(
                f"`{name}` is a {type(stream).__name__}; a query is over streams.",
                hint=f'{name}=wm.stream(df, time="…", window="…").',
            )
    case = any(s.df.sparkSession.conf.get("spark.sql.caseSensitive") == "true" for s in streams.values())
    columns = {name: [f.name for f in s.columns] for name, s in streams.items()}
    windows = {name: s.given_window for name, s in streams.items() if s.given_window is not None}
    asked = read(query, columns, windows, case_sensitive=case)
    by_name = {one.name: streams[one.stream] for one in asked.inputs}
    plan = lower(query, asked, {name: Known(s.time, s.order_by) for name, s in by_name.items()})
    meant = all(one.window is not None for one in asked.inputs)
    try:
        return _planned(plan, streams, allow_unbounded=meant)
    except AnalysisException as wrong:
        raise _refusal(query, wrong) from wrong


def _planned(plan: Plan, streams: dict[str, Stream], *, allow_unbounded: bool) -> Joined | Grouped:
    sides = [_below(side, streams[side.stream]) for side in plan.sides]
    options: dict[str, Any] = {} if plan.every is None else {"every": plan.every}
    joined = join(
        *sides,
        on=plan.on,
        how=plan.how,
        where=None if plan.where is None else plan.where.sql(SparkSQL),
        window="auto" if plan.auto else None,
        allow_unbounded=allow_unbounded,
        **options,
    )
    return _above(joined, plan)


def _refusal(text: str, wrong: AnalysisException) -> QueryError:
    """What Spark does not know, shown where it stands in the query."""
    about = wrong.getMessageParameters() or {}
    word = (about.get("routineName") or about.get("functionName") or about.get("objectName") or "").strip("`")
    found = re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE) if word else None
    place = (found.start(), found.end() - 1) if found else (0, 0)
    if (wrong.getCondition() or "").startswith("UNRESOLVED_ROUTINE"):
        said = f"Spark has no function `{found[0] if found else word}`."
        return error(text, place, said, "functions are those of Spark SQL.")
    return error(text, place, conditions.brief(wrong), "expressions are those of Spark SQL; see docs/cql.md.")


def _below(side: Side, source: Stream) -> Stream:
    """A stream with the columns that the query needs, and the tuples that may take part. Punctuations stay."""
    own = [sign for sign in source.signs if sign.df is None]
    df = source.df
    if side.where is not None:
        signs = [F.coalesce(expression(sign.condition), F.lit(False)) for sign in own]
        df = df.where(reduce(lambda a, b: a | b, signs, _column(side.where)))
    called = {e.name: name for name, e in side.columns if isinstance(e, exp.Column)}
    hidden: tuple[str, ...] = ()
    if own or source.hidden:  # which columns they need only Spark knows
        if df.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
            alike = {old: name for old, name in called.items() if old != name and old.lower() == name.lower()}
            df = df.withColumnsRenamed(alike)  # Spark would take both for one
        new = [_column(e).alias(name) for name, e in side.columns if name not in df.columns]
        hidden = tuple(c for c in df.columns if c not in dict(side.columns))
        df = df.select("*", *new)
    else:
        df = df.select(*(_column(e).alias(name) for name, e in side.columns))
    upstream = source.upstream
    if upstream is not None:
        upstream = replace(upstream, key=tuple(called.get(k, k) for k in upstream.key))
    return replace(
        source,
        df=df,
        name=side.name,
        time=side.time,
        signs=tuple(
            sign if sign.df is None else replace(sign, df=sign.df.withColumn(side.time, F.col(source.time)))
            for sign in source.signs
        ),
        known=tuple(replace(k, column=called.get(k.column, k.column)) for k in source.known),
        hidden=hidden,
        upstream=upstream,
        order_by=side.order_by,
    ).with_window(side.window)


def _above(joined: Joined, plan: Plan) -> Joined | Grouped:
    if plan.after is not None:
        after = _column(plan.after)
        condition = after if joined.condition is None else joined.condition & after
        conditions.check(after, joined._columns, joined.streams[0].df.sparkSession)
        joined = replace(joined, condition=condition)
    outputs = tuple((name, _column(e)) for name, e in plan.outputs)
    if not plan.by:
        _analysed(joined, outputs)
        return SelectedJoin(**_fields(joined), outputs=outputs)
    emit = "update" if plan.updates else "final"
    grouped = joined.group_by(*plan.by).agg(emit=emit, **dict(plan.aggregates))
    having = None if plan.having is None else _column(plan.having)
    _analysed(grouped, outputs if having is None else (*outputs, ("having", having)))
    return SelectedGroups(**_fields(grouped), outputs=outputs, having=having)


def _analysed(of: Joined | Grouped, outputs: Outputs) -> None:
    """Have Spark say now what it would say of the outputs when the query starts."""
    spark = (of if isinstance(of, Joined) else of.joined).streams[0].df.sparkSession
    rows = spark.createDataFrame([], StructType(of._columns))
    rows.select(*(column.alias(str(n)) for n, (_, column) in enumerate(outputs))).columns  # noqa: B018


def _told(rows: DataFrame, outputs: Outputs) -> DataFrame:
    """What an operator says, results by their outputs."""
    columns = [F.when(F.col(KIND) == RESULT, column).alias(name) for name, column in outputs]
    return rows.select(KIND, NOTE, *columns)


def _column(e: exp.Expr) -> Column:
    return F.expr(e.sql(SparkSQL))


def _fields(of: Joined | Grouped) -> dict[str, Any]:
    return {f.name: getattr(of, f.name) for f in fields(of)}
