"""Parser of predicates: the subset of Spark SQL that a join evaluates itself.

sqlglot parses the text. Keywords that have no meaning in a predicate (`date`, `first`) are column names here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from itertools import zip_longest
from math import isinf

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import ColumnError, QueryError, suggestion
from watersmeet.model.durations import MICROS
from watersmeet.model.predicates import (
    DURATION,
    Both,
    Column,
    IsNull,
    Literal,
    Node,
    Not,
    Predicate,
    absolute,
    arithmetic,
    comparison,
    negative,
    one_of,
    truth,
)
from watersmeet.query import time_bounds
from watersmeet.query.nesting_depth import nested
from watersmeet.query.spark_sql import SparkSQL, SparkSQLParser

_COMPARE: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_COMPUTE: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_SYMBOLS = {"=", "==", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "(", ")", ",", "."}
_RESERVED = {"AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "IN"}
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
_UNITS = {name.upper() for unit in MICROS for name in (unit, f"{unit}s")}
#: Expressions that need parentheses as an operand of a comparison or of arithmetic.
_CONDITIONS = (*_COMPARE, exp.Not, exp.Is, exp.In, exp.Between)


#: Columns of each stream, by the name of the stream.
Owners = Mapping[str, Sequence[str]]


@nested("where")
def parse(text: str, schema: pa.Schema, *, case_sensitive: bool = False, owners: Owners | None = None) -> Predicate:
    """The predicate over columns of `schema`; refuses anything beyond comparisons and arithmetic.

    With `owners` a column may be named with its stream: ``a.x``.
    """
    reader = _Reader(text, schema, case_sensitive, owners)
    tokens = reader.tokens()
    return reader.predicate(reader.tree(tokens), " ".join(map(reader.source, tokens)))


@nested("where")
def from_tree(tree: exp.Expr, schema: pa.Schema, *, case_sensitive: bool = False) -> Predicate:
    """The predicate of an expression that is already parsed."""
    reader = _Reader(tree.sql(SparkSQL, comments=False), schema, case_sensitive)
    for literal in tree.find_all(exp.Literal):
        if literal.is_string and "\\" in literal.sql(SparkSQL):  # as in a text: escapes are left to Spark
            raise reader.refusal(f"`{literal.sql(SparkSQL)}`")
    return reader.predicate(tree, reader.text)


class _Reader:
    def __init__(self, text: str, schema: pa.Schema, case_sensitive: bool, owners: Owners | None = None) -> None:
        self.text = text
        self.schema = schema
        self.case_sensitive = case_sensitive
        self.owners = owners or {}
        self.columns: list[str] = []

    def predicate(self, tree: exp.Expr, text: str) -> Predicate:
        root = truth(self._node(tree))
        return Predicate(text, root, tuple(dict.fromkeys(self.columns)))

    # ------------------------------------------------------------ tokens and sqlglot's tree

    def source(self, token: Token) -> str:
        return self.text[token.start : token.end + 1]

    def tokens(self) -> list[Token]:
        """The tokens; refuses the text from the first one that is not allowed in a predicate."""
        try:
            tokens = SparkSQL().tokenize(self.text)
        except TokenError as error:
            raise self.refusal("a quote or a comment that does not end") from error
        end, before = 0, None
        in_interval = False
        for token, after in zip_longest(tokens, tokens[1:]):
            if self.text[end : token.start].strip():
                break  # a comment
            end = token.start
            source = self.source(token)
            match token.token_type:
                case TokenType.STRING if before is not None and before.token_type == TokenType.STRING:
                    end = before.start  # '' within a text, or two texts: not one text everywhere
                    break
                case TokenType.STRING if not source.startswith("'") or "\\" in source:
                    break
                case TokenType.NUMBER if source != token.text or source[-1] in "eE":
                    break
                case TokenType.STRING | TokenType.NUMBER | TokenType.IDENTIFIER:
                    pass
                case _ if source.isidentifier():
                    # INTERVAL before a length is a literal, elsewhere a name
                    in_interval = _begins_interval(source, after) or (in_interval and source.upper() in _UNITS)
                    if source.upper() not in _RESERVED and not in_interval:
                        token.token_type = TokenType.IDENTIFIER
                case TokenType.L_PAREN if before is not None and self.source(before).upper() == "ABS":
                    before.token_type = TokenType.VAR
                case TokenType.L_PAREN if before is not None and before.token_type == TokenType.IDENTIFIER:
                    raise self.refusal(f"a call of {before.text}")
                case _ if source not in _SYMBOLS:
                    break
            end, before = token.end + 1, token
        if self.text[end:].strip():
            raise self.refusal(f"`{self.text[end:].strip()}`")
        return tokens

    def tree(self, tokens: list[Token]) -> exp.Expr:
        parser = SparkSQLParser(dialect=SparkSQL())
        try:
            tree = parser.parse_into(exp.Condition, tokens, self.text)[0] if tokens else None
        except ParseError as error:
            raise self.refusal(_reason(error, parser.wrong)) from error
        if tree is None:
            raise self.refusal("an end where a value should be")
        return tree

    # ------------------------------------------------------------ from sqlglot's tree to a predicate

    def _node(self, tree: exp.Expr) -> Node:
        match tree:
            case exp.Paren():
                return self._node(tree.this)
            case exp.And() | exp.Or():
                left, right = (truth(self._node(side)) for side in (tree.this, tree.expression))
                return Both(left, right, decided=isinstance(tree, exp.Or))
            case exp.Not():
                return Not(truth(self._node(tree.this)))
            case exp.Is() if isinstance(tree.expression, exp.Null):
                return IsNull(self._node(tree.this))
            case exp.Is():
                raise self.refusal("no NULL where one should be")
            case exp.Between():
                node = self._node(tree.this)
                low, high = (comparison(s, node, self._value(tree.args[a])) for s, a in ((">=", "low"), ("<=", "high")))
                return Both(low, high, decided=False)
            case exp.In():
                if not tree.expressions:
                    raise self.refusal("no values in parentheses behind IN")
                return one_of(self._node(tree.this), [self._value(other) for other in tree.expressions])
            case _ if type(tree) in _COMPARE:
                if type(tree.this) in _COMPARE:
                    raise self.refusal(f"`{_COMPARE[type(tree)]}`")
                return comparison(_COMPARE[type(tree)], self._value(tree.this), self._value(tree.expression))
            case _ if type(tree) in _COMPUTE:
                return arithmetic(_COMPUTE[type(tree)], self._value(tree.this), self._value(tree.expression))
        return self._single(tree)

    def _value(self, tree: exp.Expr) -> Node:
        if isinstance(tree, _CONDITIONS):
            raise self.refusal(f"`{_sql(tree)}` as a value without parentheses")
        return self._node(tree)

    def _single(self, tree: exp.Expr) -> Node:
        match tree:
            case exp.Neg() if isinstance(tree.this, exp.Literal) and not tree.this.is_string:
                return self._number("-" + tree.this.name)
            case exp.Neg():
                return negative(self._value(tree.this))
            case exp.Literal() if tree.is_string:
                return Literal(tree.name, pa.string())
            case exp.Literal():
                return self._number(tree.name)
            case exp.Interval():
                micros = time_bounds.literal(tree)
                if micros is None:
                    raise self.refusal(f"`{_sql(tree)}`, which has no fixed length in days to microseconds")
                if abs(micros) >= 1 << 63:
                    raise self.refusal(f"`{_sql(tree)}`, which is longer than Spark's longest interval")
                return Literal(micros, DURATION)
            case exp.Boolean():
                return Literal(tree.this, pa.bool_())
            case exp.Null():
                return Literal(None, pa.null())
            case exp.Abs():
                return absolute(self._value(tree.this))
            case exp.Column() if len(tree.parts) == 1 and isinstance(tree.this, exp.Identifier):
                return self._column(tree.name)
            case exp.Column() if len(tree.parts) == 2 and self.owners and isinstance(tree.this, exp.Identifier):
                return self._column_of(tree.table, tree.name)
        raise self.refusal(f"`{_sql(tree)}`")

    def _number(self, text: str) -> Node:
        if not _NUMBER.fullmatch(text) or isinf(float(text)):  # sqlglot accepts `. 0.5`; a double must be finite
            raise self.refusal(f"`{text}`, which is no number")
        return _number(text)

    def _column(self, name: str) -> Node:
        names = self.schema.names
        if name not in names and not self.case_sensitive:
            name = next((n for n in names if n.lower() == name.lower()), name)
        if name not in names:
            raise ColumnError(
                f"`where` names column `{name}`, which no stream of the join has.",
                hint=suggestion(name, names, "they have"),
            )
        self.columns.append(name)
        return Column(name, self.schema.field(name).type)

    def _column_of(self, stream: str, name: str) -> Node:
        """A column that is named with its stream."""
        if stream not in self.owners:
            raise ColumnError(
                f"`where` names stream `{stream}`, which the join does not have.",
                hint=suggestion(stream, list(self.owners), "its streams are"),
            )
        mine = self.owners[stream]
        found = name if name in mine or self.case_sensitive else None
        found = found or next((n for n in mine if n.lower() == name.lower()), name)
        if found not in mine:
            raise ColumnError(
                f"`where` names column `{stream}.{name}`, which stream `{stream}` does not have.",
                hint=suggestion(name, list(mine), "it has"),
            )
        return self._column(found)

    def refusal(self, what: str) -> QueryError:
        return QueryError(
            f"`where` ({self.text.strip()}) has {what}; a join evaluates comparisons (= <> < <= > >=, BETWEEN, IN, "
            "IS NULL) and arithmetic (+ - * / % and abs) of columns, numbers, INTERVALs and 'texts', with AND, OR and "
            "NOT.",
            hint="compute the rest as columns of the streams before the join; after an inner join any condition goes.",
        )


def _begins_interval(source: str, after: Token | None) -> bool:
    """Whether this is INTERVAL in front of a length."""
    lengths = (TokenType.NUMBER, TokenType.STRING, TokenType.DASH)
    return source.upper() == "INTERVAL" and after is not None and after.token_type in lengths


def _reason(error: ParseError, wrong: Token | None) -> str:
    """The reason of a syntax error, from sqlglot's message and the token."""
    if "Expecting )" in error.errors[0]["description"]:
        return "no ) where one should be"
    if wrong is None:
        return "an end where a value should be"
    return "NOT where no BETWEEN or IN follows" if wrong.text.upper() == "NOT" else f"`{wrong.text}`"


def _sql(tree: exp.Expr) -> str:
    return tree.sql(SparkSQL).replace("`", "")


def _number(text: str) -> Node:
    """As in Spark: digits are an INT or BIGINT (a decimal, if too many), with a point a decimal, with an e a double."""
    if "e" in text.lower():
        return Literal(float(text), pa.float64())
    value = Decimal(text)
    if "." not in text and -(1 << 63) <= int(value) < 1 << 63:
        return Literal(int(value), pa.int32() if -(1 << 31) <= int(value) < 1 << 31 else pa.int64())
    scale = max(0, -int(value.as_tuple().exponent))
    digits = max(len(value.as_tuple().digits), scale, 1)
    if digits > 38:
        raise QueryError(f"`where` has the number {text}; a decimal has 38 digits at most.", hint="write it as 1e40.")
    return Literal(value, pa.decimal128(digits, scale))
