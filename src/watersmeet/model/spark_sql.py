"""Spark SQL as sqlglot reads it, with comparisons bound as Spark binds them."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token


class SparkSQLParser(SparkParser):
    """In Spark ``a < b IS NULL`` asks about the comparison, and so do BETWEEN and IN behind one; sqlglot takes b.

    `wrong` is the word at which it gave up, None at the end of the text.
    """

    wrong: Token | None = None

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
    """The dialect in which predicates and queries are read."""

    Parser = SparkSQLParser
