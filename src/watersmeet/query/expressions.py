"""Expressions of Spark SQL as trees, and queries on them. Other packages use these: only `query` imports sqlglot."""

from __future__ import annotations

from collections.abc import Iterator

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from watersmeet.query.spark_sql import SparkSQL

Expression = exp.Expr


def parse_expression(text: str) -> Expression | None:
    """The tree of an expression, with its alias; None if the text is not a single expression."""
    try:
        select = parse_one(f"SELECT {text}", dialect=SparkSQL)
    except (SqlglotError, RecursionError):
        return None
    return select.expressions[0] if len(select.expressions) == 1 else None


def schema_fields(text: str) -> list[list[str]] | None:
    """The tokens of each column of a schema such as "a INT, b ARRAY<INT>"; None if it cannot be read."""
    try:
        tokens = SparkSQL().tokenize(text)
    except SqlglotError:
        return None
    depth, fields = 0, [[]]  # type: int, list[list[str]]
    for token in tokens:
        if depth == 0 and token.text == ",":
            fields.append([])
            continue
        depth += sum(token.text.count(c) for c in "<(") - sum(token.text.count(c) for c in ">)")
        fields[-1].append(token.text)
    return fields


def spark_text(expression: Expression) -> str:
    """The expression in Spark SQL, for Spark or for a message."""
    return expression.sql(SparkSQL)


def conjuncts(condition: Expression) -> list[Expression]:
    """The conditions that AND connects."""
    return list(condition.flatten()) if isinstance(condition, exp.And) else [condition]


def truth(condition: Expression) -> Expression:
    """The condition AND true: Spark refuses it if the expression is not boolean."""
    return exp.And(this=exp.Paren(this=condition), expression=exp.true())


def is_column(expression: Expression) -> bool:
    """Whether the expression is a plain column."""
    return isinstance(expression, exp.Column)


def output_name(expression: Expression) -> str:
    """The alias, or the name of a plain column; empty if there is neither."""
    name: str = expression.alias or (expression.name if is_column(expression) else "")
    return name


def aliased_column(expression: Expression) -> str | None:
    """The name of the column that the expression is, with or without an alias."""
    column = expression.unalias()
    return column.name if isinstance(column, exp.Column) else None


def column_names(expression: Expression) -> Iterator[str]:
    """First parts of the names of all columns, `*` aside."""
    return (c.parts[0].name for c in expression.find_all(exp.Column) if not isinstance(c.this, exp.Star))


def has_call(expression: Expression) -> bool:
    """Whether the expression calls a function."""
    return any(not isinstance(f, exp.Connector) for f in expression.find_all(exp.Func))
