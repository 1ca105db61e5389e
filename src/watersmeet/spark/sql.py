"""`wm.sql`: a query in CQL over streams, on top of `join`, `group_by` and `agg`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, reduce
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.errors import QueryError
from watersmeet.model.punctuations import Unique
from watersmeet.query.expressions import conjuncts, is_column, truth
from watersmeet.query.lowering import DeclaredStream, LoweredQuery, Side, lower
from watersmeet.query.parsed_query import Query
from watersmeet.query.parser import read
from watersmeet.spark.group_by import Grouped
from watersmeet.spark.join import join_streams
from watersmeet.spark.join_asof import join_asof_streams
from watersmeet.spark.joined import Joined, JoinRequest
from watersmeet.spark.planning import conditions
from watersmeet.spark.planning.arguments import further, kind_of, require_text
from watersmeet.spark.planning.sql_refusals import (
    check,
    check_results,
    column,
    of_aggregates,
    of_condition,
    of_groups,
    of_join,
)
from watersmeet.spark.runtime import output_columns as operators
from watersmeet.spark.runtime.row_kinds import DETAIL, KIND, RESULT
from watersmeet.spark.streams import AUTO, TAKES_PART, Stream

#: Output columns by name.
Outputs = tuple[tuple[str, Column], ...]


@dataclass(frozen=True, repr=False)
class SelectedJoin(Joined):
    """A join with `outputs` as the columns of its results."""

    outputs: Outputs = ()

    @cached_property
    def _rows(self) -> DataFrame:
        return _select_outputs(super()._rows, self.outputs)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.outputs]

    def group_by(self, *cols: Any) -> Any:
        """Refused: the query itself defines how its results are grouped."""
        raise QueryError(
            "`group_by` of a query in SQL; the query itself groups its results.", hint="write GROUP BY in it."
        )

    def as_stream(self, *args: Any, **kwargs: Any) -> Any:
        """Refused: a key that the query has computed is not known to be closed."""
        raise QueryError(
            "`as_stream` of a query in SQL; the punctuations of a join are about its key, which SELECT may hide.",
            hint="join the streams with wm.join(…).as_stream(), or name all of them in one query.",
        )


@dataclass(frozen=True, repr=False)
class SelectedGroups(Grouped):
    """Groups for which `having` holds, with `outputs` as their columns."""

    outputs: Outputs = ()
    having: Column | None = None

    @cached_property
    def _rows(self) -> DataFrame:
        rows = super()._rows
        kept = rows if self.having is None else conditions.filtered(rows, self.having)
        return _select_outputs(kept, self.outputs)

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
    all streams alike, means no window: what is kept follows from the order of the keys.

    Rows for which a condition on one stream does not hold, and columns that nothing names, are left behind below the
    join, but for streams with constraints or windows of rows. A group comes out once,
    when it is final; within ``ISTREAM(…)`` in every batch that changes it. See docs/cql.md for the grammar.
    """
    require_text(query, "query", "the text of a query")
    for name, stream in streams.items():
        if not isinstance(stream, Stream):
            raise QueryError(
                f"`{name}` is {kind_of(stream)}; a query is over streams.",
                hint=further(stream, f'{name}=wm.stream(df, time="…", window="…").'),
            )
    case = any(s.df.sparkSession.conf.get("spark.sql.caseSensitive") == "true" for s in streams.values())
    columns = {name: [f.name for f in s.columns] for name, s in streams.items()}
    windows = {name: s.given_window for name, s in streams.items() if s.given_window is not None}
    constrained = {name for name, s in streams.items() if s.constraints}
    parsed = read(query, columns, windows, constrained=constrained, case_sensitive=case)
    by_name = {one.name: streams[one.stream] for one in parsed.inputs}
    unique = {name: any(isinstance(k.constraint, Unique) for k in s.constraints) for name, s in by_name.items()}
    plan = lower(query, parsed, {name: DeclaredStream(s.time, s.order_by, unique[name]) for name, s in by_name.items()})
    first = parsed.inputs[0].name
    time = f"{first}.{by_name[first].time}"
    made = _above(_joined(query, parsed, plan, streams), query, parsed, plan, time)
    again: Any = lambda change: sql(query, **{name: s.again(change, name) for name, s in streams.items()})  # noqa: E731
    return replace(made, again=again)


def _joined(text: str, query: Query, plan: LoweredQuery, streams: dict[str, Stream]) -> Joined:
    for side in plan.sides:
        where = [] if side.where is None else [truth(side.where)]
        check(text, streams[side.stream].df, [*where, *(e for _, e in side.columns)])
    compared = _compared(query)
    sides = [_below(side, streams[side.stream], compared[side.stream]) for side in plan.sides]
    options: dict[str, Any] = {} if plan.every is None else {"every": plan.every}
    unbounded = all(one.window is not None for one in query.inputs)
    request = JoinRequest(
        plan.how, allow_unbounded=unbounded, options=options, between=plan.between, null_safe=plan.null_safe
    )
    window = AUTO if plan.auto else None
    if plan.asof is not None:
        with of_join(text, query, plan):
            nearest = JoinRequest(plan.how, options=options, null_safe=plan.null_safe, asof=plan.asof)
            return join_asof_streams(tuple(sides), plan.equal, nearest)
    if not plan.equal:
        with of_join(text, query, plan):
            return join_streams(sides, plan.equal, replace(request, where=plan.where), window)
    # WHERE is checked by Spark against the columns of the results, which only a planned join has: it is planned without
    # the condition first, and then with it. Planning starts no query.
    with of_join(text, query, plan):
        joined = join_streams(sides, plan.equal, request, window)
    if plan.where is None:
        return joined
    check_results(text, joined, [truth(c) for c in conjuncts(plan.where)] if plan.how == "inner" else [])
    try:
        return join_streams(sides, plan.equal, replace(request, where=plan.where), window)
    except QueryError:
        for condition in conjuncts(plan.where):
            try:
                join_streams(sides, plan.equal, replace(request, where=condition), window)
            except QueryError as wrong:
                raise of_condition(text, plan.how, condition, wrong) from wrong
        raise


def _compared(query: Query) -> dict[str, list[str]]:
    """Columns by which each stream is compared, under whichever of its names in the query."""
    called = {one.name: one.stream for one in query.inputs}
    out: dict[str, list[str]] = {one.stream: [] for one in query.inputs}
    for one in (one for group in query.equal for one in group):
        out[called[one.stream]].append(one.name)
    return out


def _below(side: Side, source: Stream, compared: Sequence[str]) -> Stream:
    """A stream with the columns that the query needs, and the tuples that may take part. Punctuations stay.

    `compared` are columns of it that are compared, under this name or another one.
    """
    own = [rule for rule in source.rules if rule.df is None]
    df = source.df
    called = {e.name: name for name, e in side.columns if is_column(e)}
    hidden: tuple[str, ...] = ()
    if own or set(source.hidden) - {TAKES_PART}:  # only Spark knows which columns their expressions need
        if df.sparkSession.conf.get("spark.sql.caseSensitive") != "true":
            alike = {old: name for old, name in called.items() if old != name and old.lower() == name.lower()}
            df = df.withColumnsRenamed(alike)  # Spark takes names that differ in case for one
        hidden = tuple(c for c in df.columns if c not in dict(side.columns) and c != TAKES_PART)
    kept = {name for old, name in called.items() if old == name}
    columns = [operators.quoted(name) if name in kept else column(e).alias(name) for name, e in side.columns]
    columns += map(operators.quoted, hidden)
    passes = [column(side.where)] if side.where is not None else []
    passes += [operators.quoted(TAKES_PART)] if source.takes_part is not None else []
    if passes:
        columns.append(reduce(Column.__and__, passes).alias(TAKES_PART))
        hidden = (*hidden, TAKES_PART)
    df = df.select(*columns)
    upstream = source.upstream
    if upstream is not None:
        upstream = replace(upstream, key=tuple(called.get(k, k) for k in upstream.key))
    return replace(
        source,
        df=df,
        name=side.name,
        time=side.time,
        rules=tuple(replace(rule, about=tuple(called.get(c, c) for c in rule.about)) for rule in source.rules),
        constraints=tuple(replace(k, column=called.get(k.column, k.column)) for k in source.constraints),
        hidden=hidden,
        compared=tuple(called.get(c, c) for c in compared),
        takes_part=TAKES_PART if passes else None,
        upstream=upstream,
        order_by=side.order_by,
    ).with_window(side.window)


def _above(joined: Joined, text: str, query: Query, plan: LoweredQuery, time: str) -> Joined | Grouped:
    if plan.after is not None:
        check_results(text, joined, [truth(c) for c in conjuncts(plan.after)])
        after = column(plan.after)
        joined = replace(joined, condition=after if joined.condition is None else joined.condition & after)
    outputs = tuple((name, column(e)) for name, e in plan.outputs)
    over = [e for _, e in plan.outputs]
    if not plan.by:
        check_results(text, joined, over)
        return SelectedJoin(**_fields(joined), outputs=outputs)
    of_aggregates(text, plan, joined)
    with of_groups(text, query, plan, time):
        grouped = joined.group_by(*plan.by).agg(emit="update" if plan.updates else "final", **dict(plan.aggregates))
    rows = joined.streams[0].df.sparkSession.createDataFrame([], StructType(grouped._columns))
    check(text, rows, over if plan.having is None else [*over, truth(plan.having)])
    having = None if plan.having is None else column(plan.having)
    return SelectedGroups(**_fields(grouped), outputs=outputs, having=having)


def _select_outputs(rows: DataFrame, outputs: Outputs) -> DataFrame:
    """The output of an operator, results with the columns `outputs`."""
    columns = [F.when(F.col(KIND) == RESULT, value).alias(name) for name, value in outputs]
    return rows.select(KIND, DETAIL, *columns)


def _fields(of: Joined | Grouped) -> dict[str, Any]:
    return {f.name: getattr(of, f.name) for f in fields(of)}
