"""`where=` of a join: evaluated inside the operator where that can be done, by Spark behind an inner join otherwise."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from watersmeet.errors import QueryError
from watersmeet.model.predicate_parser import parse
from watersmeet.model.predicates import Predicate
from watersmeet.model.queries import StreamSpec, columns_of
from watersmeet.spark.kinds import KIND, RESULT
from watersmeet.spark.streams import Stream

Condition = str | Column


def predicate(
    where: Condition | None, streams: Sequence[Stream], specs: Sequence[StreamSpec], how: str
) -> tuple[Predicate | None, Column | None]:
    """What the operator evaluates by itself, and what Spark filters the results by: one of them, or neither.

    Only of an inner join may Spark filter the results: of the others a pair must be known not to count before a row
    is called unmatched.
    """
    if where is None:
        return None, None
    if not isinstance(where, str | Column):
        raise QueryError(
            f"`where` is a {type(where).__name__}; it is a condition over the columns of both streams.",
            hint='e.g. where="price > reserve".',
        )
    try:
        return _own(where, streams, specs), None
    except QueryError:
        if how != "inner":
            raise
    return None, _by_spark(where, specs)


def _own(where: Condition, streams: Sequence[Stream], specs: Sequence[StreamSpec]) -> Predicate:
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
    parsed = parse(where, columns_of(specs), case_sensitive=case)
    kinds = {column.name: column.dataType for stream in streams for column in stream.columns}
    for name in parsed.columns:
        collation = getattr(kinds[name], "collation", "UTF8_BINARY")
        if collation != "UTF8_BINARY":
            raise QueryError(
                f"`where` names column `{name}` with collation {collation}; a join compares texts by their bytes.",
                hint=f'add a column to compare instead, e.g. df.withColumn("{name}_lower", F.lower("{name}")).',
            )
    return parsed


def _by_spark(where: Condition, specs: Sequence[StreamSpec]) -> Column:
    try:
        return F.expr(where) if isinstance(where, str) else where
    except ParseException as error:
        raise _refusal(error, columns_of(specs).names) from error


def check(condition: Column, columns: Sequence[StructField], spark: SparkSession) -> None:
    """Refuse now what Spark would refuse when the query starts."""
    try:
        spark.createDataFrame([], StructType(list(columns))).where(condition).columns  # noqa: B018 (has it analysed)
    except AnalysisException as error:
        raise _refusal(error, [c.name for c in columns]) from error


def _refusal(error: PySparkException, names: Sequence[str]) -> QueryError:
    """The message for a condition that Spark does not take."""
    known = f"the columns are {', '.join(names)}."
    if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
        column = (error.getMessageParameters() or {}).get("objectName", "?").strip("`")
        near = get_close_matches(column, names, 1)
        return QueryError(
            f"`where` names column `{column}`, which no stream has.",
            hint=f"did you mean `{near[0]}`? {known}" if near else known,
        )
    return QueryError(f"`where` is no condition over the columns of the join: {brief(error)}", hint=known)


def brief(error: PySparkException) -> str:
    """What Spark says first, without the plan and the places in it."""
    return re.split(r";|\n|\bSQLSTATE\b", str(error).strip(), maxsplit=1)[0].strip()


def filtered(rows: DataFrame, condition: Column) -> DataFrame:
    """What an operator says, but for results for which the condition is not true."""
    return rows.where(F.when(F.col(KIND) == RESULT, condition).otherwise(True))
