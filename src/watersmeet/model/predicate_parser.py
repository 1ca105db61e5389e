"""From the text of a predicate to its expression: the part of Spark SQL that a join evaluates by itself.

sqlglot reads it. Words that mean nothing in a predicate are names here, whatever they mean elsewhere (`date`, `first`).
"""

from __future__ import annotations

import re
from decimal import Decimal
from difflib import get_close_matches
from math import isinf

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import ColumnError, QueryError
from watersmeet.model.predicates import (
    Both,
    Column,
    IsNull,
    Literal,
    Node,
    Not,
    Predicate,
    arithmetic,
    comparison,
    negative,
    one_of,
    truth,
)
from watersmeet.model.spark_sql import SparkSQL, SparkSQLParser

_COMPARE: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_COMPUTE: dict[type[exp.Expr], str] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_SIGNS = {"=", "==", "<>", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "(", ")", ",", "."}
_RESERVED = {"AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "IN"}
_NUMBER = re.compile(r"-?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)
#: What is a value only in parentheses, as an operand of a sign.
_CONDITIONS = (*_COMPARE, exp.Not, exp.Is, exp.In, exp.Between)


def parse(text: str, schema: pa.Schema, *, case_sensitive: bool = False) -> Predicate:
    """The predicate over columns of `schema`; refuses what is more than comparisons and arithmetic."""
    return _Reader(text, schema, case_sensitive).predicate()


class _Reader:
    def __init__(self, text: str, schema: pa.Schema, case_sensitive: bool) -> None:
        self.text = text
        self.schema = schema
        self.case_sensitive = case_sensitive
        self.columns: list[str] = []

    def predicate(self) -> Predicate:
        tokens = self._tokens()
        root = truth(self._node(self._tree(tokens)))
        return Predicate(" ".join(map(self._source, tokens)), root, tuple(dict.fromkeys(self.columns)))

    # ------------------------------------------------------------ sqlglot's words and tree

    def _source(self, token: Token) -> str:
        return self.text[token.start : token.end + 1]

    def _tokens(self) -> list[Token]:
        """Words and signs; refuses, from where it begins, what no predicate has."""
        try:
            tokens = SparkSQL().tokenize(self.text)
        except TokenError as error:
            raise self._refusal("a quote or a comment that does not end") from error
        end, before = 0, None
        for token in tokens:
            if self.text[end : token.start].strip():
                break  # a comment
            end = token.start
            source = self._source(token)
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
                    if source.upper() not in _RESERVED:
                        token.token_type = TokenType.IDENTIFIER
                case TokenType.L_PAREN if before is not None and before.token_type == TokenType.IDENTIFIER:
                    raise self._refusal(f"a call of {before.text}")
                case _ if source not in _SIGNS:
                    break
            end, before = token.end + 1, token
        if self.text[end:].strip():
            raise self._refusal(f"`{self.text[end:].strip()}`")
        return tokens

    def _tree(self, tokens: list[Token]) -> exp.Expr:
        parser = SparkSQLParser(dialect=SparkSQL())
        try:
            tree = parser.parse_into(exp.Condition, tokens, self.text)[0] if tokens else None
        except ParseError as error:
            raise self._refusal(_said(error, parser.wrong)) from error
        if tree is None:
            raise self._refusal("an end where a value should be")
        return tree

    # ------------------------------------------------------------ from its tree to ours

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
                raise self._refusal("no NULL where one should be")
            case exp.Between():
                node = self._node(tree.this)
                low, high = (comparison(s, node, self._value(tree.args[a])) for s, a in ((">=", "low"), ("<=", "high")))
                return Both(low, high, decided=False)
            case exp.In():
                if not tree.expressions:
                    raise self._refusal("no values in parentheses behind IN")
                return one_of(self._node(tree.this), [self._value(other) for other in tree.expressions])
            case _ if type(tree) in _COMPARE:
                if type(tree.this) in _COMPARE:
                    raise self._refusal(f"`{_COMPARE[type(tree)]}`")
                return comparison(_COMPARE[type(tree)], self._value(tree.this), self._value(tree.expression))
            case _ if type(tree) in _COMPUTE:
                return arithmetic(_COMPUTE[type(tree)], self._value(tree.this), self._value(tree.expression))
        return self._single(tree)

    def _value(self, tree: exp.Expr) -> Node:
        if isinstance(tree, _CONDITIONS):
            raise self._refusal(f"`{_spelled(tree)}` as a value without parentheses")
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
            case exp.Boolean():
                return Literal(tree.this, pa.bool_())
            case exp.Null():
                return Literal(None, pa.null())
            case exp.Column() if len(tree.parts) == 1 and isinstance(tree.this, exp.Identifier):
                return self._column(tree.name)
        raise self._refusal(f"`{_spelled(tree)}`")

    def _number(self, text: str) -> Node:
        if not _NUMBER.fullmatch(text) or isinf(float(text)):  # sqlglot takes `. 0.5` for one, and doubles have an end
            raise self._refusal(f"`{text}`, which is no number")
        return _number(text)

    def _column(self, name: str) -> Node:
        names = self.schema.names
        if name not in names and not self.case_sensitive:
            name = next((n for n in names if n.lower() == name.lower()), name)
        if name not in names:
            near = get_close_matches(name, names, 1)
            raise ColumnError(
                f"`where` names column `{name}`, which no stream of the join has.",
                hint=f"did you mean `{near[0]}`?" if near else f"they have {', '.join(names)}.",
            )
        self.columns.append(name)
        return Column(name, self.schema.field(name).type)

    def _refusal(self, what: str) -> QueryError:
        return QueryError(
            f"`where` ({self.text.strip()}) has {what}; a join evaluates comparisons (= <> < <= > >=, BETWEEN, IN, "
            "IS NULL) and arithmetic (+ - * / %) of columns, numbers and 'texts', with AND, OR and NOT.",
            hint="compute the rest as columns of the streams before the join; after an inner join any condition goes.",
        )


def _said(error: ParseError, wrong: Token | None) -> str:
    """What is wrong, in our words, from sqlglot's."""
    if "Expecting )" in error.errors[0]["description"]:
        return "no ) where one should be"
    if wrong is None:
        return "an end where a value should be"
    return "NOT where no BETWEEN or IN follows" if wrong.text.upper() == "NOT" else f"`{wrong.text}`"


def _spelled(tree: exp.Expr) -> str:
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
