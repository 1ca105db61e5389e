"""Positions of expressions in the text of a query, and errors that underline them."""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp

from watersmeet.errors import QueryError

#: Index of the first and of the last character in the text.
Place = tuple[int, int]
Node = TypeVar("Node", bound=exp.Expr)


def error(
    text: str, place: Place, what: str, hint: str | None = None, kind: type[QueryError] = QueryError
) -> QueryError:
    """An error that shows the line of the query with the characters of `place` underlined."""
    start, end = place
    before = text[:start]
    line = before.count("\n") + 1
    column = start - (before.rfind("\n") + 1)
    shown = text.splitlines()[line - 1] if text.strip() else ""
    width = max(1, min(end, start + len(shown) - column - 1) - start + 1)
    return kind(
        f"`query`, line {line}, column {column + 1}: {what}\n  {shown}\n  {' ' * column}{'^' * width}", hint=hint
    )


def place_of(node: exp.Expr) -> Place:
    """Position of the first token of an expression whose position sqlglot knows."""
    found = [n.meta for n in node.walk() if "start" in n.meta]
    if not found:
        return (0, 0)
    first = min(found, key=lambda meta: meta["start"])
    return first["start"], first["end"]


def place_of_name(node: exp.Expr) -> Place:
    """Position of the name of a function."""
    return (node.meta["start"], node.meta["end"]) if "start" in node.meta else place_of(node)


def span_of(node: exp.Expr) -> Place:
    """From the first to the last token of an expression whose position sqlglot knows."""
    return place_of(node)[0], max((n.meta["end"] for n in node.walk() if "end" in n.meta), default=0)


def source_of(text: str, node: exp.Expr) -> Place:
    """Position of a whole expression, with the parentheses that close it."""
    start, end = span_of(node)
    while text.count("(", start, end + 1) > text.count(")", start, end + 1) and ")" in text[end + 1 :]:
        end = text.index(")", end + 1)
    return start, end


def placed(node: Node, like: exp.Expr) -> Node:
    """The node, with the position of `like`."""
    node.meta.update(dict(zip(("start", "end"), span_of(like), strict=True)))
    return node
