"""Whose column a name means: every column of a query gets the name of its stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from sqlglot import exp

from watersmeet.errors import ColumnError
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

    def column(self, node: exp.Column) -> Column:
        """The column that a name means."""
        if node.args.get("db") or not isinstance(node.this, exp.Identifier):
            raise error(self.text, place_of(node), "this is no column of a stream.", "write stream.column, or column.")
        if node.table:
            one = self.input(node.args["table"])
            found = self._in(one, node.name)
            if found is None:
                said = f"stream `{one.name}` has no column `{node.name}`."
                raise error(
                    self.text, place_of(node.this), said, near(node.name, one.columns, "it has"), kind=ColumnError
                )
            return Column(one.name, found)
        owners = [Column(one.name, name) for one in self.inputs if (name := self._in(one, node.name)) is not None]
        if not owners:
            every = list(dict.fromkeys(name for one in self.inputs for name in one.columns))
            said = f"no stream of the query has a column `{node.name}`."
            raise error(self.text, place_of(node), said, near(node.name, every, "they have"), kind=ColumnError)
        if len(owners) > 1:
            streams = " and ".join(f"`{c.stream}`" for c in owners)
            raise error(
                self.text,
                place_of(node),
                f"column `{node.name}` stands in {streams}.",
                f"say which: {owners[0].stream}.{owners[0].name}.",
                kind=ColumnError,
            )
        return owners[0]

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
            return qualified(self.column(node), node)

        return expression.transform(one)

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
