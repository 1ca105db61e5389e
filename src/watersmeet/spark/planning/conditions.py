"""`where=` of a join: evaluated inside the operator where that can be done, by Spark behind an inner join otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from watersmeet.errors import QueryError, did_you_mean
from watersmeet.model.predicates import Predicate
from watersmeet.model.queries import StreamSpec, columns_of
from watersmeet.query.expressions import Expression, spark_text
from watersmeet.query.predicate_parser import from_tree, parse
from watersmeet.spark.planning.arguments import kind_of
from watersmeet.spark.planning.columns import brief
from watersmeet.spark.runtime.row_kinds import KIND, RESULT
from watersmeet.spark.streams import Stream

Condition = str | Column
#: A condition as `wm.join` takes it, or as `wm.sql` has parsed it.
AnyCondition = Condition | Expression


def predicate(
    where: AnyCondition | None,
    streams: Sequence[Stream],
    specs: Sequence[StreamSpec],
    how: str,
    *,
    by_spark: bool = True,
) -> tuple[Predicate | None, Column | None]:
    """The condition that the operator evaluates, and the one by which Spark filters results: one of them, or neither.

    Spark may filter the results of an inner join only: other kinds must know that a pair does not match before a row is
    unmatched. With `by_spark` false it filters none: without an equality all pairs would have to be made for it.
    """
    if where is None:
        return None, None
    if not isinstance(where, AnyCondition):
        raise QueryError(
            f"`where` is {kind_of(where)}; it is a condition over the columns of both streams.",
            hint='e.g. where="price > reserve".',
        )
    try:
        return _own(where, streams, specs), None
    except QueryError:
        if how != "inner" or not by_spark:
            raise
    return None, _by_spark(where, specs)


def _own(where: AnyCondition, streams: Sequence[Stream], specs: Sequence[StreamSpec]) -> Predicate:
    spark = streams[0].df.sparkSession
    if isinstance(where, Column):
        raise QueryError(
            "`where` is a Column, which only Spark evaluates, behind the join; a match must be known in it.",
            hint='write it as SQL, e.g. where="price > reserve", or use an inner join.',
        )
    if spark.conf.get("spark.sql.ansi.enabled") != "true":
        raise QueryError(
            "`where` is evaluated as in ANSI mode, and spark.sql.ansi.enabled is false in this session; an overflow "
            "would be an error here and something else there.",
            hint='spark.conf.set("spark.sql.ansi.enabled", "true"), or use an inner join, whose results Spark filters.',
        )
    case = spark.conf.get("spark.sql.caseSensitive") == "true"
    read: Any = parse if isinstance(where, str) else from_tree
    named = {"owners": {s.name: s.schema.names for s in specs}} if isinstance(where, str) else {}
    parsed: Predicate = read(where, columns_of(specs), case_sensitive=case, **named)
    kinds = {column.name: column.dataType for stream in streams for column in stream.columns}
    for name in parsed.columns:
        collation = getattr(kinds[name], "collation", "UTF8_BINARY")
        if collation != "UTF8_BINARY":
            raise QueryError(
                f"`where` names column `{name}` with collation {collation}; a join compares texts by their bytes.",
                hint=f'add a column to compare instead, e.g. df.withColumn("{name}_lower", F.lower("{name}")).',
            )
    return parsed


def _by_spark(where: AnyCondition, specs: Sequence[StreamSpec]) -> Column:
    try:
        if isinstance(where, Expression):
            return F.expr(spark_text(where))
        return F.expr(where) if isinstance(where, str) else where
    except ParseException as error:
        raise _refusal(error, columns_of(specs).names) from error


def check(condition: Column, columns: Sequence[StructField], spark: SparkSession) -> None:
    """Refuse now what Spark would refuse when the query starts."""
    try:
        spark.createDataFrame([], StructType(list(columns))).where(condition).columns  # noqa: B018 (analyses the plan)
    except AnalysisException as error:
        raise _refusal(error, [c.name for c in columns]) from error


def _refusal(error: PySparkException, names: Sequence[str]) -> QueryError:
    """The message for a condition that Spark does not take."""
    known = f"the columns are {', '.join(names)}."
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        column = (error.getMessageParameters() or {}).get("objectName", "?").strip("`")
        near = did_you_mean(column, names)
        return QueryError(
            f"`where` names column `{column}`, which no stream has.",
            hint=f"{near} {known}" if near else known,
        )
    return QueryError(f"`where` is no condition over the columns of the join: {brief(error)}", hint=known)


def filtered(rows: DataFrame, condition: Column) -> DataFrame:
    """The output of an operator without results for which the condition is not true."""
    return rows.where(F.when(F.col(KIND) == RESULT, condition).otherwise(True))
