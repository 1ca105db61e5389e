"""Errors in a query in SQL beyond its grammar: raised by `wm.sql`, with the position in the text, in terms of SQL."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.errors import ColumnError, QueryError, WindowError
from watersmeet.query.expressions import Expression, has_call, spark_text
from watersmeet.query.lowering import KNOWN_AGGREGATES, LoweredQuery
from watersmeet.query.parsed_query import Query
from watersmeet.query.source_spans import Place, error, source_of
from watersmeet.spark.joined import Joined
from watersmeet.spark.planning.columns import brief
from watersmeet.spark.runtime import output_columns as operators

_AS_STREAMS = "cast or change the column in its stream, before the query."


def column(e: Expression) -> Column:
    return F.expr(spark_text(e))


def check(text: str, rows: DataFrame, expressions: Sequence[Expression]) -> None:
    """Refuse now what Spark would refuse of expressions over these rows when the query starts.

    They stand beside a column and within another expression, as in the query: so aggregates and functions that make
    several rows of one are refused as well.
    """
    plain = operators.quoted(rows.columns[0])

    def analyse(some: Sequence[Expression]) -> None:
        within = [F.when(plain.isNotNull(), column(e)).alias(str(n)) for n, e in enumerate(some)]
        rows.select(plain, *within).columns  # noqa: B018 (analyses the plan)

    try:
        analyse(expressions)
    except AnalysisException:
        for e in expressions:
            try:
                analyse([e])
            except AnalysisException as wrong:
                raise _by_spark(text, source_of(text, e), wrong) from wrong
        raise


def check_results(text: str, joined: Joined, expressions: Sequence[Expression]) -> None:
    """The same over results of a join."""
    spark = joined.streams[0].df.sparkSession
    check(text, spark.createDataFrame([], StructType(joined._columns)), expressions)


def _by_spark(text: str, place: Place, wrong: AnalysisException) -> QueryError:
    about, condition = wrong.getMessageParameters() or {}, wrong.getCondition() or ""
    source = text[place[0] : place[1] + 1]
    function = (about.get("routineName") or about.get("functionName") or "").strip("`")
    matches = list(re.finditer(rf"\b{re.escape(function)}\b", text, re.IGNORECASE)) if function else []
    found = next((m for m in matches if m.start() >= place[0]), matches[-1] if matches else None)
    at = (found.start(), found.end() - 1) if found else place
    if condition.startswith("UNRESOLVED_ROUTINE"):
        known = f"Spark has no function `{found[0] if found else function}`."
        return error(text, at, known, "functions are those of Spark SQL.")
    if condition.startswith(("MISSING_GROUP_BY", "MISSING_AGGREGATION")):
        return error(text, at, "no such aggregate is computed over results of a join.", KNOWN_AGGREGATES)
    if condition.startswith("UNSUPPORTED_GENERATOR"):
        what = "a function that makes several rows of one has no place in a query over streams."
        return error(text, at, what, "explode the column of a stream before the query.")
    if condition.endswith("BINARY_OP_DIFF_TYPES") and about.get("sqlExpr", "").endswith(' AND true)"'):
        what = f"this is {about['left'].strip(chr(34))}, and a condition is true, false or NULL."
        return error(text, at, what, "compare it with something.")
    reason = brief(wrong)
    for name in ("sqlExpr", "expression", "objectName"):
        reason = reason.replace(about.get(name) or "\0", f"`{source}`")
    return error(text, at, reason, "expressions are those of Spark SQL; see docs/cql.md.")


@contextmanager
def of_join(text: str, query: Query, plan: LoweredQuery) -> Iterator[None]:
    """Raise errors of `wm.join` at the position of the stream that they are about."""
    try:
        yield
    except QueryError as wrong:
        reason = str(wrong).partition("\nHint: ")[0]
        named = re.search(r"stream `([^`]*)`", reason)
        about = next((i for i in query.inputs if named and i.name == named[1]), query.inputs[0])
        hint = _AS_STREAMS if isinstance(wrong, ColumnError) else wrong.hint
        inside = {name: f"{s.name}.{e.name}" for s in reversed(plan.sides) for name, e in s.columns if e.name}
        reason = re.sub(r"column `([^`]*)`", lambda found: f"column `{inside.get(found[1], found[1])}`", reason)
        if isinstance(wrong, WindowError) and " has no window, and " in reason:
            hint = f"write one: {about.stream} [RANGE 10 MINUTES]; {about.stream} [UNBOUNDED] allows it."
        raise error(text, about.place, reason.replace("`on` column", "column"), hint, type(wrong)) from wrong


def of_condition(text: str, how: str, condition: Expression, wrong: QueryError) -> QueryError:
    """The error for a condition in ON that a join cannot evaluate."""
    call = has_call(condition)
    reason = str(wrong).partition("\nHint: ")[0]
    found = re.search(r"\) has (.*?); a join evaluates", reason) or re.search(r"`where` has (.*?)(;|\.$)", reason)
    what = "a function" if call else found[1] if found else "what it cannot evaluate"
    return error(
        text,
        source_of(text, condition),
        f"ON of a {how} join has {what}; which pairs match is known within the join, which evaluates comparisons "
        "(= <> < <= > >=, BETWEEN, IN, IS NULL) and arithmetic (+ - * / %) of columns of both streams, numbers and "
        "'texts', with AND, OR and NOT.",
        "a condition about one stream may be any SQL; compute the rest as columns of the streams before the query.",
    )


def of_aggregates(text: str, plan: LoweredQuery, joined: Joined) -> None:
    """Refuse aggregates of columns whose type does not fit."""
    for name, aggregate in plan.aggregates:
        if aggregate.column is None:
            continue
        kind = joined.query.schema.field(aggregate.column).type
        try:
            aggregate.refuse(name, kind)
        except ColumnError as wrong:
            reason = str(wrong).partition("\nHint: ")[0].replace(f"`{name}` ", "this ")
            reason = reason.replace(f"column `{aggregate.column}`", "a column")
            numbers = "CAST(… AS DOUBLE) makes numbers of texts; count(…) counts values of any type."
            hint = numbers if aggregate.kind in ("sum", "mean") else wrong.hint
            raise error(text, plan.places[name], reason, hint, ColumnError) from wrong


@contextmanager
def of_groups(text: str, query: Query, plan: LoweredQuery, time: str) -> Iterator[None]:
    """Raise errors of groups at GROUP BY; `time` is an event time that the hint names for buckets."""
    try:
        yield
    except QueryError as wrong:
        inside = ", ".join(by if isinstance(by, str) else by.name for by in plan.by)
        spans = [source_of(text, group) for group in query.groups]
        grouped_by = ", ".join(text[start : end + 1] for start, end in spans)
        reason = str(wrong).partition("\nHint: ")[0].replace(f"is by {inside}", f"is by {grouped_by}")
        reason = reason.replace("`group_by`", "GROUP BY").replace("by `where`", "by a condition")
        reason = reason.replace("`bucket`", "BUCKET")
        hint = (
            f"add BUCKET({time}, '1 minute') to GROUP BY, give the streams punctuations that end keys, or take every "
        )
        hint += "change of a group: ISTREAM(SELECT …)."
        if isinstance(wrong, ColumnError):
            hint = "BUCKET takes a timestamp."
        raise error(text, spans[0], reason, hint, type(wrong)) from wrong
