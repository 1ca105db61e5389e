"""Errors that point at the word they are about."""

from __future__ import annotations

from sqlglot import exp

from watersmeet.errors import QueryError

#: First and last place of a word in the text.
Place = tuple[int, int]


def error(
    text: str, place: Place, what: str, hint: str | None = None, kind: type[QueryError] = QueryError
) -> QueryError:
    """An error with the line of the query below it, and the word underlined."""
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
    """Where an expression begins: its first word that sqlglot knows the place of."""
    found = [n.meta for n in node.walk() if "start" in n.meta]
    if not found:
        return (0, 0)
    first = min(found, key=lambda meta: meta["start"])
    return first["start"], first["end"]


def place_of_word(node: exp.Expr) -> Place:
    """Where the word of a function stands."""
    return (node.meta["start"], node.meta["end"]) if "start" in node.meta else place_of(node)
