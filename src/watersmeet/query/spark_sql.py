"""sqlglot's dialect of Spark SQL, with the precedence of comparisons corrected."""

from __future__ import annotations

from typing import Any, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

Node = TypeVar("Node", bound=exp.Expr)

#: Key of an aggregate's `meta` that holds the number of its arguments.
ARGUMENTS = "arguments"


class SparkSQLParser(SparkParser):
    """Parses ``a < b IS NULL`` as ``(a < b) IS NULL``, like Spark; sqlglot's own is ``a < (b IS NULL)``.

    The same for BETWEEN and IN after a comparison.
    `wrong` is the token of a syntax error, None at the end of the text.
    """

    wrong: Token | None = None

    def _literal(self, token: Token) -> exp.Expr:
        """X'1F'. Refuses 0x1F (a name in Spark) and N'text' (unknown to Spark); sqlglot accepts both as literals."""
        if self.sql[token.start] in "0nN":
            self.raise_error("no literal of Spark's", token)
        return self.expression(exp.HexString(this=token.text), token)

    PRIMARY_PARSERS = SparkParser.PRIMARY_PARSERS | dict.fromkeys(
        (TokenType.HEX_STRING, TokenType.NATIONAL_STRING), _literal
    )

    def validate_expression(self, expression: Node, args: list[Any] | None = None) -> Node:
        """Stores the number of arguments of an aggregate: sqlglot drops those that it does not expect."""
        if isinstance(expression, exp.AggFunc):
            expression.meta[ARGUMENTS] = len(args or ())
        return super().validate_expression(expression, args)

    def raise_error(self, message: str, token: Token | None = None) -> None:
        self.wrong = token or self._curr or None
        super().raise_error(message, token or self._curr or self._prev)

    def _parse_equality(self, parse_is: bool = True) -> exp.Expr | None:
        compare = {**self.EQUALITY, **self.COMPARISON}
        this = self._parse_bitwise()
        while this and self._match_set(compare):
            kind = compare[self._prev.token_type]
            this = self.expression(kind(this=this, expression=self._parse_bitwise()))
        return self._parse_range(this, parse_is=True) if this else None


class SparkSQL(Spark):
    """The dialect of predicates and queries.

    As in Spark from 4.0 on, a doubled quote is a quote, and TIME is a type.
    """

    class Tokenizer(Spark.Tokenizer):
        STRING_ESCAPES = ["'", "\\", '"']  # noqa: RUF012 (sqlglot reads lists)

    class Generator(SparkGenerator):
        TYPE_MAPPING = SparkGenerator.TYPE_MAPPING | {exp.DType.TIME: "TIME"}

    Parser = SparkSQLParser
