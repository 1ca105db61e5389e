"""From the text of a predicate to its expression: the part of Spark SQL that a join evaluates by itself.

::

    or        and (OR and)*
    and       not (AND not)*
    not       NOT not | test
    test      sum (compare sum)? (IS NOT? NULL | NOT? BETWEEN sum AND sum | NOT? IN (sum, …))?
    sum       product ((+ | -) product)*
    product   unary ((* | / | %) unary)*
    unary     - unary | column | number | 'text' | TRUE | FALSE | NULL | ( or )
"""

from __future__ import annotations

import re
from decimal import Decimal
from difflib import get_close_matches

import pyarrow as pa

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

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?(?!\w))
  | (?P<text>'[^'\\]*'(?!'))
  | (?P<quoted>`(?:[^`]|``)+`)
  | (?P<word>[A-Za-z_]\w*)
  | (?P<sign><=>|<=|>=|<>|!=|==|--|[-=<>+*/%(),])
)""",
    re.VERBOSE,
)
_COMPARE = {"=": "=", "==": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_RESERVED = {"AND", "OR", "NOT", "IS", "NULL", "TRUE", "FALSE", "BETWEEN", "IN"}


def parse(text: str, schema: pa.Schema, *, case_sensitive: bool = False) -> Predicate:
    """The predicate over columns of `schema`; refuses what is more than comparisons and arithmetic."""
    return _Parser(text, schema, case_sensitive).predicate()


class _Parser:
    def __init__(self, text: str, schema: pa.Schema, case_sensitive: bool) -> None:
        self.text = text
        self.schema = schema
        self.case_sensitive = case_sensitive
        self.tokens = self._tokens()
        self.at = 0
        self.columns: list[str] = []

    def predicate(self) -> Predicate:
        root = truth(self._or())
        if self.at < len(self.tokens):
            raise self._refusal(f"`{self.tokens[self.at][1]}`")
        return Predicate(" ".join(token for _, token in self.tokens), root, tuple(dict.fromkeys(self.columns)))

    def _tokens(self) -> list[tuple[str, str]]:
        found, at = [], 0
        while self.text[at:].strip():
            match = _TOKEN.match(self.text, at)
            if match is None or match.lastgroup is None or match[match.lastgroup] in ("--", "<=>"):
                raise self._refusal(f"`{self.text[at:].strip()}`")
            found.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        return found

    def _next(self, *words: str) -> str | None:
        """The next token if it is one of these words or signs."""
        if self.at < len(self.tokens):
            kind, token = self.tokens[self.at]
            if kind in ("word", "sign") and token.upper() in words:
                self.at += 1
                return token.upper()
        return None

    def _need(self, word: str) -> None:
        if self._next(word) is None:
            raise self._refusal(f"no {word} where one should be")

    # ------------------------------------------------------------ the grammar

    def _or(self) -> Node:
        node = self._and()
        while self._next("OR"):
            node = Both(truth(node), truth(self._and()), decided=True)
        return node

    def _and(self) -> Node:
        node = self._not()
        while self._next("AND"):
            node = Both(truth(node), truth(self._not()), decided=False)
        return node

    def _not(self) -> Node:
        return Not(truth(self._not())) if self._next("NOT") else self._test()

    def _test(self) -> Node:
        node = self._sum()
        sign = self._next(*_COMPARE)
        if sign:
            node = comparison(_COMPARE[sign], node, self._sum())
        if self._next("IS"):
            negated = self._next("NOT")
            self._need("NULL")
            return Not(IsNull(node)) if negated else IsNull(node)
        negated = self._next("NOT")
        if self._next("BETWEEN"):
            low = comparison(">=", node, self._sum())
            self._need("AND")
            node = Both(low, comparison("<=", node, self._sum()), decided=False)
        elif self._next("IN"):
            node = self._one_of(node)
        elif negated:
            raise self._refusal("NOT where no BETWEEN or IN follows")
        return Not(node) if negated else node

    def _one_of(self, node: Node) -> Node:
        self._need("(")
        others = [self._sum()]
        while self._next(","):
            others.append(self._sum())
        self._need(")")
        return one_of(node, others)

    def _sum(self) -> Node:
        node = self._product()
        while sign := self._next("+", "-"):
            node = arithmetic(sign, node, self._product())
        return node

    def _product(self) -> Node:
        node = self._unary()
        while sign := self._next("*", "/", "%"):
            node = arithmetic(sign, node, self._unary())
        return node

    def _unary(self) -> Node:
        if self._next("-"):
            if self.at < len(self.tokens) and self.tokens[self.at][0] == "number":
                self.at += 1
                return _number("-" + self.tokens[self.at - 1][1])
            return negative(self._unary())
        if self._next("("):
            node = self._or()
            self._need(")")
            return node
        if self.at == len(self.tokens):
            raise self._refusal("an end where a value should be")
        kind, token = self.tokens[self.at]
        self.at += 1
        match kind:
            case "number":
                return _number(token)
            case "text":
                return Literal(token[1:-1], pa.string())
            case "quoted":
                return self._column(token[1:-1].replace("``", "`"))
            case "word" if token.upper() in ("TRUE", "FALSE"):
                return Literal(token.upper() == "TRUE", pa.bool_())
            case "word" if token.upper() == "NULL":
                return Literal(None, pa.null())
            case "word" if token.upper() not in _RESERVED:
                if self._next("("):
                    raise self._refusal(f"a call of {token}")
                return self._column(token)
        raise self._refusal(f"`{token}`")

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
