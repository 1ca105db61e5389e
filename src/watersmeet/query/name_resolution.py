"""Resolution of column names: every column of a query gets the name of its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlglot import exp

from watersmeet.errors import ColumnError, QueryError, suggestion
from watersmeet.query.parsed_query import Column, Input
from watersmeet.query.source_spans import error, place_of, placed


class Names:
    """The inputs of a query by name, and the columns they have."""

    def __init__(self, text: str, inputs: Sequence[Input], *, case_sensitive: bool) -> None:
        self.text = text
        self.inputs = inputs
        self.case_sensitive = case_sensitive
        self.merged: dict[str, exp.Expr] = {}  # columns of USING, by name

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
            suggestion(name.name, known, "the query has"),
        )

    def column(self, parts: Sequence[exp.Identifier]) -> tuple[Column, Sequence[exp.Identifier]]:
        """The column that a dotted name begins with (stream.column, or an unambiguous column), and the fields in it."""
        first = parts[0]
        owners = [Column(one.name, found) for one in self.inputs if (found := self._in(one, first.name)) is not None]
        if len(parts) > 1 and (not owners or any(self.same(one.name, first.name) for one in self.inputs)):
            one = self.input(first)
            known = self._in(one, parts[1].name)
            if known is None:
                message = f"stream `{one.name}` has no column `{parts[1].name}`."
                raise self._error(parts[1], message, suggestion(parts[1].name, one.columns, "it has"))
            return Column(one.name, known), parts[2:]
        if not owners:
            every = list(dict.fromkeys(name for one in self.inputs for name in one.columns))
            message = f"no stream of the query has a column `{first.name}`."
            raise self._error(first, message, suggestion(first.name, every, "they have"))
        if len(owners) > 1:
            streams = " and ".join(f"`{c.stream}`" for c in owners)
            hint = f"name the stream: {owners[0].stream}.{owners[0].name}."
            raise self._error(first, f"column `{first.name}` stands in {streams}.", hint)
        return owners[0], parts[1:]

    def resolved(self, expression: exp.Expr, aliases: Mapping[str, exp.Expr] | None = None) -> exp.Expr:
        """The expression with each column qualified by its stream; a name no stream has is looked up in `aliases`."""
        for select in expression.find_all(exp.Query):
            raise error(self.text, place_of(select), "a query within the query.", "join its result with `as_stream`.")

        def one(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
                return node
            for name, meant in self.merged.items() if len(node.parts) == 1 else ():
                if self.same(name, node.name):
                    return placed(meant.copy(), node)
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
    """The column as an expression, with the position of `like` in the text."""
    out = exp.column(exp.to_identifier(column.name, quoted=True), table=exp.to_identifier(column.stream, quoted=True))
    return out if like is None else placed(out, like)


def one_of_each(text: str, inputs: Sequence[Input], positions: Sequence[tuple[int, int]], names: Names) -> None:
    """Refuse two inputs with the same name."""
    for n, one in enumerate(inputs):
        if any(names.same(one.name, other.name) for other in inputs[:n]):
            raise error(
                text, positions[n], f"two streams are called `{one.name}`.", "give one a name: stream AS other."
            )
