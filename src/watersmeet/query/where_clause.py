"""Conditions of a query: equal columns, and filters of a stream, of a combination of tuples, or of a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from sqlglot import exp

from watersmeet.query.name_resolution import Names, qualified
from watersmeet.query.parsed_query import Column, Input, aggregates_in, streams_in
from watersmeet.query.source_spans import error, place_of, place_of_name

#: Inputs of an outer join whose conditions may be evaluated before it: those in ON, those in WHERE.
_BELOW: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "left": ((1,), (0,)),
    "right": ((0,), (1,)),
    "full": ((), ()),
    "semi": ((0, 1), (0,)),
    "anti": ((1,), (0,)),
}

Conditions = tuple[exp.Expr, ...]


def conditions(
    select: exp.Select, how: str, inputs: Sequence[Input], names: Names
) -> tuple[tuple[tuple[Column, ...], ...], frozenset[Column], list[Input], Conditions, Conditions]:
    """Equal columns, and those of them of which NULLs are equal; inputs with their own filters; conditions on
    combinations of tuples, and conditions on results.

    In an inner join ON and WHERE mean the same. In an outer join ON decides which pairs match, and WHERE filters the
    results, rows without a partner included.
    """
    where, joins = select.args.get("where"), select.args["joins"]
    given = [j.args.get(clause) for j in joins for clause in ("match_condition", "on")]
    on = [*_using(joins, inputs, how, names), *(c for one in given for c in _conjuncts(one, names))]
    late = list(_conjuncts(where.this if where else None, names))
    if how == "inner":
        on, late = on + late, []
    equal, plain, left = _classes(on)
    null_safe = frozenset(column for group in equal if not plain & set(group) for column in group)
    ties = [[Column(stream, "") for stream in streams_in(c)] for c in left if len(streams_in(c)) > 1]
    _refuse_untied(equal or ties, inputs, names)  # without equal columns a join without equality
    out = list(inputs)
    everywhere = tuple(range(len(out)))
    pushable = _BELOW.get(how, (everywhere, everywhere))
    across, after = (_push_down(c, out, below) for c, below in zip((left, late), pushable, strict=True))
    return tuple(equal), null_safe, out, across, after


def _push_down(conditions: Sequence[exp.Expr], inputs: list[Input], below: Sequence[int]) -> Conditions:
    """Adds conditions on a single input that may be evaluated below the join to its filters; returns the others."""
    rest = []
    for condition in conditions:
        streams = streams_in(condition)
        owner = next((n for n in below if {inputs[n].name} == streams and not inputs[n].whole), None)
        if owner is None:
            rest.append(condition)
        else:
            inputs[owner] = replace(inputs[owner], filters=(*inputs[owner].filters, condition))
    return tuple(rest)


def _refuse_untied(equal: Sequence[Sequence[Column]], inputs: Sequence[Input], names: Names) -> None:
    tied = {column.stream for group in equal for column in group}
    for one in reversed(inputs):
        if one.name not in tied:
            message = f"no equality ties `{one.name}` to the other streams; all pairs would be results."
            other = next(i for i in inputs if i is not one)
            raise error(names.text, one.place, message, f"WHERE {one.name}.… = {other.name}.…, columns as they are.")


def _conjuncts(condition: exp.Expr | None, names: Names) -> Iterator[exp.Expr]:
    if condition is None:
        return
    resolved = names.resolved(condition).unnest()
    refuse_ranking(resolved, names)
    for aggregate in aggregates_in(resolved):
        raise error(names.text, place_of_name(aggregate), "an aggregate in WHERE or ON.", "put it in HAVING.")
    yield from (c.unnest() for c in resolved.flatten()) if isinstance(resolved, exp.And) else (resolved,)


def refuse_ranking(expression: exp.Expr, names: Names) -> None:
    for window in expression.find_all(exp.Window):
        message = "OVER ranks rows of a finished result."
        raise error(names.text, place_of(window), message, "use a window in brackets behind the stream.")


def _using(joins: Sequence[exp.Join], inputs: Sequence[Input], how: str, names: Names) -> list[exp.Expr]:
    """The equalities of USING. Adds its columns to `names.merged`, so that they need no stream's name."""
    out: list[exp.Expr] = []
    merged: dict[str, Column] = {}
    for n, (join, one) in enumerate(zip(joins, inputs[1:], strict=True)):
        before = Names(names.text, inputs[: n + 1], case_sensitive=names.case_sensitive)
        for name in join.args.get("using") or ():
            known = next((column for other, column in merged.items() if names.same(other, name.name)), None)
            left = known or before.column([exp.to_identifier(inputs[0].name), name] if n == 0 else [name])[0]
            right = names.column([exp.to_identifier(one.name), name])[0]
            merged[name.name] = left
            names.merged[name.name] = together(left, right, how)
            out.append(exp.EQ(this=qualified(left, name), expression=qualified(right, name)))
    return out


def together(left: Column, right: Column, how: str) -> exp.Expr:
    """One expression for two equal columns: not NULL in a result that has a value of either."""
    if how == "full":
        return exp.Coalesce(this=qualified(left), expressions=[qualified(right)])
    return qualified(right if how == "right" else left)


def _classes(conditions: Sequence[exp.Expr]) -> tuple[list[tuple[Column, ...]], set[Column], list[exp.Expr]]:
    """Classes of equal columns, at most one of each stream in a class; columns with an equality that is not null-safe;
    and the other conditions."""
    classes: list[list[Column]] = []
    plain: set[Column] = set()
    rest: list[exp.Expr] = []
    for condition in conditions:
        sides = (condition.this, condition.expression) if isinstance(condition, exp.EQ | exp.NullSafeEQ) else ()
        if len(sides) != 2 or not all(isinstance(s, exp.Column) for s in sides) or sides[0].table == sides[1].table:
            rest.append(condition)
            continue
        pair = [Column(s.table, s.name) for s in sides]
        touched = [c for c in classes if set(c) & set(pair)]
        merged = list(dict.fromkeys([column for c in touched for column in c] + pair))
        if len({column.stream for column in merged}) < len(merged):
            rest.append(condition)  # would make two columns of one stream equal: a condition of its own
            continue
        plain |= set(pair) if isinstance(condition, exp.EQ) else set()
        classes = [c for c in classes if c not in touched] + [merged]
    return [tuple(c) for c in classes], plain, rest
