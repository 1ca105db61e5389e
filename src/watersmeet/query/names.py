"""Whose column a name means: every column of a query gets the name of its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from sqlglot import exp

from watersmeet.errors import ColumnError, QueryError
from watersmeet.query.pointing import error, place_of
from watersmeet.query.queries import Column, Input


class Names:
    """The inputs of a query by name, and the columns they have."""

    def __init__(self, text: str, inputs: Sequence[Input], *, case_sensitive: bool) -> None:
        self.text = text
        self.inputs = inputs
        self.case_sensitive = case_sensitive

    def same(self, a: str, b: str) -> bool:
        return a == b or (not self.case_sensitive and a.lower() == b.lower())

    def input(self, name: exp.Identifier) -> Input:
        for one in self.inputs:
            if self.same(one.name, name.name):
                return one
        known = [one.name for one in self.inputs]
        raise error(
            self.text,
            place_of(name),
            f"no stream of the query is called `{name.name}`.",
            near(name.name, known, "the query has"),
        )

    def column(self, parts: Sequence[exp.Identifier]) -> tuple[Column, Sequence[exp.Identifier]]:
        """The column that a name begins with (stream.column, or what one stream alone has), and fields within it."""
        first = parts[0]
        owners = [Column(one.name, found) for one in self.inputs if (found := self._in(one, first.name)) is not None]
        if len(parts) > 1 and (not owners or any(self.same(one.name, first.name) for one in self.inputs)):
            one = self.input(first)
            known = self._in(one, parts[1].name)
            if known is None:
                said = f"stream `{one.name}` has no column `{parts[1].name}`."
                raise self._error(parts[1], said, near(parts[1].name, one.columns, "it has"))
            return Column(one.name, known), parts[2:]
        if not owners:
            every = list(dict.fromkeys(name for one in self.inputs for name in one.columns))
            said = f"no stream of the query has a column `{first.name}`."
            raise self._error(first, said, near(first.name, every, "they have"))
        if len(owners) > 1:
            streams = " and ".join(f"`{c.stream}`" for c in owners)
            hint = f"say which: {owners[0].stream}.{owners[0].name}."
            raise self._error(first, f"column `{first.name}` stands in {streams}.", hint)
        return owners[0], parts[1:]

    def resolved(self, expression: exp.Expr, aliases: Mapping[str, exp.Expr] | None = None) -> exp.Expr:
        """The expression with each column under its stream's name; `aliases` are outputs that may be meant instead."""
        for select in expression.find_all(exp.Query):
            raise error(self.text, place_of(select), "a query within the query.", "join its result with `as_stream`.")

        def one(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                return node
            if aliases and not node.table and not any(self._in(i, node.name) for i in self.inputs):
                for name, meant in aliases.items():
                    if self.same(name, node.name):
                        return meant.copy()
            column, fields = self.column([part for part in node.parts if isinstance(part, exp.Identifier)])
            found = qualified(column, node)
            return exp.Dot.build([found, *(f.copy() for f in fields)]) if fields else found

        return expression.transform(one)

    def _error(self, node: exp.Expr, what: str, hint: str) -> QueryError:
        return error(self.text, place_of(node), what, hint, ColumnError)

    def _in(self, one: Input, name: str) -> str | None:
        return next((c for c in one.columns if c == name), None) or next(
            (c for c in one.columns if self.same(c, name)), None
        )


def qualified(column: Column, like: exp.Expr | None = None) -> exp.Column:
    """A column of the tree, standing where `like` does."""
    out = exp.column(exp.to_identifier(column.name, quoted=True), table=exp.to_identifier(column.stream, quoted=True))
    if like is not None:
        out.meta.update(dict(zip(("start", "end"), place_of(like), strict=True)))
    return out


def near(word: str, known: Sequence[str], have: str) -> str:
    close = get_close_matches(word, known, 1)
    return f"did you mean `{close[0]}`?" if close else f"{have} {', '.join(known)}."


def one_of_each(text: str, inputs: Sequence[Input], places: Sequence[tuple[int, int]], names: Names) -> None:
    """Refuse two inputs of one name."""
    for n, one in enumerate(inputs):
        if any(names.same(one.name, other.name) for other in inputs[:n]):
            raise error(text, places[n], f"two streams are called `{one.name}`.", "give one a name: stream AS other.")
