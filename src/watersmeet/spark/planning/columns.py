"""Columns by name, and expressions over them: what a DataFrame does not have is refused before a query runs."""

from __future__ import annotations

import re
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from watersmeet.errors import ColumnError, QueryError, suggestion
from watersmeet.spark.planning.arguments import require_text

#: Prefix of columns that operators add; `wm.stream` refuses it.
RESERVED = "watersmeet "


def require(df: DataFrame, column: str, argument: str, stream: str) -> str:
    """The column that Spark takes for this name. Refuses one that `stream`, as messages call it, does not have."""
    require_text(column, argument)
    known = found(df, column)
    if known is None:
        raise ColumnError(
            f"`{argument}` names column `{column}`, which {stream} does not have.",
            hint=suggestion(column, df.columns, "its columns are"),
        )
    return known


def ignores_case(df: DataFrame) -> bool:
    """Whether the session takes names that differ in upper and lower case for one."""
    return df.sparkSession.conf.get("spark.sql.caseSensitive") != "true"


def found(df: DataFrame, name: str) -> str | None:
    """The column that Spark takes for `name`, which may stand in backticks: its name in the DataFrame."""
    bare = name[1:-1].replace("``", "`") if len(name) > 2 and name[0] == name[-1] == "`" else name
    if bare in df.columns:
        return bare
    if not ignores_case(df):
        return None
    alike = [c for c in df.columns if c.lower() == bare.lower()]
    return alike[0] if len(alike) == 1 else None


def expression(value: Any) -> Column:
    """A column from SQL, from itself, or from a value."""
    return value if isinstance(value, Column) else F.expr(value) if isinstance(value, str) else F.lit(value)


def kind_of(df: DataFrame, value: Any, what: str, owner: str) -> DataType:
    """The type of an expression over the columns of `df`, called `owner` in messages; refuses an invalid one."""
    try:
        # With all columns beside it, so that an aggregate is refused; alone it would be valid.
        return df.select("*", expression(value).alias(RESERVED + "checked")).schema[-1].dataType
    except (AnalysisException, ParseException) as error:
        if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            column = (error.getMessageParameters() or {}).get("objectName", "?").strip("`")
            raise ColumnError(
                f"{what} names column `{column}`, which {owner} does not have.",
                hint=suggestion(column, df.columns, "its columns are"),
            ) from error
        raise QueryError(
            f"{what} is no expression over the columns of {owner}: {brief(error)}",
            hint=f"its columns are {', '.join(df.columns)}.",
        ) from error


def brief(error: PySparkException) -> str:
    """The first sentence of Spark's message, without the plan and positions in it."""
    return re.split(r";|\n|\bSQLSTATE\b", str(error).strip(), maxsplit=1)[0].strip()
