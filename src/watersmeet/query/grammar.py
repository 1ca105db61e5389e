"""Spark SQL with windows in brackets behind the streams, read by sqlglot.

::

    [RANGE 12 HOURS]   [RANGE 12 HOURS SLIDE 5 MINUTES]   [ROWS 1000]   [PARTITION BY k ROWS 5]
    [UNBOUNDED]        [NOW]                              [AUTO]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from watersmeet.errors import QueryError, WindowError
from watersmeet.model import durations
from watersmeet.model.windows import RowsWindow, TimeWindow, Unbounded, Window
from watersmeet.query.parsed_query import Auto
from watersmeet.query.source_spans import Place, error
from watersmeet.query.spark_sql import SparkSQL, SparkSQLParser

_WINDOWS = "RANGE 12 HOURS, RANGE 12 HOURS SLIDE 5 MINUTES, ROWS 1000, PARTITION BY k ROWS 5, UNBOUNDED, NOW or AUTO"
_PLAIN: dict[str, Window | Auto] = {"UNBOUNDED": Unbounded(), "NOW": TimeWindow(0), "AUTO": Auto()}
#: Key of a table's `meta` that holds its Bracket.
WINDOW = "window"


@dataclass(frozen=True)
class Bracket:
    """The contents of brackets: the window, the columns of PARTITION BY, and SLIDE in microseconds."""

    window: Window | Auto
    place: Place
    partition: tuple[exp.Expr, ...] = ()
    slide: int | None = None


class CQLParser(SparkSQLParser):
    """Spark's parser, in which brackets behind a stream hold its window; with Spark's ASOF JOIN."""

    ID_VAR_TOKENS = SparkSQLParser.ID_VAR_TOKENS | {TokenType.MATCH_CONDITION}

    def _parse_join_parts(self) -> tuple[Token | None, Token | None, Token | None]:
        method, side, kind = super()._parse_join_parts()
        if method is None and self._match(TokenType.ASOF):  # LEFT OUTER ASOF JOIN
            method = self._prev
        return method, side, kind

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if not isinstance(this, exp.Table) or not self._match(TokenType.L_BRACKET):
            return super()._parse_bracket(this)
        first = self._curr
        window, partition, slide = self._parse_stream_window()
        if not self._match(TokenType.R_BRACKET):
            self.raise_error("Expecting ]")
        this.meta[WINDOW] = Bracket(window, (first.start, self._tokens[self._index - 2].end), partition, slide)
        return this

    def _parse_stream_window(self) -> tuple[Window | Auto, tuple[exp.Expr, ...], int | None]:
        if self._match_text_seq("RANGE"):
            if self._match_text_seq("UNBOUNDED"):
                return Unbounded(), (), None
            window = TimeWindow(self._parse_duration("RANGE"))
            return window, (), self._parse_duration("SLIDE") if self._match_text_seq("SLIDE") else None
        if self._match_text_seq("ROWS"):
            return RowsWindow(self._parse_rows()), (), None
        if self._match(TokenType.PARTITION_BY):
            partition = tuple(self._parse_csv(self._parse_column))
            if not self._match_text_seq("ROWS"):
                self.raise_error("Expecting ROWS")
            return RowsWindow(self._parse_rows(), per_key=True), partition, None
        for keyword, plain in _PLAIN.items():
            if self._match_text_seq(keyword):
                return plain, (), None
        self.raise_error("no window begins with this keyword")
        raise AssertionError("raise_error returned")

    def _parse_rows(self) -> int:
        token = self._curr
        if not self._match(TokenType.NUMBER) or not token.text.isdigit() or not int(token.text):
            self.raise_error("ROWS is followed by how many, a whole number from 1 on", token or None)
        return int(token.text)

    def _parse_duration(self, keyword: str) -> int:
        first = self._curr
        while self._curr and self._curr.token_type != TokenType.R_BRACKET and self._curr.text.upper() != "SLIDE":
            self._advance()
        text = self.sql[first.start : self._prev.end + 1] if first and self._curr is not first else ""
        try:
            length: int = durations.parse(text, keyword)
        except WindowError:
            length = -1
        if length < (1 if keyword == "SLIDE" else 0):
            self.raise_error(f"{keyword} is followed by a duration of fixed length, like 5 MINUTES", first or None)
        return length


class CQL(SparkSQL):
    """The dialect of `wm.sql`."""

    class Tokenizer(SparkSQL.Tokenizer):
        KEYWORDS: ClassVar = SparkSQL.Tokenizer.KEYWORDS | {"MATCH_CONDITION": TokenType.MATCH_CONDITION}

    Parser = CQLParser


def parse(text: str) -> exp.Expr:
    """sqlglot's tree of one statement; each window is in the `meta` of its table."""
    parser = CQLParser(dialect=CQL())
    try:
        trees = parser.parse(CQL().tokenize(text), text)
    except TokenError as wrong:
        raise QueryError(
            "`query` has a quote or a comment that does not end.", hint="close it: '…', `…` or /* … */."
        ) from wrong
    except ParseError as wrong:
        raise _refusal(text, parser, wrong) from wrong
    found = [tree for tree in trees if tree is not None]
    if len(found) != 1:
        raise QueryError(
            f"`query` holds {len(found)} statements; it is one SELECT.", hint="call wm.sql once for each of them."
        )
    return found[0]


def _refusal(text: str, parser: CQLParser, wrong: ParseError) -> QueryError:
    description = wrong.errors[0]["description"]
    token = parser.wrong
    end = len(text.rstrip())
    place = (end, end) if token is None else (token.start, token.end)
    here = "the query ends" if token is None else f"`{text[token.start : token.end + 1]}` stands"
    if description.startswith("Expecting "):
        missing = description.removeprefix("Expecting ")
        return error(text, place, f"`{missing}` is missing where {here}.", f"put `{missing}` before it.")
    if description.startswith("no window"):
        return error(text, place, f"{here} where a window should.", f"in brackets goes {_WINDOWS}.", WindowError)
    if " is followed by " in description:
        return error(text, place, f"{description}; here {here}.", f"in brackets goes {_WINDOWS}.", WindowError)
    if token is not None and token.token_type == TokenType.L_BRACKET:
        return error(text, place, f"{here} where no window can.", "a window follows its stream: auction [NOW] AS a.")
    return error(
        text, place, f"{here} where the SQL before it does not allow it.", "see docs/cql.md for what a query is."
    )
